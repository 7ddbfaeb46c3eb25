"""Logits for many rows, in large batches and constant memory."""

import copy
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.data.sparse_rows import is_sparse
from splitpu.engine.hardware import Hardware
from splitpu.engine.rows import RowStore, shared_tensor
from splitpu.learners.learner_networks import LearnerBackbone
from splitpu.networks.backbones import MLP, Ensemble, folded
from splitpu.types import Array, Floats
from splitpu.utils.arrays import let_go
from splitpu.views import Views

_BATCH_VALUES = {"cuda": 2**24, "cpu": 2**20}  # raw values a batch; bounds the activations, too


def training_logits(network: nn.Module, rows: RowStore, views: Views, hardware: Hardware) -> Tensor:
    """Logits of every training row, left on the device, from whatever place the rows live in."""
    # Several processes share the work, and all of them have all logits in the end.
    device, world = hardware.device, hardware.world
    if rows.sparse is not None and isinstance(network, LearnerBackbone):
        return torch.from_numpy(network.learner.scores(rows.sparse)).to(device)
    own_first, own_end = world.share(len(rows))
    logits = torch.empty(own_end - own_first, device=device)  # filled in place: joining parts takes twice the memory
    done = 0
    with hardware.current_gpu():
        for raw in _read_ahead(rows, own_first, own_end):
            part = _forward(network, views.plain(raw), hardware)
            logits = logits.to(part.dtype)  # a network of the user's may work in double precision
            logits[done : done + len(part)] = part
            done += len(part)
    return world.gather(logits, len(rows))


def _read_ahead(rows: RowStore, first: int, end: int) -> Iterator[Tensor]:
    """Chunks of the rows in order, on the device. What has to be read is read while the chunk before is computed."""
    size = _chunk_size(end - first, rows.row_values, rows.device)
    full = (end - first) // size
    if not rows.resident and full:
        plan = torch.arange(first, first + full * size).view(full, size)
        yield from (raw["rows"] for raw in rows.stream({"rows": plan}))
        first += full * size
    for start in range(first, end, size):
        yield rows.gather(torch.arange(start, min(start + size, end), device=rows.device))


def predict_logits(network: nn.Module, features: Array, views: Views, hardware: Hardware) -> Floats:
    """Logits of any rows; the array may be memory-mapped and larger than memory, or sparse rows."""
    sparse = features if is_sparse(features) else None
    if sparse is not None and views.keeps_rows and isinstance(network, LearnerBackbone):
        return network.learner.scores(sparse)
    # A float32 matrix product may round differently for batches of different sizes; in double precision a row's score
    # does not visibly depend on the rows it is asked with. Cheap on a CPU, and safe for our own vector networks.
    networks = network.members if isinstance(network, Ensemble) else [network]
    exact = hardware.device.type == "cpu" and not hardware.bf16 and all(isinstance(one, MLP) for one in networks)
    if exact:
        network = copy.deepcopy(network).double()
    elif hardware.device.type == "cpu":  # on a GPU adding a bias takes longer than normalising
        network = folded(network)
    scores = np.empty(len(features), dtype=np.float64)
    size = _chunk_size(len(features), int(np.prod(features.shape[1:])), hardware.device)
    for start in range(0, len(features), size):
        stop = min(start + size, len(features))
        some = features[start:stop] if sparse is None else sparse.dense(slice(start, stop))
        raw = shared_tensor(np.ascontiguousarray(some)).to(hardware.device)
        with hardware.current_gpu():
            inputs = views.plain(raw)
            logit = _forward(network, inputs.double() if exact else inputs, hardware)
        scores[start:stop] = logit.double().cpu().numpy()
        let_go(features)
    return scores


def _chunk_size(rows: int, row_values: int, device: torch.device) -> int:
    """On a GPU as equal as they can be: libraries take their time for every new size, and no rounding is promised."""
    most = max(1, _BATCH_VALUES[device.type] // row_values)
    return max(1, -(-rows // max(1, -(-rows // most)))) if device.type == "cuda" else most


@torch.no_grad()
def _forward(network: nn.Module, inputs: Tensor, hardware: Hardware) -> Tensor:
    """Logits of a chunk; in halves where it does not fit, as outside training every row is scored by itself."""
    was_training = network.training
    network.eval()
    # On a CPU scores are computed in full: a row's score is then the same while training and afterwards.
    precision = hardware.autocast() if hardware.device.type == "cuda" else nullcontext()
    try:
        with precision, hardware.thread_limit():
            logit: Tensor = network(inputs).logit
        return logit if logit.dtype == torch.float64 else logit.float()
    except torch.OutOfMemoryError:
        if len(inputs) == 1:
            raise
    finally:
        network.train(was_training)
    # Outside the except block: only now are the error and all it held on to gone, and there is room again.
    return torch.cat([_forward(network, half, hardware) for half in inputs.tensor_split(2)])
