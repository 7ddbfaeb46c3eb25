"""The scikit-learn face: one classifier a method, each of which fits, predicts, clones, searches and pickles."""

from splitpu.estimators.base import PUEstimator
from splitpu.estimators.classifiers import (
    DANClassifier,
    DistPUClassifier,
    NaivePUClassifier,
    NNPUClassifier,
    P3MixClassifier,
    PUbNClassifier,
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
    "NNPUClassifier",
    "NaivePUClassifier",
    "P3MixClassifier",
    "PUEstimator",
    "PUUPLClassifier",
    "PUbNClassifier",
    "RoundSummary",
    "SelfPUClassifier",
    "SplitPUClassifier",
    "UPUClassifier",
    "VPUClassifier",
]
