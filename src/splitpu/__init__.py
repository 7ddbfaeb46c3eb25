"""Positive-unlabelled learning with Split-PU: a classifier from known positives and unlabelled data.

>>> import splitpu
>>> splitpu.preset("default").rounds
2
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splitpu.config.presets import preset
    from splitpu.config.schema import Config
    from splitpu.data.public.datasets import load_named
    from splitpu.data.public.named_set import make_pu
    from splitpu.data.pudata import PUData
    from splitpu.errors import InputError, ModelFileError, SplitPUError, SplitPUWarning
    from splitpu.estimators.classifiers import (
        DANClassifier,
        DistPUClassifier,
        NaivePUClassifier,
        NNPUClassifier,
        P3MixClassifier,
        PUbNClassifier,
        PUUPLClassifier,
        SelfPUClassifier,
        SplitPUClassifier,
        UPUClassifier,
        VPUClassifier,
    )
    from splitpu.evaluation.metrics import evaluate_pu
    from splitpu.evaluation.scikit_learn import PUStratifiedKFold, make_pu_scorer, pu_train_test_split
    from splitpu.model import Model
    from splitpu.prior.estimate import estimate_prior
    from splitpu.training import train, train_side_by_side

    __version__: str

# Where each name lives. It is imported when first asked for, so that `import splitpu` itself costs nothing.
_HOMES = {
    "Config": "splitpu.config",
    "DANClassifier": "splitpu.estimators",
    "DistPUClassifier": "splitpu.estimators",
    "InputError": "splitpu.errors",
    "Model": "splitpu.model",
    "ModelFileError": "splitpu.errors",
    "NNPUClassifier": "splitpu.estimators",
    "NaivePUClassifier": "splitpu.estimators",
    "P3MixClassifier": "splitpu.estimators",
    "PUData": "splitpu.data",
    "PUStratifiedKFold": "splitpu.evaluation",
    "PUUPLClassifier": "splitpu.estimators",
    "PUbNClassifier": "splitpu.estimators",
    "SelfPUClassifier": "splitpu.estimators",
    "SplitPUClassifier": "splitpu.estimators",
    "SplitPUError": "splitpu.errors",
    "SplitPUWarning": "splitpu.errors",
    "UPUClassifier": "splitpu.estimators",
    "VPUClassifier": "splitpu.estimators",
    "estimate_prior": "splitpu.prior",
    "evaluate_pu": "splitpu.evaluation",
    "load_named": "splitpu.data",
    "make_pu": "splitpu.data",
    "make_pu_scorer": "splitpu.evaluation",
    "preset": "splitpu.config",
    "pu_train_test_split": "splitpu.evaluation",
    "train": "splitpu.training",
    "train_side_by_side": "splitpu.training",
}

__all__ = [
    "Config",
    "DANClassifier",
    "DistPUClassifier",
    "InputError",
    "Model",
    "ModelFileError",
    "NNPUClassifier",
    "NaivePUClassifier",
    "P3MixClassifier",
    "PUData",
    "PUStratifiedKFold",
    "PUUPLClassifier",
    "PUbNClassifier",
    "SelfPUClassifier",
    "SplitPUClassifier",
    "SplitPUError",
    "SplitPUWarning",
    "UPUClassifier",
    "VPUClassifier",
    "__version__",
    "estimate_prior",
    "evaluate_pu",
    "load_named",
    "make_pu",
    "make_pu_scorer",
    "preset",
    "pu_train_test_split",
    "train",
    "train_side_by_side",
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
