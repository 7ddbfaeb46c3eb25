"""The training loop that everybody writes first: data sets, data loaders, views image by image, eager float32, Adam."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from splitpu.config.schema import BaseConfig, Config, OptimiserConfig
from splitpu.data.pudata import PUData
from splitpu.engine.stage import proportional_count
from splitpu.losses import (
    feature_consistency,
    generalised_jensen_shannon,
    low_level_consistency,
    nnpu_risk,
    prediction_consistency,
    soft_cross_entropy,
)
from splitpu.methods.student_loss import feature_predictor
from splitpu.networks.build import build_network
from splitpu.views import adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation

View = Literal["plain", "weak", "both"]


class Images(Dataset[tuple[int, Tensor]]):
    """Some rows of the data, each padded, cropped, mirrored and normalised when it is asked for."""

    def __init__(self, data: PUData, rows: np.ndarray, padding: int, view: View = "weak") -> None:
        self.features, self.rows, self.padding, self.view = data.features, rows, padding, view
        self.scale = 255.0 if data.features.dtype == np.uint8 else float(data.features.max())
        some = np.asarray(data.features[:5000], dtype=np.float32) / self.scale
        channels = some.reshape(-1, some.shape[-1])
        self.mean = torch.from_numpy(channels.mean(0)).view(-1, 1, 1)
        self.std = torch.from_numpy(channels.std(0)).view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[int, Tensor]:
        """The row's number and its view, or a weak and a strong one."""
        row = int(self.rows[number])
        image = torch.from_numpy(np.array(self.features[row])).permute(2, 0, 1).float() / self.scale
        if self.view == "plain":
            return row, self._normalised(image)
        weak = self._moved(self._normalised(image))
        return row, torch.stack([weak, self._moved(self._normalised(jittered(image)))]) if self.view == "both" else weak

    def _normalised(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std

    def _moved(self, image: Tensor) -> Tensor:
        height, width = image.shape[1:]
        padded = torch.nn.functional.pad(image, [self.padding] * 4)
        top, left = random.randint(0, 2 * self.padding), random.randint(0, 2 * self.padding)
        image = padded[:, top : top + height, left : left + width]
        return image.flip(2) if random.random() < 0.5 else image


def jittered(image: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue of one picture (C, H, W) in [0, 1]."""
    pixels = image.permute(1, 2, 0)[None]
    factors = torch.empty(3).uniform_(0.6, 1.4)
    pixels = adjust_contrast(adjust_brightness(pixels, factors[0]), factors[1])
    if image.shape[0] == 3:
        pixels = adjust_hue(adjust_saturation(pixels, factors[2]), torch.empty(()).uniform_(-0.1, 0.1))
    return pixels[0].permute(2, 0, 1)


class PlainStages:
    """Every stage of Split-PU as a plain loop; each method trains some epochs and gives the seconds of each."""

    def __init__(
        self,
        data: PUData,
        config: Config,
        backbone: str,
        prior: float,
        device: str,
        workers: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.data, self.config, self.prior, self.device = data, config, prior, torch.device(device)
        self.shape, self.backbone, self.workers, self.clock = data.features.shape[1:], backbone, workers, clock
        self.padding = round(0.125 * self.shape[0])

    def base(self, epochs: int) -> list[float]:
        """The nnPU risk of P against the population."""
        settings = self.config.base
        population = self.data.unlabelled if settings.population == "unlabelled" else self.data.population
        batch = min(settings.batch_size, len(population))
        few = settings.positives_per_batch or proportional_count(len(self.data.positives), len(population), batch)
        view: View = "weak" if settings.augment else "plain"
        many, positives = self._loader(population, batch, view), self._loader(self.data.positives, few, view)
        network = self._network()
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=settings.optimiser.weight_decay)

        def step(unlabelled: Tensor, labelled: Tensor) -> Tensor:
            logit = network(torch.cat([labelled, unlabelled])).logit
            return nnpu_risk(logit[: len(labelled)], logit[len(labelled) :], self.prior).objective

        def epoch() -> None:
            again = _forever(positives)
            for _, unlabelled in many:
                _, labelled = next(again)
                self._move(step(self._there(unlabelled), self._there(labelled)), optimiser)

        return _timed(epoch, epochs, self.clock)

    def split(self, epochs: int) -> list[float]:
        """Cross-entropy against the teacher's labels, and after every epoch its agreement with them."""
        settings = self.config.split
        rows = np.arange(len(self.data))
        training = self._loader(rows, min(settings.batch_size, len(rows)), "weak" if settings.augment else "plain")
        looking = self._loader(self.data.unlabelled, 1024, "plain", shuffle=False)
        labels = torch.rand(len(rows))
        network = self._network()
        optimiser = torch.optim.SGD(network.parameters(), lr=1e-3, weight_decay=settings.optimiser.weight_decay)

        def epoch() -> None:
            network.train()
            for numbers, images in training:
                logit = network(self._there(images)).logit
                self._move(soft_cross_entropy(logit, labels[numbers].to(self.device)), optimiser)
            network.eval()
            agree = 0
            with torch.no_grad():
                for numbers, images in looking:
                    says = (network(self._there(images)).logit > 0).cpu()
                    agree += int((says == (labels[numbers] > 0.5)).sum())

        return _timed(epoch, epochs, self.clock)

    def student(self, epochs: int, hard_share: float) -> list[float]:
        """All terms on easy rows, labelled rows, and two views of hard rows."""
        settings, unlabelled = self.config.student, self.data.unlabelled
        batch = min(settings.batch_size, len(unlabelled))
        hard = np.random.default_rng(0).permutation(unlabelled)[: max(1, round(hard_share * len(unlabelled)))]
        easy = np.setdiff1d(unlabelled, hard)
        count = {
            name: proportional_count(len(r), len(unlabelled), batch) for name, r in (("easy", easy), ("hard", hard))
        }
        few = settings.positives_per_batch or proportional_count(len(self.data.positives), len(unlabelled), batch)
        loaders = (self._loader(self.data.positives, few, "weak"), self._loader(hard, count["hard"], "both"))
        leading = self._loader(easy, count["easy"], "weak")
        network, teacher = self._network(), self._network().eval()
        predictor = feature_predictor(network.feature_dim).to(self.device)
        moving = [*network.parameters(), *predictor.parameters()]
        optimiser = torch.optim.Adam(moving, lr=5e-5, weight_decay=settings.optimiser.weight_decay)
        labels = torch.rand(len(self.data))

        def step(numbers: Tensor, certain: Tensor, known: Tensor, pairs: Tensor) -> Tensor:
            weak, strong = pairs[:, 0], pairs[:, 1]
            outputs = network(torch.cat([certain, known, weak, strong]))
            ends = [len(certain), len(known), len(weak), len(strong)]
            on_easy, on_known, on_weak, on_strong = outputs.logit.split(ends)
            with torch.no_grad():
                low = teacher.low_features(torch.cat([weak, strong]))
            first, second = outputs.high[-2 * len(weak) :].chunk(2)
            predicted = predictor(torch.cat([first, second])).chunk(2)
            return (
                generalised_jensen_shannon(on_easy, labels[numbers].to(self.device), settings.rho)
                + settings.positive_weight * soft_cross_entropy(on_known, torch.ones_like(on_known))
                + settings.low_weight * low_level_consistency(outputs.low[-2 * len(weak) :], low)
                + settings.alpha * prediction_consistency(on_weak, on_strong)
                + settings.beta * feature_consistency(*predicted, first, second)
            )

        def epoch() -> None:
            known, pairs = (_forever(loader) for loader in loaders)
            for numbers, certain in leading:
                others = (self._there(next(known)[1]), self._there(next(pairs)[1]))
                self._move(step(numbers, self._there(certain), *others), optimiser)

        return _timed(epoch, epochs, self.clock)

    def _loader(self, rows: np.ndarray, batch: int, view: View, *, shuffle: bool = True) -> DataLoader:
        return DataLoader(
            Images(self.data, rows, self.padding, view),
            batch,
            shuffle=shuffle,
            drop_last=shuffle,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            pin_memory=self.device.type == "cuda",
        )

    def _network(self) -> nn.Module:
        torch.manual_seed(0)
        return build_network(self.backbone, self.shape).to(self.device).train()

    def _there(self, images: Tensor) -> Tensor:
        return images.to(self.device, non_blocking=True)

    def _move(self, loss: Tensor, optimiser: torch.optim.Optimizer) -> float:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()  # everybody looks at it


def plain_epochs(
    data: PUData,
    backbone: str,
    batch: int,
    prior: float,
    epochs: int,
    workers: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Train the base stage on the CPU as one would; seconds of every epoch."""
    base = BaseConfig(batch_size=batch, optimiser=OptimiserConfig(weight_decay=0.0))
    return PlainStages(data, Config(base=base), backbone, prior, "cpu", workers, clock).base(epochs)


def _timed(epoch: Callable[[], None], epochs: int, clock: Callable[[], float]) -> list[float]:
    seconds = []
    for _ in range(epochs):
        started = clock()
        epoch()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(clock() - started)
    return seconds


def _forever(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader
