"""The tutorials, and the page of the method, are true: every block of each is run, in order, in an empty folder."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from splitpu.cli import main

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {page.stem: page for page in (*sorted((DOCS / "tutorials").glob("*.md")), DOCS / "METHOD.md")}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
NEEDS = {"cluster": "ray", "dicom": "pydicom", "images": "PIL", "processes": "ray.train", "METHOD": "matplotlib"}


def is_there(package: str) -> bool:
    """Whether it can be used: a part of Ray is there, and refuses to be imported, without what it needs."""
    if find_spec(package.partition(".")[0]) is None:
        return False
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def run_line(line: str) -> int:
    """A command as its reader would give it; those of torchrun in processes of their own."""
    words = shlex.split(line)
    if words[0] == "torchrun":
        return subprocess.run([sys.executable, "-m", "torch.distributed.run", *words[1:]], check=False).returncode
    assert words[0] == "splitpu", line
    return main(words[1:])


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page in NEEDS and not is_there(NEEDS[page]):
        pytest.skip(f"{NEEDS[page]} is not installed here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    ran, names = 0, {"__name__": page}  # which the blocks of a page share, as in a notebook
    for language, block in BLOCK.findall(PAGES[page].read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(block, f"{page}.md", "exec"), names)
        elif language == "bash":
            for line in block.splitlines():
                assert run_line(line) == 0, line
        ran += language in ("python", "bash")
    assert ran >= 2
