"""The kernels behind `move_weights`, in Triton: one that notes where the gradients are, one that moves all weights.

A table on the device says where everything lies. Most of it never changes; gradients are new tensors in every step, so
their addresses are given to the first kernel, by value: a captured step remembers them, and the host need not be asked.

What is given to the kernels in tuples, and why counts are not: see `batch_norm_triton`.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from splitpu.kernels.optimiser_step import BLOCK, Rule

_WARPS = 4
_ADDRESSES = 64  # that one kernel is given; networks with more tensors of weights need another
_ENTRIES = 7  # of every tensor in the table, before its gradient's address; see below


class Table:
    """Where tensors lie, cut into blocks; made before anything is captured. It keeps addresses, not the tensors."""

    def __init__(self, entries: Sequence[int], adaptive: bool, device: torch.device) -> None:
        """Of every tensor the addresses of weights, step, mean, square and copy, size, whether its gradient is half."""
        rows = torch.tensor(entries, dtype=torch.int64).view(-1, _ENTRIES)
        blocks = [(row, number) for row, size in enumerate(rows[:, 5].tolist()) for number in range(-(-size // BLOCK))]
        self._adaptive, self._count, self._programs = int(adaptive), len(rows), len(blocks)
        self._places = torch.cat([rows, torch.zeros_like(rows[:, :1])], 1).T.contiguous().to(device)
        self._blocks = torch.tensor(blocks, dtype=torch.int32).to(device)
        self._factors = torch.zeros((3, self._count), dtype=torch.float32, device=device)

    def move(self, gradients: Sequence[Tensor], rate: Tensor, rule: Rule) -> None:
        """Move all weights, by gradients in the order of the table."""
        # Odd numbers: for every pattern of multiples of 16 among them the compiler would make another kernel.
        addresses = [gradient.data_ptr() + 1 for gradient in gradients]
        betas = [float(rule.beta1), float(rule.beta2)]  # said outright: whole numbers would make another kernel
        logs = [math.log(beta) if beta > 0 else -math.inf for beta in betas]
        decay = float(rule.weight_decay)
        coupled, decoupled = (0.0, decay) if rule.decoupled else (decay, 0.0)
        for first in range(0, self._count, _ADDRESSES):
            given = addresses[first : first + _ADDRESSES]
            given += given[:1] * (_ADDRESSES - len(given))  # of no tensor
            _move_note_gradients[(1,)](
                (self._places, self._factors, rate), tuple(given), first, self._count, (*logs, decoupled),
                self._adaptive, width=_ADDRESSES, num_warps=1,
            )  # fmt: skip
        constants = *betas, *(1.0 - beta for beta in betas), float(rule.epsilon or 0.0), coupled
        _move_weights[(self._programs,)](
            self._places, self._blocks, self._factors, self._count, self._adaptive, constants,
            block=BLOCK, num_warps=_WARPS,
        )  # fmt: skip


@triton.jit(do_not_specialize=["first", "count", "adaptive"])
def _move_note_gradients(places, addresses, first, count, constants, adaptive, width: tl.constexpr):
    """Note where gradients are, count the step, and compute what is the same for all weights of a tensor."""
    table, factors, rate = places
    log_beta1, log_beta2, decoupled = constants
    for number in tl.static_range(width):
        tl.store(table + 7 * count + first + number, addresses[number] - 1, mask=first + number < count)
    tensor = first + tl.arange(0, width)
    exists = tensor < count
    pace, scale = tl.load(rate).to(tl.float32) + tl.zeros((width,), tl.float32), tl.full((width,), 1.0, tl.float32)
    tl.store(factors + 2 * count + tensor, pace * decoupled, mask=exists)
    if adaptive != 0:
        steps = tl.load(table + 1 * count + tensor, mask=exists, other=0).to(tl.pointer_type(tl.float32))
        step = tl.load(steps, mask=exists, other=0.0) + 1.0
        tl.store(steps, step, mask=exists)
        # In double precision: in the first steps both are small differences of large numbers.
        pace = (pace / (1.0 - tl.exp(step.to(tl.float64) * log_beta1))).to(tl.float32)
        scale = (1.0 / tl.sqrt(1.0 - tl.exp(step.to(tl.float64) * log_beta2))).to(tl.float32)
    tl.store(factors + tensor, pace, mask=exists)
    tl.store(factors + 1 * count + tensor, scale, mask=exists)


@triton.jit
def _values(address, place, kind: tl.constexpr, whole: tl.constexpr):
    """Where values of this kind are. Those of whole blocks are promised to lie so that four can be had at a time."""
    first = address.to(tl.pointer_type(kind))
    if whole:
        first = tl.multiple_of(first, kind.primitive_bitwidth // 2)
    return first + place


@triton.jit
def _read(values, exists, whole: tl.constexpr):
    return tl.load(values) if whole else tl.load(values, mask=exists, other=0.0)


@triton.jit
def _write(values, new, exists, whole: tl.constexpr):
    if whole:  # without a mask, which would make them one by one
        tl.store(values, new)
    else:
        tl.store(values, new, mask=exists)


@triton.jit
def _move_block(table, factors, part, count, adaptive, constants, whole: tl.constexpr, block: tl.constexpr):
    tensor, start, size = part
    beta1, beta2, new1, new2, epsilon, coupled = constants
    place = start + tl.arange(0, block)
    exists = place < size
    source = tl.load(table + 7 * count + tensor)
    if tl.load(table + 6 * count + tensor) != 0:
        gradient = _read(_values(source, place, tl.bfloat16, whole), exists, whole).to(tl.float32)
    else:
        gradient = _read(_values(source, place, tl.float32, whole), exists, whole)
    weights = _values(tl.load(table + tensor), place, tl.float32, whole)
    weight = _read(weights, exists, whole)
    pace, shrinkage = tl.load(factors + tensor), tl.load(factors + 2 * count + tensor)
    if adaptive != 0:
        means = _values(tl.load(table + 2 * count + tensor), place, tl.float32, whole)
        squares = _values(tl.load(table + 3 * count + tensor), place, tl.float32, whole)
        mean, square = _read(means, exists, whole), _read(squares, exists, whole)
        gradient += coupled * weight
        mean = beta1 * mean + new1 * gradient
        square = beta2 * square + new2 * gradient * gradient
        _write(means, mean, exists, whole)
        _write(squares, square, exists, whole)
        direction = mean / (tl.sqrt(square) * tl.load(factors + 1 * count + tensor) + epsilon)
    else:
        direction = gradient + coupled * weight
    weight -= shrinkage * weight
    weight -= pace * direction
    _write(weights, weight, exists, whole)
    copy = tl.load(table + 4 * count + tensor)
    if copy != 0:
        _write(_values(copy, place, tl.bfloat16, whole), weight.to(tl.bfloat16), exists, whole)


@triton.jit(do_not_specialize=["count", "adaptive"])
def _move_weights(table, blocks, factors, count, adaptive, constants, block: tl.constexpr):
    tensor = tl.load(blocks + 2 * tl.program_id(0))
    start = tl.load(blocks + 2 * tl.program_id(0) + 1) * block
    size = tl.load(table + 5 * count + tensor)
    if start + block <= size:
        _move_block(table, factors, (tensor, start, size), count, adaptive, constants, whole=True, block=block)
    else:
        _move_block(table, factors, (tensor, start, size), count, adaptive, constants, whole=False, block=block)
