"""From a unit to its result line: load the data, train, compare with the truth of the test rows, write down how."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from splitpu.config.parse import config_to_dict
from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import NamedSet, make_pu, true_prior
from splitpu.data.pudata import HeldOut, PUData
from splitpu.engine.hardware import Hardware
from splitpu.engine.inference import predict_logits
from splitpu.engine.rows import SharedRows
from splitpu.engine.stage import EpochRecord, Observer
from splitpu.evaluation.held_out import hold_out, nnpu_value, pu_criterion
from splitpu.evaluation.metrics import Figures, evaluate_scores, finite_or_none, placements
from splitpu.methods.context import Teacher
from splitpu.methods.split import Round
from splitpu.methods.thresholds import matched_threshold
from splitpu.methods.warmup import warmed_up
from splitpu.report.contents import RoundReport
from splitpu.reproduce.figures import FIGURES, WatchingEngine
from splitpu.reproduce.units import Unit, what_is_computed
from splitpu.runs.folder import source_commit, versions
from splitpu.training import Runtime, Training, TrainSpec, open_context, profile_of, train
from splitpu.utils.warnings import Note, collected_warnings
from splitpu.views import Views


@dataclass
class Workplace:
    """Where and with what units are run; keeps the sets it has read and the last draw from them."""

    cache: Path  # of stages, shared by all experiments
    device: str = "auto"
    datasets: Path | None = None  # cache of the data sets
    data_dir: Path | None = None  # of sets that are read from files
    commit: str | None = None  # to be noted where the code is not a checkout
    side_by_side: int = 1  # how many such processes share the device, so that a time is that of as many runs
    rows: SharedRows = field(default_factory=SharedRows)
    _named: dict[str, NamedSet] = field(default_factory=dict)
    _drawn: dict[tuple[str, int, int], tuple[PUData, HeldOut, float]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type["Workplace"], tuple[Any, ...]]:  # another process reads the sets by itself
        return Workplace, (self.cache, self.device, self.datasets, self.data_dir, self.commit, self.side_by_side)

    def draw(self, name: str, positives: int, seed: int) -> tuple[PUData, HeldOut, float]:
        """PU data, test rows and the true prior; the seed draws which positives are labelled."""
        key = (name, positives, seed)
        if key not in self._drawn:
            if name not in self._named:
                self._named[name] = load_named(name, self.datasets, folder=self.data_dir)
            self._drawn.clear()
            named = self._named[name]
            self._drawn[key] = (*make_pu(named, positives, seed), true_prior(named))
        return self._drawn[key]

    def runtime(self, observer: Observer) -> Runtime:
        return Runtime(device=self.device, checkpoints=self.cache, observer=observer, shared=self.rows)


@dataclass(frozen=True)
class Outcome:
    """What a unit trained, before it is compared with the truth and written down."""

    base: Teacher
    rounds: Sequence[Round]
    data: PUData  # that the rounds split
    history: Sequence[EpochRecord]
    views: Views
    hardware: Hardware
    engine: str
    more: dict[str, Any] = field(default_factory=dict)
    judged: Callable[[Teacher], dict[str, float]] = lambda _: {}  # each model besides, by rows that were held out

    @classmethod
    def of(cls, training: Training, data: PUData, **found: Any) -> "Outcome":
        result, model, hardware = training.result, training.model, training.hardware
        views = Views(model.preprocessing, model.config.views, hardware.device)
        return cls(result.base, result.rounds, data, result.history, views, hardware, training.engine, **found)

    def figures(self, teacher: Teacher, held_out: HeldOut, prior: float) -> Figures:
        logits = predict_logits(teacher.network, held_out.features, self.views, self.hardware)
        return evaluate_scores(held_out.truth, logits - teacher.threshold, prior)


def run_unit(unit: Unit, workplace: Workplace, observer: Observer, note: Note) -> dict[str, Any]:
    """Run one unit to its end, going on from whatever stages the cache holds; give its result line."""
    started = time.perf_counter()
    gc.collect()  # captured graphs of the unit before, which may have failed for lack of memory, keep theirs
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    data, held_out, prior = workplace.draw(unit.data, unit.positives, unit.seed)
    run = {"figure": _figure, "choice": _choice}.get(unit.experiment.kind, _table)
    with collected_warnings(note) as warnings:
        outcome = run(unit, workplace.runtime(observer), data, held_out, prior)
        base = outcome.figures(outcome.base, held_out, prior)
        rounds = []
        for found in outcome.rounds:
            one, figures = RoundReport.of(found, outcome.data.truth), outcome.figures(found.student, held_out, prior)
            told = {name: getattr(one, name) for name in ("easy", "hard", "noise", "reached", "taken")}
            told |= {"split_epoch": one.stopped_epoch, "metrics": figures, **outcome.judged(found.student)}
            rounds.append({"round": one.number, "accuracy": _percent(figures["accuracy"]), **told})
    spent = round(time.perf_counter() - started, 3)  # that this unit took here
    return _line(unit, workplace, outcome, base, rounds) | {"wall_seconds": spent, "warnings": warnings}


def _table(unit: Unit, runtime: Runtime, data: PUData, held_out: HeldOut, prior: float) -> Outcome:
    """The whole method, as any user runs it."""
    if profile_of(data) != unit.profile:  # it was planned without the data
        raise ValueError(f"{unit.data} was planned as {unit.profile} but is {profile_of(data)}")
    training = train(data, _spec(unit, prior), runtime)
    outcome, final = Outcome.of(training, data), training.result.final
    # What the model is worth where its own threshold is replaced by the one that meets the prior: another cut, the
    # same ranking. Methods cut at 1/2 can so be told from methods that rank badly.
    matched = matched_threshold(final.logits[torch.from_numpy(data.population).to(final.logits.device)], prior)
    at_prior = outcome.figures(replace(final, threshold=matched), held_out, prior)
    return replace(outcome, more={"matched_accuracy": _percent(at_prior["accuracy"])})


def _choice(unit: Unit, runtime: Runtime, data: PUData, held_out: HeldOut, prior: float) -> Outcome:
    """Train without a part of P and U, and judge every model on that part as well as, for comparison, on the test."""
    left, positives, population = hold_out(data, unit.experiment.held_out, unit.seed)
    spec, start = _spec(unit, prior), None
    if unit.config.warmup.name != "none":
        # It sees no label, so the warm-up on all rows, which the tables need anyway, does for all candidates.
        start = warmed_up(open_context(data, spec, runtime)).warm_start
    training = train(left, spec, replace(runtime, warm_start=start))
    outcome = Outcome.of(training, left)

    def judged(teacher: Teacher) -> dict[str, float]:
        on_positives, on_population = (
            predict_logits(teacher.network, data.features[rows], outcome.views, outcome.hardware) - teacher.threshold
            for rows in (positives, population)
        )
        return {
            "pu_accuracy": 100 * pu_criterion(on_positives, on_population, prior),
            "nnpu_value": nnpu_value(on_positives, on_population, prior),
            "pu_auc": 100 * float(placements(on_positives, on_population)[0].mean()),
        }

    more = {
        "base_selection": judged(training.result.base),
        "selection": judged(training.result.final),
        "held_out_positives": len(positives),
        "held_out_population": len(population),
    }
    return replace(outcome, more=more, judged=judged)


def _figure(unit: Unit, runtime: Runtime, data: PUData, held_out: HeldOut, prior: float) -> Outcome:
    """The part of the method that the figure looks at."""
    context = open_context(data, _spec(unit, prior), replace(runtime, engine_type=WatchingEngine))
    engine = context.engine
    assert isinstance(engine, WatchingEngine)  # as asked for just above
    found = FIGURES[unit.experiment.name](warmed_up(context), engine)
    rounds = []
    if found.student is not None and found.split is not None:
        rounds.append(Round(1, found.base, found.split, found.student))
    told = (engine.history, engine.views, engine.hardware, engine.describe())
    return Outcome(found.base, rounds, data, *told, {"series": found.series})


def _spec(unit: Unit, prior: float) -> TrainSpec:
    return TrainSpec(config=unit.config, prior=prior, backbone=unit.network, seed=unit.seed)


def _line(
    unit: Unit, workplace: Workplace, outcome: Outcome, base: Figures, rounds: list[dict[str, Any]]
) -> dict[str, Any]:
    """Everything that is known about the result. The accuracy is that of the last epoch, in percent."""
    settings = config_to_dict(unit.config)
    stage_seconds: dict[str, float] = {}
    for record in outcome.history:
        stage_seconds[record.stage] = round(stage_seconds.get(record.stage, 0.0) + record.seconds, 3)
    final = next((one for one in reversed(rounds) if one["taken"]), None)
    line = {
        **unit.identity,
        "accuracy": final["accuracy"] if final else _percent(base["accuracy"]),
        "base_accuracy": _percent(base["accuracy"]),
        "metrics": final["metrics"] if final else base,
        "base_metrics": base,
        "rounds": [{key: value for key, value in one.items() if key != "metrics"} for one in rounds],
        **outcome.more,
        "seconds": round(sum(stage_seconds.values()), 3),  # of all its stages, whether trained here or found cached
        "stage_seconds": stage_seconds,
        "device": outcome.hardware.describe(),
        "engine": outcome.engine,
        **({"side_by_side": workplace.side_by_side} if workplace.side_by_side > 1 else {}),
        "work": unit.work,
        "data": unit.data,
        "network": unit.network,
        "config_hash": unit.config_hash,
        "config": {section: settings[section] for section in what_is_computed(unit.config)},
        "versions": versions(),
        "commit": workplace.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return dict(finite_or_none(line))


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)
