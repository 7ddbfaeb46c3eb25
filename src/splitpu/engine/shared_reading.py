"""Rows read by several processes: each reads its own share of every batch, and none reads what another has read.

What was read is exchanged as bytes, which is less than reading from a disk that all of them wait for, so that every
process has the whole batch as it would have it alone.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from splitpu.engine.rows import RowStore
from splitpu.engine.world import World


def read_batches(rows: RowStore, plan: Mapping[str, Tensor], world: World) -> Iterator[dict[str, Tensor]]:
    """The rows of one step after the other, whole in every process; nothing where they are resident.

    All processes call this at once, and all of them stream: see `all_stream`.
    """
    counts = {name: numbers.shape[1] for name, numbers in plan.items()}
    shares = {name: slice(*world.share(count)) for name, count in counts.items()}
    for parts in rows.stream({name: numbers[:, shares[name]] for name, numbers in plan.items()}):
        yield {name: _exchanged(part, counts[name], world) for name, part in parts.items()}


def all_stream(rows: RowStore, world: World) -> bool:
    """Whether every process has to read its rows; one whose GPU holds them all has nothing to exchange."""
    return not world.any(rows.resident)


def _exchanged(part: Tensor, count: int, world: World) -> Tensor:
    if world.size == 1:
        return part
    as_bytes = part.flatten(1).view(torch.uint8)  # not every kind of number can travel
    return world.gather(as_bytes, count).view(part.dtype).view(count, *part.shape[1:])
