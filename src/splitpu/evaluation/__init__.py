"""Judging, choosing and calibrating models without negative labels."""

from splitpu.evaluation.calibration import PUCalibrator as PUCalibrator
from splitpu.evaluation.calibration import Reliability as Reliability
from splitpu.evaluation.calibration import reliability as reliability
from splitpu.evaluation.diagnostics import Degeneracy as Degeneracy
from splitpu.evaluation.diagnostics import LabellingCheck as LabellingCheck
from splitpu.evaluation.diagnostics import check_random_labelling as check_random_labelling
from splitpu.evaluation.diagnostics import find_degeneracies as find_degeneracies
from splitpu.evaluation.diagnostics import find_worthlessness as find_worthlessness
from splitpu.evaluation.metrics import PUEvaluation as PUEvaluation
from splitpu.evaluation.metrics import PUFigure as PUFigure
from splitpu.evaluation.metrics import evaluate_pu as evaluate_pu
from splitpu.evaluation.scikit_learn import PUStratifiedKFold as PUStratifiedKFold
from splitpu.evaluation.scikit_learn import cross_fitted_decisions as cross_fitted_decisions
from splitpu.evaluation.scikit_learn import make_pu_scorer as make_pu_scorer
from splitpu.evaluation.scikit_learn import pu_train_test_split as pu_train_test_split
