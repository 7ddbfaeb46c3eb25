"""Logits for many rows, in large batches and constant memory."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from splitpu.engine.hardware import Hardware
from splitpu.engine.rows import RowStore
from splitpu.networks.ensemble import Ensemble
from splitpu.networks.mlp import MLP
from splitpu.views import Views

_BATCH_VALUES = {"cuda": 2**24, "cpu": 2**20}  # raw values a batch; bounds the activations, too


def training_logits(network: nn.Module, rows: RowStore, views: Views, hardware: Hardware) -> Tensor:
    """Logits of every training row, left on the device, from whatever place the rows live in."""
    count = len(rows)
    device = hardware.device
    parts = []
    first = rows.gather(torch.zeros(1, dtype=torch.int64, device=device))
    for start, stop in _chunks(count, first[0].numel(), device):
        raw = rows.gather(torch.arange(start, stop, device=device))
        parts.append(_forward(network, views.plain(raw), hardware))
    return torch.cat(parts)


def predict_logits(
    network: nn.Module, features: npt.NDArray[Any], views: Views, hardware: Hardware
) -> npt.NDArray[np.float64]:
    """Logits of any rows; the array may be memory-mapped and larger than memory."""
    exact = _runs_in_double(network, hardware)
    if exact:
        network = copy.deepcopy(network).double()
    scores = np.empty(len(features), dtype=np.float64)
    for start, stop in _chunks(len(features), int(np.prod(features.shape[1:])), hardware.device):
        raw = torch.from_numpy(np.ascontiguousarray(features[start:stop])).to(hardware.device)
        inputs = views.plain(raw)
        logit = _forward(network, inputs.double() if exact else inputs, hardware)
        scores[start:stop] = logit.double().cpu().numpy()
    return scores


def _runs_in_double(network: nn.Module, hardware: Hardware) -> bool:
    """Whether double precision is cheap and safe: our own vector network, or several, on the CPU.

    A float32 matrix product may round differently for batches of different sizes; in double precision a row's score
    does not visibly depend on the rows it is asked with. A network of the user's may not be made for it.
    """
    networks = network.members if isinstance(network, Ensemble) else [network]
    return all(isinstance(one, MLP) for one in networks) and hardware.device.type == "cpu" and not hardware.bf16


def _chunks(count: int, row_values: int, device: torch.device) -> Iterator[tuple[int, int]]:
    size = max(1, _BATCH_VALUES[device.type] // row_values)
    for start in range(0, count, size):
        yield start, min(start + size, count)


@torch.no_grad()
def _forward(network: nn.Module, inputs: Tensor, hardware: Hardware) -> Tensor:
    was_training = network.training
    network.eval()
    with hardware.autocast(), hardware.thread_limit():
        logit: Tensor = network(inputs).logit
    network.train(was_training)
    return logit if logit.dtype == torch.float64 else logit.float()
