"""EfficientNet-Lite as an encoder: built here, so that a saved model can be read back where no other package is.

Batch normalisation is folded into the convolutions when weights are read: a third less time a picture on a CPU."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.errors import InputError

# Of the smallest network: kernel, stride, widening inside, channels, repetitions of each stage.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
MIDDLE = (4, 5)  # stages whose channels are listened to
_STEM, _HEAD = 32, 1280  # channels, the same for every size
_CHANNELS_BY = 8  # widened channels are rounded to a multiple of it
_LEAST_KEPT = 0.9  # of the channels, by that rounding
_EPSILON = 1e-3  # of the batch normalisation the weights were trained with
MEAN, STD = 127 / 255, 128 / 255  # pixels from 0 to 1 -> what the weights were trained with, for all three channels


@dataclass(frozen=True)
class LiteSize:
    """How a network of the family differs from the smallest one, and the side of the pictures it was trained with."""

    wider: float
    deeper: float
    side: int


SIZES = {
    "efficientnet-lite0": LiteSize(1.0, 1.0, 224),
    "efficientnet-lite1": LiteSize(1.0, 1.1, 240),
    "efficientnet-lite2": LiteSize(1.1, 1.2, 260),
}


class SameConvolution(nn.Conv2d):
    """A convolution that pads until the output is as large as the input over the stride, more behind than before.

    That is what the weights were trained with; torch's own padding would look at other pixels where the stride is 2."""

    def __init__(self, inside: int, outside: int, kernel: int = 1, stride: int = 1, *, groups: int = 1) -> None:
        super().__init__(inside, outside, kernel, stride, groups=groups)
        self.side, self.step = kernel, stride

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """What is convolved with, and what is added."""
        return self.weight, self.bias

    def forward(self, batch: Tensor) -> Tensor:
        """Convolve, after padding each axis by what it lacks."""
        weight, bias = self.weights()
        if self.side == 1:
            return functional.conv2d(batch, weight, bias, self.stride, groups=self.groups)
        down, across = (
            max((math.ceil(length / self.step) - 1) * self.step + self.side - length, 0) for length in batch.shape[-2:]
        )
        if down % 2 == 0 and across % 2 == 0:  # torch pads such on the way, without a copy
            half = (down // 2, across // 2)
            return functional.conv2d(batch, weight, bias, self.stride, half, groups=self.groups)
        padded = functional.pad(batch, (across // 2, across - across // 2, down // 2, down - down // 2))
        return functional.conv2d(padded, weight, bias, self.stride, groups=self.groups)


class InvertedBlock(nn.Module):
    """Widen, look at the neighbourhood channel by channel, narrow again; added to what came in where that fits."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, widening: int) -> None:
        super().__init__()
        wide = inside * widening
        self.expand = SameConvolution(inside, wide) if widening > 1 else None
        self.depthwise = SameConvolution(wide, wide, kernel, stride, groups=wide)
        self.project = SameConvolution(wide, outside)
        self.adds = stride == 1 and inside == outside

    def forward(self, batch: Tensor) -> Tensor:
        wide = batch if self.expand is None else functional.relu6(self.expand(batch), inplace=True)
        narrow: Tensor = self.project(functional.relu6(self.depthwise(wide), inplace=True))
        return narrow.add_(batch) if self.adds and not narrow.requires_grad else narrow + batch if self.adds else narrow


class EfficientNetLite(nn.Module):
    """The network without its last layer: (B, 3, H, W) normalised -> (B, width).

    With `middle`, what two stages before the last ones say: mean and spread over all places of each of their channels.
    The last channels know what ImageNet asks for, kinds of dogs; on ultrasound images a head on the middle ones was
    seven points of AUC better (benchmarks/few_images_frozen.py), in less time."""

    def __init__(self, size: LiteSize, *, middle: bool = True) -> None:
        super().__init__()
        self.middle = middle
        self.ends: dict[int, int] = {}  # number of the last block of each stage that is listened to -> its channels
        self.stages: list[int] = []  # of every block
        self.stem = SameConvolution(3, _STEM, 3, 2)
        self.blocks = nn.ModuleList()
        inside, last = _STEM, len(_STAGES) - 1
        for stage, (kernel, stride, widening, channels, count) in enumerate(_STAGES):
            outside = _rounded(channels * size.wider)
            # Neither the first nor the last stage becomes deeper in this family.
            repeated = count if stage in (0, last) else math.ceil(count * size.deeper)
            for nth in range(repeated):
                self.blocks.append(InvertedBlock(inside, outside, kernel, stride if nth == 0 else 1, widening))
                self.stages.append(stage)
                inside = outside
            if stage in MIDDLE:
                self.ends[len(self.blocks) - 1] = outside
        self.head = SameConvolution(inside, _HEAD)
        self.width = 2 * sum(self.ends.values()) if middle else _HEAD

    def forward(self, batch: Tensor) -> Tensor:
        """Return one vector a picture: means, and spreads of the middle channels, over all places."""
        found, heard = functional.relu6(self.stem(batch), inplace=True), []
        for number, block in enumerate(self.blocks):
            found = block(found)
            if self.middle and number in self.ends:
                heard += [found.mean(dim=(2, 3)), found.std(dim=(2, 3), correction=0)]
                if len(heard) == 2 * len(self.ends):
                    return torch.cat(heard, dim=1)
        return functional.relu6(self.head(found), inplace=True).mean(dim=(2, 3))

    def load_published(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill in weights in the published form, where every convolution is followed by its batch normalisation."""
        layers = [(self.stem, "_conv_stem", "_bn0"), (self.head, "_conv_head", "_bn1")]
        for number, block in enumerate(self.blocks):
            for norm, part in enumerate(("expand", "depthwise", "project")):
                if getattr(block, part) is not None:
                    place = f"_blocks.{number}"
                    layers.append((getattr(block, part), f"{place}._{part}_conv", f"{place}._bn{norm}"))
        for layer, convolution, norm_name in layers:
            try:
                kernel = tensors[f"{convolution}.weight"]
                parts = (tensors[f"{norm_name}.{name}"] for name in ("weight", "bias", "running_mean", "running_var"))
                scale, shift, mean, variance = (one.double() for one in parts)
            except KeyError as missing:
                raise InputError(f"the weights are not those of an EfficientNet-Lite: no {missing}.") from None
            if kernel.shape != layer.weight.shape:
                found, wanted = tuple(kernel.shape), tuple(layer.weight.shape)
                other = "the weights are those of another network"
                raise InputError(f"{other}: {convolution} has the shape {found} instead of {wanted}.")
            factor = scale / (variance + _EPSILON).sqrt()
            with torch.no_grad():
                layer.weight.copy_(kernel.double() * factor[:, None, None, None])
                if layer.bias is not None:
                    layer.bias.copy_(shift - mean * factor)


def _rounded(channels: float) -> int:
    """The nearest multiple that does not take away more than a tenth."""
    rounded = max(_CHANNELS_BY, int(channels + _CHANNELS_BY / 2) // _CHANNELS_BY * _CHANNELS_BY)
    return rounded + _CHANNELS_BY if rounded < _LEAST_KEPT * channels else rounded
