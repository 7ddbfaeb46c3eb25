"""From data and a configuration to a trained model, the one way in; what listens to it, and its models by name."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.config.parse import config_from_dict
from splitpu.config.presets import DataProfile
from splitpu.config.schema import Config, Scenario
from splitpu.data.pudata import PUData, check_interval, check_prior, check_pudata, missing_prior
from splitpu.engine.checkpoint import CheckpointStore
from splitpu.engine.distributed import World
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.rows import SharedRows
from splitpu.engine.stage import EpochRecord, Observer, Stage, StageOutcome
from splitpu.errors import InputError, SplitPUWarning
from splitpu.evaluation.calibration import CalibrationMethod, PUCalibrator, sigmoid
from splitpu.evaluation.diagnostics import find_worthlessness
from splitpu.evaluation.metrics import finite_or_none
from splitpu.kernels.dispatch import prepare
from splitpu.learners.learner_networks import LEARNER, LearnerBackbone
from splitpu.methods.context import Context, RowsAside, Teacher, WarmStart, put_aside
from splitpu.methods.registry import find_method, sections_in_use, uses_learners
from splitpu.methods.split import MethodResult
from splitpu.methods.warmup import warmed_up
from splitpu.model import Model, ScoringNetwork
from splitpu.networks.build import NetworkChoice, network_recipe
from splitpu.networks.encoders import is_encoder, is_tuned
from splitpu.networks.pretrained import PretrainedWeights
from splitpu.types import Floats
from splitpu.utils.arrays import checked_seed, leave_random_alone
from splitpu.utils.files import disk_errors_in_words, write_text
from splitpu.utils.reading import sealed
from splitpu.utils.torch_state import usual_torch
from splitpu.utils.warnings import UNRELIABLE
from splitpu.views import Views

LEARN_ANSWERS = ("split-pu", "nnpu", "upu")  # methods that train networks with labels that somebody gave
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

    @property
    def out_of_fold(self) -> Floats | None:
        """Of learners and heads, every training row's final decision and naive logit, by those that had not seen it."""
        if self.model.network_name != LEARNER and self.result.learners is None:
            return None
        return np.stack([row_decisions(self, self.result.final), self.result.base.logits.double().cpu().numpy()])

    def decisions(self, teacher: Teacher, logits: Floats) -> Floats:
        """What one of the run's models says of rows with these logits; only the final one may be calibrated."""
        decision: Floats = logits - teacher.threshold
        return self.calibrated(decision) if teacher is self.result.final else decision

    def calibrated(self, decision: Floats) -> Floats:
        """Decisions put through the map that calibrates the final model, if there is one."""
        calibration = self.model.calibration
        return decision if calibration is None else calibration.decision(decision)


def profile_of(data: PUData, backbone: NetworkChoice | None = None) -> DataProfile:
    """What a preset may know of the data, and of a network that is tuned."""
    return DataProfile(kind=data.kind, rows=len(data), labelled=len(data.positives), tuned=is_tuned(backbone))


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
    learner: Any = None  # a scikit-learn classifier in place of the learners that the configuration names
    seed: int = 0
    classes: tuple[Any, Any] = (0, 1)  # what 'not positive' and 'positive' are called in the labels

    def __post_init__(self) -> None:
        if not isinstance(self.config, Config):  # classifiers take a dict or a path for settings, and nothing else does
            kind = type(self.config).__name__
            raise InputError(f"config is a {kind}: give a Config, as preset('default') or config_from_dict({{...}}) do")
        object.__setattr__(self, "seed", checked_seed(self.seed))
        network_given = self.backbone != "auto" or self.layers is not None or self.weights is not None
        if network_given and self.config.learner == "auto":
            object.__setattr__(self, "config", config_from_dict({"learner": "network"}, self.config))

    def checked_for(self, data: PUData) -> "TrainSpec":
        """The same with its prior as a plain number, refused if these rows cannot be trained on in this way."""
        config = self.config
        if self.learner is None:
            check_per_row(config, data)
        if data.answers is not None and not (uses_learners(config) or config.method in LEARN_ANSWERS):
            wrong = f"method '{config.method}' learns nothing from known negatives or confirmed positives"
            raise InputError(f"{wrong}: choose {', '.join(LEARN_ANSWERS)} or a learner")
        if is_encoder(self.backbone):
            # Frozen features have a base and a student of their own, and nothing that could be warmed up.
            if data.kind == "vectors":
                raise InputError(f"{self.backbone} needs images, and the data are vectors: use backbone='auto'")
            if config.method != "split-pu" or config.warmup.name != "none" or config.members > 1:
                wrong = f"method '{config.method}'" if config.method != "split-pu" else "a warm-up or several members"
                advice = "leave that out, or choose a network that is trained"
                raise InputError(f"{self.backbone} is used with frozen features, which {wrong} cannot be: {advice}")
        if is_tuned(self.backbone) and (config.warmup.name != "none" or config.initialisation != "torch"):
            wrong = "a warm-up" if config.warmup.name != "none" else f"initialisation = {config.initialisation}"
            raise InputError(f"{self.backbone} starts from pretrained weights, not from {wrong}: leave one of them out")
        prior = check_needs(config, data, self.prior)
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
    >>> from splitpu.config.parse import apply_overrides
    >>> data, test = make_pu(load_named("digits"), 50, seed=0)
    >>> quick = apply_overrides(preset("default"), ["method=nnpu", "base.epochs=1"])
    >>> train(data, TrainSpec(config=quick, prior=0.49)).model.network_name
    'cnn-small'
    """
    check_pudata(data)
    leave_random_alone()
    spec = spec.checked_for(data)
    context = warmed_up(open_context(data, spec, runtime))
    result = find_method(spec.config.method).run(context)
    final, base = (ScoringNetwork(t.network, t.threshold) for t in (result.final, result.base))
    name = LEARNER if isinstance(final.network, LearnerBackbone) else context.recipe.name  # or the encoder's name
    model = Model(
        final, base, name, context.preprocessing, spec.config, spec.prior, spec.classes, scenario=data.scenario
    )
    method, aside, engine = spec.config.selection.calibration, context.aside, context.engine
    if method != "none" and aside is not None:
        decision = (result.final.logits - result.final.threshold).double().cpu().numpy()
        model = replace(model, calibration=calibrated_on(aside, decision, context.known_prior, method, data.scenario))
    return Training(model, result, engine.hardware, engine.describe(), context.warm_start, aside)


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
    seen: dict[str, Any] = {"rows": len(data), "on_cpu": hardware.device.type == "cpu", "features": data.features}
    recipe = network_recipe(spec.backbone, preprocessing, spec.layers, spec.weights, **seen)
    data_key = "" if checkpoints is None else data.fingerprint()
    found = (runtime.warm_start, spec.prior_interval, aside)
    return Context(data, spec.prior, config, recipe, engine, data_key, preprocessing, *found, learner=spec.learner)


def without_rows_aside(data: PUData, config: Config, seed: int) -> tuple[PUData, RowsAside | None]:
    """The data as stages see them, and the rows that the configuration keeps from them; the same for the same seed."""
    if config.selection.held_out == 0:
        return data, None
    return put_aside(data, config.selection.held_out, seed)


def calibrated_on(
    aside: RowsAside, decision: Floats, prior: float, method: CalibrationMethod, scenario: Scenario
) -> PUCalibrator:
    """The map that rows set aside give for this prior; `decision` is of all rows of the data."""
    known, others = decision[aside.positives], decision[aside.unlabelled]
    return PUCalibrator.fit(known, others, prior, method=method, scenario=scenario)


def check_needs(config: Config, data: PUData, prior: float | None) -> float | None:
    """Refuse, before anything is trained, a method that lacks its prior or the truth; gives the prior as a number."""
    check_method(config, data)
    if prior is not None:
        return check_prior(prior, data)
    selection = config.selection
    if selection.calibration != "none":
        why = "without which P and U say nothing about probabilities: give it, or leave out calibration"
        raise InputError(f"calibration ({selection.calibration}) needs the prior, {why}")
    if selection.held_out and selection.criterion in ("accuracy", "nnpu"):
        advice = "give it, or choose by VPU's own loss with selection.criterion=variational"
        raise InputError(f"selection.held_out needs the prior, without which P and U say nothing of a model: {advice}")
    if find_method(config.method).needs_prior:
        raise missing_prior(config.method)
    return None


def check_per_row(config: Config, data: PUData) -> None:
    """Networks draw their batches at random from all rows: neither weights nor groups would have any effect."""
    given = [name for name in ("sample_weight", "groups") if getattr(data, name) is not None]
    if given and not uses_learners(config):
        learners = "split-pu with learner=auto, logistic, bagging, forest, boosting or elkan-noto"
        wrong = f"{given[0]} is for learners, and {config.method} trains networks here"
        raise InputError(f"{wrong}: leave it out, or choose learners ({learners})")


def check_method(config: Config, data: PUData) -> None:
    """The part of it that can be told before the prior, whose estimation may take minutes."""
    method = find_method(config.method)
    if data.is_sparse and not uses_learners(config):
        learners = "split-pu with learner=auto, logistic, bagging, forest or elkan-noto"
        others = "give X.toarray(); of a table, leave its columns of free text out (--ignore COLUMN)"
        wrong = f"X is sparse, and {method.title} trains networks here, which take no sparse rows"
        raise InputError(f"{wrong}: choose learners ({learners}), or {others}")
    names = {method.name} | ({config.base.method} - {"risk"} if method.name == "split-pu" else set())
    asking = [one.name for one in map(find_method, names) if one.needs_truth]
    if asking and data.truth is None:
        wrong = f"method '{asking[0]}' learns from the true label of every training row, and these data have none"
        raise InputError(f"{wrong}: give them as 'truth', or choose another method")
    if "labelled_by" in method.sections:
        data.features_of(config.labelled_by)
    if config.members > 1 and "base" not in method.sections:
        wrong = f"members={config.members} cannot be used with method '{method.name}'"
        raise InputError(f"{wrong}: leave it out, or choose split-pu, nnpu, upu or naive")
    selection, calibrated = config.selection, config.selection.calibration != "none"
    if calibrated and selection.held_out == 0:
        wrong = f"selection.calibration={selection.calibration} needs rows that were not trained on"
        raise InputError(f"{wrong}: set selection.held_out, for example to 0.2")
    for_judging = selection.criterion == "none" and not calibrated  # rows can be kept from any method for that
    read = sections_in_use(replace(config, selection=replace(selection, held_out=0.0)))
    if selection.held_out and not for_judging and "selection" not in read:
        from_them = f", by which probabilities are calibrated ({selection.calibration})" if calibrated else ""
        out = "calibration" if calibrated else "selection.held_out"
        wrong = f"method '{config.method}' does not use held-out rows{from_them}"
        raise InputError(f"{wrong}: leave out {out}, or choose split-pu, nnpu, upu, vpu or naive")


def with_calibration(config: Config, method: str | None) -> Config:
    """The configuration with calibrated probabilities, for which alone a fifth of the rows is set aside if none is."""
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
            write_text(path, "")  # in the place of whatever is there

    def epoch_done(self, record: EpochRecord) -> None:
        """Append the line and give it to the system at once, so that the file can be followed."""
        line = json.dumps(sealed(finite_or_none(record.to_dict())))
        with disk_errors_in_words(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.epochs += 1


class ObserverList(Observer):
    """Passes everything on to several listeners, and stops the run where one of them or `stop` says so."""

    def __init__(self, *listeners: Observer, stop: Callable[[], bool] = lambda: False) -> None:
        self.listeners, self._stop = listeners, stop
        for event in ("stage_started", "step_done", "epoch_done", "stage_done", "watch"):
            setattr(self, event, partial(self._pass_on, event))

    def _pass_on(self, event: str, *news: Any) -> None:
        for listener in self.listeners:
            getattr(listener, event)(*news)

    def should_stop(self) -> bool:
        return self._stop() or any(listener.should_stop() for listener in self.listeners)


class ProgressLines(Observer):
    """Plain lines on the standard output, for logs and notebooks alike."""

    def __init__(self, verbose: int) -> None:
        if not isinstance(verbose, int | np.integer):
            raise InputError(f"verbose={verbose!r} is not a whole number: give 0 for silence, 1 or 2")
        self.verbose = verbose

    def epoch_done(self, record: EpochRecord) -> None:
        if self.verbose >= 2:
            print(f"{record.stage}: epoch {record.epoch}/{record.epochs}, {_described(record)}", flush=True)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
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
    result = training.result
    if result.learners is not None:  # what is not shipped is in the table of learners, and not a model
        base, shipped = result.learner_names
        base = "base" if base == "base" else f"base: {base}"  # heads on frozen features have no other names
        return [(base, result.base), *((f"shipped: {shipped}", r.student) for r in result.rounds if r.taken)]
    names = (f"round {r.number} student{'' if r.taken else ', not taken'}" for r in result.rounds)
    return [("base", result.base), *zip(names, (r.student for r in result.rounds), strict=True)]


def final_name(training: Training) -> str:
    """What the model is called that the training ends with."""
    return next(name for name, teacher in models_of(training) if teacher is training.result.final)


def row_decisions(training: Training, teacher: Teacher) -> Floats:
    """What one of the run's models says of all training rows; above nought = positive."""
    return training.decisions(teacher, teacher.logits.double().cpu().numpy())


def row_probabilities(training: Training, teacher: Teacher) -> Floats:
    """What one of the run's models says of all training rows, all put through the map that calibrates the final one."""
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
