"""The house stays one that a newcomer can live in: its rooms are few, found by name, and lead one way.

Each rule is a function over a folder of modules, so that a broken one can be shown a house that breaks it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import splitpu

SOURCE = Path(splitpu.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "ARCHITECTURE.md"
# Of lines 34,000 is the aim; until it is reached there shall be no more than there are.
MOST_MODULES, MOST_LINES, FEWEST_LINES, MOST_SMALL, MOST_PARAMETERS = 175, 34_000, 60, 10, 8
ENTRY_POINTS = ("__init__", "__main__")


def modules_of(source: Path) -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = (source.name, *path.relative_to(source).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def module_level_imports(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Modules of ours that are imported when this one is, or that it names for type checkers."""
    todo: list[ast.stmt] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If | ast.Try):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                yield from (name for name in (inner if inner in modules else node.module,) if name in modules)


def cycles(source: Path) -> list[list[str]]:
    """Groups of modules each of which imports all others in the end."""
    modules = modules_of(source)
    graph = {name: set(module_level_imports(path, modules)) - {name} for name, path in modules.items()}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [*graph[start]]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += graph[name]
        return seen

    ahead = {name: reached(name) for name in graph}
    groups = {frozenset({name, *(other for other in ahead[name] if name in ahead[other])}) for name in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def same_names(source: Path) -> list[list[str]]:
    """Modules of one name in different packages."""
    by_name = defaultdict(list)
    for path in source.rglob("*.py"):
        if path.stem not in ENTRY_POINTS:
            by_name[path.stem].append(str(path.relative_to(source)))
    return sorted(sorted(paths) for paths in by_name.values() if len(paths) > 1)


def small_modules(source: Path) -> list[str]:
    """Modules that may belong to another one."""
    return [
        str(path.relative_to(source))
        for path in sorted(source.rglob("*.py"))
        if path.stem not in ENTRY_POINTS and len(path.read_text(encoding="utf-8").splitlines()) < FEWEST_LINES
    ]


def long_signatures(source: Path) -> list[str]:
    """Functions with more parameters than one can keep in mind; constructors and commands are told apart."""
    found = []
    for path in sorted(source.rglob("*.py")):
        if "cli" in path.relative_to(source).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                count = len(names) - (names[:1] in (["self"], ["cls"]))
                if count > MOST_PARAMETERS:
                    found.append(f"{path.relative_to(source)}: {node.name} has {count}")
    return found


def aliases_defined_twice(source: Path) -> list[str]:
    """Names of array types, which have one home."""
    found = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for name in re.findall(r"(?m)^([A-Z]\w+) = npt\.NDArray\[", path.read_text(encoding="utf-8")):
            found[name].append(str(path.relative_to(source)))
    return sorted(name for name, places in found.items() if len(places) > 1)


def test_the_house_is_small_enough_to_know() -> None:
    paths = list(SOURCE.rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    assert len(paths) <= MOST_MODULES
    assert lines <= MOST_LINES
    assert len(small_modules(SOURCE)) <= MOST_SMALL, small_modules(SOURCE)


@pytest.mark.parametrize("rule", [cycles, same_names, long_signatures, aliases_defined_twice])
def test_rules_are_kept(rule) -> None:
    assert rule(SOURCE) == []


BROKEN = {
    cycles: {"a.py": "from toy.b import x\n", "b.py": "if TYPE_CHECKING:\n    from toy import a\n"},
    same_names: {"one/rows.py": "", "two/rows.py": ""},
    small_modules: {"crumb.py": "x = 1\n"},
    long_signatures: {"a.py": "def f(a, b, c, d, *, e, f, g, h, i): ...\n"},
    aliases_defined_twice: {"a.py": "Floats = npt.NDArray[float]\n", "b.py": "Floats = npt.NDArray[float]\n"},
}


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.__name__)
def test_a_house_that_breaks_a_rule_is_noticed(rule, tmp_path: Path) -> None:
    source = tmp_path / "toy"
    for name, text in BROKEN[rule].items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    assert rule(source)


def test_every_package_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    packages = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("*/__init__.py")}
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert [name for name in sorted(packages) if f"`{name}/`" not in text] == []
    assert [name for name in sorted(modules) if f"`{name}`" not in text] == []


TOY_METHOD = '''
"""A method of one file: the network as it is drawn, untrained."""
from splitpu.methods.registry import Method

def train_toy(context):
    network = context.fresh_network("toy")
    return context.as_teacher(network, "toy")

METHOD = Method(name="toy", title="Toy", summary="To show.", assumes="nothing", citation="none",
                home="toy_rooms.method:train_toy", sections=("threshold",), needs_prior=False)
'''
TOY_COMMAND = '''
"""A command of one file."""
def greet(name: str, /) -> int:
    """Say hello."""
    print(f"hello, {name}")
    return 0
'''


@pytest.fixture
def toy_rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package outside ours, with a method and a command in a file each."""
    package = tmp_path / "toy_rooms"
    package.mkdir()
    for name, text in {"__init__": "", "method": TOY_METHOD, "command": TOY_COMMAND}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def test_a_method_is_one_file_and_one_line(toy_rooms: Path, capsys: pytest.CaptureFixture[str], vectors) -> None:
    from toy_rooms.method import METHOD

    from splitpu import PUData, TrainSpec, train
    from splitpu.cli import main
    from splitpu.config.parse import config_from_dict
    from splitpu.config.schema import METHOD_NAMES
    from splitpu.methods.registry import methods, register

    register(METHOD)
    try:
        data = PUData.from_arrays(*vectors[:2])
        training = train(data, TrainSpec(config=config_from_dict({"method": "toy"}), prior=None))
        assert training.model.config.method == "toy"
        assert main(["methods"]) == 0 and "toy" in capsys.readouterr().out
    finally:
        del methods()["toy"]
        METHOD_NAMES.remove("toy")


def test_a_command_is_one_file_and_one_line(toy_rooms: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from toy_rooms.command import greet

    from splitpu.cli import main
    from splitpu.cli.app import app

    app.command(greet)
    try:
        assert main(["greet", "house"]) == 0
        assert capsys.readouterr().out == "hello, house\n"
    finally:
        del app["greet"]
