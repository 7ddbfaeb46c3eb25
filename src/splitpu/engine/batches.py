"""Which rows a step sees: pools of rows, shuffled anew every epoch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pool:
    """Every step takes `count` of `rows`; each row comes once before any comes again."""

    rows: Rows
    count: int


def proportional_count(rows: int, of: int, batch: int) -> int:
    """How many of `rows` a batch gets that stands for `of` rows, in proportion; at least one, at most the whole batch.

    >>> proportional_count(1000, 50_000, 512), proportional_count(20_000, 200, 200)
    (10, 200)
    """
    return min(batch, max(1, round(batch * rows / of)))


def steps_per_epoch(pools: Mapping[str, Pool], leading: str) -> int:
    """Once through the leading pool; a remainder smaller than a batch waits for the next epoch's shuffle."""
    pool = pools[leading]
    return max(1, len(pool.rows) // pool.count)


def epoch_plan(pools: Mapping[str, Pool], steps: int, seed: int, device: torch.device) -> dict[str, Tensor]:
    """Draw the row numbers of a whole epoch at once, a (steps, count) tensor for each pool."""
    generator = torch.Generator().manual_seed(seed)
    return {name: _shuffled_passes(pool, steps, generator).to(device) for name, pool in pools.items()}


def _shuffled_passes(pool: Pool, steps: int, generator: torch.Generator) -> Tensor:
    needed = steps * pool.count
    passes = -(-needed // len(pool.rows))
    shuffles = [torch.randperm(len(pool.rows), generator=generator) for _ in range(passes)]
    order = (shuffles[0] if passes == 1 else torch.cat(shuffles))[:needed]  # eight bytes a row, and not twice
    return torch.from_numpy(pool.rows)[order].view(steps, pool.count)
