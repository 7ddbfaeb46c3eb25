"""The scikit-learn face: one classifier a method, each of which fits, predicts, clones, searches and pickles."""

from splitpu.estimators.base import PUEstimator
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
    RoundSummary,
    SelfPUClassifier,
    SplitPUClassifier,
    UPUClassifier,
    VPUClassifier,
)

__all__ = [
    "DANClassifier",
    "DistPUClassifier",
    "ElkanNotoClassifier",
    "NNPUClassifier",
    "NaivePUClassifier",
    "P3MixClassifier",
    "PUBaggingClassifier",
    "PUBoostingClassifier",
    "PUEstimator",
    "PUForestClassifier",
    "PULogisticClassifier",
    "PUUPLClassifier",
    "PUbNClassifier",
    "RoundSummary",
    "SelfPUClassifier",
    "SplitPUClassifier",
    "UPUClassifier",
    "VPUClassifier",
]
