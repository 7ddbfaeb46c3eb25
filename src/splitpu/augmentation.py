"""What views do to images, as pure functions of unit images (B, H, W, C), and what they draw for it.

All of it is elementwise or sampling: nothing here is a matrix product, which mixed precision would round.
"""

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional

from splitpu.config.schema import ViewsConfig

GREY_WEIGHTS = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)

# Moving pixels. A motion (B, 2, 3) says where each pixel of the result is taken from: column and row of the source, in
# half sides from the centre, each a sum of column, row and 1 in the result.


def turning(angle: Tensor, factor: Tensor, height: int, width: int) -> Tensor:
    """The motion about the centre that turns anticlockwise by `angle` (B,) radians and enlarges by `factor` (B,)."""
    reach = 1 / factor  # how much of the image is seen: less when it grows
    cosine, sine, nothing = reach * angle.cos(), reach * angle.sin(), torch.zeros_like(angle)
    # Measured in half sides, so on oblong images the off-diagonal terms carry the ratio of the sides.
    across = torch.stack([cosine, -sine * (height / width), nothing], dim=1)
    down = torch.stack([sine * (width / height), cosine, nothing], dim=1)
    return torch.stack([across, down], dim=1)


def cropping(area: Tensor, ratio: Tensor, place: Tensor) -> Tensor:
    """The motion that enlarges a rectangle to the whole image.

    The rectangle has the share `area` (B,) of the image and `ratio` (B,) times its width for its height; `place` (B, 2)
    says where it lies, from -1 at the left and the top to 1 at the right and the bottom.
    """
    width, height = (area * ratio).sqrt().clamp(max=1.0), (area / ratio).sqrt().clamp(max=1.0)
    nothing = torch.zeros_like(area)
    across = torch.stack([width, nothing, place[:, 0] * (1 - width)], dim=1)
    down = torch.stack([nothing, height, place[:, 1] * (1 - height)], dim=1)
    return torch.stack([across, down], dim=1)


def one_after_the_other(first: Tensor, second: Tensor) -> Tensor:
    """Both motions as one, because to interpolate twice would blur twice."""
    linear = first[:, :, :2]
    combined = (linear.unsqueeze(-1) * second.unsqueeze(1)).sum(dim=2)  # where the second looks, as the first moves it
    return torch.cat([combined[:, :, :2], (combined[:, :, 2] + first[:, :, 2]).unsqueeze(-1)], dim=2)


def moved(image: Tensor, motion: Tensor, *, beyond: str = "zeros") -> Tensor:
    """Move images, interpolating between pixels; what lies `beyond` is 0 (`zeros`) or the nearest pixel (`border`)."""
    rows, columns = (
        (2 * torch.arange(side, device=image.device, dtype=torch.float32) + 1) / side - 1 for side in image.shape[1:3]
    )
    weights = motion[:, :, :, None, None]
    places = weights[:, :, 0] * columns + weights[:, :, 1] * rows[:, None] + weights[:, :, 2]
    pixels, grid = image.permute(0, 3, 1, 2), places.permute(0, 2, 3, 1)
    return functional.grid_sample(pixels, grid, "bilinear", beyond, align_corners=False).permute(0, 2, 3, 1)


def blurred(image: Tensor, spread: Tensor, largest: float) -> Tensor:
    """Put images out of focus by a Gaussian of so many pixels' standard `spread` (B,), none above `largest`."""
    radius = math.ceil(3 * largest)
    distance = torch.arange(-radius, radius + 1, device=image.device)
    weights = torch.exp(-0.5 * (distance / spread[:, None]).square())
    weights = weights / weights.sum(dim=1, keepdim=True)
    for axis in (1, 2):
        last = image.shape[axis] - 1
        places = torch.arange(last + 1, device=image.device)
        total = torch.zeros_like(image)
        for i in range(2 * radius + 1):
            shifted = image.index_select(axis, (places + (i - radius)).clamp(0, last))
            total = total + weights[:, i, None, None, None] * shifted
        image = total
    return image


def without_colour(image: Tensor, chosen: Tensor) -> Tensor:
    """Turn the chosen images (B,) into black-and-white ones."""
    return torch.where(chosen[:, None, None, None], grey_of(image), image)


# Colour: pure functions of unit images (B, H, W, C) and factors that broadcast against them. Each result is in [0, 1].


def adjust_brightness(image: Tensor, factor: Tensor) -> Tensor:
    """Multiply every pixel by the factor."""
    return (image * factor).clamp(0.0, 1.0)


def adjust_contrast(image: Tensor, factor: Tensor, inside: Tensor | None = None) -> Tensor:
    """Stretch every pixel away from the image's mean grey, the mean over the pixels marked `inside` only."""
    grey = grey_of(image)
    if inside is None:
        centre = grey.mean(dim=(1, 2), keepdim=True)
    else:
        weights = inside.to(grey.dtype)
        centre = (grey * weights).sum(dim=(1, 2), keepdim=True) / weights.sum(dim=(1, 2), keepdim=True)
    return torch.lerp(centre, image, factor).clamp(0.0, 1.0)


def adjust_saturation(image: Tensor, factor: Tensor) -> Tensor:
    """Stretch every pixel away from its own grey: 0 leaves a black-and-white picture, 1 changes nothing."""
    return torch.lerp(grey_of(image), image, factor).clamp(0.0, 1.0)


def adjust_hue(image: Tensor, shift: Tensor) -> Tensor:
    """Turn the colour circle by `shift` whole turns, keeping value and saturation; `shift` lacks the channel axis."""
    # Hue is in sixths of the circle, red at 0. Chroma instead of HSV's saturation, chroma / value, because black has
    # no saturation, and no division means no special case.
    red, green, blue = image.unbind(dim=-1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    divisor = chroma + (chroma == 0)  # grey pixels have no hue; any will do, as their chroma is 0
    near_green = 2.0 + (blue - red) / divisor
    near_blue = 4.0 + (red - green) / divisor
    hue = torch.where(value == red, (green - blue) / divisor, torch.where(value == green, near_green, near_blue))
    # Red, green and blue see the same trapezium over the circle, 5, 3 and 1 sixths further round: full for two sixths,
    # falling for one, empty for two, rising for one.
    lead = torch.arange(5, 0, -2, device=hue.device, dtype=hue.dtype)
    position = torch.remainder((hue + shift * 6.0).unsqueeze(-1) + lead, 6.0)
    lack = torch.minimum(position, 4.0 - position).clamp(0.0, 1.0)
    return (value.unsqueeze(-1) - chroma.unsqueeze(-1) * lack).clamp(0.0, 1.0)


def grey_of(image: Tensor) -> Tensor:
    """Return how bright each pixel looks, (..., 1): weighted for RGB, the plain channel mean for any other kind."""
    if image.shape[-1] != 3:
        return image.mean(dim=-1, keepdim=True)
    red, green, blue = (image[..., i : i + 1] for i in range(3))
    return red * GREY_WEIGHTS[0] + green * GREY_WEIGHTS[1] + blue * GREY_WEIGHTS[2]


COLOUR_STRENGTHS = ("brightness", "contrast", "saturation", "hue")  # the last two only where there are colours


class ViewDraws:
    """Draws for images (H, W, C); `slices` of them, one after the other, share theirs.

    Always in the same order, and what is not done is not drawn; by name, so that a kernel gets the same as operations.
    """

    def __init__(self, shape: tuple[int, int, int], config: ViewsConfig, device: torch.device, slices: int) -> None:
        self._config, self._device, self._slices = config, device, slices
        self._height, self._width, channels = shape
        self._is_colour = channels == 3
        # So that some of the image always stays in sight.
        self._down, self._across = (min(round(config.crop_padding * side), side - 1) for side in shape[:2])
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
