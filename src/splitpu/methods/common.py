"""Building blocks that several methods share: pools and stages, views, mixing, several networks as one teacher."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.config.schema import PassesConfig
from splitpu.engine.rows import joined
from splitpu.engine.stage import AfterEpoch, Batch, Pool, Stage, Task, proportional_count
from splitpu.methods.context import Context, Teacher
from splitpu.networks.backbones import Backbone, Ensemble
from splitpu.types import Rows
from splitpu.views import Views

Trained = tuple[Backbone, str]  # a network and the key of the stage that trained it


class Carrier(nn.Module):
    """Networks together with tensors that a stage changes as it goes: labels, trusted rows, ramps.

    As buffers they are part of the checkpoint, so a stage goes on with what it had; and since they are only ever
    written in place, a captured step sees the new values."""

    def __init__(self, networks: Mapping[str, nn.Module], **state: Tensor) -> None:
        super().__init__()
        self.networks = nn.ModuleDict(networks)
        for name, tensor in state.items():
            self.register_buffer(name, tensor.clone())  # never the caller's own memory, such as an array of row numbers

    def state(self, name: str) -> Tensor:
        """One of the tensors, to be read or written in place."""
        return self.get_buffer(name)


def positives_and_population(positives: Rows, population: Rows, batch: int, asked: int) -> dict[str, Pool]:
    """Pools that give every step `batch` rows of the population and as many positives as `asked`; 0 = in proportion."""
    per_batch = asked or proportional_count(len(positives), len(population), batch)
    return {"positives": Pool(positives, per_batch), "population": Pool(population, batch)}


def two_pools(context: Context, settings: PassesConfig, population: Rows | None = None) -> dict[str, Pool]:
    """The same for a method: as many of each a step as its settings say, but no more than there are."""
    positives = context.data.positives
    population = context.data.population if population is None else population
    batch = max(2, min(settings.batch_size, len(population)))  # because batch normalisation needs two
    return positives_and_population(positives, population, batch, min(settings.positives_per_batch, len(positives)))


def one_pool(rows: Rows, batch_size: int) -> dict[str, Pool]:
    """One pool of all rows, for tasks that have a label for each of them."""
    return {"rows": Pool(rows, max(2, min(batch_size, len(rows))))}


def two_pool_stage(
    context: Context,
    name: str,
    task: Task,
    section: str,
    settings: PassesConfig,
    *,
    population: Rows | None = None,
    after_epoch: AfterEpoch | None = None,
    **upstream: Any,
) -> Stage:
    """A stage that trains on labelled positives and the population, for as long and as fast as the settings say.

    `section` is the part of the configuration that the method reads, and `upstream` is whatever else the outcome
    depends on; both become part of the stage's identity. `population` replaces the usual population sample."""
    pools = two_pools(context, settings, population)
    stage = context.stage(name, task, pools, "population", settings, section, **upstream)
    return replace(stage, after_epoch=after_epoch)


def positives_first(batch: Mapping[str, Batch]) -> tuple[Batch, int]:
    """Both pools as one batch, so that they share their batch-norm statistics, and how many positives lead it."""
    both = (batch["positives"], batch["population"])
    return Batch(joined([one.rows for one in both]), joined([one.raw for one in both])), len(both[0].rows)


def viewed(raw: Tensor, views: Views, generator: torch.Generator, *, augment: bool, strong: bool = False) -> Tensor:
    """The rows as network input: weak or strong views where the settings ask for augmentation, else plain ones."""
    if not augment:
        return views.plain(raw)
    return views.strong(raw, generator) if strong else views.weak(raw, generator)


def two_layers(features: int, hidden: int, outputs: int) -> nn.Module:
    """A head that maps features by way of a hidden layer."""
    first, last = nn.Linear(features, hidden, bias=False), nn.Linear(hidden, outputs)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.ReLU(), last)


class MixingWeights:
    """Draws weights from a symmetric Beta distribution on the device, without waiting for it."""

    def __init__(self, concentration: float, device: torch.device) -> None:
        both = torch.tensor(concentration, device=device)
        # Checking its arguments would make the host wait; the configuration's ranges have checked them.
        self._distribution = torch.distributions.Beta(both, both, validate_args=False)

    def draw(self, count: int) -> Tensor:
        """Draw `count` weights. They come from torch's default generator, which the engine seeds for every epoch."""
        weights: Tensor = self._distribution.sample((count,))
        return weights


def mixed(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """`weight * first + (1 - weight) * second`, each row with its own weight."""
    return torch.lerp(second, first, weight.view(-1, *(1 for _ in first.shape[1:])))


def shuffled(count: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """A random order, found by sorting random numbers: unlike `randperm` this never makes the host wait."""
    return torch.rand(count, device=device, generator=generator).argsort()


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, steps: Tensor, decay: float) -> None:
    """Move a teacher's weights towards its student's: nearly all the way at first, then ever less.

    In the end a step moves them by `1 - decay` of the distance. Batch-norm statistics are not averaged: the teacher
    gathers its own from the rows it is shown."""
    # The same course as `engine.optimise.average_weight_at`, from a number of steps that is on the device.
    weight = (9 / (10 + steps)).clamp_min(1 - decay)
    for new, old in zip(student.parameters(), teacher.parameters(), strict=True):
        old.lerp_(new, weight)


def half_of_largest(logits: Tensor) -> float:
    """The logit whose probability is half of the largest one.

    This is the threshold of methods that learn the probability up to an unknown factor: the largest stands for one."""
    half = torch.sigmoid(logits.double()).max() / 2
    return float(torch.logit(half))


def labelled_as_numbers(context: Context) -> Tensor:
    """One for labelled positives, zero for the rest, on the device."""
    return context.rows(context.data.labelled).float()


def member_names(context: Context, name: str) -> list[str]:
    """The stages of the members; the first has the plain name, so that more members find what fewer have trained."""
    name += context.part
    return [name, *(f"{name}.member{number}" for number in range(2, context.config.members + 1))]


def as_one(context: Context, members: Sequence[Trained]) -> Teacher:
    """One teacher of all members."""
    networks, keys = zip(*members, strict=True)
    if len(networks) == 1:
        return context.as_teacher(networks[0], keys[0])
    return context.as_teacher(Ensemble(list(networks)), hashlib.sha256("".join(keys).encode()).hexdigest())
