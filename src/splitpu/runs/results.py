"""What came of a training: `result.json`, `scores.csv`, `split.csv`; and estimates where no truth is known."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.config.schema import Scenario, SelectionConfig
from splitpu.data.images.scan import Skipped
from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.sources import LoadedData
from splitpu.data.tables.read import write_rows
from splitpu.engine.hardware import Hardware
from splitpu.engine.inference import predict_logits
from splitpu.errors import InputError
from splitpu.evaluation.calibration import sigmoid
from splitpu.evaluation.diagnostics import Degeneracy, find_degeneracies
from splitpu.evaluation.judgement import Curve, counted, counted_curves, estimated, estimated_curves, too_good
from splitpu.evaluation.metrics import Figures, PUEvaluation, PUFigure, evaluate_scores, finite_or_none, written
from splitpu.learners.learner_networks import LEARNER
from splitpu.methods.context import RowsAside
from splitpu.model import Model
from splitpu.prior.estimate import NOT_ESTIMABLE, NOT_USED, TO_BE_ESTIMATED
from splitpu.report.contents import RoundReport
from splitpu.runs.folder import NOT_JUDGED, Request, RunFolder, source_commit, versions
from splitpu.training import Training, final_name, models_of, row_decisions, row_probabilities, without_rows_aside
from splitpu.types import Flags, Floats
from splitpu.utils.reading import open_regular
from splitpu.views import Views

_ABOUT_SKIPPED = ("name", "why", "bad")
KNOWN_ROWS = "rows whose truth is known (--test, or X_test and y_test in a .npz file)"
ON_TEST_ROWS = "counted on the test rows"
ON_OTHER_ROWS = "estimated from labelled and unlabelled rows; if the truth of some rows is known, give them with --test"
OUT_OF_FOLD = "estimated out of fold: every row was judged by models that had not seen it"
ON_ROWS_ASIDE = "estimated from the rows that were kept out of the training"
CHOSEN_BY_THEM = "; epochs or probabilities may have been chosen by them"


@dataclass(frozen=True, eq=False)
class ModelFigures:
    """One of the models that a run made, and how it does."""

    name: str  # "base", "round 1 student", "round 2 student, not taken", ...
    threshold: float  # the logit above which it says positive
    unlabelled_rate: float  # share of the unlabelled rows it calls positive
    test: Figures | None
    decisions: Floats | None = None  # on the test rows

    def to_dict(self) -> dict[str, Any]:
        share = {"positive_rate_unlabelled": self.unlabelled_rate}
        return {"model": self.name, "threshold": self.threshold, **share, "test": self.test}


def expected_positive_share(data: PUData, prior: float | None) -> float | None:
    """Share of positives that the prior expects among the unlabelled rows; without a prior nothing is expected."""
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
    hardware, model, held_out = training.hardware, training.model, loaded.held_out
    views = Views(model.preprocessing, model.config.views, hardware.device)
    found = []
    for name, teacher in models_of(training):
        rate = float((row_decisions(training, teacher)[loaded.data.unlabelled] > 0).mean())
        test, decisions = None, None
        if held_out is not None:
            logits = predict_logits(teacher.network, held_out.features, views, hardware)
            decisions = training.decisions(teacher, logits)
            test = evaluate_scores(held_out.truth, decisions, prior)
        found.append(ModelFigures(name, teacher.threshold, rate, test, decisions))
    return found


def result_of(
    training: Training,
    loaded: LoadedData,
    request: Request,
    figures: Sequence[ModelFigures],
    judged: "Judged | None",
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The content of `result.json`."""
    data, result = loaded.data, training.result
    seconds: dict[str, float] = {}
    for record in result.history:
        seconds[record.stage] = round(seconds.get(record.stage, 0.0) + record.seconds, 4)
    if result.learners is not None:
        seconds["learners"] = round(sum(row["seconds"] for row in result.learners), 4)
    selection, aside, calibration = None, training.aside, training.model.calibration
    if aside is not None:  # what the rows set aside were used for, and the weights of every stage kept by them
        selection = {
            "positives": len(aside.positives),
            "unlabelled": len(aside.unlabelled),
            "criterion": training.model.config.selection.criterion,
            "best": {stage: asdict(kept) for stage, kept in aside.kept.items()},
            "calibration": None if calibration is None else calibration.to_dict(),
        }
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
        "selection": selection,
        "network": training.model.network_name,
        "members": training.model.config.members,
        "weights": request.weights,
        "warmup": training.model.config.warmup.name,
        "seed": request.seed,
        "models": [one.to_dict() for one in figures],
        "final": final_name(training),  # the one of these that predicts
        **({} if judged is None else judged.to_dict()),
        **({} if result.learners is None else {"learners": result.learners}),
        "rounds": [
            {
                **{"round": one.number, "epoch": one.stopped_epoch, "agreement": max(one.agreement, default=None)},
                **{name: getattr(one, name) for name in ("tau", "reached", "easy", "hard", "noise", "taken")},
            }
            for one in (RoundReport.of(found, data.truth) for found in result.rounds)
        ],
        "warnings": list(warnings),
        "seconds": seconds,
        "seconds_total": round(sum(seconds.values()), 4),
        "device": training.hardware.describe(),
        "engine": training.engine,
        "versions": versions(),
        "commit": source_commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return dict(finite_or_none(content))


def write_scores(path: Path, training: Training, loaded: LoadedData) -> None:
    """Say of every training row how probable the final model finds it to be positive, and what it would decide."""
    data = loaded.data
    decisions = row_decisions(training, training.result.final)
    found = zip(sigmoid(decisions).tolist(), (decisions > 0).tolist(), data.labelled, strict=True)
    lines = (
        (row, data.names[row] if data.names else "", int(labelled), written(share), loaded.classes[int(positive)])
        for row, (share, positive, labelled) in enumerate(found)
    )
    write_rows(path, ["index", "name", "labelled", "probability", "decision"], lines)


def write_split(path: Path, training: Training, data: PUData) -> None:
    """Say of every unlabelled sample, round by round, where it went and why."""

    def lines() -> Iterator[tuple[object, ...]]:
        for found in training.result.rounds:
            split = found.split
            both = [row_probabilities(training, model) for model in (found.teacher, found.student)]
            # What was taught is said apart: above 1/2 where the teacher cuts, which is elsewhere once it is calibrated.
            # What a temporary network has learned is what it was taught, where it agrees, and the opposite elsewhere.
            taught = split.teacher_probability > 0.5
            words = [np.where(positive, "positive", "negative") for positive in (taught, taught == split.agrees)]
            for at, row in enumerate(split.rows.tolist()):
                name, kind = data.names[row] if data.names else "", "easy" if split.easy[at] else "hard"
                probabilities = (written(one[row]) for one in both)
                yield found.number, row, name, *probabilities, kind, *(one[at] for one in words)

    heading = ["round", "index", "name", "teacher_probability", "student_probability", "set", "taught", "learned"]
    write_rows(path, heading, lines())


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Say of every file that is not used why; `bad` tells files that were meant to be images from other files."""
    write_rows(path, _ABOUT_SKIPPED, ((entry.name, entry.why, "yes" if entry.bad else "no") for entry in skipped))


def is_list_of_skipped(path: Path) -> bool:
    """Whether a file is such a list, and no file of the user's that is called the same."""
    try:
        with open_regular(path) as file:
            return file.readline(1000).strip() == ",".join(_ABOUT_SKIPPED).encode()
    except OSError:
        return False


@dataclass(frozen=True)
class Judged:
    """How right the final model is, by rows that it was not trained on, and how far to trust that."""

    figures: dict[str, PUFigure]  # those first that tell most
    note: str
    positives: int
    found: PUEvaluation | None = None  # of estimates
    wrong: list[Degeneracy] = field(default_factory=list)  # with the model, if something is
    curves: dict[str, Curve] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """What the figures rest on, and whether some of them look too good."""
        doubt = too_good(self.figures, self.positives)
        return [self.note, *([] if doubt is None else [doubt])]

    def to_dict(self) -> dict[str, Any]:
        return {"figures": {name: one._asdict() for name, one in self.figures.items()}, "figures_notes": self.notes}


def judged_in_training(
    training: Training, loaded: LoadedData, request: Request, figures: Sequence[ModelFigures]
) -> Judged | None:
    """The final model's figures: on the test rows, or estimated from rows that it was not trained on, or none."""
    if loaded.held_out is not None:
        final = next(model for model in figures if model.name == final_name(training))
        base, naive = figures[0], None
        if training.model.network_name == LEARNER and base.decisions is not None:
            naive = base.decisions + base.threshold
        assert final.decisions is not None  # as there are test rows
        return judged_by_truth(loaded.held_out, final.decisions, naive)
    if request.prior is None:
        return None
    data, aside, found = loaded.data, training.aside, training.out_of_fold
    if found is not None:
        return _estimated(request, data.scenario, found[0], data.labelled, OUT_OF_FOLD, found[1])
    if aside is None:
        return None
    decisions = row_decisions(training, training.result.final)
    return _estimated(request, data.scenario, *_of_rows_aside(decisions, aside, training.model.config.selection))


def judged_by_truth(held_out: HeldOut, decision: Floats, naive: Floats | None) -> Judged | None:
    """The figures on rows whose truth is known; None where they are all of one class."""
    figures = counted(held_out.truth, decision, naive)
    if not figures:
        return None
    return Judged(figures, ON_TEST_ROWS, int(held_out.truth.sum()), curves=counted_curves(held_out.truth, decision))


def naive_decision(model: Model, features: Any, hardware: Hardware) -> Floats | None:
    """What the best single learner makes of P against U, cut at 1/2; none of networks, whose base has learned more."""
    if model.network_name != LEARNER:
        return None
    return model.decision(features, hardware, which="base") + model.base.threshold


def estimates_of(run: RunFolder, model: Model, rows: PUData, hardware: Hardware, *, trained_on: bool = True) -> Judged:
    """Judge the run's model by these rows; of rows it was `trained_on`, by what does not flatter it, or not at all."""
    request = run.request()
    if model.prior is None:
        wrong = f"{run.path} was trained without a prior, without which P and U say nothing about the accuracy"
        raise InputError(f"{wrong}: give {KNOWN_ROWS}, or {how_to_have_a_prior(request)}.")
    model.preprocessing.check(rows.features, "X")
    if not trained_on:
        decision, naive = model.decision(rows.features, hardware), naive_decision(model, rows.features, hardware)
        return _estimated(request, rows.scenario, decision, rows.labelled, ON_OTHER_ROWS, naive)
    if (found := run.read_out_of_fold(len(rows))) is not None:
        return _estimated(request, rows.scenario, found[0], rows.labelled, OUT_OF_FOLD, found[1])
    aside = without_rows_aside(rows, run.config(), request.seed)[1]
    if aside is None:
        raise InputError(f"{run.path}: {NOT_JUDGED}.")
    decision = model.decision(rows.features, hardware)
    return _estimated(request, rows.scenario, *_of_rows_aside(decision, aside, model.config.selection))


def _of_rows_aside(decision: Floats, aside: RowsAside, selection: SelectionConfig) -> tuple[Floats, Flags, str]:
    """Decisions on these rows, which of them are labelled, and what is to be said about it."""
    rows = np.concatenate([aside.positives, aside.unlabelled])
    chosen = "" if (selection.criterion, selection.calibration) == ("none", "none") else CHOSEN_BY_THEM
    return decision[rows], np.arange(len(rows)) < len(aside.positives), ON_ROWS_ASIDE + chosen


def _estimated(
    request: Request, scenario: Scenario, decision: Floats, labelled: Flags, note: str, naive: Floats | None = None
) -> Judged:
    """By decisions on rows that the models behind them had not seen; `naive` are the best single learner's logits."""
    assert request.prior is not None
    rows, prior, interval = (decision, labelled), request.prior, request.prior_interval
    found = estimated(*rows, prior, scenario=scenario, prior_interval=interval, naive=naive)
    wrong = find_degeneracies(decision[labelled], decision[~labelled], prior, scenario=scenario)
    curves = {}
    if "roc_auc" in found.figures:  # else there are too few rows for any
        curves = estimated_curves(*rows, prior, scenario=scenario, prior_interval=interval)
    return Judged(found.figures, note, int(labelled.sum()), found, wrong, curves)
