"""One training step in several processes that computes what one process would.

Every process has the same rows (`engine/shared_reading.py`) and makes the same views of the whole batch, which costs
little beside the network. Each sends its own part of the views through the network and gathers the outputs of all
parts, so a task sees the whole batch and no loss has to know: PU risks are not sums over rows, and a mean of the
processes' losses would be another method. Backwards, each process has the whole loss but follows it only through its
own part; torch's DDP exchanges the gradients in buckets, while those of earlier layers are still being computed.
Modules outside a network, such as a predictor head, work on gathered outputs and are computed by all.

DDP takes the mean over processes. For what all compute in full that is right: it changes nothing and lets no rounding
drive them apart. What comes back to a network's own part is multiplied by their number, so that its mean is the sum.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel import DistributedDataParallel

from splitpu.engine.global_norm import global_batch_norms
from splitpu.engine.outputs import LazyOutputs, networks_in
from splitpu.engine.stage import Batch, Task
from splitpu.engine.world import World, together
from splitpu.errors import InputError
from splitpu.networks.backbone import Backbone, Outputs
from splitpu.views import Views

_GRAPH_CHANGED = "training graph has changed"  # in what torch says of it


class _Gather(torch.autograd.Function):
    """All parts in order; the gradient of our own part comes back, as every process computes the same loss.

    It comes back times the number of processes, of which DDP takes the mean.
    """

    @staticmethod
    def forward(ctx: Any, part: Tensor, count: int, world: World) -> Tensor:
        ctx.own, ctx.processes = world.share(count), world.size
        return world.gather(part, count)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        first, end = ctx.own
        return gradients[0][first:end] * ctx.processes, None, None


def _gathered(part: Outputs, name: str, count: int, world: World) -> Tensor:
    """One of the outputs, for the whole batch."""
    own: Tensor = getattr(part, name)
    # Images are stored channels-last; gathered along their memory nothing has to be rearranged.
    turned = own.dim() == 4 and own.is_contiguous(memory_format=torch.channels_last)
    own = own.permute(0, 2, 3, 1) if turned else own
    whole: Tensor = _Gather.apply(own.contiguous(), count, world)  # type: ignore[no-untyped-call]
    return whole.permute(0, 3, 1, 2) if turned else whole


@contextmanager
def shared_work(module: nn.Module, world: World) -> Iterator[None]:
    """Inside the block every network in the module works on this process's part of what it is given, in training."""
    if world.size == 1:
        yield
        return
    with ExitStack() as stack:
        for network in networks_in(module):
            stack.enter_context(global_batch_norms(network, world))
            stack.enter_context(_sharing(network, world))
        yield


class SharedStep:
    """A task's step whose way back leaves every process with the gradients of the whole batch."""

    @together
    def __init__(self, task: Task) -> None:
        """Inside `shared_work`, by all processes at once."""
        # Static: a task computes every step alike, as capturing one takes for granted. So torch finds out in the first
        # step which weights no loss reaches, and leaves them without a gradient: a decay must not move them.
        self._exchanging = DistributedDataParallel(_StepModule(task), static_graph=True, gradient_as_bucket_view=True)

    @together
    def terms(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """What the task's own step returns; only the loss can be followed back."""
        found: dict[str, Tensor] = self._exchanging(batch, views, generator)
        return found

    @together
    def backward(self, loss: Tensor) -> None:
        """Give every weight its gradient, exchanged on the way."""
        try:
            loss.backward()  # type: ignore[no-untyped-call]
            # Before the optimiser moves anything; torch by itself would say so in the next step.
            self._exchanging._check_reducer_finalized()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if _GRAPH_CHANGED not in str(error):
                raise
            raise InputError(
                "the network does not use the same weights in every step, which several processes cannot train "
                "together: run without torchrun."
            ) from error


class _StepModule(nn.Module):
    """A task's step as the module that DDP asks for.

    It has the weights that are trained and nothing else. Buffers need no exchange: every process computes the same.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.weights = nn.ParameterList(p for p in task.module.parameters() if p.requires_grad)
        self._step = task.step

    def forward(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """The terms; only the loss with its way back, so that torch does not look for gradients of the others."""
        terms = self._step(batch, views, generator)
        return {name: term if name == "loss" else term.detach() for name, term in terms.items()}


@contextmanager
def _sharing(network: Backbone, world: World) -> Iterator[None]:
    counts: list[int] = []
    draws = any(isinstance(layer, _DropoutNd) for layer in network.modules())
    forks: list[Any] = []

    def take_part(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor] | None:
        if not network.training:
            return None
        counts.append(len(given[0]))
        first, end = world.share(len(given[0]))
        if draws:
            forks.append(_own_draws(given[0].device, world))
            forks[-1].__enter__()
        return (given[0][first:end],)

    def gather(_: nn.Module, __: Any, part: Outputs) -> LazyOutputs | None:
        if not network.training:
            return None
        if draws:
            forks.pop().__exit__(None, None, None)
        count = counts.pop()
        return LazyOutputs(lambda name: _gathered(part, name, count, world))

    handles = [network.register_forward_pre_hook(take_part), network.register_forward_hook(gather)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _own_draws(device: torch.device, world: World) -> Iterator[None]:
    """Let this process draw for itself, as dropout does, and then go on from the same state as the others.

    Parts of unequal length would else leave the processes' generators in different places; and with the same mask for
    every part the parts of a batch would not be independent.
    """
    seed = int(torch.randint(2**62, ()))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed + world.rank)
        yield
