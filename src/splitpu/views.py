"""Plain, weak and strong views of a raw batch, made on the compute device with one draw per sample.

A fixed sequence of device operations, without a loop over samples, a shape that depends on the data or anything read
back: so views can be captured in a CUDA graph, and on the CPU one state of a generator gives bitwise the same views.
What they do to images are pure functions of unit images (B, H, W, C), elementwise or sampling: nothing here is a matrix
product, which mixed precision would round."""

import copy
import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor
from torch.nn import functional

from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.kernels.view_kernels import fused_view, fused_view_applies

GREY_WEIGHTS = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)
_SIDES_RATIO = 4 / 3  # how much wider or higher a resized crop may be than the image
_BLURRED_FROM = 64  # pixels of the shorter side: smaller images have no detail to lose
_LARGEST_BLUR = 2.0  # standard deviation, in pixels
COLOUR_STRENGTHS = ("brightness", "contrast", "saturation", "hue")  # the last two only where there are colours
_STRENGTHS = (*COLOUR_STRENGTHS, "resized_crop", "jitter", "grey")
_NO_BLUR = 0.01  # one that leaves every pixel alone

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
    says where it lies, from -1 at the left and the top to 1 at the right and the bottom."""
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


class ViewDraws:
    """Draws for images (H, W, C); `slices` of them, one after the other, share theirs.

    Always in the same order, and what is not done is not drawn; by name, so that a kernel gets the same as operations.
    """

    def __init__(self, shape: tuple[int, int, int], config: ViewsConfig, device: torch.device, slices: int) -> None:
        self._config, self._device, self._slices, self._sides = config, device, slices, shape[:2]
        self._is_colour = shape[2] == 3
        # So that some of the image always stays in sight.
        self._down, self._across = (min(round(config.crop_padding * side), side - 1) for side in shape[:2])
        self.crops = self._down > 0 or self._across > 0
        self._turns = config.rotation > 0 or config.zoom > 0
        self._blurs = config.blur > 0 and min(shape[:2]) >= _BLURRED_FROM
        self.cut_side = round(config.cutout * min(shape[:2]))
        self.strengths = tuple(getattr(config, name) for name in COLOUR_STRENGTHS[: 4 if self._is_colour else 2])

    def of(self, images: int, generator: Generator, *, strong: bool) -> dict[str, Tensor]:
        """All of a view, in the order in which it is done; numbers are from 0 to 1."""
        config, draws, samples = self._config, dict[str, Tensor](), images // self._slices

        def whole(first: int, end: int) -> Tensor:  # (images, 1)
            shape = (samples, 1)
            return self._for_all_slices(torch.randint(first, end, shape, generator=generator, device=self._device))

        def numbers(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=self._device, dtype=torch.float32)

        def columns(count: int) -> Tensor:  # (count, images)
            return self._for_all_slices(numbers(count, samples).T).T

        resizes = strong and config.resized_crop < 1
        if (crops := self.crops and not resizes) or config.flip:
            down, across = (self._down, self._across) if crops else (0, 0)
            draws |= {"row_shift": whole(-down, down + 1), "column_shift": whole(-across, across + 1)}
        if config.flip:
            draws["mirrored"] = whole(0, 2)
        if self._turns:
            draws["turn"] = columns(2)  # angle and factor
        if resizes:  # area, ratio of the sides and place of the part that is enlarged
            draws["part"] = columns(4)
        if strong and any(strength > 0 for strength in self.strengths):  # how far to change colours, and whether to
            draws["factors"] = self._for_all_slices(numbers(samples, len(self.strengths)))
            if config.jitter < 1:
                draws["chosen"] = self._for_all_slices(numbers(samples, 1))
        if strong and self._is_colour and config.grey > 0:
            draws["grey"] = columns(1)[0]
        if strong and self._blurs:
            draws["blur"] = columns(2)  # whether to, and how far
        if strong and self.cut_side > 0:  # the pixel around which a square is taken away
            draws["cut_row"], draws["cut_column"] = (whole(0, side) for side in self._sides)
        return draws

    def _for_all_slices(self, draws: Tensor) -> Tensor:
        """One draw a sample -> one an image: all slices of a volume are moved, coloured and cut in the same way."""
        if self._slices == 1:
            return draws
        return draws[:, None].expand(-1, self._slices, *draws.shape[1:]).flatten(0, 1)


class Views:
    """Turns raw batches into network input, the way the data's `Preprocessing` and the `ViewsConfig` say.

    Images go in as (B, H, W, C) and come out as (B, C, H, W) in channels-last memory; vectors stay (B, d). Volumes go
    in as (B, S, H, W, C) and come out as (B, S, C + 1, H, W): their slices share all draws, and the last plane is 1
    where a slice is there and 0 where it only fills up. The result is always float32 and on the raw batch's device.

    Pixels that show nothing (the padding of a crop, the square CutOut takes away) count as the channel mean: they are
    exactly 0 after normalisation, and have no say in an image's contrast. Where an image is turned after its crop they
    are blanked where the crop had put them: letting them turn along costs time and has changed no accuracy (LOG.md)."""

    def __init__(
        self, preprocessing: Preprocessing, config: ViewsConfig, device: torch.device | str, *, kernels: bool = False
    ) -> None:
        """Put every constant on the device, so that the views themselves copy nothing to it."""
        self._config, self._kernels = config, kernels
        self._half_size = False
        self.keeps_rows = preprocessing.sparse  # whether plain rows are the raw ones
        self._is_image = preprocessing.kind != "vectors"
        self._is_volume = preprocessing.kind == "volumes"
        device = torch.device(device)
        self._offset, self._scale = preprocessing.offset, preprocessing.scale
        self._exact_mean = torch.tensor(preprocessing.mean, dtype=torch.float64, device=device)
        self._mean, self._inverse_std = (
            torch.tensor(values, dtype=torch.float32, device=device)
            for values in (preprocessing.mean, [1.0 / std for std in preprocessing.std])
        )
        if self._is_image:
            height, width, channels = preprocessing.shape[-3:]
            self._rows, self._columns = (torch.arange(side, device=device) for side in (height, width))
            slices = preprocessing.shape[0] if self._is_volume else 1  # images that share their draws
            self._draws = ViewDraws((height, width, channels), config, device, slices)
            self._is_colour = channels == 3
            # Brightness, contrast and saturation are factors around 1, hue is a turn around 0.
            usual = (1.0, 1.0, 1.0, 0.0) if self._is_colour else (1.0, 1.0)
            self._usual_factors, self._factor_strengths = (
                torch.tensor(values, dtype=torch.float32, device=device) for values in (usual, self._draws.strengths)
            )

    def at_half_size(self) -> "Views":
        """The same views, of which two by two pixels become their mean: a quarter of the work, while that will do."""
        smaller = copy.copy(self)
        smaller._half_size = True
        return smaller

    def plain(self, raw: Tensor) -> Tensor:
        """Return the batch as it is, scaled and normalised: what inference sees."""
        if not self._is_image:
            return self._standardised(raw)
        if self._fuses(raw):
            return self._fused(raw, {})
        return self._finished(self._unit(self._images(raw)), None, raw)

    def weak(self, raw: Tensor, generator: Generator) -> Tensor:
        """Return a view that hardly anybody would call different: cropped and mirrored, or a little noisy."""
        if not self._is_image:
            return self._noisy(raw, generator)
        return self._changed(raw, generator, strong=False)

    def strong(self, raw: Tensor, generator: Generator) -> Tensor:
        """Return a view that is hard to recognise: a weak one in other colours with a blank square, or with gaps.

        Two of them are what a contrastive warm-up compares, with settings of its own.
        With the same generator state and all strong effects switched off this is exactly the weak view."""
        config = self._config
        if not self._is_image:
            standardised = self._noisy(raw, generator)
            if config.dropout == 0:
                return standardised
            shape, device = standardised.shape, standardised.device
            missing = torch.rand(shape, generator=generator, device=device, dtype=torch.float32) < config.dropout
            return standardised.masked_fill(missing, 0.0)
        return self._changed(raw, generator, strong=True)

    def _changed(self, raw: Tensor, generator: Generator, *, strong: bool) -> Tensor:
        images = self._images(raw)
        draws = self._draws.of(len(images), generator, strong=strong)
        if not {"turn", "blur"} & draws.keys() and self._fuses(raw):
            return self._fused(raw, draws)
        shifted, inside = self._crop_and_flip(images, draws)
        unit = self._jitter(self._turned(self._unit(shifted), draws), inside, draws)
        if "grey" in draws:
            black_and_white = draws["grey"] < self._config.grey
            unit = torch.where(black_and_white[:, None, None, None], grey_of(unit), unit)
        if "blur" in draws:
            chosen, spread = draws["blur"]
            spread = spread * (chosen < self._config.blur) * _LARGEST_BLUR
            unit = blurred(unit, spread + _NO_BLUR, _LARGEST_BLUR)
        return self._finished(unit, self._cut_out(inside, draws), raw)

    def _unit(self, raw: Tensor) -> Tensor:
        """Raw pixels, still (B, H, W, C), in [0, 1]."""
        pixels = raw.to(torch.float32)
        if self._offset != 0.0:
            pixels = pixels - self._offset
        return pixels if self._scale == 1.0 else pixels * self._scale

    def _normalised(self, values: Tensor) -> Tensor:
        # Channels and features both come last, so one line serves images and vectors.
        return (values - self._mean) * self._inverse_std

    def _finished(self, unit: Tensor, visible: Tensor | None, raw: Tensor) -> Tensor:
        normalised = self._normalised(unit)
        if visible is not None:
            normalised = normalised.masked_fill(~visible, 0.0)
        if self._is_volume:
            return _channels_first(with_presence(normalised.reshape(raw.shape), slices_there(raw)))
        return self._sized(_channels_first(normalised))

    def _sized(self, images: Tensor) -> Tensor:
        return functional.avg_pool2d(images, 2) if self._half_size else images

    def _images(self, raw: Tensor) -> Tensor:
        """The batch as images (B, H, W, C), the slices of volumes one after the other."""
        return raw.flatten(0, 1) if self._is_volume else raw

    def _fuses(self, raw: Tensor) -> bool:
        return self._kernels and not self._is_volume and fused_view_applies(raw)

    def _fused(self, raw: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """The same, in one kernel."""
        config = self._config
        strengths = {name: getattr(config, name) for name in _STRENGTHS}
        strengths |= {"cut_side": self._draws.cut_side, "sides_ratio": _SIDES_RATIO}
        how = {"offset": self._offset, "scale": self._scale}
        return self._sized(fused_view(raw, self._mean, self._inverse_std, draws=draws, strengths=strengths, **how))

    def _crop_and_flip(self, raw: Tensor, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Shift and mirror each image by its own draw; also say which pixels show the image rather than padding."""
        # One gather on the raw values does both: cheaper than padding, and bytes are a quarter of the traffic of
        # floats.
        if "row_shift" not in draws:
            return raw, None
        rows, columns = self._rows + draws["row_shift"], self._columns + draws["column_shift"]
        if "mirrored" in draws:
            columns = torch.where(draws["mirrored"].bool(), columns.flip(1), columns)
        last_row, last_column = len(self._rows) - 1, len(self._columns) - 1
        nearest_rows, nearest_columns = rows.clamp(0, last_row), columns.clamp(0, last_column)
        # Every pixel's number when those of the whole batch are counted through: far faster to select by on a CPU.
        first_rows = torch.arange(len(raw), device=raw.device)[:, None] * len(self._rows)
        pixels = (first_rows + nearest_rows)[:, :, None] * len(self._columns) + nearest_columns[:, None, :]
        shifted = raw.flatten(0, 2).index_select(0, pixels.flatten()).view(raw.shape)
        inside = _rectangles(rows == nearest_rows, columns == nearest_columns)
        return shifted, inside if self._draws.crops and "part" not in draws else None  # which is cropped instead

    def _turned(self, unit: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Turn and zoom each image about its centre, and enlarge a part of it, by its own draw."""
        # What turning brings in from outside is the channel mean; a part lies inside and brings in nothing.
        config, motion = self._config, None
        if "turn" in draws:
            turn = draws["turn"] * 2 - 1
            angle, factor = turn[0] * math.radians(config.rotation), 1 + turn[1] * config.zoom
            motion = turning(angle, factor, *unit.shape[1:3])
        beyond = "border" if motion is None else "zeros"
        if "part" in draws:
            area, ratio, across, down = draws["part"]
            part = cropping(
                config.resized_crop + area * (1 - config.resized_crop),
                torch.exp((2 * ratio - 1) * math.log(_SIDES_RATIO)),
                torch.stack([across, down], dim=1) * 2 - 1,
            )
            motion = part if motion is None else one_after_the_other(motion, part)
        return unit if motion is None else moved(unit - self._mean, motion, beyond=beyond) + self._mean

    def _jitter(self, unit: Tensor, inside: Tensor | None, draws: Mapping[str, Tensor]) -> Tensor:
        """Brightness, contrast, saturation, hue, always in this order, each image with its own factors."""
        if "factors" not in draws:
            return unit
        config, change = self._config, draws["factors"] * 2.0 - 1.0
        if "chosen" in draws:
            change = change * (draws["chosen"] < config.jitter)
        factors = (self._usual_factors + change * self._factor_strengths)[:, None, None, :]
        if config.brightness > 0:
            unit = adjust_brightness(unit, factors[..., 0:1])
        if config.contrast > 0:
            unit = adjust_contrast(unit, factors[..., 1:2], inside)
        if self._is_colour and config.saturation > 0:
            unit = adjust_saturation(unit, factors[..., 2:3])
        if self._is_colour and config.hue > 0:
            unit = adjust_hue(unit, factors[..., 3])
        return unit

    def _cut_out(self, inside: Tensor | None, draws: Mapping[str, Tensor]) -> Tensor | None:
        """Take a square around a random pixel of each image out of what is visible."""
        if "cut_row" not in draws:
            return inside
        side = self._draws.cut_side
        down = self._rows - (draws["cut_row"] - side // 2)
        across = self._columns - (draws["cut_column"] - side // 2)
        kept = ~_rectangles(*((distance >= 0) & (distance < side) for distance in (down, across)))
        return kept if inside is None else inside & kept

    def _standardised(self, raw: Tensor) -> Tensor:
        """Rows in double precision keep it until the mean is off: only then does float32 tell them apart."""
        if raw.dtype == torch.float64:
            return (raw - self._exact_mean).to(torch.float32) * self._inverse_std
        return self._normalised(raw.to(torch.float32))

    def _noisy(self, raw: Tensor, generator: Generator) -> Tensor:
        standardised = self._standardised(raw)
        if self._config.noise == 0:
            return standardised
        noise = torch.randn(raw.shape, generator=generator, device=raw.device, dtype=torch.float32)
        return standardised + noise * self._config.noise


def slices_there(raw: Tensor) -> Tensor:
    """Which slices (B, S) of raw volumes (B, S, H, W, C) are there; one of nothing but zeros only fills up."""
    return (raw != 0).flatten(2).any(dim=2)


def with_presence(volumes: Tensor, there: Tensor) -> Tensor:
    """Volumes (B, S, H, W, C) with one more channel that says which slices are there; the others are blanked."""
    plane = there[:, :, None, None, None].to(volumes.dtype).expand(*volumes.shape[:-1], 1)
    return torch.cat([volumes.masked_fill(~there[:, :, None, None, None], 0.0), plane], dim=-1)


def _channels_first(image: Tensor) -> Tensor:
    """(..., H, W, C) seen as (..., C, H, W): the same memory, which is what torch calls channels-last."""
    return image.contiguous().movedim(-1, -3)


def _rectangles(rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels (B, H, W, 1) whose row (B, H) and whose column (B, W) are both marked."""
    return (rows[:, :, None] & columns[:, None, :]).unsqueeze(-1)
