"""EfficientNet-Lite trained further without forgetting: what moves is the distance from the pretrained weights, far at
the top and hardly at the stem, so that weight decay leads back to them (benchmarks/few_images_tuned.py).

Batch norms are folded into the convolutions, so that neither forty images nor small batches can spoil statistics."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.volumes.spec import evenly_chosen
from splitpu.errors import InputError
from splitpu.networks.backbones import Backbone, Outputs, low_of_patients, masked_mean, slices_and_presence
from splitpu.networks.efficientnet_lite import MEAN, MIDDLE, SIZES, STD, EfficientNetLite, SameConvolution
from splitpu.networks.encoders import TUNED, Encoder, encoder
from splitpu.types import Array
from splitpu.views import Views

_HEAD_RATE = 10.0  # of the head, over that of the settings; its inputs are standardised and divided by their root
_TOP_RATE, _FALLS = 0.1, 0.5  # of the stages that are listened to, and by how much less each stage below them moves
_LOW_STAGE = 2  # whose output is the network's low features
_MOST_SEEN, _AT_ONCE = 512, 32  # images or slices that features are standardised by, and of them at once
_TINY = 1e-6  # a spread that is not divided by, and whose root has a gradient


class MovingConvolution(SameConvolution):
    """A convolution as its start and the distance from it, times a rate: what an optimiser moves is the distance."""

    def __init__(self, of: SameConvolution, rate: float) -> None:
        super().__init__(of.in_channels, of.out_channels, of.side, of.step, groups=of.groups)
        self.rate = rate
        for name, distance in list(self.named_parameters()):
            nn.init.zeros_(distance)
            self.register_buffer(f"start_{name}", torch.zeros_like(distance))

    def weights(self) -> tuple[Tensor, Tensor | None]:
        moved = None if self.bias is None else self.get_buffer("start_bias") + self.rate * self.bias
        return self.get_buffer("start_weight") + self.rate * self.weight, moved


class TunedLite(Backbone):
    """EfficientNet-Lite up to the last stage that is listened to, with a linear head; a volume is its slices' mean.

    low = what the third stage says, high = the standardised mean and spread of each channel that is listened to.
    """

    def __init__(self, name: str, input_shape: tuple[int, ...]) -> None:
        """Build without the pretrained weights, which `start_from` fills in, or a saved model."""
        super().__init__()
        inner = name.removeprefix(TUNED)
        if inner not in SIZES:
            ours = ", ".join(SIZES)
            raise InputError(f"{inner} cannot be tuned, only {ours}: choose one of them, or give --features frozen")
        if len(input_shape) not in (3, 4) or input_shape[-1] not in (1, 3):
            raise InputError(f"{name} is for images or volumes of one channel or three, not for rows of {input_shape}")
        size = SIZES[inner]
        self.encoder = EfficientNetLite(size)
        del self.encoder.head, self.encoder.blocks[max(self.encoder.ends) + 1 :]
        for stage, part in ((-1, self.encoder), *zip(self.encoder.stages, self.encoder.blocks, strict=False)):
            rate = _TOP_RATE * _FALLS ** max(0, MIDDLE[0] - stage)
            for key, layer in list(part.named_children()):
                if isinstance(layer, SameConvolution):
                    setattr(part, key, MovingConvolution(layer, rate))
        self._low_end = max(number for number, stage in enumerate(self.encoder.stages) if stage == _LOW_STAGE)
        side = max(input_shape[-3:-1])
        shown = min(max(side, size.side // 2), size.side)  # smaller pictures say no more at the full size
        self._factor = shown / side
        self.feature_dim = self.encoder.width
        fitted = {"pixel_scale": (1, input_shape[-1], 1, 1), "pixel_shift": (1, input_shape[-1], 1, 1)}
        for buffer, shape in {**fitted, "centre": (self.feature_dim,), "scale": (self.feature_dim,)}.items():
            self.register_buffer(buffer, torch.ones(shape))
        self.head = nn.Linear(self.feature_dim, 1)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def low_features(self, batch: Tensor) -> Tensor:
        slices, there = slices_and_presence(batch) if batch.ndim == 5 else (batch, None)
        found = self._low(slices)
        return found if there is None else low_of_patients(found, there)

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs of images (B, C, H, W), or of volumes as views give them (B, S, C + 1, H, W)."""
        slices, there = slices_and_presence(batch) if batch.ndim == 5 else (batch, None)
        low = self._low(slices)
        high = (self._vectors(low) - self.get_buffer("centre")) / self.get_buffer("scale")
        if there is not None:
            low, high = low_of_patients(low, there), masked_mean(high.view(*there.shape, -1), there)
        return Outputs(low, high, _HEAD_RATE * self.head(high / self.feature_dim**0.5).flatten())

    def _low(self, batch: Tensor) -> Tensor:
        shown = batch * self.get_buffer("pixel_scale") + self.get_buffer("pixel_shift")
        if self._factor != 1:
            sides = [round(side * self._factor) for side in shown.shape[2:]]
            shown = functional.interpolate(shown, sides, mode="bilinear", antialias=self._factor < 1)
        found: Tensor = functional.relu6(self.encoder.stem(shown.expand(-1, 3, -1, -1)))
        for block in self.encoder.blocks[: self._low_end + 1]:
            found = block(found)
        return found

    def _vectors(self, found: Tensor) -> Tensor:
        """What frozen features are, mean and spread of channels that are listened to, with a gradient everywhere."""
        heard: list[Tensor] = []
        for number, block in enumerate(self.encoder.blocks):
            if number > self._low_end:
                found = block(found)
                if number in self.encoder.ends:
                    wide = found.float()
                    heard += [wide.mean(dim=(2, 3)), (wide.var(dim=(2, 3), correction=0) + _TINY).sqrt()]
        return torch.cat(heard, dim=1)

    @torch.no_grad()
    def start_from(self, pretrained: Encoder, preprocessing: Preprocessing, rows: Array | None) -> None:
        """Take over the pretrained weights; `rows`, some of those to be trained on, standardise what they say."""
        weights = pretrained.module.state_dict()
        for name, layer in self.encoder.named_modules():
            if isinstance(layer, MovingConvolution):
                for key, _ in layer.named_parameters():
                    layer.get_buffer(f"start_{key}").copy_(weights[f"{name}.{key}"])
        mean, std = (torch.tensor(one).view(1, -1, 1, 1) for one in (preprocessing.mean, preprocessing.std))
        self.get_buffer("pixel_scale").copy_(std / STD)
        self.get_buffer("pixel_shift").copy_((mean - MEAN) / STD)
        self.get_buffer("centre").zero_()
        if rows is None:
            return
        views, was_training = Views(preprocessing, ViewsConfig(), "cpu"), self.training
        at_once = max(1, _AT_ONCE // (rows.shape[1] if rows.ndim == 5 else 1))
        chunks = (torch.from_numpy(np.array(rows[at : at + at_once])) for at in range(0, len(rows), at_once))
        vectors = torch.cat([self.eval()(views.plain(chunk)).high for chunk in chunks])
        self.get_buffer("centre").copy_(vectors.mean(dim=0))
        self.get_buffer("scale").copy_(vectors.std(dim=0, correction=0) + _TINY)
        self.train(was_training)


def tuned_maker(name: str, preprocessing: Preprocessing, features: Array | None) -> Callable[[], TunedLite]:
    """What makes fresh networks for the rows of a training; they start alike, as their heads say nothing yet."""
    pretrained = cache(lambda: encoder(name.removeprefix(TUNED)))

    @cache
    def first() -> dict[str, Tensor]:
        network, rows = TunedLite(name, preprocessing.shape), features
        if rows is not None:
            many = max(1, _MOST_SEEN // (rows.shape[1] if rows.ndim == 5 else 1))
            rows = rows[evenly_chosen(len(rows), many)]
        network.start_from(pretrained(), preprocessing, rows)
        return network.state_dict()

    def make() -> TunedLite:
        network = TunedLite(name, preprocessing.shape)
        network.load_state_dict(first())
        return network

    return make
