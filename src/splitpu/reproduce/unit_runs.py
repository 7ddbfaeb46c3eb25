"""From a unit to its result line: load the data, train, compare with the truth of the test rows, write down how."""

import gc
import threading
import time
from collections.abc import Sequence
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
from splitpu.engine.parallel_runs import SharedRows
from splitpu.engine.stage import EpochRecord, Observer
from splitpu.evaluation.held_out import hold_out, nnpu_value, pu_criterion
from splitpu.evaluation.metrics import Figures, evaluate_scores, finite_or_none
from splitpu.methods.context import Teacher
from splitpu.methods.split import Round
from splitpu.methods.thresholds import matched_threshold
from splitpu.methods.warmup import warmed_up
from splitpu.report.contents import RoundReport
from splitpu.reproduce.figures import FIGURES, WatchingEngine
from splitpu.reproduce.units import Unit, what_is_computed
from splitpu.runs.folder import source_commit, versions
from splitpu.training import Runtime, TrainSpec, open_context, profile_of, train
from splitpu.utils.torch_state import TORCH_STATE_LOCK
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
    side_by_side: int = 1  # units that are run at once
    rows: SharedRows = field(default_factory=SharedRows)
    _drawing: threading.Lock = field(default_factory=threading.Lock)
    _named: dict[str, NamedSet] = field(default_factory=dict)
    _drawn: dict[tuple[str, int, int], tuple[PUData, HeldOut, float]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type["Workplace"], tuple[Any, ...]]:  # another process reads the sets by itself
        return Workplace, (self.cache, self.device, self.datasets, self.data_dir, self.commit, self.side_by_side)

    def draw(self, name: str, positives: int, seed: int) -> tuple[PUData, HeldOut, float]:
        """PU data, test rows and the true prior; the seed draws which positives are labelled."""
        key = (name, positives, seed)
        with self._drawing:
            if key not in self._drawn:
                if name not in self._named:
                    self._named[name] = load_named(name, self.datasets, folder=self.data_dir)
                self._drawn.clear()
                named = self._named[name]
                self._drawn[key] = (*make_pu(named, positives, seed), true_prior(named))
            return self._drawn[key]

    def runtime(self, observer: Observer) -> Runtime:
        """What trainings run on here."""
        return Runtime(device=self.device, checkpoints=self.cache, observer=observer, shared=self.rows)


@dataclass(frozen=True)
class Outcome:
    """What a unit found, before it is written down."""

    base: Figures
    rounds: list[dict[str, Any]]
    history: Sequence[EpochRecord]
    hardware: Hardware
    engine: str
    more: dict[str, Any] = field(default_factory=dict)


def run_unit(unit: Unit, workplace: Workplace, observer: Observer, note: Note) -> dict[str, Any]:
    """Run one unit to its end, going on from whatever stages the cache holds; give its result line."""
    started = time.perf_counter()
    free_memory()  # of the unit before, which may have failed for lack of it
    data, held_out, prior = workplace.draw(unit.data, unit.positives, unit.seed)
    run = {"figure": _figure, "choice": _choice}.get(unit.experiment.kind, _table)
    with collected_warnings(note) as warnings:
        outcome = run(unit, workplace, observer, data, held_out, prior)
    return _line(unit, workplace, outcome, warnings, time.perf_counter() - started)


def free_memory() -> None:
    """Captured graphs keep their memory until they are collected."""
    with TORCH_STATE_LOCK:  # never while another unit captures a step
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _table(
    unit: Unit, workplace: Workplace, observer: Observer, data: PUData, held_out: HeldOut, prior: float
) -> Outcome:
    """The whole method, as any user runs it."""
    if profile_of(data) != unit.profile:  # it was planned without the data
        raise ValueError(f"{unit.data} was planned as {unit.profile} but is {profile_of(data)}")
    training = train(data, _spec(unit, prior), workplace.runtime(observer))
    hardware = training.hardware
    views = Views(training.model.preprocessing, training.model.config.views, hardware.device)
    result = training.result
    matched = matched_threshold(result.final.logits[torch.from_numpy(data.population).to(hardware.device)], prior)
    at_prior = _test_figures(replace(result.final, threshold=matched), held_out, views, hardware, prior)
    return Outcome(
        base=_test_figures(result.base, held_out, views, hardware, prior),
        rounds=[_round(r, data, _test_figures(r.student, held_out, views, hardware, prior)) for r in result.rounds],
        history=result.history,
        hardware=hardware,
        engine=training.engine,
        # What the model is worth where its own threshold is replaced by the one that meets the prior: another cut, the
        # same ranking. Methods cut at 1/2 can so be told from methods that rank badly.
        more={"matched_accuracy": _percent(at_prior["accuracy"])},
    )


def _choice(
    unit: Unit, workplace: Workplace, observer: Observer, data: PUData, held_out: HeldOut, prior: float
) -> Outcome:
    """Train without a part of P and U, and judge every model on that part as well as, for comparison, on the test."""
    left, positives, population = hold_out(data, unit.experiment.held_out, unit.seed)
    spec, runtime = _spec(unit, prior), workplace.runtime(observer)
    start = None
    if unit.config.warmup.name != "none":
        # It sees no label, so the warm-up on all rows, which the tables need anyway, does for all candidates.
        start = warmed_up(open_context(data, spec, runtime)).warm_start
    training = train(left, spec, replace(runtime, warm_start=start))
    hardware, result = training.hardware, training.result
    views = Views(training.model.preprocessing, training.model.config.views, hardware.device)

    def judged(teacher: Teacher) -> dict[str, float]:
        on_positives, on_population = (
            predict_logits(teacher.network, data.features[rows], views, hardware) - teacher.threshold
            for rows in (positives, population)
        )
        return {
            "pu_accuracy": 100 * pu_criterion(on_positives, on_population, prior),
            "nnpu_value": nnpu_value(on_positives, on_population, prior),
        }

    rounds = [
        {**_round(r, left, _test_figures(r.student, held_out, views, hardware, prior)), **judged(r.student)}
        for r in result.rounds
    ]
    more = {
        "base_selection": judged(result.base),
        "selection": judged(result.final),
        "held_out_positives": len(positives),
        "held_out_population": len(population),
    }
    base = _test_figures(result.base, held_out, views, hardware, prior)
    return Outcome(base, rounds, result.history, hardware, training.engine, more)


def _figure(
    unit: Unit, workplace: Workplace, observer: Observer, data: PUData, held_out: HeldOut, prior: float
) -> Outcome:
    """The part of the method that the figure looks at."""
    context = open_context(data, _spec(unit, prior), replace(workplace.runtime(observer), engine_type=WatchingEngine))
    engine = context.engine
    assert isinstance(engine, WatchingEngine)  # as asked for just above
    found = FIGURES[unit.experiment.name](warmed_up(context), engine)
    views, hardware = engine.views, engine.hardware
    rounds = []
    if found.student is not None and found.split is not None:
        figures = _test_figures(found.student, held_out, views, hardware, prior)
        rounds.append(_round(Round(1, found.base, found.split, found.student), data, figures))
    base = _test_figures(found.base, held_out, views, hardware, prior)
    return Outcome(base, rounds, engine.history, hardware, engine.describe(), {"series": found.series})


def _spec(unit: Unit, prior: float) -> TrainSpec:
    return TrainSpec(config=unit.config, prior=prior, backbone=unit.network, seed=unit.seed)


def _test_figures(teacher: Teacher, held_out: HeldOut, views: Views, hardware: Hardware, prior: float) -> Figures:
    logits = predict_logits(teacher.network, held_out.features, views, hardware)
    return evaluate_scores(held_out.truth, logits - teacher.threshold, prior)


def _round(found: Round, data: PUData, figures: Figures) -> dict[str, Any]:
    one = RoundReport.of(found, data.truth)
    return {
        **{"round": one.number, "accuracy": _percent(figures["accuracy"]), "easy": one.easy, "hard": one.hard},
        **{"noise": one.noise, "split_epoch": one.stopped_epoch, "reached": one.reached, "taken": one.taken},
        "metrics": figures,
    }


def _line(
    unit: Unit, workplace: Workplace, outcome: Outcome, warnings: list[str], wall_seconds: float
) -> dict[str, Any]:
    """Everything that is known about the result. The accuracy is that of the last epoch, in percent."""
    settings = config_to_dict(unit.config)
    stage_seconds: dict[str, float] = {}
    for record in outcome.history:
        stage_seconds[record.stage] = round(stage_seconds.get(record.stage, 0.0) + record.seconds, 3)
    seconds = round(sum(stage_seconds.values()), 3)
    shared = any(record.side_by_side for record in outcome.history)
    final = next((r for r in reversed(outcome.rounds) if r["taken"]), None)
    line = {
        **unit.identity,
        "accuracy": final["accuracy"] if final else _percent(outcome.base["accuracy"]),
        "base_accuracy": _percent(outcome.base["accuracy"]),
        "metrics": final["metrics"] if final else outcome.base,
        "base_metrics": outcome.base,
        "rounds": [{key: value for key, value in r.items() if key != "metrics"} for r in outcome.rounds],
        **outcome.more,
        "seconds": seconds,  # of all its stages, whether trained here or found cached
        "wall_seconds": round(wall_seconds, 3),  # that this unit took here
        "stage_seconds": stage_seconds,
        "device": outcome.hardware.describe(),
        # Times of units that share a device say nothing about one alone: beside them, its share of the time.
        "device_seconds": round(sum(record.device_seconds for record in outcome.history), 3) if shared else seconds,
        **({"side_by_side": workplace.side_by_side} if workplace.side_by_side > 1 else {}),
        "engine": outcome.engine,
        "work": unit.work,
        "data": unit.data,
        "network": unit.network,
        "config_hash": unit.config_hash,
        "config": {section: settings[section] for section in what_is_computed(unit.config)},
        "warnings": warnings,
        "versions": versions(),
        "commit": workplace.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    cleaned: dict[str, Any] = finite_or_none(line)
    return cleaned


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)
