"""What came of a training, in figures: `result.json`, `scores.csv` and `split.csv`.

And what labelled and unlabelled rows tell of a run's model where no truth is known.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.data.images.scan import Skipped
from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.sources import LoadedData
from splitpu.engine.hardware import Hardware
from splitpu.engine.inference import predict_logits
from splitpu.errors import InputError
from splitpu.evaluation.calibration import sigmoid
from splitpu.evaluation.diagnostics import Degeneracy, find_degeneracies
from splitpu.evaluation.metrics import Figures, PUEvaluation, evaluate_pu, evaluate_scores, finite_or_none, written
from splitpu.methods.context import Teacher
from splitpu.methods.split import Round
from splitpu.model import Model
from splitpu.prior.estimate import NOT_ESTIMABLE, NOT_USED, TO_BE_ESTIMATED
from splitpu.runs.folder import RunFolder, source_commit, versions
from splitpu.runs.request import Request
from splitpu.training import Training, final_name, models_of, row_decisions, row_probabilities, without_rows_aside
from splitpu.utils.files import replacing
from splitpu.views import Views

_ABOUT_SKIPPED = ("name", "why", "bad")


@dataclass(frozen=True, eq=False)
class ModelFigures:
    """One of the models that a run made, and how it does."""

    name: str  # "base", "round 1 student", "round 2 student, not taken", ...
    threshold: float  # the logit above which it says positive
    unlabelled_rate: float  # share of the unlabelled rows it calls positive
    test: Figures | None


def expected_positive_share(data: PUData, prior: float | None) -> float | None:
    """Share of positives that the prior expects among the unlabelled rows; the labelled ones may be part of the count.

    Without a prior nothing is expected.

    >>> data = PUData.from_arrays(np.zeros((10, 1)), [1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    >>> expected_positive_share(data, 0.6)
    0.5
    """
    if prior is None or data.scenario == "case-control":
        return prior
    return (prior * len(data) - len(data.positives)) / len(data.unlabelled)


def prior_source(request: Request) -> str:
    """Where the prior comes from, in words."""
    if request.prior is None:
        return request.prior_source if request.prior_source in (NOT_ESTIMABLE, TO_BE_ESTIMATED) else NOT_USED
    return request.prior_source


def how_to_have_a_prior(request: Request) -> str:
    """What to do about a run without one; where none could be estimated, it cannot be estimated another time."""
    if prior_source(request) == NOT_ESTIMABLE:
        return "train with a prior of your own (--prior 0.3, say), as none could be estimated: the report says why"
    return "train with --prior auto"


def figures_of(training: Training, loaded: LoadedData, prior: float | None) -> list[ModelFigures]:
    """The figures of every model, on the test rows where there are any."""
    return [
        ModelFigures(
            name,
            teacher.threshold,
            float((row_decisions(training, teacher)[loaded.data.unlabelled] > 0).mean()),
            _test_figures(training, teacher, loaded.held_out, prior),
        )
        for name, teacher in models_of(training)
    ]


def result_of(
    training: Training,
    loaded: LoadedData,
    request: Request,
    figures: Sequence[ModelFigures],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The content of `result.json`."""
    data, result = loaded.data, training.result
    seconds: dict[str, float] = {}
    for record in result.history:
        seconds[record.stage] = round(seconds.get(record.stage, 0.0) + record.seconds, 4)
    content = {
        "data": loaded.description,
        "rows": len(data),
        "labelled": len(data.positives),
        "unlabelled": len(data.unlabelled),
        "test_rows": len(loaded.held_out) if loaded.held_out else 0,
        "skipped_files": len([entry for entry in loaded.skipped if entry.bad]),
        "scenario": data.scenario,
        "prior": request.prior,
        "prior_source": prior_source(request),
        "prior_interval": request.prior_interval,
        "prior_estimate": request.prior_estimate,
        "expected_positive_rate_unlabelled": expected_positive_share(data, request.prior),
        "method": training.model.config.method,
        "preset": request.preset,
        "selection": _selection(training),
        "network": training.model.network_name,
        "members": training.model.config.members,
        "weights": request.weights,
        "warmup": training.model.config.warmup.name,
        "seed": request.seed,
        "models": [
            {
                "model": model.name,
                "threshold": model.threshold,
                "positive_rate_unlabelled": model.unlabelled_rate,
                "test": model.test,
            }
            for model in figures
        ],
        "final": final_name(training),  # the one of these that predicts
        "rounds": [_round_figures(r, data) for r in result.rounds],
        "warnings": list(warnings),
        "seconds": seconds,
        "seconds_total": round(sum(seconds.values()), 4),
        "device": training.hardware.describe(),
        "engine": training.engine,
        "versions": versions(),
        "commit": source_commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    cleaned: dict[str, Any] = finite_or_none(content)
    return cleaned


def write_scores(path: Path, training: Training, loaded: LoadedData) -> None:
    """Say of every training row how probable the final model finds it to be positive, and what it would decide."""
    data = loaded.data
    decisions = row_decisions(training, training.result.final)
    found = zip(sigmoid(decisions).tolist(), (decisions > 0).tolist(), data.labelled, strict=True)
    lines = (
        (row, data.names[row] if data.names else "", int(labelled), written(share), loaded.classes[int(positive)])
        for row, (share, positive, labelled) in enumerate(found)
    )
    _write_csv(path, ["index", "name", "labelled", "probability", "decision"], lines)


def write_split(path: Path, training: Training, data: PUData) -> None:
    """Say of every unlabelled sample, round by round, where it went and why."""
    heading = ["round", "index", "name", "teacher_probability", "student_probability", "set", "taught", "learned"]
    lines = (line for found in training.result.rounds for line in _split_lines(training, found, data))
    _write_csv(path, heading, lines)


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Say of every file that is not used why; `bad` tells files that were meant to be images from other files."""
    lines = ((entry.name, entry.why, "yes" if entry.bad else "no") for entry in skipped)
    _write_csv(path, _ABOUT_SKIPPED, lines)


def is_list_of_skipped(path: Path) -> bool:
    """Whether a file is such a list, and no file of the user's that is called the same."""
    try:
        with path.open("rb") as file:
            return file.readline().strip() == ",".join(_ABOUT_SKIPPED).encode()
    except OSError:
        return False


def write_duplicates(path: Path, loaded: LoadedData) -> None:
    """Say which pictures are the same on two sides that should have none in common."""
    _write_csv(path, ["name", "same_as"], ((second, first) for first, second in loaded.duplicates))


def _write_csv(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(lines)


def _split_lines(training: Training, found: Round, data: PUData) -> Iterator[tuple[object, ...]]:
    split = found.split
    both = [row_probabilities(training, model) for model in (found.teacher, found.student)]
    # What was taught is said apart: above 1/2 where the teacher cuts, which is elsewhere once it is calibrated. What a
    # temporary network has learned is what it was taught, where it agrees, and the opposite elsewhere.
    taught = split.teacher_probability > 0.5
    words = [np.where(positive, "positive", "negative") for positive in (taught, taught == split.agrees)]
    for at, row in enumerate(split.rows.tolist()):
        name = data.names[row] if data.names else ""
        probabilities = (written(one[row]) for one in both)
        yield found.number, row, name, *probabilities, "easy" if split.easy[at] else "hard", *(one[at] for one in words)


def _test_figures(
    training: Training, teacher: Teacher, held_out: HeldOut | None, prior: float | None
) -> Figures | None:
    if held_out is None:
        return None
    hardware, model = training.hardware, training.model
    views = Views(model.preprocessing, model.config.views, hardware.device)
    logits = predict_logits(teacher.network, held_out.features, views, hardware)
    return evaluate_scores(held_out.truth, training.decisions(teacher, logits), prior)


def _selection(training: Training) -> dict[str, Any] | None:
    """What the rows set aside were used for: how many, the weights of every stage kept by them, the calibration."""
    aside, calibration = training.aside, training.model.calibration
    if aside is None:
        return None
    return {
        "positives": len(aside.positives),
        "unlabelled": len(aside.unlabelled),
        "criterion": training.model.config.selection.criterion,
        "best": {stage: asdict(kept) for stage, kept in aside.kept.items()},
        "calibration": None if calibration is None else calibration.to_dict(),
    }


def _round_figures(found: Round, data: PUData) -> dict[str, Any]:
    split = found.split
    return {
        "round": found.number,
        "tau": split.tau,
        "reached": split.reached,
        "epoch": split.epoch,
        "agreement": max(split.agreement, default=None),
        "easy": int(split.easy.sum()),
        "hard": int((~split.easy).sum()),
        "noise": split.noise(data.truth),
        "taken": found.taken,
    }


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
