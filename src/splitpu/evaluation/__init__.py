"""Judging, choosing and calibrating models without negative labels."""

from splitpu.evaluation.assumptions import LabellingCheck, check_random_labelling
from splitpu.evaluation.calibration import PUCalibrator, Reliability, reliability
from splitpu.evaluation.degenerate import Degeneracy, find_degeneracies
from splitpu.evaluation.pu_metrics import PUEvaluation, PUFigure, evaluate_pu
from splitpu.evaluation.scoring import make_pu_scorer
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
    "evaluate_pu",
    "find_degeneracies",
    "make_pu_scorer",
    "pu_train_test_split",
    "reliability",
]
