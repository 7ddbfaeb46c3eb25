"""The processes of one run: one, unless `torchrun` started several. All they say to each other goes through here.

Only tensors travel, no pickled objects. A process that finds the others gone says so in one sentence."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from splitpu.errors import InputError, RankLost
from splitpu.utils.signals import started_together

# Others may wait for the first process while it downloads data or estimates the prior. A process that dies is noticed
# by its closed connection, not by this limit.
_PATIENCE = timedelta(hours=12)
# How gloo and NCCL speak of a connection that is gone; gloo raises a plain RuntimeError.
_BROKEN = ("gloo", "NCCL", "Connection", "peer", "Broken pipe")
_REFUSED = "ncclInvalidUsage"  # nobody has ended: two processes have the same GPU, say, and the last line tells

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def together(collective: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Turn whatever a broken connection raises into a sentence."""

    @functools.wraps(collective)
    def spoken(*given: _Given.args, **options: _Given.kwargs) -> _Answer:
        try:
            return collective(*given, **options)
        except RuntimeError as error:
            if _REFUSED in str(error):
                reason = str(error).strip().splitlines()[-1]
                raise InputError(f"the processes of this run cannot communicate as they are: {reason}") from error
            if not isinstance(error, dist.DistError) and not any(word in str(error) for word in _BROKEN):
                raise  # a mistake of ours, not of the connection
            raise RankLost("another process of this run has ended, so this one cannot go on.") from error

    return spoken


@dataclass(frozen=True)
class World:
    """Which of how many processes this one is."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls) -> "World":
        """Meet the processes that `torchrun` started; without it there is nobody to meet."""
        size = started_together()
        if size <= 1:
            return cls()
        if not dist.is_available():
            raise InputError("this build of torch cannot train in several processes; run without torchrun.")
        if not dist.is_initialized():
            # Tensors on the CPU always go through gloo, so that a question among hosts never waits for a GPU.
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            try:
                dist.init_process_group(backend, timeout=_PATIENCE)
            except ValueError as error:  # not all is there that torchrun tells its processes
                wrong = f"WORLD_SIZE in the environment says that this is one of {size} processes, which cannot meet"
                advice = "start them with torchrun, or unset WORLD_SIZE to train in one"
                raise InputError(f"{wrong} ({error}): {advice}.") from error
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def writes(self) -> bool:
        """Whether this is the one process that writes files and talks to the user."""
        return self.rank == 0

    def share(self, count: int) -> tuple[int, int]:
        """First and end of this process's part of `count` things; the parts differ by one at most.

        >>> [World(rank, 3).share(7) for rank in range(3)]
        [(0, 3), (3, 5), (5, 7)]
        """
        first, end = (rank * (count // self.size) + min(rank, count % self.size) for rank in (self.rank, self.rank + 1))
        return first, end

    @together
    def gather(self, part: Tensor, count: int) -> Tensor:
        """Every process's part of `count` rows, in order. Not differentiable: see `data_parallel.py` for that."""
        if self.size == 1:
            return part
        most, rest = -(-count // self.size), count % self.size
        padded = part.new_zeros(most, *part.shape[1:])  # all parts must be equally long to travel
        padded[: len(part)] = part
        everything = part.new_empty(most * self.size, *part.shape[1:])
        pieces = list(torch.split(everything, most))
        dist.all_gather(pieces, padded)
        if rest == 0:
            return everything
        return torch.cat([piece[: most - (rank >= rest)] for rank, piece in enumerate(pieces)])

    @together
    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, here: bool) -> bool:
        """Whether it is so in any process. Asked on the host: no device has to finish first."""
        return here if self.size == 1 else bool(self.add_up(torch.tensor(int(here))))

    @together
    def agree_on(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the first one's values."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def tell(self, text: str = "") -> str:
        """The first process's text, in every process."""
        if self.size == 1:
            return text
        content = torch.tensor(list(text.encode()) if self.writes else [], dtype=torch.uint8)
        length = torch.tensor(len(content))
        self.agree_on([length])
        if not self.writes:
            content = torch.zeros(int(length), dtype=torch.uint8)
        self.agree_on([content])
        return bytes(content.tolist()).decode()

    def same_everywhere(self, numbers: Mapping[str, int]) -> bool:
        mine = torch.tensor(list(numbers.values()))
        return all(torch.equal(mine, one) for one in self.gather(mine[None], self.size))
