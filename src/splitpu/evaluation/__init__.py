"""Judging, choosing and calibrating models without negative labels."""

from splitpu.evaluation.calibration import PUCalibrator, Reliability, reliability
from splitpu.evaluation.diagnostics import (
    Degeneracy,
    check_random_labelling,
    find_degeneracies,
    find_worthlessness,
)
from splitpu.evaluation.label_tests import LabellingCheck
from splitpu.evaluation.metrics import PUEvaluation, PUFigure, evaluate_pu
from splitpu.evaluation.scikit_learn import (
    PUStratifiedKFold,
    cross_fitted_decisions,
    make_pu_scorer,
    pu_train_test_split,
)

__all__ = [
    "Degeneracy",
    "LabellingCheck",
    "PUCalibrator",
    "PUEvaluation",
    "PUFigure",
    "PUStratifiedKFold",
    "Reliability",
    "check_random_labelling",
    "cross_fitted_decisions",
    "evaluate_pu",
    "find_degeneracies",
    "find_worthlessness",
    "make_pu_scorer",
    "pu_train_test_split",
    "reliability",
]
