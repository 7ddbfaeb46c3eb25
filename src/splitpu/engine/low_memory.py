"""A step in less device memory that computes the same, for a device without room for all activations at once: in pieces
that are computed again on the way back, under one loss, or with activations that wait in host memory (MECHANISMS.md).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from splitpu.engine.data_parallel import LazyOutputs, called_through, networks_in
from splitpu.networks.backbones import Backbone, Outputs

_TRIED_ROWS = 4  # enough to see whether a row's outputs depend on its neighbours
_SMALL = 2**20  # bytes; what is smaller is not worth the way to the host and back

Forward = Callable[[Tensor], Outputs]


class LighterForward:
    """Calls the networks of a module in a way that needs less memory: in pieces, or with activations on the host."""

    def __init__(self, module: nn.Module, pieces: int, example: Tensor) -> None:
        """`example` is a little network input, to find out whether rows can go through on their own."""
        self._networks = networks_in(module)
        self.pieces = pieces if all(rows_go_alone(network, example) for network in self._networks) else 1

    def describe(self) -> str:
        return f"{self.pieces} pieces" if self.pieces > 1 else "activations on host"

    def active(self) -> AbstractContextManager[None]:
        """Inside the block every network takes this way."""
        way = partial(_in_pieces, self.pieces) if self.pieces > 1 else _kept_on_host
        return called_through(self._networks, lambda _, whole: partial(way, whole))


@torch.no_grad()
def rows_go_alone(network: Backbone, example: Tensor) -> bool:
    """Whether the network, as it trains, gives a row the same outputs whatever other rows come with it."""
    # It is tried, not guessed from the kinds of layers: a network of the user's may do anything.
    some = example[:_TRIED_ROWS]
    if len(some) < 2:
        return False
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]  # statistics must not count these rows
    was_training = network.training
    devices = [some.device] if some.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            network.train()
            together, halves = network.forward(some), [network.forward(half) for half in some.tensor_split(2)]
    except (RuntimeError, ValueError):  # batch norm refuses a single row
        return False
    finally:
        network.train(was_training)
        for buffer, before in buffers:
            buffer.copy_(before)
    apart = [torch.cat(parts) for parts in zip(*halves, strict=True)]
    return all(torch.allclose(one, other, rtol=1e-3, atol=1e-5) for one, other in zip(together, apart, strict=True))


def _in_pieces(pieces: int, whole: Forward, batch: Tensor) -> LazyOutputs:
    parts: list[Outputs] = [
        # Nothing is drawn in there, so no state of a generator has to be kept.
        checkpoint(whole, piece, use_reentrant=False, preserve_rng_state=False)
        for piece in batch.tensor_split(pieces)
        if len(piece)
    ]
    return LazyOutputs(lambda name: torch.cat([getattr(part, name) for part in parts]))


def _kept_on_host(whole: Forward, batch: Tensor) -> Outputs:
    def to_host(tensor: Tensor) -> tuple[torch.device, Tensor]:
        is_weight = tensor.is_leaf and tensor.requires_grad
        if is_weight or tensor.numel() * tensor.element_size() < _SMALL:
            return tensor.device, tensor.detach()
        kept = torch.empty_like(tensor, device="cpu", pin_memory=tensor.device.type == "cuda")
        kept.copy_(tensor, non_blocking=True)
        return tensor.device, kept

    with saved_tensors_hooks(to_host, lambda kept: kept[1].to(kept[0], non_blocking=True)):
        return whole(batch)
