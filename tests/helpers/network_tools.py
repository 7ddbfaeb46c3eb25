"""Batches for networks, and what their outputs have to look like."""

import numpy as np
import torch
from torch import nn

from splitpu.networks.backbones import Outputs
from splitpu.networks.encoders import Encoder


def batch_for(input_shape: tuple[int, ...], rows: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn((rows, *input_shape), generator=generator)
    return batch.permute(0, 3, 1, 2) if len(input_shape) == 3 else batch


def check_outputs(network: nn.Module, outputs: Outputs, rows: int) -> None:
    assert isinstance(outputs, Outputs)
    assert outputs.logit.shape == (rows,)
    assert outputs.high.shape == (rows, network.feature_dim)
    assert len(outputs.low) == rows


def encoded(made: Encoder, images: np.ndarray, batch: int = 5) -> np.ndarray:
    """Vectors of plain images (n, H, W, C) of bytes, `batch` of them at a time."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (made.mean, made.std))
    normalised = (torch.from_numpy(images.copy()).permute(0, 3, 1, 2).float() / 255 - mean) / std
    return torch.cat([made.vectors(some) for some in normalised.split(batch)]).numpy()
