"""What every stage of a method needs to know, gathered once; the best epoch of a stage by rows it is not trained on."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.parse import settings_in_names
from splitpu.config.schema import Config
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData, missing_prior
from splitpu.engine.inference import training_logits
from splitpu.engine.loop import Engine
from splitpu.engine.stage import EpochRecord, Pool, Stage, StageOutcome, Task, kind_of
from splitpu.errors import InputError
from splitpu.evaluation.held_out import nnpu_value, pu_criterion, set_aside, variational_value
from splitpu.methods import thresholds
from splitpu.networks.backbones import Backbone, draw_kaiming_weights
from splitpu.networks.build import OF_ANY_SIZE, NetworkRecipe, refuse_frozen
from splitpu.types import Indices
from splitpu.utils.torch_state import derive_seed, seeded

TERM = "held_out"  # the name of the figure among the terms of an epoch
# A method's own rule for where to cut the logits of all training rows.
OwnThreshold = Callable[[Tensor], float]
_CERTAIN = 30.0  # a logit whose probability is one for all that counts
_BEST, _BEST_EPOCH, _WEIGHTS = "best", "best epoch", "best weights/"  # names in a stage's memory


@dataclass(frozen=True)
class KeptWeights:
    """Which weights a stage ended with, and their figure on the rows set aside."""

    figure: float
    epoch: int  # after which they were taken
    averaged: bool  # the running average at the stage's end, rather than the weights of an epoch


@dataclass(frozen=True, eq=False)
class RowsAside:
    """Rows that no stage trains on: labelled ones, and those that stand for the population."""

    positives: Indices
    unlabelled: Indices
    kept: dict[str, KeptWeights] = field(default_factory=dict)  # by stage: what was chosen by these rows so far


def put_aside(data: PUData, share: float, seed: int) -> tuple[PUData, RowsAside]:
    """The data without a share of P and of U for the stages, and those rows; the same for the same seed."""
    positives, unlabelled = set_aside(data, share, derive_seed(seed, "rows set aside"))
    return _without(data, np.concatenate([positives, unlabelled])), RowsAside(positives, unlabelled)


def _without(data: PUData, rows: Indices) -> PUData:
    mask = np.zeros(len(data), dtype=np.bool_) if data.aside is None else data.aside.copy()
    mask[rows] = True
    return replace(data, aside=mask)


class EpochChoice:
    """Watches one stage through its `after_epoch` and keeps the weights of the best epoch in the stage's memory.

    What is in the memory is in the checkpoint, too, so a stage that is continued chooses as if it had never stopped."""

    def __init__(
        self, context: "Context", aside: RowsAside, network: nn.Module, stage: Stage, own_threshold: OwnThreshold | None
    ) -> None:
        self.context, self.aside, self.network, self.module = context, aside, network, stage.task.module
        self.own_threshold = own_threshold
        self.settings = context.config.selection
        # The threshold is part of it, because figures that depend on it may choose another epoch.
        own = {"selection": settings_in_names(context.config)["selection"], "threshold": context.config.threshold}
        identity = {**stage.identity, **own}
        self.stage = replace(stage, after_epoch=self._after_epoch, keeps_best_epoch=True, identity=identity)

    def _after_epoch(self, record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        figure = self._figure()
        record.terms[TERM] = figure
        if _BEST not in memory or figure > float(memory[_BEST]):
            memory[_BEST] = torch.tensor(figure, dtype=torch.float64)
            memory[_BEST_EPOCH] = torch.tensor(record.epoch)
            for name, tensor in self.module.state_dict().items():
                memory[f"{_WEIGHTS}{name}"] = tensor.detach().clone()
        waited = record.epoch - int(memory[_BEST_EPOCH])
        return 0 < self.settings.patience <= waited

    def finish(self, outcome: StageOutcome) -> None:
        """Put the best weights into the module; the last ones compete as well, since they may be an average."""
        self.module.eval()
        memory = outcome.memory
        kept = KeptWeights(self._figure(), len(outcome.history), averaged=self.stage.optimiser.average > 0)
        if _BEST in memory and float(memory[_BEST]) > kept.figure:
            best = {name.removeprefix(_WEIGHTS): tensor for name, tensor in memory.items() if name.startswith(_WEIGHTS)}
            self.module.load_state_dict(best)
            kept = KeptWeights(float(memory[_BEST]), int(memory[_BEST_EPOCH]), averaged=False)
        self.aside.kept[self.stage.name] = kept

    def _figure(self) -> float:
        """How good the network is by the rows set aside; greater is better, and a network that gives NaN is worst."""
        context, criterion = self.context, self.settings.criterion
        logits = context.logits_of(self.network)
        if not bool(torch.isfinite(logits).all()):
            return -math.inf
        cut = 0.0 if criterion == "variational" else context.threshold_for(logits, self.own_threshold)
        scores = (logits - cut).double().cpu().numpy()
        known, population = scores[self.aside.positives], scores[self.aside.unlabelled]
        if context.data.scenario == "single-training-set":
            population = np.concatenate([known, population])
        if criterion == "variational":
            return -variational_value(known, population)
        if criterion == "nnpu":
            return -nnpu_value(known, population, context.known_prior)
        return pu_criterion(known, population, context.known_prior)


@dataclass(frozen=True)
class Teacher:
    """A trained network with the logit above which it says positive, and the key of the stage that made it."""

    network: Backbone
    threshold: float
    logits: Tensor  # of every training row, on the device
    key: str

    @property
    def probabilities(self) -> Tensor:
        """Probability of being positive, 1/2 at the threshold."""
        return torch.sigmoid(self.logits - self.threshold)


@dataclass(frozen=True)
class Student(Teacher):
    """A student, and whether it learned enough to be taken as the next teacher and as the model."""

    sound: bool = True


@dataclass(frozen=True)
class WarmStart:
    """Weights that fresh networks start from, and the key of the stage that made them."""

    key: str
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class Context:
    """Data, prior, configuration and engine of one run."""

    data: PUData
    prior: float | None  # None only for methods that do without
    config: Config
    recipe: NetworkRecipe
    engine: Engine
    data_key: str
    preprocessing: Preprocessing
    warm_start: WarmStart | None = None
    prior_interval: tuple[float, float] | None = None  # 95 %, of a prior that is an estimate
    aside: RowsAside | None = None  # rows to choose epochs by and to calibrate on, if the configuration asks for them
    own_share: float | None = None  # of the population: what a model that cuts at 1/2 calls positive by itself
    learner: Any = None  # a classifier of the user's, in place of the learners that the configuration names
    part: str = ""  # behind the names of stages that are trained without a part of the rows, to be judged by it

    def without(self, rows: Indices, number: int) -> "Context":
        """The same for a training that does not see these rows, which are scored like all others."""
        data, selection = _without(self.data, rows), replace(self.config.selection, folds=0)
        key, config = data.fingerprint() if self.data_key else "", replace(self.config, selection=selection)
        return replace(self, data=data, data_key=key, config=config, part=f".fold{number}")

    def stage(
        self, name: str, task: Task, pools: dict[str, Pool], leading: str, settings: Any, *sections: str, **more: Any
    ) -> Stage:
        """A stage with the `epochs` and the `optimiser` of some settings; `sections` and `more` are in its name."""
        identity = self.identity(name, *sections, "views", **more)
        stage = Stage(name, task, pools, leading, settings.epochs, settings.optimiser, identity)
        halved: float = getattr(settings, "half_size", 0.0)
        if halved and not (self.data.kind == "images" and self.recipe.name in OF_ANY_SIZE):
            wrong = f"{kind_of(name)}.half_size={halved:g} is for images and the networks {', '.join(OF_ANY_SIZE)}"
            raise InputError(f"{wrong}, and this is {self.recipe.name}: set it to 0")
        return replace(stage, half_size=halved)

    def train(self, stage: Stage, network: nn.Module, own_threshold: OwnThreshold | None = None) -> str:
        """Run a stage that ends in a model, keep its best epoch if that is asked for, and give its key."""
        if self.aside is None or not self.chooses_epochs:
            self.engine.run(stage)
            return stage.key
        choice = EpochChoice(self, self.aside, network, stage, own_threshold)
        choice.finish(self.engine.run(choice.stage))
        return choice.stage.key

    @property
    def chooses_epochs(self) -> bool:
        """Whether the configuration has every stage's epoch chosen by rows set aside."""
        return self.aside is not None and self.config.selection.criterion != "none"

    def fresh_network(self, place: str) -> Backbone:
        """A new network. Its weights depend only on the seed, the place it is for, and the warm start of that place."""
        with seeded(self.engine.seed, place, "initial weights"):
            with self.engine.hardware.thread_limit():  # sums of a network that is fitted to the rows depend on it
                network = self.recipe.build()
            if self.config.initialisation == "kaiming":
                draw_kaiming_weights(network)
        refuse_frozen(network)
        start = self.start_of(place)
        if start is not None:
            own = network.state_dict()
            for name, weights in start.weights.items():
                own[name].copy_(weights)
        network.to(self.engine.hardware.device)
        if self.data.kind != "vectors":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def fresh_head(self, build: Callable[[], nn.Module], place: str) -> nn.Module:
        """A newly initialised extra module on the same device."""
        with seeded(self.engine.seed, place, "initial head"):
            return build().to(self.engine.hardware.device)

    def start_of(self, stage: str) -> WarmStart | None:
        """The weights that networks of this stage start from; None if they are drawn at random."""
        config = self.config.warmup
        wanted = {"split": config.split, "student": config.student}.get(kind_of(stage), config.base)
        return self.warm_start if wanted else None

    def identity(self, stage: str, *sections: str, **upstream: Any) -> dict[str, Any]:
        """Everything the outcome of a stage depends on; equal identities share a checkpoint."""
        values, start = settings_in_names(self.config), self.start_of(stage)
        found = {**self.surroundings(stage), "data": self.data_key, "prior": self.prior}
        if self.prior_interval is not None:
            found |= {"prior_interval": list(self.prior_interval), "threshold_rule": thresholds.RULE}
        if start is not None:
            found["warmup"] = start.key
        return {**found, **{section: values[section] for section in sections}, **upstream}

    def surroundings(self, stage: str) -> dict[str, Any]:
        """The part of a stage's identity that is the same whatever it learns."""
        # What tells a user's own network from others of its name; nothing where no checkpoint is looked for.
        mark = self.recipe.mark if self.data_key else None
        return {
            "stage": stage,
            "network": self.recipe.name,
            **({} if mark is None else {"own_network": mark()}),
            **({} if self.config.initialisation == "torch" else {"initialisation": self.config.initialisation}),
            "seed": derive_seed(self.engine.seed, stage),
            "bf16": self.engine.hardware.bf16,
            "device": self.engine.hardware.device.type,
        }

    @property
    def rows_key(self) -> str:
        """Stands in for `data_key` in stages that do not look at which rows are labelled."""
        return self.data.features_fingerprint() if self.data_key else ""

    @property
    def known_prior(self) -> float:
        if self.prior is None:
            raise missing_prior(self.config.method)
        return self.prior

    def rows(self, numbers: Any) -> Tensor:
        """Row numbers as a tensor on the device."""
        return torch.as_tensor(numbers, device=self.engine.hardware.device)

    def logits_of(self, network: nn.Module) -> Tensor:
        engine = self.engine
        return training_logits(network, engine.rows, engine.views, engine.hardware)

    def as_teacher(self, network: Backbone, key: str, own_threshold: OwnThreshold | None = None) -> Teacher:
        """Score every training row and place the threshold as the configuration says."""
        logits = self.logits_of(network)
        return Teacher(network, self.threshold_for(logits, own_threshold), logits, key)

    def told_answers(self, teacher: Teacher) -> Teacher:
        """The teacher as it teaches: certain of the unlabelled rows that somebody has looked at."""
        if self.data.answers is None:
            return teacher
        answers = self.rows(self.data.answers)
        sure = _CERTAIN * answers.to(teacher.logits.dtype) + teacher.threshold
        return replace(teacher, logits=torch.where(answers == 0, teacher.logits, sure))

    def with_own_share(self, logits: Tensor) -> "Context":
        """The same, for a model whose logits mean 1/2 at 0: the share above 0 is a second opinion on the prior."""
        return replace(self, own_share=float((logits[self.rows(self.data.population)] > 0).double().mean()))

    def threshold_for(self, logits: Tensor, own: OwnThreshold | None = None) -> float:
        """The logit above which a network with these logits says positive."""
        if self.config.threshold == "half" or self.prior is None:  # f1 is a matter of learners: see table_learners
            return own(logits) if own is not None else 0.0
        population, share = logits[self.rows(self.data.population)], self.prior
        if self.prior_interval is None:
            return thresholds.matched_threshold(population, share)
        if self.own_share is not None:
            share = thresholds.second_opinion(share, self.prior_interval, self.own_share)
        return thresholds.threshold_near(population, share, self.prior_interval)
