"""The tutorials are true: every block of each page is run, in order, in an empty folder."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from splitpu.cli import main

PAGES = Path(__file__).parents[1] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
NEEDS = {"cluster": "ray", "dicom": "pydicom", "images": "PIL"}


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_every_block_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page in NEEDS and find_spec(NEEDS[page]) is None:
        pytest.skip(f"{NEEDS[page]} is not installed here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    ran = 0
    for language, block in BLOCK.findall((PAGES / f"{page}.md").read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(block, f"{page}.md", "exec"), {"__name__": page})
        elif language == "bash":
            for line in block.splitlines():
                assert main(shlex.split(line)[1:]) == 0, line
        ran += language in ("python", "bash")
    assert ran >= 2
