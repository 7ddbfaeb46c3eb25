"""What views draw for their images, always in the same order; what is not done is not drawn.

The draws of a kind come by name, one an image, so that whoever makes the views gets the same, operation by operation or
in one kernel.
"""

import torch
from torch import Generator, Tensor

from splitpu.config.schema import ViewsConfig

COLOUR_STRENGTHS = ("brightness", "contrast", "saturation", "hue")  # the last two only where there are colours


class ViewDraws:
    """Draws for images (H, W, C); `slices` of them, one after the other, share theirs."""

    def __init__(self, shape: tuple[int, int, int], config: ViewsConfig, device: torch.device, slices: int) -> None:
        self._config, self._device, self._slices = config, device, slices
        self._height, self._width, channels = shape
        self._is_colour = channels == 3
        self._down, self._across = (_padding(config.crop_padding, side) for side in shape[:2])
        self.crops = self._down > 0 or self._across > 0
        self.resizes = config.resized_crop < 1
        self.cut_side = round(config.cutout * min(shape[:2]))
        self.strengths = tuple(getattr(config, name) for name in COLOUR_STRENGTHS[: 4 if self._is_colour else 2])
        self.jitters = any(strength > 0 for strength in self.strengths)

    def motion(self, count: int, generator: Generator, *, crop: bool) -> dict[str, Tensor]:
        """How far to shift, if that is asked for, and whether to mirror."""
        crops, flips = crop and self.crops, self._config.flip
        if not crops and not flips:
            return {}
        down, across = (self._down, self._across) if crops else (0, 0)
        draws = {
            "row_shift": self._integers(count, -down, down + 1, generator),
            "column_shift": self._integers(count, -across, across + 1, generator),
        }
        return draws | ({"mirrored": self._integers(count, 0, 2, generator)} if flips else {})

    def part(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """Area, ratio of the sides and place of the part that is enlarged, from 0 to 1."""
        return {"part": self.columns(4, count, generator)} if self.resizes else {}

    def jitter(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """How far to change each property of the colours, from 0 to 1, and whether to."""
        if not self.jitters:
            return {}
        draws = {"factors": self._evenly(count, len(self.strengths), generator)}
        return draws | ({"chosen": self._evenly(count, 1, generator)} if self._config.jitter < 1 else {})

    def grey(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """Whether to take the colours away."""
        loses = self._is_colour and self._config.grey > 0
        return {"grey": self.columns(1, count, generator)[0]} if loses else {}

    def cut(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """The pixel around which a square is taken away."""
        if self.cut_side == 0:
            return {}
        sides = {"cut_row": self._height, "cut_column": self._width}
        return {name: self._integers(count, 0, side, generator) for name, side in sides.items()}

    def strong(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """All of a strong view that neither turns nor blurs, in the order in which it is done."""
        draws = self.motion(count, generator, crop=not self.resizes) | self.part(count, generator)
        draws |= self.jitter(count, generator) | self.grey(count, generator)
        return draws | self.cut(count, generator)

    def columns(self, numbers: int, images: int, generator: Generator) -> Tensor:
        """Numbers from 0 to 1, (numbers, images)."""
        shape = (numbers, images // self._slices)
        draws = torch.rand(shape, generator=generator, device=self._device, dtype=torch.float32)
        return self._for_all_slices(draws.T).T

    def _evenly(self, images: int, numbers: int, generator: Generator) -> Tensor:
        """The same the other way round, (images, numbers)."""
        shape = (images // self._slices, numbers)
        return self._for_all_slices(torch.rand(shape, generator=generator, device=self._device, dtype=torch.float32))

    def _integers(self, count: int, first: int, end: int, generator: Generator) -> Tensor:
        """An integer for each of `count` images, from `first` to `end - 1`, as a column (count, 1)."""
        shape = (count // self._slices, 1)
        return self._for_all_slices(torch.randint(first, end, shape, generator=generator, device=self._device))

    def _for_all_slices(self, draws: Tensor) -> Tensor:
        """One draw a sample -> one an image: all slices of a volume are moved, coloured and cut in the same way."""
        if self._slices == 1:
            return draws
        return draws[:, None].expand(-1, self._slices, *draws.shape[1:]).flatten(0, 1)


def _padding(share: float, side: int) -> int:
    return min(round(share * side), side - 1)  # so that some of the image always stays in sight
