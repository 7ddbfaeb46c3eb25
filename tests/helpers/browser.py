"""A headless browser for tests of the page: found on this machine, or the test is skipped and says so."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@dataclass(frozen=True)
class Visit:
    """What the browser made of a page."""

    dom: str
    console: str


def find_browser() -> str:
    """Give the path of a Chromium, or skip the calling test."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} is installed")
    return found


def visit(page: Path, profile: Path, *flags: str) -> Visit:
    """Open a page, let its script run, and give its DOM and what was said on the console."""
    done = _run(page, profile, "--dump-dom", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000", *flags)
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return Visit(done.stdout, console)


def screenshot(page: Path, profile: Path, image: Path, width: int, height: int, dark: bool = False) -> None:
    """Photograph a page at a given window size, in the light or the dark scheme."""
    scheme = ("--blink-settings=preferredColorScheme=0",) if dark else ("--blink-settings=preferredColorScheme=1",)
    _run(page, profile, f"--screenshot={image}", f"--window-size={width},{height}", *scheme)


def _run(page: Path, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [find_browser(), *_FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
