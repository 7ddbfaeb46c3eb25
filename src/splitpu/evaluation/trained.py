"""The models that a training made, by name, and whether the one that it ends with is worth anything."""

import warnings

from splitpu.calibration import sigmoid
from splitpu.data import PUData
from splitpu.errors import SplitPUWarning
from splitpu.evaluation.degenerate import find_worthlessness
from splitpu.given import Floats
from splitpu.listening import UNRELIABLE
from splitpu.methods.context import Teacher
from splitpu.methods.registry import find_method
from splitpu.training import Training


def models_of(training: Training) -> list[tuple[str, Teacher]]:
    """Every model of the run by name, the base first; a method that makes one model lends it its own name."""
    config = training.model.config
    if config.method != "split-pu":
        return [(find_method(config.method).title, training.result.base)]
    students: list[tuple[str, Teacher]] = [
        (f"round {r.number} student{'' if r.taken else ', not taken'}", r.student) for r in training.result.rounds
    ]
    return [("base", training.result.base), *students]


def final_name(training: Training) -> str:
    """What the model is called that the training ends with."""
    return next(name for name, teacher in models_of(training) if teacher is training.result.final)


def row_decisions(training: Training, teacher: Teacher) -> Floats:
    """What one of the run's models says of all training rows; above nought = positive."""
    return training.decisions(teacher, teacher.logits.double().cpu().numpy())


def row_probabilities(training: Training, teacher: Teacher) -> Floats:
    """What one of the run's models says of all training rows, on the scale of the final one.

    The map that calibrates the final model is put to all of them alike: a probability with it and one without it are
    not to be set side by side.
    """
    return sigmoid(training.calibrated(teacher.logits.double().cpu().numpy() - teacher.threshold))


def warn_if_worthless(training: Training, data: PUData) -> None:
    """Figures and pages look as convincing for a model that has learned nothing, so its own training rows are asked."""
    prior = training.model.prior

    def fault_of(teacher: Teacher) -> str | None:
        decisions = row_decisions(training, teacher)
        return find_worthlessness(decisions[data.positives], decisions[data.unlabelled], prior, scenario=data.scenario)

    result = training.result
    reason = fault_of(result.final)
    if reason is None:
        return
    advice = "train longer, label more positives, or try another method"
    if result.final is not result.base and fault_of(result.base) is None:
        advice = "rounds=0 keeps the base model, which does not have this fault"
    warnings.warn(f"{final_name(training)}: {reason}; {UNRELIABLE}: {advice}.", SplitPUWarning, stacklevel=3)
