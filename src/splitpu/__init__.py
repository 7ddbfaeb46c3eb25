"""Positive-unlabelled learning with Split-PU: a classifier from known positives and unlabelled data.

>>> import splitpu
>>> splitpu.preset("default").rounds
2
"""

import importlib
from functools import cache
from typing import Any


@cache
def _homes() -> dict[str, str]:
    """The module of every public name: listed once, in the stub beside this file, which type checkers read as well.

    Names are imported when they are first asked for, so that `import splitpu` itself costs nothing."""
    import ast
    from pathlib import Path

    listed = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    return {one.name: str(node.module) for node in listed if isinstance(node, ast.ImportFrom) for one in node.names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: Any = version("splitpu")
        except PackageNotFoundError:  # run from a source folder that was never installed
            value = "unknown"
    elif name == "__all__":
        value = sorted([*_homes(), "__version__"])
    elif name in _homes():
        value = getattr(importlib.import_module(_homes()[name]), name)
    else:
        raise AttributeError(f"module 'splitpu' has no attribute {name!r}")
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
