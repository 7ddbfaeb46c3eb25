"""What the loop is given (a stage, its pools of rows) and what it gives back (an outcome)."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from splitpu.config.schema import OptimiserConfig
from splitpu.types import Rows, Watch
from splitpu.views import Views

ByName = Mapping[str, Tensor]  # tensors by the name of a pool, or of themselves
_SPLIT_PU_SECTIONS = ("warmup", "base", "split", "student")  # of the configuration: named like the stages they are for


@dataclass(frozen=True)
class Pool:
    """Every step takes `count` of `rows`; each row comes once before any comes again."""

    rows: Rows
    count: int


def proportional_count(rows: int, of: int, batch: int) -> int:
    """How many of `rows` a batch gets that stands for `of` rows, in proportion; at least one, at most all of it."""
    return min(batch, max(1, round(batch * rows / of)))


def steps_per_epoch(pools: Mapping[str, Pool], leading: str) -> int:
    """Once through the leading pool; a remainder smaller than a batch waits for the next epoch's shuffle."""
    pool = pools[leading]
    return max(1, len(pool.rows) // pool.count)


def epoch_plan(pools: Mapping[str, Pool], steps: int, seed: int, device: torch.device) -> dict[str, Tensor]:
    """Draw the row numbers of a whole epoch at once, a (steps, count) tensor for each pool."""
    generator, plan = torch.Generator().manual_seed(seed), {}
    for name, pool in pools.items():
        needed = steps * pool.count
        passes = -(-needed // len(pool.rows))
        shuffles = [torch.randperm(len(pool.rows), generator=generator) for _ in range(passes)]
        order = (shuffles[0] if passes == 1 else torch.cat(shuffles))[:needed]  # eight bytes a row, and not twice
        plan[name] = torch.from_numpy(pool.rows)[order].view(steps, pool.count).to(device)
    return plan


class Batch(NamedTuple):
    """Some training rows: their numbers and their features as stored."""

    rows: Tensor
    raw: Tensor


class Task(Protocol):
    """What one stage learns. A step returns its terms, among them `loss`, the one that is minimised."""

    @property
    def module(self) -> nn.Module:
        """Everything that is trained in this stage."""

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Compute the loss and its named parts, on the device, without waiting for it."""


@dataclass
class EpochRecord:
    """One line of `metrics.jsonl`."""

    stage: str
    epoch: int
    epochs: int
    seconds: float
    rate: float
    terms: dict[str, float]
    agreement: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without what does not apply."""
        return {k: v for k, v in self.__dict__.items() if v is not None}


# Called in eval mode after each epoch; may fill in the record, keep tensors in the stage's memory, and end the stage.
AfterEpoch = Callable[[EpochRecord, dict[str, Tensor]], bool]


@dataclass
class Stage:
    """One training of one module: base model, temporary network, student."""

    name: str
    task: Task
    pools: dict[str, Pool]
    leading: str  # the pool that an epoch goes through once
    epochs: int
    optimiser: OptimiserConfig
    identity: Mapping[str, Any]  # everything the outcome depends on; names the checkpoint
    after_epoch: AfterEpoch | None = None
    keeps_best_epoch: bool = False  # whether `after_epoch` does, so that a later one that went wrong does no harm
    half_size: float = 0.0  # share of the epochs, the first ones, in which images are seen at half their size

    @property
    def key(self) -> str:
        """A short name for everything this stage depends on: the same key means the same result."""
        # The shapes of the weights belong to it, because a network keeps its name when somebody changes its layers.
        shapes = {name: list(tensor.shape) for name, tensor in self.task.module.state_dict().items()}
        text = json.dumps({"identity": self.identity, "shapes": shapes}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class StageOutcome:
    """What a stage left behind; the task's module holds the final weights."""

    history: list[EpochRecord] = field(default_factory=list)
    memory: dict[str, Tensor] = field(default_factory=dict)


def kind_of(stage: str) -> str:
    """What a stage of this name trains, whichever round, member or attempt it is."""
    parts = stage.split(".")
    return parts[1] if stage.startswith("round") else parts[0]


def setting_of(stage: Stage, key: str) -> str:
    """A setting of this stage, as messages to the user call it."""
    section = kind_of(stage.name)
    return f"{section}.{key}" if section in _SPLIT_PU_SECTIONS else f"this method's {key}"


class Observer:
    """Hears what the loop does. The silent one; progress bars and run folders override what they need."""

    def stage_started(self, stage: Stage, done: int) -> None:
        """`done` epochs were already there from a checkpoint."""

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        """One step of an epoch has been issued."""

    def epoch_done(self, record: EpochRecord) -> None:
        """An epoch is complete, or was replayed from a checkpoint."""

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        """The final weights are in the task's module."""

    def watch(self, what: str, done: int, of: int) -> None:
        """How far something that is no stage has got, such as learners that are judged."""

    def should_stop(self) -> bool:
        """Asked after every step; True ends the run at the last checkpoint."""
        return False


_LONG = 30  # steps, from which those of an epoch are worth counting


class CountedEpochs(Observer):
    """Shows the epochs of stages besides the training itself as something countable; of short ones not the last."""

    def __init__(self, watch: Watch, stop: Callable[[], bool] = lambda: False, what: str = "") -> None:
        self._watch, self._stop, self._what = watch, stop, what

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        if _LONG <= step + 1 < steps:  # an epoch of many rows is minutes of silence
            self._watch(f"{self._what}{stage.name}, steps", epoch * steps + step + 1, stage.epochs * steps)

    def epoch_done(self, record: EpochRecord) -> None:
        if not self._what or record.epoch < record.epochs:
            self._watch(f"{self._what}{record.stage}, epochs", record.epoch, record.epochs)

    def watch(self, what: str, done: int, of: int) -> None:
        self._watch(what, done, of)

    def should_stop(self) -> bool:
        return self._stop()
