"""What labelled and unlabelled rows tell of a run's model where no truth is known."""

from dataclasses import dataclass

from splitpu.data import PUData
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation import Degeneracy, PUEvaluation, evaluate_pu, find_degeneracies
from splitpu.models import Model
from splitpu.runs.folder import RunFolder
from splitpu.runs.summary import how_to_have_a_prior
from splitpu.training import without_rows_aside

KNOWN_ROWS = "rows whose truth is known (--test, or X_test and y_test in a .npz file)"
FLATTERED = "estimated from the rows the model was trained on, which flatters it"
ON_TRAINING_ROWS = (
    f"{FLATTERED}; for a fair estimate give other rows, labelled and unlabelled ones as for fit, or --test with rows "
    "whose truth is known"
)
ON_OTHER_ROWS = "estimated from labelled and unlabelled rows; if the truth of some rows is known, give them with --test"
ON_ROWS_ASIDE = (
    "estimated from the rows that were kept out of the training; epochs or probabilities may have been chosen by them"
)


@dataclass(frozen=True)
class Estimates:
    """Figures with their intervals, what is wrong with the model if something is, and how far to trust all that."""

    found: PUEvaluation
    wrong: list[Degeneracy]
    note: str


def estimates_of(
    folder: RunFolder, model: Model, rows: PUData, hardware: Hardware, *, trained_on: bool = True
) -> Estimates:
    """Judge the run's model by these rows; of rows it was `trained_on`, by those kept out of that if there are some."""
    request = folder.request()
    if model.prior is None:
        raise InputError(
            f"{folder.path} was trained without a prior, without which P and U say nothing about the accuracy: give "
            "rows whose truth is known with --test or as X_test and y_test in a .npz, or "
            f"{how_to_have_a_prior(request)}."
        )
    model.preprocessing.check(rows.features, "X")
    decision = model.decision(rows.features, hardware)
    aside = without_rows_aside(rows, folder.config(), request.seed)[1] if trained_on else None
    judged = rows if aside is None else aside
    positive, unlabelled = decision[judged.positives], decision[judged.unlabelled]
    return Estimates(
        evaluate_pu(positive, unlabelled, model.prior, scenario=rows.scenario, prior_interval=request.prior_interval),
        find_degeneracies(positive, unlabelled, model.prior, scenario=rows.scenario),
        ON_OTHER_ROWS if not trained_on else ON_TRAINING_ROWS if aside is None else ON_ROWS_ASIDE,
    )
