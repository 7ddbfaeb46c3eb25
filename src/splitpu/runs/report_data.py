"""From a finished training to what the report page shows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.config.parse import config_to_toml
from splitpu.config.schema import WarmupConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.sources import LoadedData
from splitpu.data.tables.read import ListColumn
from splitpu.evaluation.calibration import reliability
from splitpu.evaluation.metrics import most_doubtful
from splitpu.methods.registry import find_method, sections_in_use
from splitpu.prior.estimate import prior_in_words
from splitpu.report.contents import ReportData, RoundReport, Sample
from splitpu.runs.folder import NOT_JUDGED, source_commit, versions
from splitpu.runs.request import Request
from splitpu.runs.results import Judged, ModelFigures, expected_positive_share, prior_source
from splitpu.training import Training, final_name, row_probabilities
from splitpu.types import Floats

SHOWN = 24  # samples in a gallery
VALUES_SHOWN = 8  # features of a sample
_COLUMNS = ("accuracy", "f1", "precision", "recall", "roc_auc", "average_precision", "positive_rate")


def report_data(
    training: Training,
    loaded: LoadedData,
    request: Request,
    figures: Sequence[ModelFigures],
    judged: Judged | None,
    warnings: Sequence[str],
) -> ReportData:
    """Gather everything that the page shows."""
    data, result = loaded.data, training.result
    easiest, hardest = galleries(training, loaded)
    return ReportData(
        title=_title(request, loaded),
        asked=_asked(training, loaded, request),
        figures=[_figure_row(model) for model in figures],
        rounds=tuple(
            RoundReport(
                number=r.number,
                tau=r.split.tau,
                agreement=r.split.agreement,
                stopped_epoch=r.split.epoch,
                reached=r.split.reached,
                easy=int(r.split.easy.sum()),
                hard=int((~r.split.easy).sum()),
                unsure=int(r.split.unsure.sum()),
                noise=r.split.noise(data.truth),
                taken=r.taken,
            )
            for r in result.rounds
        ),
        history=[record.to_dict() for record in result.history],
        probabilities=row_probabilities(training, result.final)[data.unlabelled],
        prior=_number(request.prior),
        expected_positive_share=_number(expected_positive_share(data, request.prior)),
        threshold=0.5,  # probabilities are relative to the model's threshold
        easiest=easiest,
        hardest=hardest,
        warnings=tuple(warnings),
        config_text=config_to_toml(training.model.config, *sections_in_use(training.model.config), "engine"),
        method=find_method(training.model.config.method).title,
        environment=_environment(training),
        prior_table=tuple((request.prior_estimate or {}).get("table", ())),
        reliability=_reliability(training, loaded, request),
        reliability_rows=_reliability_rows(training),
        final=final_name(training),
        calibrated=training.model.calibration is not None,
        judged={} if judged is None else {name: one._asdict() for name, one in judged.figures.items()},
        judged_notes=_judged_notes(judged, request),
        learners=result.learners or (),
    )


def _judged_notes(judged: Judged | None, request: Request) -> tuple[str, ...]:
    if judged is not None:
        return (*judged.notes, *(one.sentence for one in judged.wrong))
    return () if request.prior is None else (NOT_JUDGED,)


def galleries(training: Training, loaded: LoadedData) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """The easy samples that the final model is surest of, and the hard ones that give most reason to doubt.

    They are those of the last round; where its student was not taken, its teacher is the final model.
    """
    result = training.result
    if not result.rounds:
        return (), ()
    last = result.rounds[-1]
    split = last.split
    teacher, student = (row_probabilities(training, model)[split.rows] for model in (last.teacher, result.final))
    chosen = surest(student, split.easy, SHOWN), most_doubtful(teacher, student, ~split.easy, SHOWN)
    easiest, hardest = (
        tuple(
            _sample(int(split.rows[i]), teacher[i], student[i], loaded, training.model.preprocessing) for i in positions
        )
        for positions in chosen
    )
    return easiest, hardest


def surest(student: Floats, among: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.int64]:
    """Positions of the surest ones, half of them positive as long as there are enough of both.

    >>> surest(np.array([0.9, 0.8, 0.1, 0.6]), np.array([True, True, True, True]), 2).tolist()
    [0, 2]
    """
    ranked = np.flatnonzero(among)[np.argsort(-np.abs(student[among] - 0.5), kind="stable")]
    positive, negative = ranked[student[ranked] > 0.5], ranked[student[ranked] <= 0.5]
    from_positive = min(len(positive), max(count // 2, count - len(negative)))
    return np.concatenate([positive[:from_positive], negative[: count - from_positive]])


def _sample(row: int, teacher: float, student: float, loaded: LoadedData, preprocessing: Preprocessing) -> Sample:
    data = loaded.data
    name = data.names[row] if data.names else f"row {row}"
    raw = np.asarray(data.features[row])
    if preprocessing.kind == "volumes":
        raw = middle_slice(raw)
    if preprocessing.kind != "vectors":
        unit = (raw.astype(np.float64) - preprocessing.offset) * preprocessing.scale
        pixels = (np.clip(unit, 0, 1) * 255).round().astype(np.uint8)
        return Sample(name, float(teacher), float(student), pixels=pixels)
    return Sample(name, float(teacher), float(student), values=_telling_values(raw, loaded, preprocessing))


def middle_slice(volume: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The slice that stands for a volume in a gallery: the middle one of those that are there.

    >>> middle_slice(np.array([[[[1]]], [[[2]]], [[[3]]], [[[0]]]])).item()
    2
    """
    there = np.flatnonzero(volume.reshape(len(volume), -1).any(axis=1))
    found: npt.NDArray[Any] = volume[there[len(there) // 2] if len(there) else 0]
    return found


def _telling_values(
    raw: npt.NDArray[Any], loaded: LoadedData, preprocessing: Preprocessing
) -> tuple[tuple[str, float], ...]:
    """The features that lie furthest from their mean, as the user knows them: not standardised."""
    distance = np.abs((raw - np.array(preprocessing.mean)) / np.array(preprocessing.std))
    furthest = np.argsort(-distance, kind="stable").tolist()
    names = loaded.feature_names or [f"feature {i}" for i in range(len(raw))]
    columns = (loaded.inputs or {}).get("columns", ())
    origins = {column["name"]: column.get("origin", 0.0) for column in columns}
    lists = [ListColumn.from_dict(column) for column in columns if isinstance(column["fill"], list)]
    meaningless = {name for column in lists for name in column.feature_names}  # a single number of an embedding
    readable = [i for i in furthest if names[i] not in meaningless] or furthest
    if preprocessing.sparse:  # what is not there says nothing
        readable = [i for i in readable[:VALUES_SHOWN] if raw[i] != 0]
    return tuple((names[i], float(raw[i]) + origins.get(names[i], 0.0)) for i in readable[:VALUES_SHOWN])


def _reliability(training: Training, loaded: LoadedData, request: Request) -> tuple[dict[str, float], ...]:
    """How far the probabilities are from what P, U and the prior imply, by rows that were not trained on."""
    data, aside = loaded.data, training.aside
    if request.prior is None or (aside is None and training.out_of_fold is None):
        return ()
    positives, unlabelled = (data.positives, data.unlabelled) if aside is None else (aside.positives, aside.unlabelled)
    probabilities = row_probabilities(training, training.result.final)
    found = reliability(probabilities[positives], probabilities[unlabelled], request.prior, scenario=data.scenario)
    return tuple(dict(one.__dict__) for one in found.bins)


def _reliability_rows(training: Training) -> str:
    if training.aside is None:
        return "Every row was judged by learners that had not seen it."
    if training.model.calibration is None:
        return "These are rows that no stage was trained on."
    method = training.model.config.selection.calibration
    return f"These are rows that no stage was trained on, but by which the probabilities were calibrated ({method})."


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _title(request: Request, loaded: LoadedData) -> str:
    return f"{request.source.title}, {len(loaded.data.positives)} labelled positives"


def _asked(training: Training, loaded: LoadedData, request: Request) -> dict[str, str]:
    data = loaded.data
    shape = " x ".join(str(side) for side in data.features.shape[1:])
    return {
        "Data": loaded.description,
        "Rows": f"{len(data):,} {data.kind} ({shape})",
        "Labelled": f"{len(data.positives):,}",
        "Unlabelled": f"{len(data.unlabelled):,}",
        **_kept_out(training),
        "Test rows": f"{len(loaded.held_out):,}" if loaded.held_out else "none",
        "Scenario": data.scenario,
        "Prior": prior_in_words(request.prior, request.prior_interval, prior_source(request)),
        "Method": find_method(training.model.config.method).title,
        "Network": _network_in_words(training),
        "Weights": "drawn at random" if request.weights is None else str(request.weights["in_words"]),
        "Warm-up": _warmup_in_words(training.model.config.warmup),
        "Preset": request.preset,
        "Seed": str(request.seed),
    }


def _kept_out(training: Training) -> dict[str, str]:
    """The rows that are neither easy nor hard, without which the numbers of the split do not add up."""
    if training.aside is None:
        return {}
    positives, unlabelled = len(training.aside.positives), len(training.aside.unlabelled)
    return {"Kept out of the training": f"{positives:,} of the labelled and {unlabelled:,} of the unlabelled"}


def _network_in_words(training: Training) -> str:
    members = training.model.config.members
    return training.model.network_name + (f", an ensemble of {members} members" if members > 1 else "")


def _warmup_in_words(config: WarmupConfig) -> str:
    """What every network starts from.

    >>> _warmup_in_words(WarmupConfig(name="simclr", split=False))
    'simclr, 100 epochs without labels, for base and student'
    """
    if config.name == "none":
        return "none"
    started = [name for name in ("base", "split", "student") if getattr(config, name)]
    return f"{config.name}, {config.epochs} epochs without labels, for {' and '.join(started) or 'nothing'}"


def _figure_row(model: ModelFigures) -> dict[str, Any]:
    if model.test is None:
        return {"model": model.name, "positive_rate_unlabelled": model.unlabelled_rate}
    return {"model": model.name, **{column: model.test[column] for column in _COLUMNS}}


def _environment(training: Training) -> dict[str, str]:
    learners = sum(row["seconds"] for row in training.result.learners or ())
    seconds = sum(record.seconds for record in training.result.history) + learners
    return {
        **versions(),
        "Device": training.hardware.describe(),
        "Engine": training.engine,
        "Commit": source_commit() or "unknown",
        "Seconds of training": f"{seconds:.1f}",
    }
