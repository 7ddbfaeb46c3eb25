"""Judging, choosing and calibrating models without negative labels."""

from splitpu.calibration import PUCalibrator, Reliability, reliability
from splitpu.evaluation.assumptions import LabellingCheck, check_random_labelling
from splitpu.evaluation.degenerate import Degeneracy, find_degeneracies, find_worthlessness
from splitpu.evaluation.pu_metrics import PUEvaluation, PUFigure, evaluate_pu
from splitpu.evaluation.scoring import cross_fitted_decisions, make_pu_scorer
from splitpu.evaluation.splitters import PUStratifiedKFold, pu_train_test_split

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
