"""EfficientNet-Lite trained further without forgetting: what moves is the distance from the pretrained weights, far at
the top and hardly at the stem, so that weight decay leads back to them (benchmarks/few_images_tuned.py).

Batch norms are folded into the convolutions, so that neither forty images nor small batches can spoil statistics."""

import copy
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
from splitpu.networks.encoders import KINDS, TUNED, encoder
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


def tuned_name(encoder_name: str) -> str:
    """The name of the network that is tuned from an encoder, refused if there is none."""
    inner = encoder_name.removeprefix(TUNED)
    if inner not in SIZES:
        instead = f"choose one of them, or --features frozen, which takes {KINDS}"
        raise InputError(f"{inner} cannot be tuned, only {', '.join(SIZES)}: {instead}")
    return f"{TUNED}{inner}"


class TunedLite(Backbone):
    """EfficientNet-Lite up to the last stage that is listened to, with a linear head; a volume is its slices' mean.

    low = what the third stage says, high = the standardised mean and spread of each channel that is listened to. Built
    without the pretrained weights, which `tuned_maker` or a saved model fills in."""

    def __init__(self, name: str, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(input_shape) not in (3, 4) or input_shape[-1] not in (1, 3):
            raise InputError(f"{name} is for images or volumes of one channel or three, not for rows of {input_shape}")
        size = SIZES[tuned_name(name).removeprefix(TUNED)]
        self.encoder = EfficientNetLite(size)
        del self.encoder.head, self.encoder.blocks[max(self.encoder.ends) + 1 :]
        for stage, part in ((-1, self.encoder), *zip(self.encoder.stages, self.encoder.blocks, strict=False)):
            rate = _TOP_RATE * _FALLS ** max(0, MIDDLE[0] - stage)
            for key, layer in list(part.named_children()):
                if isinstance(layer, SameConvolution):
                    setattr(part, key, MovingConvolution(layer, rate))
        side = max(input_shape[-3:-1])
        self._factor = min(max(side, size.side // 2), size.side) / side  # small pictures say no more at the full size
        self.feature_dim = self.encoder.width
        for buffer, value in {"pixel_scale": 1.0, "pixel_shift": 0.0, "centre": 0.0, "scale": 1.0}.items():
            shape = (1, input_shape[-1], 1, 1) if buffer.startswith("pixel") else (self.feature_dim,)
            self.register_buffer(buffer, torch.full(shape, value))
        self.head = nn.Linear(self.feature_dim, 1)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs of images (B, C, H, W), or of volumes as views give them (B, S, C + 1, H, W)."""
        batch, there = slices_and_presence(batch) if batch.ndim == 5 else (batch, None)
        shown = batch * self.get_buffer("pixel_scale") + self.get_buffer("pixel_shift")
        if self._factor != 1:
            sides = [round(side * self._factor) for side in shown.shape[2:]]
            shown = functional.interpolate(shown, sides, mode="bilinear", antialias=self._factor < 1)
        low = found = functional.relu6(self.encoder.stem(shown.expand(-1, 3, -1, -1)))
        heard: list[Tensor] = []
        for number, (stage, block) in enumerate(zip(self.encoder.stages, self.encoder.blocks, strict=False)):
            found = block(found)
            low = found if stage <= _LOW_STAGE else low
            if number in self.encoder.ends:
                wide = found.float()  # a spread of nothing has a gradient, too
                heard += [wide.mean(dim=(2, 3)), (wide.var(dim=(2, 3), correction=0) + _TINY).sqrt()]
        vectors = torch.cat(heard, dim=1)
        if there is not None:
            low, vectors = low_of_patients(low, there), masked_mean(vectors.view(*there.shape, -1), there)
        high = (vectors - self.get_buffer("centre")) / self.get_buffer("scale")
        return Outputs(low, high, _HEAD_RATE * self.head(high / self.feature_dim**0.5).flatten())


def tuned_maker(name: str, preprocessing: Preprocessing, features: Array | None) -> Callable[[], TunedLite]:
    """What makes networks with the pretrained weights, all alike; what they say is standardised by some of the rows."""

    @cache
    @torch.no_grad()
    def first() -> TunedLite:
        network, weights = TunedLite(name, preprocessing.shape), encoder(name.removeprefix(TUNED)).module.state_dict()
        for name_of_start, start in network.encoder.named_buffers():
            start.copy_(weights[name_of_start.replace("start_", "")])
        mean, std = (torch.tensor(one).view(1, -1, 1, 1) for one in (preprocessing.mean, preprocessing.std))
        network.get_buffer("pixel_scale").copy_(std / STD)
        network.get_buffer("pixel_shift").copy_((mean - MEAN) / STD)
        if features is not None:
            views, slices = Views(preprocessing, ViewsConfig(), "cpu"), features.shape[1] if features.ndim == 5 else 1
            seen = np.array_split(evenly_chosen(len(features), max(1, _MOST_SEEN // slices)), _MOST_SEEN // _AT_ONCE)
            rows = (torch.from_numpy(np.array(features[some])) for some in seen if len(some))
            vectors = torch.cat([network.eval()(views.plain(some)).high for some in rows])
            network.get_buffer("centre").copy_(vectors.mean(dim=0))
            network.get_buffer("scale").copy_(vectors.std(dim=0, correction=0) + _TINY)
        return network.train()

    return lambda: copy.deepcopy(first())
