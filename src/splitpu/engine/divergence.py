"""Noticing a training that went wrong beyond repair: weights that became NaN stay NaN, and so do their logits."""

import math

from splitpu.engine.stage import EpochRecord, Stage, kind_of, setting_of
from splitpu.engine.world import World
from splitpu.errors import InputError

_JUDGED_AFTERWARDS = "student"  # one that learned nothing, for whatever reason, is trained again with smaller steps


def stop_if_diverged(stage: Stage, record: EpochRecord, world: World) -> None:
    """End the stage with a sentence if the loss of this epoch is no number and nothing before it would be kept.

    Looking at the loss is enough: all that moves weights goes through it. If it is no number in one of several
    processes, all of them end.
    """
    loss = record.terms.get("loss", 0.0)
    if kind_of(stage.name) == _JUDGED_AFTERWARDS or (stage.keeps_best_epoch and record.epoch > 1):
        return
    if world.any(not math.isfinite(loss)):
        rate = setting_of(stage, "optimiser.rate")
        raise InputError(
            f"the loss of stage {stage.name} is not a finite number in epoch {record.epoch} of {record.epochs} ({loss})"
            f": lower {rate}, look for extreme values in X, and if the network is your own, at what it returns for them"
        )
