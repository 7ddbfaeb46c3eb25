"""What the tests of views share: settings that change nothing, random images, and views turned back into pixels."""

import numpy as np
import torch

from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing

CALM = ViewsConfig(
    crop_padding=0.0,
    flip=False,
    brightness=0.0,
    contrast=0.0,
    saturation=0.0,
    hue=0.0,
    cutout=0.0,
    noise=0.0,
    dropout=0.0,
)


def image_preprocessing(shape: tuple[int, ...]) -> Preprocessing:
    channels = shape[2]
    return Preprocessing(
        kind="images",
        shape=shape,
        offset=0.0,
        scale=1 / 255,
        mean=tuple(0.4 + 0.05 * channel for channel in range(channels)),
        std=tuple(0.2 + 0.03 * channel for channel in range(channels)),
    )


def vector_preprocessing(features: int) -> Preprocessing:
    generator = np.random.default_rng(0)
    return Preprocessing(
        kind="vectors",
        shape=(features,),
        offset=0.0,
        scale=1.0,
        mean=tuple(generator.normal(size=features).tolist()),
        std=tuple(generator.uniform(0.5, 2.0, size=features).tolist()),
    )


def random_images(count: int, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count, *shape), generator=seeded(seed), dtype=torch.uint8)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unnormalised(view: torch.Tensor, preprocessing: Preprocessing) -> np.ndarray:
    """A view back in [0, 1] and as (B, H, W, C)."""
    return view.permute(0, 2, 3, 1).numpy() * np.array(preprocessing.std) + np.array(preprocessing.mean)
