"""One training step in several processes that computes what one process would.

Every process draws the same rows and the same views of the whole batch, which costs little beside the network. Each
sends its own part of the views through the network and gathers the outputs of all parts, so a task sees the whole batch
and no loss has to know: PU risks are not sums over rows, and a mean of the processes' losses would be another method.
Backwards, each process has the whole loss but follows it only through its own part; the gradients of the networks are
then added up. Modules outside a network, such as a predictor head, work on gathered outputs and are computed by all.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from splitpu.engine.global_norm import global_batch_norms
from splitpu.engine.outputs import LazyOutputs, networks_in
from splitpu.engine.world import World
from splitpu.networks.backbone import Backbone, Outputs


class _Gather(torch.autograd.Function):
    """All parts in order; the gradient of our own part comes back, as every process computes the same loss."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, count: int, world: World) -> Tensor:
        ctx.own = world.share(count)
        return world.gather(part, count)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        first, end = ctx.own
        return gradients[0][first:end], None, None


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


def add_gradients(module: nn.Module, world: World) -> None:
    """Make every gradient that of the whole batch, in one exchange."""
    if world.size == 1:
        return
    shared = {id(p) for network in networks_in(module) for p in network.parameters()}
    parameters = [p for p in module.parameters() if p.grad is not None]
    if not parameters:
        return
    # What all processes computed in full is averaged, which changes nothing and lets no rounding drive them apart.
    gradients = [p.grad if id(p) in shared else p.grad / world.size for p in parameters if p.grad is not None]
    total = world.add_up(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    for parameter, summed in zip(parameters, torch.split(total, [p.numel() for p in parameters]), strict=True):
        if parameter.grad is not None:
            parameter.grad.copy_(summed.view(parameter.shape))


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
