"""From data and a configuration to a trained model: the one way in, for Python and the command line alike.

Listeners that a run puts between the training loop and the world.

Several trainings at once on one device: seeds, labelled draws or settings that share their rows.

Progress as plain lines of text.

The models that a training made, by name, and whether the one that it ends with is worth anything.
"""

import json
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from splitpu.config.parse import config_from_dict
from splitpu.config.presets import DataProfile
from splitpu.config.schema import Config, EngineConfig, Scenario
from splitpu.data.pudata import PUData, check_interval, check_prior, check_pudata, missing_prior
from splitpu.engine.checkpoint import CheckpointStore
from splitpu.engine.distributed import World
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.parallel_runs import Ended, SharedRows, in_lanes, sensible_lanes
from splitpu.engine.stage import EpochRecord, Observer, Stage, StageOutcome
from splitpu.errors import InputError, Interrupted, SomeRunsFailed, SplitPUWarning
from splitpu.evaluation.calibration import CalibrationMethod, PUCalibrator, sigmoid
from splitpu.evaluation.diagnostics import find_worthlessness
from splitpu.evaluation.metrics import finite_or_none
from splitpu.kernels.dispatch import prepare
from splitpu.methods.context import Context, RowsAside, Teacher, WarmStart, put_aside
from splitpu.methods.registry import find_method, sections_in_use
from splitpu.methods.split import MethodResult
from splitpu.methods.warmup import warmed_up
from splitpu.model import Model, ScoringNetwork
from splitpu.networks.build import NetworkChoice
from splitpu.networks.build import network_recipe as network_recipe
from splitpu.networks.pretrained import PretrainedWeights
from splitpu.types import Floats
from splitpu.utils.arrays import checked_seed
from splitpu.utils.files import disk_errors_in_words
from splitpu.utils.torch_state import usual_torch
from splitpu.utils.warnings import UNRELIABLE
from splitpu.views import Views

FOR_CALIBRATION = 0.2  # share of the rows, if nothing else was said


@dataclass(frozen=True)
class Training:
    """A finished training: the model to keep and everything that was found on the way."""

    model: Model
    result: MethodResult
    hardware: Hardware
    engine: str  # how the arithmetic was done, e.g. graph/bf16/resident
    warm_start: WarmStart | None = None  # what the networks started from, for trainings that can start from the same
    aside: RowsAside | None = None  # the rows that were not trained on

    def decisions(self, teacher: Teacher, logits: Floats) -> Floats:
        """What one of the run's models says of rows with these logits; only the final one may be calibrated."""
        decision: Floats = logits - teacher.threshold
        return self.calibrated(decision) if teacher is self.result.final else decision

    def calibrated(self, decision: Floats) -> Floats:
        """Decisions put through the map that calibrates the final model, if there is one."""
        calibration = self.model.calibration
        return decision if calibration is None else calibration.decision(decision)


def profile_of(data: PUData) -> DataProfile:
    """What a preset may know of the data."""
    return DataProfile(kind=data.kind, rows=len(data), labelled=len(data.positives))


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """Everything that decides what a training ends with; checked when it is made, and against the rows by `train`.

    >>> from splitpu import preset
    >>> TrainSpec(config=preset("default"), prior=0.3).seed
    0
    """

    config: Config
    prior: float | None  # None for methods that do without
    prior_interval: tuple[float, float] | None = None  # 95 %, of an estimate: thresholds look for a gap within it
    backbone: NetworkChoice = "auto"
    layers: tuple[str, str] | None = None  # of a network of the user's: what its low and high features are
    weights: PretrainedWeights | None = None  # that the networks start from
    seed: int = 0
    classes: tuple[Any, Any] = (0, 1)  # what 'not positive' and 'positive' are called in the labels

    def __post_init__(self) -> None:
        check_config(self.config)
        object.__setattr__(self, "seed", checked_seed(self.seed))

    def checked_for(self, data: PUData) -> "TrainSpec":
        """The same with its prior as a plain number, refused if these rows cannot be trained on in this way."""
        prior = check_needs(self.config, data, self.prior)
        interval = None if self.prior_interval is None else check_interval(self.prior_interval, prior)
        return replace(self, prior=prior, prior_interval=interval)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What a training runs on and reports to; none of it changes the result, up to the order of sums."""

    device: str = "auto"
    checkpoints: str | Path | None = None  # a folder: a stopped run goes on where it was
    observer: Observer | None = None
    world: World | None = None  # of several processes, each of which trains with the same data and spec
    shared: SharedRows | None = None  # one copy of the rows for all runs of this process that are given the same
    warm_start: WarmStart | None = None  # made before, in place of the warm-up
    engine_type: type[Engine] = Engine  # another one may look at what the usual one does


@usual_torch()
def train(data: PUData, spec: TrainSpec, runtime: Runtime | None = None) -> Training:
    """Run the configured method on the data.

    >>> from splitpu import load_named, make_pu, preset
    >>> from splitpu.config import apply_overrides
    >>> data, test = make_pu(load_named("digits"), 50, seed=0)
    >>> quick = apply_overrides(preset("default"), ["method=nnpu", "base.epochs=1"])
    >>> train(data, TrainSpec(config=quick, prior=0.49)).model.network_name
    'cnn-small'
    """
    check_pudata(data)
    spec = spec.checked_for(data)
    context = warmed_up(open_context(data, spec, runtime))
    result = find_method(spec.config.method).run(context)
    final, base = (ScoringNetwork(t.network, t.threshold) for t in (result.final, result.base))
    model = Model(
        final,
        base,
        context.recipe.name,
        context.preprocessing,
        spec.config,
        spec.prior,
        spec.classes,
        calibration=_calibrated(context, result.final),
        scenario=data.scenario,
    )
    return Training(
        model, result, context.engine.hardware, context.engine.describe(), context.warm_start, context.aside
    )


def open_context(data: PUData, spec: TrainSpec, runtime: Runtime | None = None) -> Context:
    """Set up everything that stages need, without training any."""
    runtime, config = runtime or Runtime(), spec.config
    data, aside = without_rows_aside(data, config, spec.seed)
    hardware = Hardware.choose(
        runtime.device, config.engine, trains_images=data.kind != "vectors", whatever_else_runs=True
    ).within(runtime.world or World())
    if hardware.kernels:
        prepare(hardware.device)
    shared = runtime.shared or SharedRows()
    rows, preprocessing = shared.of(data.features, hardware.device, config.engine.residence)
    checkpoints = None if runtime.checkpoints is None else Path(runtime.checkpoints)
    engine = runtime.engine_type(
        rows,
        Views(preprocessing, config.views, hardware.device, kernels=hardware.kernels),
        hardware,
        seed=spec.seed,
        store=CheckpointStore(checkpoints, writes=hardware.world.writes),
        observer=runtime.observer or Observer(),
        checkpoint_every=config.engine.checkpoint_every,
        pieces=config.engine.pieces,
    )
    recipe = network_recipe(spec.backbone, preprocessing, spec.layers, spec.weights, rows=len(data))
    data_key = "" if checkpoints is None else data.fingerprint()
    return Context(
        data,
        spec.prior,
        config,
        recipe,
        engine,
        data_key,
        preprocessing,
        runtime.warm_start,
        spec.prior_interval,
        aside,
    )


def without_rows_aside(data: PUData, config: Config, seed: int) -> tuple[PUData, RowsAside | None]:
    """The data as stages see them, and the rows that the configuration keeps from them; the same for the same seed."""
    if config.selection.held_out == 0:
        return data, None
    return put_aside(data, config.selection.held_out, seed)


def _calibrated(context: Context, final: Teacher) -> PUCalibrator | None:
    """The map from the final model's decisions to probabilities, learned on the rows set aside."""
    method = context.config.selection.calibration
    if method == "none" or context.aside is None:
        return None
    decision = (final.logits - final.threshold).double().cpu().numpy()
    return calibrated_on(context.aside, decision, context.known_prior, method, context.data.scenario)


def calibrated_on(
    aside: RowsAside, decision: Floats, prior: float, method: CalibrationMethod, scenario: Scenario
) -> PUCalibrator:
    """The map that rows set aside give for this prior; `decision` is of all rows of the data."""
    return PUCalibrator.fit(
        decision[aside.positives], decision[aside.unlabelled], prior, method=method, scenario=scenario
    )


def check_config(config: object) -> None:
    """Refuse what classifiers take for settings and nothing else does: a dict, a path, nothing at all."""
    if not isinstance(config, Config):
        kind = type(config).__name__
        raise InputError(f"config is a {kind}: give a Config, such as preset('default') or config_from_dict({{...}})")


def check_needs(config: Config, data: PUData, prior: float | None) -> float | None:
    """Refuse, before anything is trained, a method that lacks its prior or the truth it learns from; gives the prior,
    whatever kind of number it came as, as one that can be reckoned with and saved."""
    check_method(config, data)
    if prior is not None:
        return check_prior(prior, data)
    selection = config.selection
    if selection.calibration != "none":
        raise InputError(
            f"calibration ({selection.calibration}) needs the prior, without which P and U say nothing about "
            "probabilities: give it, or leave out calibration"
        )
    if selection.held_out and selection.criterion in ("accuracy", "nnpu"):
        raise InputError(
            "selection.held_out needs the prior, without which P and U say nothing about a model: give it, or "
            "choose by VPU's own loss with selection.criterion=variational"
        )
    if find_method(config.method).needs_prior:
        raise missing_prior(config.method)
    return None


def check_method(config: Config, data: PUData) -> None:
    """The part of it that can be told before the prior, whose estimation may take minutes."""
    method = find_method(config.method)
    names = {method.name} | ({config.base.method} - {"risk"} if method.name == "split-pu" else set())
    asking = [one.name for one in map(find_method, names) if one.needs_truth]
    if asking and data.truth is None:
        raise InputError(
            f"method '{asking[0]}' learns from the true label of every training row, and these data have none: "
            "give them as 'truth', or choose another method"
        )
    if config.members > 1 and "base" not in method.sections:
        raise InputError(
            f"members={config.members} cannot be used with method '{method.name}': leave it out, or choose split-pu, "
            "nnpu, upu or naive"
        )
    _check_selection(config)


def _check_selection(config: Config) -> None:
    """Refuse what rows set aside cannot do."""
    selection = config.selection
    if selection.calibration != "none" and selection.held_out == 0:
        raise InputError(
            f"selection.calibration={selection.calibration} needs rows that were not trained on: set "
            "selection.held_out, for example to 0.2"
        )
    if selection.held_out and "selection" not in sections_in_use(config):
        calibrated = selection.calibration != "none"  # then the rows may be held out for it alone, unasked
        from_them = f", by which probabilities are calibrated ({selection.calibration})" if calibrated else ""
        raise InputError(
            f"method '{config.method}' does not use held-out rows{from_them}: leave out "
            f"{'calibration' if calibrated else 'selection.held_out'}, or choose split-pu, nnpu, upu, vpu or naive"
        )


def with_calibration(config: Config, method: str | None) -> Config:
    """The configuration with calibrated probabilities; where no rows are set aside for it yet, a fifth of them is.

    Then they are for the calibration alone, and the epochs stay the last ones.
    """
    if method is None:
        return config
    settings: dict[str, Any] = {"selection.calibration": method}
    if config.selection.held_out == 0 and method != "none":
        settings |= {"selection.held_out": FOR_CALIBRATION, "selection.criterion": "none"}
    return config_from_dict(settings, config)


class MetricsFile(Observer):
    """One line an epoch. Begins anew, because the loop replays the epochs that a checkpoint holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epochs = 0
        with disk_errors_in_words(path):
            path.write_text("", encoding="utf-8")

    def epoch_done(self, record: EpochRecord) -> None:
        """Append the line and give it to the system at once, so that the file can be followed."""
        line = json.dumps(finite_or_none(record.to_dict()))
        with disk_errors_in_words(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.epochs += 1


class StopWhen(Observer):
    """Ends the run at the next step once the question is answered with yes."""

    def __init__(self, question: Callable[[], bool]) -> None:
        self.question = question

    def should_stop(self) -> bool:
        """Ask."""
        return self.question()


class ObserverList(Observer):
    """Passes everything on to several listeners."""

    def __init__(self, listeners: Sequence[Observer]) -> None:
        self.listeners = tuple(listeners)

    def stage_started(self, stage: Stage, done: int) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.stage_started(stage, done)

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.step_done(stage, epoch, step, steps)

    def epoch_done(self, record: EpochRecord) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.epoch_done(record)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.stage_done(stage, outcome)

    def should_stop(self) -> bool:
        """Stop as soon as one of them wants to."""
        return any(listener.should_stop() for listener in self.listeners)


_One = TypeVar("_One")


def train_side_by_side(
    data: PUData | Sequence[PUData],
    spec: TrainSpec | Sequence[TrainSpec],
    *,
    seeds: Sequence[int],
    runtime: Runtime | None = None,
    observers: Sequence[Observer] | None = None,
    at_once: int | None = None,
) -> list[Training]:
    """Train once for every seed, several at once on a GPU and one after the other on a CPU; results in their order.

    `data` and `spec` may be one for all or one for each seed; data over the same features, as `make_pu` gives them,
    have one copy of the rows on the device. Every training is the one that `train` gives for its seed: bitwise on the
    CPU, up to the order of sums on a GPU. `at_once` limits how many share the device at a time. If one fails, the
    others are brought to their end; `SomeRunsFailed` then holds both.

    >>> from splitpu import load_named, make_pu, preset
    >>> digits = load_named("digits")
    >>> draws = [make_pu(digits, 50, seed)[0] for seed in (0, 1)]
    >>> from splitpu.config import apply_overrides
    >>> quick = apply_overrides(preset("default"), ["method=nnpu", "base.epochs=1"])
    >>> both = train_side_by_side(draws, TrainSpec(config=quick, prior=0.49), seeds=(0, 1))
    >>> [one.model.network_name for one in both]
    ['cnn-small', 'cnn-small']
    """
    seeds, runtime = _whole_numbers(seeds), runtime or Runtime()
    sets, specs = _for_each(data, check_pudata, seeds, "data"), _for_each(spec, _check_spec, seeds, "spec")
    listeners = list(observers) if observers is not None else [Observer() for _ in seeds]
    if len(listeners) != len(seeds):
        raise InputError(f"{len(listeners)} observers were given for {len(seeds)} seeds: give one for each")
    specs = [replace(one, seed=seed).checked_for(rows) for one, seed, rows in zip(specs, seeds, sets, strict=True)]
    shared, left = SharedRows(), threading.Event()
    jobs = [
        partial(
            train,
            rows,
            one,
            replace(runtime, observer=ObserverList([listener, StopWhen(left.is_set)]), shared=shared),
        )
        for rows, one, listener in zip(sets, specs, listeners, strict=True)
    ]
    ended = run_jobs(jobs, runtime.device, at_once, when_left=left.set)
    return all_or_error(ended, [f"seed {seed}" for seed in seeds])


def _check_spec(spec: object) -> None:
    if not isinstance(spec, TrainSpec):
        raise InputError(f"spec is a {type(spec).__name__}: give TrainSpec(config=..., prior=...)")


def run_jobs(
    jobs: Sequence[Callable[[], _One]], device: str, at_once: int | None, when_left: Callable[[], None]
) -> list[Ended[_One]]:
    """Run the jobs in as many lanes as suit the device, or as were asked for."""
    if at_once is not None and at_once < 1:
        raise InputError(f"{at_once} runs at once would train nothing: give 1 or more")
    chosen = Hardware.choose(device, EngineConfig()).device
    lanes = min(len(jobs), at_once or sensible_lanes(chosen, len(jobs)))
    return in_lanes(jobs, chosen, lanes, when_left)


def all_or_error(ended: Sequence[Ended[_One]], names: Sequence[str]) -> list[_One]:
    """All answers, or an error that names the runs that failed; one that was asked to stop did not fail."""
    failed = {number: one.error for number, one in enumerate(ended) if one.error is not None}
    for error in failed.values():
        if isinstance(error, Interrupted):
            raise error
    if failed:
        finished = {number: one.answer for number, one in enumerate(ended) if one.error is None}
        first = next(iter(failed.values()))
        raise SomeRunsFailed(_in_words(failed, finished, names), failed, finished) from first
    return [one.answer for one in ended]


def _in_words(failed: Mapping[int, Exception], finished: Mapping[int, Any], names: Sequence[str]) -> str:
    reasons = "; ".join(f"{names[number]} failed ({error})" for number, error in failed.items())
    others = ", ".join(names[number] for number in finished)
    return f"{reasons}; finished: {others or 'none'}."


def _whole_numbers(seeds: Sequence[int]) -> list[int]:
    try:
        given = list(seeds)
    except TypeError:
        raise InputError(f"seeds={seeds!r} is not a list: give one for each training, such as [0, 1, 2]") from None
    if not given:
        raise InputError("seeds is empty: give at least one, such as [0, 1, 2]")
    return [checked_seed(seed) for seed in given]


def _for_each(
    given: _One | Sequence[_One], check: Callable[[object], None], seeds: Sequence[int], name: str
) -> list[_One]:
    """One for every seed, each of which passed the `check` that `train` has for it."""
    several: list[_One] = list(given) if isinstance(given, list | tuple) else [given] * len(seeds)  # type: ignore[list-item]
    for one in several:
        check(one)
    if len(several) != len(seeds):
        raise InputError(f"{name} has {len(several)} entries for {len(seeds)} seeds: give one for all, or one for each")
    return several


class ProgressLines(Observer):
    """Plain lines on the standard output, for logs and notebooks alike."""

    def __init__(self, verbose: int) -> None:
        if not isinstance(verbose, int | np.integer):
            raise InputError(f"verbose={verbose!r} is not a whole number: give 0 for silence, 1 or 2")
        self.verbose = verbose

    def epoch_done(self, record: EpochRecord) -> None:
        """Print the epoch, if asked for this much."""
        if self.verbose >= 2:
            print(f"{record.stage}: epoch {record.epoch}/{record.epochs}, {_described(record)}", flush=True)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        """Print how the stage ended and what it took."""
        if self.verbose >= 1 and outcome.history:
            seconds = sum(record.seconds for record in outcome.history)
            last = outcome.history[-1]
            print(f"{stage.name}: {last.epoch} epochs in {seconds:.1f} s, {_described(last)}", flush=True)


def _described(record: EpochRecord) -> str:
    loss = f"loss {record.terms.get('loss', float('nan')):.4f}"
    return loss if record.agreement is None else f"{loss}, agreement {record.agreement:.3f}"


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
