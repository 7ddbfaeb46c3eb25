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
    from splitpu.data.public.named_set import NamedSet, make_pu
    from splitpu.data.pudata import HeldOut, PUData
    from splitpu.engine.stage import Observer
    from splitpu.errors import InputError, ModelFileError, SplitPUError, SplitPUWarning
    from splitpu.estimators.classifiers import (
        DANClassifier,
        DistPUClassifier,
        ElkanNotoClassifier,
        NaivePUClassifier,
        NNPUClassifier,
        P3MixClassifier,
        PUBaggingClassifier,
        PUbNClassifier,
        PUBoostingClassifier,
        PUForestClassifier,
        PULogisticClassifier,
        PUUPLClassifier,
        SelfPUClassifier,
        SplitPUClassifier,
        UPUClassifier,
        VPUClassifier,
    )
    from splitpu.evaluation.metrics import PUEvaluation, evaluate_pu
    from splitpu.evaluation.scikit_learn import (
        PUStratifiedGroupKFold,
        PUStratifiedKFold,
        make_pu_scorer,
        pu_train_test_split,
    )
    from splitpu.model import Model
    from splitpu.networks.backbones import Backbone
    from splitpu.networks.custom import as_backbone
    from splitpu.prior.estimate import PriorEstimate, estimate_prior
    from splitpu.runs.grid import train_side_by_side
    from splitpu.training import Runtime, Training, TrainSpec, train

    __version__: str

# Where each name lives. It is imported when first asked for, so that `import splitpu` itself costs nothing.
_HOMES = {
    "Backbone": "splitpu.networks.backbones",
    "Config": "splitpu.config.schema",
    "DANClassifier": "splitpu.estimators.classifiers",
    "DistPUClassifier": "splitpu.estimators.classifiers",
    "ElkanNotoClassifier": "splitpu.estimators.classifiers",
    "HeldOut": "splitpu.data.pudata",
    "InputError": "splitpu.errors",
    "Model": "splitpu.model",
    "ModelFileError": "splitpu.errors",
    "NNPUClassifier": "splitpu.estimators.classifiers",
    "NaivePUClassifier": "splitpu.estimators.classifiers",
    "NamedSet": "splitpu.data.public.named_set",
    "Observer": "splitpu.engine.stage",
    "P3MixClassifier": "splitpu.estimators.classifiers",
    "PUBaggingClassifier": "splitpu.estimators.classifiers",
    "PUBoostingClassifier": "splitpu.estimators.classifiers",
    "PUData": "splitpu.data.pudata",
    "PUEvaluation": "splitpu.evaluation.metrics",
    "PUForestClassifier": "splitpu.estimators.classifiers",
    "PULogisticClassifier": "splitpu.estimators.classifiers",
    "PUStratifiedGroupKFold": "splitpu.evaluation.scikit_learn",
    "PUStratifiedKFold": "splitpu.evaluation.scikit_learn",
    "PUUPLClassifier": "splitpu.estimators.classifiers",
    "PUbNClassifier": "splitpu.estimators.classifiers",
    "PriorEstimate": "splitpu.prior.estimate",
    "Runtime": "splitpu.training",
    "SelfPUClassifier": "splitpu.estimators.classifiers",
    "SplitPUClassifier": "splitpu.estimators.classifiers",
    "SplitPUError": "splitpu.errors",
    "SplitPUWarning": "splitpu.errors",
    "TrainSpec": "splitpu.training",
    "Training": "splitpu.training",
    "UPUClassifier": "splitpu.estimators.classifiers",
    "VPUClassifier": "splitpu.estimators.classifiers",
    "as_backbone": "splitpu.networks.custom",
    "estimate_prior": "splitpu.prior.estimate",
    "evaluate_pu": "splitpu.evaluation.metrics",
    "load_named": "splitpu.data.public.datasets",
    "make_pu": "splitpu.data.public.named_set",
    "make_pu_scorer": "splitpu.evaluation.scikit_learn",
    "preset": "splitpu.config.presets",
    "pu_train_test_split": "splitpu.evaluation.scikit_learn",
    "train": "splitpu.training",
    "train_side_by_side": "splitpu.runs.grid",
}

__all__ = [
    "Backbone",
    "Config",
    "DANClassifier",
    "DistPUClassifier",
    "ElkanNotoClassifier",
    "HeldOut",
    "InputError",
    "Model",
    "ModelFileError",
    "NNPUClassifier",
    "NaivePUClassifier",
    "NamedSet",
    "Observer",
    "P3MixClassifier",
    "PUBaggingClassifier",
    "PUBoostingClassifier",
    "PUData",
    "PUEvaluation",
    "PUForestClassifier",
    "PULogisticClassifier",
    "PUStratifiedGroupKFold",
    "PUStratifiedKFold",
    "PUUPLClassifier",
    "PUbNClassifier",
    "PriorEstimate",
    "Runtime",
    "SelfPUClassifier",
    "SplitPUClassifier",
    "SplitPUError",
    "SplitPUWarning",
    "TrainSpec",
    "Training",
    "UPUClassifier",
    "VPUClassifier",
    "__version__",
    "as_backbone",
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
