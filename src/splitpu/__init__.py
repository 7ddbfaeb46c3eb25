"""Positive-unlabelled learning with Split-PU: a classifier from known positives and unlabelled data.

>>> import splitpu
>>> splitpu.preset("default").rounds
2
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splitpu.config import Config, preset
    from splitpu.data import PUData, load_named, make_pu
    from splitpu.errors import InputError, ModelFileError, SplitPUError, SplitPUWarning
    from splitpu.estimators import SplitPUClassifier
    from splitpu.models import Model
    from splitpu.training import train

    __version__: str

# Where each name lives. It is imported when first asked for, so that `import splitpu` itself costs nothing.
_HOMES = {
    "Config": "splitpu.config",
    "InputError": "splitpu.errors",
    "Model": "splitpu.models",
    "ModelFileError": "splitpu.errors",
    "PUData": "splitpu.data",
    "SplitPUClassifier": "splitpu.estimators",
    "SplitPUError": "splitpu.errors",
    "SplitPUWarning": "splitpu.errors",
    "load_named": "splitpu.data",
    "make_pu": "splitpu.data",
    "preset": "splitpu.config",
    "train": "splitpu.training",
}

__all__ = [
    "Config",
    "InputError",
    "Model",
    "ModelFileError",
    "PUData",
    "SplitPUClassifier",
    "SplitPUError",
    "SplitPUWarning",
    "__version__",
    "load_named",
    "make_pu",
    "preset",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _installed_version()
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'splitpu' has no attribute {name!r}")
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("splitpu")
    except PackageNotFoundError:  # run from a source folder that was never installed
        return "unknown"
