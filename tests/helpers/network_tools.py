"""Batches for networks, what their outputs have to look like, and a pretrained network of a few weights."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from splitpu.methods import frozen_features
from splitpu.networks import embeddings
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


TINY = "timm:tiny"  # what `with_tiny_encoder` makes known


def tiny_network(*_: object, **__: object) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    network.pretrained_cfg = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return network


def with_tiny_encoder(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """A package timm with one tiny network in it, a cache of our own, and nothing remembered."""
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=tiny_network))
    monkeypatch.setenv("SPLITPU_CACHE", str(cache))
    frozen_features.usual_encoder.cache_clear()
    frozen_features._LATEST.clear()
    embeddings._remembered.clear()
