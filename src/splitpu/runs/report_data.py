"""From a finished training to what the report page shows."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.config.parse import config_to_toml
from splitpu.config.schema import WarmupConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.sources import LoadedData
from splitpu.data.sparse_rows import is_sparse
from splitpu.data.tables.encode import TableRecipe, TableSource
from splitpu.data.tables.read import Columns, ListColumn, shown
from splitpu.engine.inference import predict_logits
from splitpu.errors import InputError
from splitpu.evaluation.calibration import reliability
from splitpu.evaluation.metrics import most_doubtful
from splitpu.learners.learner_networks import LearnerBackbone
from splitpu.methods.registry import find_method, sections_in_use, uses_learners
from splitpu.prior.estimate import prior_in_words
from splitpu.report.contents import WORDS, ReportData, RoundReport, Sample
from splitpu.runs.folder import NOT_JUDGED, Request, RunFolder
from splitpu.runs.results import Judged, prior_source
from splitpu.training import Training, row_probabilities
from splitpu.types import Floats
from splitpu.views import Views

SHOWN = 24  # samples in a gallery
VALUES_SHOWN = 8  # columns of a sample
LARGEST_TABLE = 1 << 26  # bytes of a file that is read once more for its records
ASKED_ROWS, ASKED_IN_ALL, ASKED_VALUES = 1_000, 5_000, 4_000_000  # at most, for the importance of columns
MOST_COLUMNS, COLUMNS_SHOWN = 200, 15
_COLUMNS = ("accuracy", "f1", "precision", "recall", "roc_auc", "average_precision", "positive_rate")


def report_data(
    training: Training, loaded: LoadedData, request: Request, result: Mapping[str, Any], judged: Judged | None
) -> ReportData:
    """Everything that the page shows of what came out, as `result.json` has it, and of how it came."""
    data, config, final = loaded.data, training.model.config, training.result.final
    easiest, hardest = galleries(training, loaded, written_records(request))
    importance, importance_note = importances(training, loaded, request.seed)
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
        for_f1=uses_learners(config) and config.threshold == "f1",
        final=result["final"],
        calibrated=training.model.calibration is not None,
        judged=result.get("figures", {}),
        judged_notes=(NOT_JUDGED,) if judged is None and request.prior is not None else notes,
        learners=result.get("learners", ()),
        curves={} if judged is None else judged.curves,
        importance=importance,
        importance_note=importance_note,
    )


def written_records(request: Request) -> Columns | None:
    """The columns of a table as its owner wrote them; None of other data, of very large files and of lost ones."""
    source = request.source
    try:
        if isinstance(source, TableSource) and Path(source.path).stat().st_size <= LARGEST_TABLE:
            return source.written()
    except (InputError, OSError):
        pass  # moved away meanwhile: the numbers that the model was trained on are shown
    return None


def galleries(
    training: Training, loaded: LoadedData, written: Columns | None = None
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """The easy samples that the final model is surest of, and the hard ones that give most reason to doubt.

    Where easy was not told from hard, the likeliest positives among the unlabelled, and none."""
    result, how = training.result, training.model.preprocessing
    last = result.rounds[-1] if result.rounds else None
    rows = loaded.data.unlabelled if last is None else last.split.rows
    both = (result.final if last is None else last.teacher, result.final)
    teacher, student = (row_probabilities(training, model)[rows] for model in both)

    def samples(positions: npt.NDArray[np.int64]) -> tuple[Sample, ...]:
        return tuple(_sample(int(rows[i]), teacher[i], student[i], loaded, how, written) for i in positions)

    if last is None:
        return samples(np.argsort(-student, kind="stable")[: SHOWN // 2]), ()
    hardest = most_doubtful(teacher, student, ~last.split.easy, SHOWN)
    return samples(surest(student, last.split.easy, SHOWN)), samples(hardest)


def surest(student: Floats, among: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.int64]:
    """Positions of the surest ones, half of them positive as long as there are enough of both."""
    ranked = np.flatnonzero(among)[np.argsort(-np.abs(student[among] - 0.5), kind="stable")]
    positive, negative = ranked[student[ranked] > 0.5], ranked[student[ranked] <= 0.5]
    from_positive = min(len(positive), max(count // 2, count - len(negative)))
    return np.concatenate([positive[:from_positive], negative[: count - from_positive]])


def _sample(
    row: int, teacher: float, student: float, loaded: LoadedData, preprocessing: Preprocessing, written: Columns | None
) -> Sample:
    data = loaded.data
    name = data.names[row] if data.names else f"row {row}"
    raw = np.asarray(data.features[row])
    if preprocessing.kind == "volumes":
        raw = middle_slice(raw)
    if preprocessing.kind != "vectors":
        return Sample(name, float(teacher), float(student), pixels=preprocessing.pixels(raw))
    values = _telling_values(raw, loaded, preprocessing)
    if written is not None and loaded.inputs is not None:  # by column, as several numbers may stand for one
        of_feature = dict(
            zip(loaded.feature_names or (), TableRecipe.from_dict(loaded.inputs).column_of_feature, strict=True)
        )
        columns = dict.fromkeys(of_feature[feature] for feature, _ in values)
        cells = [(column, written[column][row]) for column in columns]
        values = [(column, "(empty)" if cell is None else shown(cell)) for column, cell in cells]
    return Sample(name, float(teacher), float(student), values=tuple(values[:VALUES_SHOWN]))


def middle_slice(volume: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The slice that stands for a volume in a gallery: the middle one of those that are there."""
    there = np.flatnonzero(volume.reshape(len(volume), -1).any(axis=1))
    found: npt.NDArray[Any] = volume[there[len(there) // 2] if len(there) else 0]
    return found


def _telling_values(
    raw: npt.NDArray[Any], loaded: LoadedData, preprocessing: Preprocessing
) -> list[tuple[str, float | str]]:
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
        readable = [i for i in readable if raw[i] != 0]
    return [(names[i], float(raw[i]) + origins.get(names[i], 0.0)) for i in readable]


def importances(training: Training, loaded: LoadedData, seed: int) -> tuple[Sequence[tuple[str, float]], str]:
    """Which columns the final model goes by, those first that count most, and what the numbers mean.

    Scores are asked for, not labels: a model that knows its training rows by heart would seem to need every column."""
    data, network, began = loaded.data, training.result.final.network, time.perf_counter()
    if data.kind != "vectors":
        return (), ""
    count, rng, features = data.features.shape[1], np.random.default_rng(seed), data.features
    names: Sequence[str] = loaded.feature_names or [f"feature {i}" for i in range(count)]
    rows = np.sort(rng.permutation(len(data))[: max(20, min(ASKED_ROWS, ASKED_VALUES // count))])
    some = np.array(features.dense(rows) if is_sparse(features) else features[rows])
    weights = network.learner.linear_weights() if isinstance(network, LearnerBackbone) else None
    if weights is not None:
        seen = 1.0 if training.model.preprocessing.sparse else np.array(training.model.preprocessing.std)  # as scaled
        found = dict(zip(names, (weights * np.nan_to_num(np.nanstd(some, axis=0)) / seen).tolist(), strict=True))
    else:
        inputs = loaded.inputs or {}
        columns = TableRecipe.from_dict(inputs).column_of_feature if inputs.get("kind") == "table" else names
        some = some[: ASKED_IN_ALL // len(set(columns))]
        found = _mixed_up(training, some, columns, rng) if len(set(columns)) <= MOST_COLUMNS else {}
    ordered = sorted((one for one in found.items() if abs(one[1]) > 1e-9), key=lambda one: -abs(one[1]))
    meaning = WORDS["importance"]["mixed_up" if weights is None else "linear"]
    note = f"{meaning} Found with {len(some):,} rows in {time.perf_counter() - began:.1f} s."
    return ordered[:COLUMNS_SHOWN], note


def _mixed_up(
    training: Training, rows: npt.NDArray[Any], columns: Sequence[str], rng: np.random.Generator
) -> dict[str, float]:
    """How far the order of rows changes when the values of a column are dealt out anew among them."""
    network, model, hardware = training.result.final.network, training.model, training.hardware
    views = Views(model.preprocessing, model.config.views, hardware.device)

    def ranks(features: npt.NDArray[Any]) -> Floats:
        return predict_logits(network, features, views, hardware).argsort().argsort().astype(np.float64)

    own, found = ranks(rows), dict[str, float]()
    for column in dict.fromkeys(columns):
        mixed, places = rows.copy(), [place for place, name in enumerate(columns) if name == column]
        mixed[:, places] = rows[rng.permutation(len(rows))][:, places]
        found[column] = 1 - float(np.corrcoef(own, ranks(mixed))[0, 1])
    return found


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
        return "Every row was judged by models that had not seen it."
    method = training.model.config.selection.calibration
    by_them = f", but by which the probabilities were calibrated ({method})" if training.model.calibration else ""
    return f"These are rows that no stage was trained on{by_them}."


def _asked(training: Training, loaded: LoadedData, request: Request) -> dict[str, str]:
    data, aside, model = loaded.data, training.aside, training.model
    shape = " x ".join(str(side) for side in data.features.shape[1:])
    kept_out = {}
    if aside is not None:  # neither easy nor hard: without them the numbers of the split do not add up
        rows = f"{len(aside.positives):,} of the labelled and {len(aside.unlabelled):,} of the unlabelled"
        kept_out = {"Kept out of the training": rows}
    members = f", an ensemble of {model.config.members} members" if model.config.members > 1 else ""
    of_networks = {
        "Network": f"{model.network_name}{members}",
        "Weights": "drawn at random" if request.weights is None else str(request.weights["in_words"]),
        "Warm-up": _warmup_in_words(model.config.warmup),
    }
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
        **({"Learner": model.config.learner} if uses_learners(model.config) else of_networks),
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
