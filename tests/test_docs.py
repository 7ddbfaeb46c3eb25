"""What the pages for users say can be done: every command parses, every setting and link exists, the examples run.

The README's example runs as printed.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from cyclopts import App

from splitpu.cli.app import app
from splitpu.cli.options import TrainingWords
from splitpu.config.parse import SECTIONS, VALUE_TYPES, apply_overrides
from splitpu.config.presets import preset
from splitpu.data.public.datasets import NAMED_SETS
from splitpu.methods.registry import find_method
from splitpu.networks.build import network_names
from splitpu.networks.encoders import is_encoder

ROOT = Path(__file__).parent.parent
GUIDES = ("docs/GUIDE.md", "docs/CLUSTER.md", "docs/FIGURES.md", "docs/FILES.md", "docs/LIMITS.md")
COMMAND_PAGES = ("README.md", "docs/index.md", *GUIDES, "CONTRIBUTING.md")
SITE = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
PAGES = tuple(dict.fromkeys((*COMMAND_PAGES, *SITE, "CHANGELOG.md")))

BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", flags=re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NOT_OURS = {"--nproc-per-node", "--head"}  # of torchrun and of ray start


class Command(NamedTuple):
    """A line of a page that starts splitpu."""

    page: str
    words: tuple[str, ...]  # those after `splitpu`


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands() -> list[Command]:
    """All of them, in blocks and in the running text, without what comes before `splitpu`."""
    found = []
    for page in COMMAND_PAGES:
        text = text_of(page)
        lines = [line for _, block in BLOCK.findall(text) for line in block.splitlines()]
        for line in [*lines, *INLINE.findall(BLOCK.sub("", text))]:
            start = re.match(r"\s*(?:torchrun .* -m )?splitpu (.+)", line)
            if start:
                found.append(Command(page, tuple(shlex.split(start[1], comments=True))))
    return found


def parsed_by_us(words: tuple[str, ...]) -> dict[str, object]:
    """The arguments by their names in the command's function; raises where a command or option does not exist."""
    _, bound, ignored = app.parse_args(list(words), exit_on_error=False, print_error=False)
    assert ignored.keys() <= {"data"}  # which is among the words about the data, and no option
    return dict(bound.arguments)


@pytest.mark.parametrize("command", commands(), ids=lambda command: f"{command.page}: {' '.join(command.words)[:70]}")
def test_commands_and_their_settings_exist(command: Command) -> None:
    if len(command.words) == 1:
        assert command.words[0] in app  # only its name
        return
    given = parsed_by_us(command.words)
    for method in str(given.get("method", "split-pu")).split(","):
        find_method(method)
    how = given.get("how")
    if isinstance(how, TrainingWords):
        config = apply_overrides(preset(how.preset or "default"), how.settings or [])
        assert how.warmup is None or apply_overrides(config, [f"warmup.name={how.warmup}"])
        assert how.backbone is None or how.backbone in network_names() or is_encoder(how.backbone)
    if command.words[0] in ("fit", "compare") and given.get("data") is not None:
        data = str(given["data"])
        assert data in NAMED_SETS or data in ("DATA", "all/") or Path(data).suffix in (".npz", ".csv", ".parquet")


def test_there_are_commands_to_check() -> None:
    """Every command is shown somewhere; and the check is one, for it fails where it should."""
    shown = {command.words[0] for command in commands()}
    ours = {name for name in app if not name.startswith("-")}
    assert ours - shown == set()
    for wrong in ("fit a.npz --member 3", "fits a.npz", "predict RUN", "fit a.npz b.npz"):
        with pytest.raises(Exception, match=r"Unknown|requires|Unused"):
            parsed_by_us(tuple(wrong.split()))


@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_options_and_settings_in_the_text_exist(page: str) -> None:
    """Words such as `--copy-to` outside of whole commands, and keys such as `split.tau`."""
    text = BLOCK.sub("", text_of(page))
    known = options_of(app)
    ours = [words for words in INLINE.findall(text) if not words.startswith("python ")]  # those: test_docs_commands.py
    named = {option for words in ours for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", words)}
    assert named - known - NOT_OURS == set()
    for words in INLINE.findall(text):
        for setting in re.findall(r"--set ([a-z_.]+=[^\s`]+)", words):
            if setting != "KEY=VALUE":
                apply_overrides(preset("default"), [setting])
        key = re.fullmatch(r"([a-z_0-9]+)\.[a-z_.]+", words)
        if key and key[1] in SECTIONS and not words.endswith(".csv"):
            assert words in VALUE_TYPES, f"{page} names the setting {words}"


def options_of(commands: App) -> set[str]:
    """The options of a command, or of all those inside it."""
    if commands.default_command is None:
        return set().union(*(options_of(commands[name]) for name in commands if not name.startswith("-")), commands)
    return {name for argument in commands.assemble_argument_collection() for name in argument.names}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in LINK.findall(BLOCK.sub("", text_of(page))):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.exists(), f"{page} links to {target}"
        if page in SITE:
            assert there.resolve().is_relative_to(ROOT / "docs"), f"{page} links to {target}, which is not on the site"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {anchor_of(heading) for heading in headings}, f"{page} links to {target}"


def anchor_of(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_guides_python_runs_as_printed(tmp_path: Path) -> None:
    """In one process, one block after the other, as a reader would."""
    blocks = [block for language, block in BLOCK.findall(text_of("docs/GUIDE.md")) if language == "python"]
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    low, high = map(float, re.findall(r"interval ([\d.]+) to ([\d.]+)", said)[0])
    assert low < 0.373 < high  # the share in the set
    assert float(re.findall(r"true accuracy +([\d.]+)", said)[0]) > 0.85
    assert "the same True" in said and "{'config': {'base.epochs': " in said


README = Path(__file__).parent.parent / "README.md"


def test_the_python_example_runs_and_the_model_is_good() -> None:
    """Executed in a process of its own, as a reader would."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert float(figures["right"].partition("%")[0]) > 90
    assert 0 < int(figures["hard"].split()[0]) < 396


def test_every_page_is_on_the_site() -> None:
    """In the navigation, that is; a page that is not there is found by nobody."""
    named = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(f"docs/{name}" for name in named) == sorted(SITE)
