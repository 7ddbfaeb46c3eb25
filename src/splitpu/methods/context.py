"""What every stage of a method needs to know, gathered once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.config.parse import config_to_dict
from splitpu.config.schema import Config, Criterion, SelectionConfig
from splitpu.data.preprocess import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.engine.inference import training_logits
from splitpu.engine.loop import Engine
from splitpu.engine.seeds import derive_seed, seeded
from splitpu.engine.stage import Stage, kind_of
from splitpu.methods import thresholds
from splitpu.methods.choosing import EpochChoice, OwnThreshold, RowsAside, put_aside
from splitpu.methods.recipe import NetworkRecipe, refuse_frozen
from splitpu.methods.registry import missing_prior
from splitpu.networks import Backbone


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

    def train(self, stage: Stage, network: nn.Module, own_threshold: OwnThreshold | None = None) -> str:
        """Run a stage that ends in a model, keep its best epoch if that is asked for, and give its key.

        A method with a rule of its own for the threshold has its epochs judged by that rule, as the model will be.
        """
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

    def with_rows_of_its_own(self, share: float, criterion: Criterion) -> "Context":
        """The same context for a single stage that sets rows aside by itself, to choose its epoch by them."""
        data, aside = put_aside(self.data, share, self.engine.seed)
        selection = SelectionConfig(held_out=share, criterion=criterion)
        return replace(self, data=data, aside=aside, config=replace(self.config, selection=selection))

    def fresh_network(self, place: str) -> Backbone:
        """A new network. Its weights depend only on the seed, the place it is for, and the warm start of that place."""
        with seeded(self.engine.seed, place, "initial weights"):
            network = self.recipe.build()
        refuse_frozen(network)
        start = self.start_of(place)
        if start is not None:
            own = network.state_dict()
            for name, weights in start.weights.items():
                own[name].copy_(weights)
        if self.data.kind != "vectors":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network.to(self.engine.hardware.device)

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
        values, start = config_to_dict(self.config), self.start_of(stage)
        return {
            **self.surroundings(stage),
            "data": self.data_key,
            "prior": self.prior,
            **self._estimated_prior(),
            **({} if start is None else {"warmup": start.key}),
            **{section: values[section] for section in sections},
            **upstream,
        }

    def _estimated_prior(self) -> dict[str, Any]:
        """What an outcome depends on besides the prior itself where that is an estimate."""
        if self.prior_interval is None:
            return {}
        return {"prior_interval": list(self.prior_interval), "threshold_rule": thresholds.RULE}

    def surroundings(self, stage: str) -> dict[str, Any]:
        """The part of a stage's identity that is the same whatever it learns."""
        return {
            "stage": stage,
            "network": self.recipe.name,
            **self._own_network(),
            "seed": derive_seed(self.engine.seed, stage),
            "bf16": self.engine.hardware.bf16,
            "device": self.engine.hardware.device.type,
        }

    def _own_network(self) -> dict[str, str]:
        """What tells a user's own network from others of its name; nothing where no checkpoint is looked for."""
        mark = self.recipe.mark if self.data_key else None
        return {} if mark is None else {"own_network": mark()}

    @property
    def rows_key(self) -> str:
        """Stands in for `data_key` in stages that do not look at which rows are labelled."""
        return self.data.features_fingerprint() if self.data_key else ""

    @property
    def known_prior(self) -> float:
        """The prior, for methods that need one."""
        if self.prior is None:
            raise missing_prior(self.config.method)
        return self.prior

    def rows(self, numbers: Any) -> Tensor:
        """Row numbers as a tensor on the device."""
        return torch.as_tensor(numbers, device=self.engine.hardware.device)

    def logits_of(self, network: nn.Module) -> Tensor:
        """Logits of every training row, on the device."""
        engine = self.engine
        return training_logits(network, engine.rows, engine.views, engine.hardware)

    def as_teacher(self, network: Backbone, key: str, own_threshold: OwnThreshold | None = None) -> Teacher:
        """Score every training row and place the threshold as the configuration says.

        Where the threshold does not follow the prior, a method may bring a rule of its own: `own_threshold`.
        """
        logits = self.logits_of(network)
        return Teacher(network, self.threshold_for(logits, own_threshold), logits, key)

    def with_own_share(self, logits: Tensor) -> "Context":
        """The same context, for a model whose logits mean 1/2 at 0: the share above 0 is a second opinion on the prior.

        It counts only where the prior is an estimate: see `thresholds.second_opinion`.
        """
        population = logits[self.rows(self.data.population)]
        return replace(self, own_share=float((population > 0).double().mean()))

    def threshold_for(self, logits: Tensor, own: OwnThreshold | None = None) -> float:
        """The logit above which a network with these logits says positive."""
        if self.config.threshold == "prior" and self.prior is not None:
            population = logits[self.rows(self.data.population)]
            if self.prior_interval is None:
                return thresholds.matched_threshold(population, self.prior)
            prior, interval = self.prior, self.prior_interval
            share = prior if self.own_share is None else thresholds.second_opinion(prior, interval, self.own_share)
            return thresholds.threshold_near(population, share, interval)
        return own(logits) if own is not None else 0.0
