"""The training loop that everybody writes first: data sets, data loaders, views image by image, nnPU risk, Adam."""

import random
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from splitpu.data import PUData
from splitpu.engine.batches import proportional_count
from splitpu.losses import nnpu_risk
from splitpu.networks import build_network


class Images(Dataset[Tensor]):
    """Some rows of the data, each padded, cropped, mirrored and normalised when it is asked for."""

    def __init__(self, data: PUData, rows: np.ndarray, padding: int) -> None:
        self.features, self.rows, self.padding = data.features, rows, padding
        unit = data.features.astype(np.float32) / (255 if data.features.dtype == np.uint8 else data.features.max())
        channels = unit.reshape(-1, unit.shape[-1])
        self.mean = torch.from_numpy(channels.mean(0)).view(-1, 1, 1)
        self.std = torch.from_numpy(channels.std(0)).view(-1, 1, 1)
        self.scale = 255.0 if data.features.dtype == np.uint8 else float(data.features.max())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Tensor:
        """One view."""
        image = torch.from_numpy(np.array(self.features[self.rows[number]])).permute(2, 0, 1).float() / self.scale
        image = (image - self.mean) / self.std
        height, width = image.shape[1:]
        padded = torch.nn.functional.pad(image, [self.padding] * 4)
        top, left = random.randint(0, 2 * self.padding), random.randint(0, 2 * self.padding)
        image = padded[:, top : top + height, left : left + width]
        return image.flip(2) if random.random() < 0.5 else image


def plain_epochs(
    data: PUData,
    backbone: str,
    batch: int,
    prior: float,
    epochs: int,
    workers: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Train as one would; seconds of every epoch."""
    torch.manual_seed(0)
    padding = round(0.125 * data.features.shape[1])
    few = proportional_count(len(data.positives), len(data.population), batch)
    common = {"shuffle": True, "drop_last": True, "num_workers": workers}
    many = DataLoader(Images(data, data.population, padding), batch, **common)
    positives = DataLoader(Images(data, data.positives, padding), few, **common)
    network = build_network(backbone, data.features.shape[1:]).train()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    seconds = []
    for _ in range(epochs):
        started = clock()
        again = _forever(positives)
        total = 0.0
        for unlabelled in many:
            labelled = next(again)
            logit = network(torch.cat([labelled, unlabelled])).logit
            risk = nnpu_risk(logit[: len(labelled)], logit[len(labelled) :], prior)
            optimiser.zero_grad()
            risk.objective.backward()
            optimiser.step()
            total += risk.value.item()
        seconds.append(clock() - started)
    return seconds


def _forever(loader: DataLoader[Tensor]) -> Iterator[Tensor]:
    while True:
        yield from loader
