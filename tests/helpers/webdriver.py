"""A real browser, driven through chromedriver by the W3C protocol over plain HTTP: no package is needed for that."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

_KEYS = {"Backspace": "\ue003", "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "Tab": "\ue004"}
_FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._at = f"{driver}/session/{session}"

    def _ask(self, path: str, sent: Any = None, method: str | None = None) -> Any:
        return _ask(f"{self._at}/{path}", sent, method)

    def go(self, address: str) -> None:
        self._ask("url", {"url": address})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        for key in keys:
            code = _KEYS.get(key, key)
            steps = [{"type": "keyDown", "value": code}, {"type": "keyUp", "value": code}]
            self._ask("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def run(self, script: str) -> Any:
        return self._ask("execute/sync", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        found = self.run(f"return (document.querySelector({json.dumps(selector)}) || {{}}).innerText || ''")
        return str(found)

    def wait(self, question: Callable[[], Any], seconds: float = 30) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := question():
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited in vain; the page says: {self.text('body')[:500]}")

    def size(self, width: int, height: int) -> None:
        self._ask("window/rect", {"width": width, "height": height})

    def tab(self, name: str | None = None) -> str:
        """Open a tab, or go back to one; gives the name of the tab that was left."""
        left = str(self._ask("window"))
        name = name or self._ask("window/new", {"type": "tab"})["handle"]
        self._ask("window", {"handle": name})
        return left

    def phone(self, width: int = 360, height: int = 740) -> None:
        """A phone's screen: windows cannot be made so narrow."""
        how = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        self._ask("goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": how})

    def dark(self, on: bool = True) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self._ask("goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("screenshot")))

    def close(self) -> None:
        _ask(self._at, method="DELETE")


def _ask(address: str, sent: Any = None, method: str | None = None) -> Any:
    body = None if sent is None else json.dumps(sent).encode()
    request = Request(address, body, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        raise AssertionError(error.read().decode()) from error


@contextmanager
def opened_browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; the test is skipped where none is installed."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: apt-get install chromium chromium-driver")
    log = folder / "driver.log"
    with log.open("w") as file:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=file, stderr=file)
        try:
            port = _port_in(log)
            options = {"args": [*_FLAGS, f"--user-data-dir={folder / 'profile'}"], "binary": shutil.which("chromium")}
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            session = _ask(f"http://127.0.0.1:{port}/session", wanted)
            browser = Browser(f"http://127.0.0.1:{port}", session["sessionId"])
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()
            driver.wait(timeout=20)


def _port_in(log: Path) -> int:
    for _ in range(400):
        words = log.read_text().split("started successfully on port ")
        if len(words) > 1 and "." in words[1]:
            port = int(words[1].split(".")[0])
            try:
                _ask(f"http://127.0.0.1:{port}/status")
                return port
            except URLError:
                pass
        time.sleep(0.1)
    raise AssertionError(f"chromedriver did not start: {log.read_text()}")
