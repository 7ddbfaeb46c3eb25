"""docs/ARCHITECTURE.md names every room, and no room imports from one below it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import splitpu

SOURCE = Path(splitpu.__file__).parent
LIST = Path(__file__).parents[1] / "docs" / "ARCHITECTURE.md"
WAYS_IN = {Path("__init__.py"), Path("__main__.py"), Path("experiments", "__main__.py")}


def rooms_in_order() -> dict[str, int]:
    """Every room by name, and the line of the list that it stands in."""
    lines = [line.split("|")[1] for line in LIST.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {name: place for place, line in enumerate(lines) for name in re.findall(r"`(\w+)(?:\.py|/)`", line)}


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if node.module != "splitpu" else [f"splitpu.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("splitpu."))


def test_every_room_is_in_the_list() -> None:
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert rooms_in_order().keys() == modules | {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def test_no_room_imports_from_one_below_it() -> None:
    place = rooms_in_order()
    upwards = []
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE)
        room = where.parts[0].removesuffix(".py")
        if where not in WAYS_IN:
            upwards += [f"{where} imports {other}" for other in imported_rooms(path) if place[other] > place[room]]
    assert not upwards
