"""From data and a configuration to a trained model: the one way in, for Python and the command line alike."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.ambient import usual_torch
from splitpu.calibration import CalibrationMethod, PUCalibrator
from splitpu.config.parse import config_from_dict
from splitpu.config.presets import DataProfile
from splitpu.config.schema import Config, Scenario
from splitpu.data.priors import check_interval
from splitpu.data.pudata import PUData, check_prior, check_pudata
from splitpu.engine.checkpoint import CheckpointStore
from splitpu.engine.hardware import Hardware
from splitpu.engine.lanes import SharedRows
from splitpu.engine.loop import Engine
from splitpu.engine.stage import Observer
from splitpu.engine.world import World
from splitpu.errors import InputError
from splitpu.kernels import prepare
from splitpu.methods.choosing import RowsAside, put_aside
from splitpu.methods.context import Context, Teacher, WarmStart
from splitpu.methods.recipe import Backbone as Backbone
from splitpu.methods.recipe import network_recipe as network_recipe
from splitpu.methods.registry import find_method, missing_prior, sections_in_use
from splitpu.methods.result import MethodResult
from splitpu.methods.warmup import warmed_up
from splitpu.models import Model, ScoringNetwork
from splitpu.networks.pretrained import PretrainedWeights
from splitpu.seeds import checked_seed
from splitpu.views import Views

Floats = npt.NDArray[np.float64]
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


@usual_torch()
def train(
    data: PUData,
    *,
    prior: float | None,
    prior_interval: tuple[float, float] | None = None,
    config: Config,
    backbone: Backbone = "auto",
    seed: int = 0,
    device: str = "auto",
    checkpoints: str | Path | None = None,
    observer: Observer | None = None,
    layers: tuple[str, str] | None = None,
    classes: tuple[Any, Any] = (0, 1),
    world: World | None = None,
    weights: PretrainedWeights | None = None,
    shared: SharedRows | None = None,
    warm_start: WarmStart | None = None,
) -> Training:
    """Run the configured method on the data. With a `checkpoints` folder, a stopped run goes on where it was.

    A prior that is an estimate comes with its `prior_interval` (95 %), which holds it and within which thresholds look
    for a gap.
    In a `world` of several processes each calls this with the same data and settings; all end with the same model.
    Runs in one process that are given the same `shared` have one copy of the rows among them.
    A `warm_start` that was made before takes the place of the warm-up.
    """
    check_pudata(data)
    check_config(config)
    seed = checked_seed(seed)
    prior = check_needs(config, data, prior)
    if prior_interval is not None:
        prior_interval = check_interval(prior_interval, prior)
    context = open_context(
        data,
        prior=prior,
        prior_interval=prior_interval,
        config=config,
        backbone=backbone,
        seed=seed,
        device=device,
        checkpoints=checkpoints,
        observer=observer,
        layers=layers,
        world=world,
        weights=weights,
        shared=shared,
        warm_start=warm_start,
    )
    context = warmed_up(context)
    result = find_method(config.method).run(context)
    final, base = (ScoringNetwork(t.network, t.threshold) for t in (result.final, result.base))
    model = Model(
        final,
        base,
        context.recipe.name,
        context.preprocessing,
        config,
        prior,
        classes,
        calibration=_calibrated(context, result.final),
        scenario=data.scenario,
    )
    return Training(
        model, result, context.engine.hardware, context.engine.describe(), context.warm_start, context.aside
    )


def open_context(
    data: PUData,
    *,
    prior: float | None,
    prior_interval: tuple[float, float] | None = None,
    config: Config,
    backbone: Backbone = "auto",
    seed: int = 0,
    device: str = "auto",
    checkpoints: str | Path | None = None,
    observer: Observer | None = None,
    layers: tuple[str, str] | None = None,
    engine_type: type[Engine] = Engine,
    world: World | None = None,
    weights: PretrainedWeights | None = None,
    shared: SharedRows | None = None,
    warm_start: WarmStart | None = None,
) -> Context:
    """Set up everything that stages need, without training any; the options are those of `train`.

    Another `engine_type` may watch what the usual one does.
    """
    data, aside = without_rows_aside(data, config, seed)
    hardware = Hardware.choose(
        device, config.engine, trains_images=data.kind != "vectors", whatever_else_runs=True
    ).within(world or World())
    if hardware.kernels:
        prepare(hardware.device)
    rows, preprocessing = (shared or SharedRows()).of(data.features, hardware.device, config.engine.residence)
    engine = engine_type(
        rows,
        Views(preprocessing, config.views, hardware.device, kernels=hardware.kernels),
        hardware,
        seed=seed,
        store=CheckpointStore(None if checkpoints is None else Path(checkpoints), writes=hardware.world.writes),
        observer=observer or Observer(),
        checkpoint_every=config.engine.checkpoint_every,
        pieces=config.engine.pieces,
    )
    recipe = network_recipe(backbone, preprocessing, layers, weights, rows=len(data))
    data_key = data.fingerprint() if checkpoints is not None else ""
    return Context(data, prior, config, recipe, engine, data_key, preprocessing, warm_start, prior_interval, aside)


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
