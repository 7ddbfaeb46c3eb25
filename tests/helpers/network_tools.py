"""Batches for networks, what their outputs have to look like, and a pretrained network of a few weights."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from splitpu.methods import frozen_features
from splitpu.networks import embeddings, encoders
from splitpu.networks.backbones import Outputs
from splitpu.networks.efficientnet_lite import SIZES, EfficientNetLite, LiteSize
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


LITE = "efficientnet-lite0"


def published_weights() -> dict[str, torch.Tensor]:
    """Random tensors in the published form of EfficientNet-Lite0."""
    torch.manual_seed(0)
    network, found = EfficientNetLite(SIZES[LITE]), {}
    names = {"expand": ("_expand_conv", "_bn0"), "depthwise": ("_depthwise_conv", "_bn1")}
    names["project"] = ("_project_conv", "_bn2")
    layers = [(network.stem, "_conv_stem", "_bn0"), (network.head, "_conv_head", "_bn1")]
    for number, block in enumerate(network.blocks):
        for part, (convolution, norm) in names.items():
            layer = getattr(block, part)
            if layer is not None:
                layers.append((layer, f"_blocks.{number}.{convolution}", f"_blocks.{number}.{norm}"))
    for layer, convolution, norm in layers:
        channels = len(layer.weight)
        found[f"{convolution}.weight"] = layer.weight.detach() * 2
        found[f"{norm}.weight"], found[f"{norm}.bias"] = torch.rand(channels) + 1, torch.rand(channels)
        found[f"{norm}.running_mean"], found[f"{norm}.running_var"] = torch.rand(channels), torch.rand(channels) + 1
    return found


def with_small_lite(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """EfficientNet-Lite0 a tenth as wide, for pictures of 32 pixels, with a file of random weights in its package."""
    monkeypatch.setitem(SIZES, LITE, LiteSize(0.1, 0.3, 32))
    monkeypatch.setenv("SPLITPU_CACHE", str(folder / "cache"))
    torch.save(published_weights(), folder / "lite.pth")
    monkeypatch.setattr(encoders, "_lite_files", lambda name: [folder / "lite.pth"])
    frozen_features.usual_encoder.cache_clear()
    frozen_features._LATEST.clear()
    embeddings._remembered.clear()
