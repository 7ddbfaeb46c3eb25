"""From a finished training to what the report page shows."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.config.parse import config_to_toml
from splitpu.config.schema import WarmupConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.sources import LoadedData
from splitpu.data.tables.read import ListColumn
from splitpu.errors import InputError
from splitpu.evaluation.calibration import reliability
from splitpu.evaluation.metrics import most_doubtful
from splitpu.methods.registry import find_method, sections_in_use
from splitpu.prior.estimate import prior_in_words
from splitpu.report.contents import ReportData, RoundReport, Sample
from splitpu.runs.folder import NOT_JUDGED, Request, RunFolder
from splitpu.runs.results import Judged, prior_source
from splitpu.training import Training, row_probabilities
from splitpu.types import Floats

SHOWN = 24  # samples in a gallery
VALUES_SHOWN = 8  # features of a sample
_COLUMNS = ("accuracy", "f1", "precision", "recall", "roc_auc", "average_precision", "positive_rate")


def report_data(
    training: Training, loaded: LoadedData, request: Request, result: Mapping[str, Any], judged: Judged | None
) -> ReportData:
    """Everything that the page shows of what came out, as `result.json` has it, and of how it came."""
    data, config, final = loaded.data, training.model.config, training.result.final
    easiest, hardest = galleries(training, loaded)
    notes = () if judged is None else (*judged.notes, *(one.sentence for one in judged.wrong))
    expected = result["expected_positive_rate_unlabelled"]
    reviewed, changed = _reviewed(request, result)
    return ReportData(
        title=f"{request.source.title}, {len(data.positives)} labelled positives",
        asked=_asked(training, loaded, request) | reviewed,
        changes=changed,
        figures=[
            {"model": one["model"], "positive_rate_unlabelled": one["positive_rate_unlabelled"]}
            if one["test"] is None
            else {"model": one["model"], **{column: one["test"][column] for column in _COLUMNS}}
            for one in result["models"]
        ],
        rounds=tuple(RoundReport.of(one, data.truth) for one in training.result.rounds),
        history=[record.to_dict() for record in training.result.history],
        probabilities=row_probabilities(training, final)[data.unlabelled],
        prior=math.nan if request.prior is None else request.prior,
        expected_positive_share=math.nan if expected is None else expected,
        threshold=0.5,  # probabilities are relative to the model's threshold
        easiest=easiest,
        hardest=hardest,
        warnings=tuple(result["warnings"]),
        config_text=config_to_toml(config, *sections_in_use(config), "engine"),
        method=find_method(config.method).title,
        environment={
            **result["versions"],
            "Device": result["device"],
            "Engine": result["engine"],
            "Commit": result["commit"] or "unknown",
            "Seconds of training": f"{result['seconds_total']:.1f}",
        },
        prior_table=tuple((request.prior_estimate or {}).get("table", ())),
        reliability=_reliability(training, loaded, request),
        reliability_rows=_reliability_rows(training),
        final=result["final"],
        calibrated=training.model.calibration is not None,
        judged=result.get("figures", {}),
        judged_notes=(NOT_JUDGED,) if judged is None and request.prior is not None else notes,
        learners=result.get("learners", ()),
    )


def galleries(training: Training, loaded: LoadedData) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """The easy samples that the final model is surest of, and the hard ones that give most reason to doubt."""
    result = training.result
    if not result.rounds:
        return (), ()
    last = result.rounds[-1]
    split = last.split
    teacher, student = (row_probabilities(training, model)[split.rows] for model in (last.teacher, result.final))

    def samples(positions: npt.NDArray[np.int64]) -> tuple[Sample, ...]:
        how = training.model.preprocessing
        return tuple(_sample(int(split.rows[i]), teacher[i], student[i], loaded, how) for i in positions)

    hardest = most_doubtful(teacher, student, ~split.easy, SHOWN)
    return samples(surest(student, split.easy, SHOWN)), samples(hardest)


def surest(student: Floats, among: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.int64]:
    """Positions of the surest ones, half of them positive as long as there are enough of both."""
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
        return Sample(name, float(teacher), float(student), pixels=preprocessing.pixels(raw))
    return Sample(name, float(teacher), float(student), values=_telling_values(raw, loaded, preprocessing))


def middle_slice(volume: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The slice that stands for a volume in a gallery: the middle one of those that are there."""
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
    lists = [ListColumn.from_dict(column) for column in columns if isinstance(column.get("fill"), list)]
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


def _asked(training: Training, loaded: LoadedData, request: Request) -> dict[str, str]:
    data, aside, model = loaded.data, training.aside, training.model
    shape = " x ".join(str(side) for side in data.features.shape[1:])
    kept_out = {}
    if aside is not None:  # neither easy nor hard: without them the numbers of the split do not add up
        rows = f"{len(aside.positives):,} of the labelled and {len(aside.unlabelled):,} of the unlabelled"
        kept_out = {"Kept out of the training": rows}
    members = f", an ensemble of {model.config.members} members" if model.config.members > 1 else ""
    return {
        "Data": loaded.description,
        "Rows": f"{len(data):,} {data.kind} ({shape})",
        "Labelled": f"{len(data.positives):,}",
        "Unlabelled": f"{len(data.unlabelled):,}",
        **kept_out,
        "Test rows": f"{len(loaded.held_out):,}" if loaded.held_out else "none",
        "Scenario": data.scenario,
        "Prior": prior_in_words(request.prior, request.prior_interval, prior_source(request)),
        "Method": find_method(model.config.method).title,
        "Network": f"{model.network_name}{members}",
        "Weights": "drawn at random" if request.weights is None else str(request.weights["in_words"]),
        "Warm-up": _warmup_in_words(model.config.warmup),
        "Preset": request.preset,
        "Seed": str(request.seed),
    }


def _warmup_in_words(config: WarmupConfig) -> str:
    """What every network starts from."""
    if config.name == "none":
        return "none"
    started = [name for name in ("base", "split", "student") if getattr(config, name)]
    return f"{config.name}, {config.epochs} epochs without labels, for {' and '.join(started) or 'nothing'}"


def _reviewed(request: Request, result: Mapping[str, Any]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """How to review the run; or, if it was trained with the answers of a review, what these changed."""
    answers, reviewed = dict(request.source.answers), request.source.review_of
    if not answers:
        command = "splitpu review RUN asks about samples, one key an answer; splitpu refit RUN learns from that"
        return {"Review": command}, []
    positive = sum(sign > 0 for sign in answers.values())
    said = f"{positive} found positive and {len(answers) - positive} negative in the review of {reviewed}"
    try:
        lines = changes(RunFolder(Path(reviewed)).read_result(), result, len(answers))
    except (InputError, OSError):  # moved away: nothing can be said
        lines = []
    return {"Answers": said}, lines


def changes(before: Mapping[str, Any], after: Mapping[str, Any], answers: int) -> list[dict[str, str]]:
    """The figures that both runs have, counted on test rows or else estimated alike, then with their interval."""
    rows = []
    old, new = (_figures(one) for one in (before, after))
    for name in (name for name in old if name in new and "@" not in name):
        first, second = old[name][0], new[name][0]
        rows.append(
            {
                "figure": name,
                "before": f"{first:.3f}{old[name][1]}",
                "after": f"{second:.3f}{new[name][1]}",
                "change": f"{second - first:+.3f}",
                "an answer": f"{(second - first) / answers:+.5f}",
            }
        )
    return rows


def _figures(result: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Each with the words for its interval, if it is an estimate."""
    final = next(model for model in result["models"] if model["model"] == result["final"])
    found = {name: (value, "") for name, value in (final["test"] or {}).items() if isinstance(value, float)}
    for name, one in () if found else (result.get("figures") or {}).items():
        if isinstance(one.get("value"), float):
            found[name] = one["value"], f" ({one['low']:.2f} to {one['high']:.2f})"
    return found | {"positives among unlabelled": (final["positive_rate_unlabelled"], "")}
