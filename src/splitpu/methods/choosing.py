"""The best epoch of a stage by rows it is not trained on, and when to stop looking for a better one."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.data.pudata import Indices, PUData
from splitpu.engine.seeds import derive_seed
from splitpu.engine.stage import EpochRecord, Stage, StageOutcome
from splitpu.given import Floats
from splitpu.selection import nnpu_value, pu_criterion, set_aside, variational_value

if TYPE_CHECKING:
    from splitpu.methods.context import Context

TERM = "held_out"  # the name of the figure among the terms of an epoch
# A method's own rule for where to cut the logits of all training rows.
OwnThreshold = Callable[[Tensor], float]
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
    mask = np.zeros(len(data), dtype=np.bool_) if data.aside is None else data.aside.copy()
    mask[positives], mask[unlabelled] = True, True
    return dataclasses.replace(data, aside=mask), RowsAside(positives, unlabelled)


class EpochChoice:
    """Watches one stage through its `after_epoch` and keeps the weights of the best epoch in the stage's memory.

    What is in the memory is in the checkpoint, too, so a stage that is continued chooses as if it had never stopped.
    """

    def __init__(
        self, context: "Context", aside: RowsAside, network: nn.Module, stage: Stage, own_threshold: OwnThreshold | None
    ) -> None:
        self.context, self.aside, self.network, self.module = context, aside, network, stage.task.module
        self.own_threshold = own_threshold
        self.settings = context.config.selection
        self.stage = dataclasses.replace(
            stage,
            after_epoch=self._after_epoch,
            keeps_best_epoch=True,
            # The threshold is part of it, because figures that depend on it may choose another epoch.
            identity={
                **stage.identity,
                "selection": dataclasses.asdict(self.settings),
                "threshold": context.config.threshold,
            },
        )

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
        logits = self.context.logits_of(self.network)
        return self._criterion(logits) if bool(torch.isfinite(logits).all()) else -math.inf

    def _criterion(self, logits: Tensor) -> float:
        context = self.context
        if self.settings.criterion == "variational":
            return -variational_value(*self._known_and_population(logits))
        threshold = context.threshold_for(logits, self.own_threshold)
        known, population = self._known_and_population(logits - threshold)
        if self.settings.criterion == "nnpu":
            return -nnpu_value(known, population, context.known_prior)
        return pu_criterion(known, population, context.known_prior)

    def _known_and_population(self, scores: Tensor) -> tuple[Floats, Floats]:
        """The scores of labelled rows set aside, and of the rows set aside that stand for the population."""
        all_rows = scores.double().cpu().numpy()
        known, others = all_rows[self.aside.positives], all_rows[self.aside.unlabelled]
        single = self.context.data.scenario == "single-training-set"
        return known, np.concatenate([known, others]) if single else others
