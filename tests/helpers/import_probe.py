"""What importing a module does, counted and not timed, so that a busy machine says the same as an idle one.

`python tests/import_probe.py MODULE OTHER...` imports the others first, so that what is left is the module's own work.
"""

import importlib
import json
import sys
from types import BuiltinFunctionType, FrameType, ModuleType
from typing import Any

lines = 0
called: set[str] = set()


def home_of(function: Any) -> str:
    """The module that a function of C belongs to, by its owner: builtin functions seldom say where they are from."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, ModuleType):
        return owner.__name__
    if owner is None:
        return str(getattr(function, "__module__", None))
    return (owner if isinstance(owner, type) else type(owner)).__module__


def count_line(frame: FrameType, event: str, _: Any) -> Any:
    global lines
    if not of_import_system(frame):
        lines += event == "line"
    return count_line


def note_call(frame: FrameType, event: str, function: Any) -> None:
    """Functions of C, which no count of lines shows. Whatever finds and reads modules is Python's own business."""
    if event == "c_call" and isinstance(function, BuiltinFunctionType) and not of_import_system(frame):
        called.add(f"{home_of(function)}.{function.__name__}")


def of_import_system(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("importlib", "zipimport", "_distutils_hack"))


if __name__ == "__main__":
    module, *others = sys.argv[1:]
    for name in others:
        importlib.import_module(name)
    before = set(sys.modules)
    sys.setprofile(note_call)
    sys.settrace(count_line)
    importlib.import_module(module)
    sys.settrace(None)
    sys.setprofile(None)
    found = {"modules": sorted(set(sys.modules) - before), "lines": lines, "called": sorted(called)}
    print(json.dumps(found))
