"""What labelled and unlabelled rows tell of a run's model where no truth is known.

An estimate of the prior that takes minutes: what it has is kept, so that the same command goes on with it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.errors import DiskError, InputError
from splitpu.evaluation.diagnostics import Degeneracy, find_degeneracies
from splitpu.evaluation.metrics import PUEvaluation, evaluate_pu
from splitpu.model import Model
from splitpu.prior.scores import needs_networks
from splitpu.runs.folder import RunFolder, remove_if_empty
from splitpu.runs.results import how_to_have_a_prior
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


Removal = Callable[[], None]
_TOGETHER: ContextVar[list[Removal] | None] = ContextVar("removed together", default=None)


@contextmanager
def kept_until_all_are_known() -> Iterator[None]:
    """Inside the block estimates are kept that are known already: of several, one after the other, all are needed.

    Whoever is stopped at the third would else begin with the first again.
    """
    known: list[Removal] = []
    outside = _TOGETHER.set(known)
    try:
        with _removed_when_settled(lambda: [remove() for remove in reversed(known)]):
            yield
    finally:
        _TOGETHER.reset(outside)


@contextmanager
def kept_until_known(data: PUData, seed: int, beside: Path) -> Iterator[Path | None]:
    """A folder for checkpoints that is there until there is an estimate, or a reason why there can be none.

    Whoever is stopped or killed in between leaves it behind, and finds it again by the rows and the seed. None where
    no networks are trained; where nothing can be written, which is no reason to give up; and where another process is
    at the same estimate, as the first to end would remove what the other needs.
    """
    if not needs_networks(data):
        yield None
        return
    folder = RunFolder(beside / f".prior-{data.fingerprint()[:12]}-seed{seed}")
    above_is_new = not beside.exists()
    with ExitStack() as held:
        if not _taken(folder, held):
            yield None
            return
        folder.sweep()
        remove, together = partial(_remove, folder, above_is_new), _TOGETHER.get()
        with _removed_when_settled(remove if together is None else partial(together.append, remove)):
            yield folder.checkpoints


@contextmanager
def _removed_when_settled(remove: Callable[[], object]) -> Iterator[None]:
    """Call it where the block came to its end, or found that it cannot."""
    try:
        yield
    except DiskError:  # the estimate is possible and waits for room
        raise
    except InputError:
        remove()
        raise
    remove()


def _taken(folder: RunFolder, held: ExitStack) -> bool:
    """Make the folder and hold it alone, if that can be had."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        held.enter_context(folder.locked())
    except (OSError, InputError):
        return False
    return True


def _remove(folder: RunFolder, above_is_new: bool) -> None:
    folder.discard()
    if above_is_new:
        remove_if_empty(folder.path.parent)
