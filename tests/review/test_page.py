"""The page in a real browser, by keyboard alone: pictures, a volume and a table; undo, reload, a killed server."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from review_tools import image_run, table_run, volume_run
from webdriver import Browser, opened_browser

from splitpu.review.answers import Journal
from splitpu.runs.folder import RunFolder

PICTURES = os.environ.get("SPLITPU_TEST_SCREENSHOTS")  # a folder to keep screenshots in


class Served:
    """`splitpu review` in a process of its own, which can be killed."""

    def __init__(self, run: RunFolder, *words: str, port: int = 0) -> None:
        command = [
            sys.executable,
            "-m",
            "splitpu",
            "review",
            str(run.path),
            "--no-browser",
            "--port",
            str(port),
            *words,
        ]
        # What a shell starts in the background is deaf to Ctrl-C, and so would be what it starts.
        hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = next(word for word in line.split() if word.startswith("http"))

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=60) == 0


def shot(browser: Browser, name: str) -> None:
    if PICTURES:
        time.sleep(0.3)
        browser.screenshot(Path(PICTURES) / f"{name}.png")


def answer(browser: Browser, keys: str, journal: Journal) -> None:
    """Press one key after the other; each answer must be in the journal when the next sample shows."""
    for key in keys:
        before, name = len(journal.entries()), browser.wait(lambda: browser.text("#name"))
        browser.press(key)
        browser.wait(lambda name=name: browser.text("#name") not in ("", name))
        assert len(journal.entries()) == before + 1


@pytest.mark.parametrize(("make", "kind"), [(image_run, "images"), (volume_run, "volume"), (table_run, "table")])
def test_thirty_answers_by_keyboard(make, kind: str, tmp_path: Path) -> None:
    with opened_browser(tmp_path) as browser:
        (tmp_path / "data").mkdir()
        run = make(tmp_path / "data")
        journal = Journal(run.path)
        server = Served(run, "--as", "ann")
        browser.size(1100, 900)
        browser.go(server.address)
        answer(browser, "axaxa xaxa"[:10], journal)
        shot(browser, kind)
        assert "10 of" in browser.text("#progress")
        if kind == "volume":
            middle = browser.text("#slice-out")
            browser.press("ArrowUp")
            assert browser.text("#slice-out") != middle
        # Undo: the sample comes back and is asked about again.
        last = journal.last("ann")
        browser.press("u")
        browser.wait(lambda: "taken back" in browser.text("#said"))
        assert (
            len(journal.said()) == 9 and last is not None and browser.text("#name") in (last.name, f"row {last.index}")
        )
        answer(browser, "a", journal)
        assert "10 of" in browser.text("#progress")
        # A reload goes on where one was.
        name = browser.text("#name")
        browser.go(server.address)
        browser.wait(lambda: browser.text("#name") == name)
        answer(browser, "xx aaxxaa ", journal)
        # The server is killed in the middle: what was confirmed is there, and what could not be saved is said.
        server.kill()
        before = {row: said.by["ann"].answer for row, said in journal.said().items()}
        assert len(before) == 20
        browser.press("a")
        browser.wait(lambda: "not saved" in browser.text("#said"))
        server = Served(run, "--as", "ann")
        browser.go(server.address)
        browser.wait(lambda: "20 of" in browser.text("#progress"))
        answer(browser, "axaxaxaxax", journal)
        assert len(journal.said()) == 30
        assert {row: said.by["ann"].answer for row, said in journal.said().items() if row in before} == before
        # Names are text, never markup; nothing on the page ran or was fetched from elsewhere.
        assert browser.run("return document.title") == "Review"
        sources = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert all(one.startswith(server.address) for one in sources)
        if kind == "table":
            assert "<script>" in browser.text("#name") and "where it lies" in browser.text("#stage")
        else:
            browser.wait(lambda: browser.run("return document.querySelector('#stage img').naturalWidth") in (24, 16))
        # A phone, in the dark, and the grid.
        browser.dark()
        browser.phone()
        width = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1]
        shot(browser, f"{kind}-phone")
        browser.press("g")
        browser.wait(lambda: browser.run("return document.querySelectorAll('#grid button').length") > 1)
        shot(browser, f"{kind}-grid")
        assert kind != "table" or "age: " in browser.text("#grid")
        assert browser.run("return [...document.querySelectorAll('[data-answer]')].every((one) => one.disabled)")
        server.stop()
        assert len((run.path / "answers.csv").read_text().splitlines()) >= 31


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(tmp_path: Path) -> None:
    with opened_browser(tmp_path) as browser:
        run = image_run(tmp_path / "data")
        server = Served(run, "--order", "random")
        browser.go(server.address)
        browser.wait(lambda: browser.text("#name"))
        reached = set()
        for _ in range(20):
            browser.press("Tab")
            reached.add(browser.run("return document.activeElement.id || document.activeElement.dataset.answer"))
        assert reached >= {
            "state",
            "text",
            "grid-button",
            "window",
            "level",
            "zoom",
            "positive",
            "negative",
            "skip",
            "undo",
        }
        script = (
            "return [...document.querySelectorAll('button, input, select')].filter((one) => "
            "!(one.innerText || one.labels?.[0]?.innerText || one.ariaLabel)).map((one) => one.id)"
        )
        assert json.dumps(browser.run(script)) == "[]"
        server.stop()


def test_two_tabs_and_two_reviewers_do_not_overwrite_one_another(tmp_path: Path) -> None:
    with opened_browser(tmp_path) as browser:
        (tmp_path / "data").mkdir()
        run = table_run(tmp_path / "data")
        journal = Journal(run.path)
        ann, bob = Served(run, "--as", "ann"), Served(run, "--as", "bob")

        def opened(server: Served) -> int:
            browser.go(server.address)
            browser.wait(lambda: browser.text("#name"))
            return int(browser.run("return shown.index"))

        row = opened(ann)
        first = browser.tab()
        assert opened(ann) == row
        answer(browser, "a", journal)
        second = browser.tab(first)
        browser.press("x")  # this tab still shows the sample as open
        browser.wait(lambda: "another window changed it to positive" in browser.text("#said"))
        assert journal.said()[row].verdict == "positive" and "you said" in browser.text("#opinions")
        browser.press("x")  # now it is meant
        browser.wait(lambda: journal.said()[row].verdict == "negative")
        browser.tab(second)
        assert opened(bob) == row  # who sees nothing of what ann said
        assert "said" not in browser.text("#opinions")
        answer(browser, "a", journal)
        assert {who: one.answer for who, one in journal.said()[row].by.items()} == {
            "ann": "negative",
            "bob": "positive",
        }
        browser.run(
            "document.querySelector('#state').value = 'disagreement'; "
            "document.querySelector('#state').dispatchEvent(new Event('change'))"
        )
        browser.wait(lambda: "ann said" in browser.text("#opinions"))
        browser.run(
            "document.querySelector('#state').value = 'all'; document.querySelector('#text').value = '>67'; "
            "document.querySelector('#text').dispatchEvent(new Event('change'))"
        )
        browser.wait(lambda: browser.text("#name").endswith("67"))
        for server in (ann, bob):
            server.stop()
