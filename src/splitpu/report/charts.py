"""Charts as SVG text: pure functions of numbers and names, which find out where things lie; a template draws them.

A PNG encoder of a few lines: the galleries need nothing more, and so the package needs no imaging library."""

import math
import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from splitpu.errors import InputError
from splitpu.report.contents import count, decimal, environment, percent, shorten

_LARGEST = 1e300  # beyond this, differences of floats overflow
WIDTH = 380
_HEIGHT = 150
_BINS = 25
COLOURS = 6  # the style knows this many colours of series, s0 to s5
_CHARACTER = 6.3  # average width of a letter at the 12-unit type of the charts
_ROW = 16
_RIGHT = 12
_BREAKS = re.compile(r">\n+<")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> greyscale, RGB, RGBA as the PNG standard numbers them


@dataclass(frozen=True)
class Axis:
    """A range of values, the ticks on it, and the words at the ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    @property
    def marks(self) -> list[tuple[float, str]]:
        return list(zip(self.ticks, self.labels, strict=True))

    def place(self, value: float, start: float, end: float) -> float:
        """Find the point between start and end where a value is drawn; values off the axis stay on its edge."""
        share = (value - self.low) / (self.high - self.low)
        return start + min(max(share, 0.0), 1.0) * (end - start)


def finite(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None and math.isfinite(value) and abs(value) < _LARGEST]


def span_of(values: Iterable[float | None]) -> tuple[float, float]:
    """Find the range of some values, opened up a little where they are all the same."""
    drawable = finite(values)
    low, high = min(drawable, default=0.0), max(drawable, default=0.0)
    size = max(abs(low), abs(high))
    if size < 1e-290:
        return 0.0, 1.0
    if high - low <= 1e-9 * size:
        middle = (low + high) / 2
        return middle - 0.1 * size, middle + 0.1 * size
    return low, high


def round_axis(low: float, high: float, *, about: int = 4, whole: bool = False, widen: bool = True) -> Axis:
    """Choose ticks at multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if rough <= factor * power * (1 + 1e-9))
    if whole:
        step = max(step, 1.0)
    first, last = math.floor(low / step), math.ceil(high / step)
    if not widen:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    if widen:
        low, high = ticks[0], ticks[-1]
    return Axis(low, high, ticks, tuple(_tick_label(tick, step) for tick in ticks))


def decades_axis(largest: float) -> Axis:
    """Make an axis of log10(count) from just below one to the largest count."""
    top = math.log10(max(largest, 1.0))
    every = max(1, math.ceil(top / 5))
    ticks = tuple(float(power) for power in range(0, math.floor(top) + 1, every))
    # A count of one is still a bar that can be seen: the axis starts a third of a decade below it.
    return Axis(-0.33, max(top, 1.0), ticks, tuple(_tick_label(10**tick, 10**tick) for tick in ticks))


def _tick_label(value: float, step: float) -> str:
    if value == 0 and not 1e-4 <= step < 1:
        return "0"
    if step >= 1e-4 and abs(value) < 1e4:
        decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step < 1 else 0
        words = f"{value:.{min(decimals, 4)}f}"
    elif 1e4 <= abs(value) < 1e9 and step % 100 == 0:
        size, suffix = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        words = f"{value / size:g}{suffix}"
    else:
        digits = 1 + max(0, round(math.log10(abs(value) / step)))  # as many as tell neighbours apart
        words = f"{value:.{digits + 1}g}"
    return words.replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Series:
    """One line: its name and its points; a y that is None or not finite leaves a gap. A band may lie around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Mark:
    """A reference line and the words beside it."""

    at: float
    label: str


@dataclass(frozen=True)
class Labels:
    """What a chart says in words: to whoever cannot see it, and along its axes."""

    description: str
    x: str
    y: str


class _Frame:
    """The rectangle of a plot inside its drawing, under some rows of words, and the two axes along it."""

    def __init__(self, x: Axis, y: Axis, width: float, height: float, rows: int) -> None:
        self.x, self.y, self.width = x, y, width
        self.left, self.right = 10 + max((len(label) for label in y.labels), default=1) * 6.8, width - _RIGHT
        self.top = 26 + _ROW * rows
        self.bottom = self.top + height
        self.corners = (self.left, self.right, x.low, x.high, self.top, self.bottom)
        self.longest = int((width - 8) / _CHARACTER)  # words above the plot

    def across(self, value: float) -> float:
        return self.x.place(value, self.left, self.right)

    def up(self, value: float) -> float:
        return self.y.place(value, self.bottom, self.top)


def line_chart(
    series: Sequence[Series],
    labels: Labels,
    *,
    level: Mark | None = None,
    stop: Mark | None = None,
    whole: bool = True,
    width: float = WIDTH,
    height: float = _HEIGHT,
) -> Markup:
    """Draw lines over numbers, `whole` as epochs are, with a level to be reached and a moment of stopping if given."""
    xs = [x for line in series for x in line.x] + ([stop.at] if stop else [])
    ys = [y for line in series for y in (*line.y, *line.low, *line.high)] + ([level.at] if level else [])
    x_axis, y_axis = round_axis(*span_of(xs), whole=whole, widen=False), round_axis(*span_of(ys))
    names, rows = _legend([line.name for line in series], width) if len(series) > 1 else ([], 0)
    frame = _Frame(x_axis, y_axis, width, height, rows=rows + bool(stop))
    return _drawn(
        "line_chart",
        frame=frame,
        labels=labels,
        names=names,
        lines=[_line(line, frame) for line in series],
        level=level if level and finite([level.at]) else None,
        stop=_uprights([stop] if stop else [], frame, rows),
        empty=not any(finite(line.y) for line in series),
    )


def histogram(
    values: npt.NDArray[np.floating[Any]],
    labels: Labels,
    *,
    marks: Sequence[Mark] = (),
    split_at: float | None = None,
    logarithmic: bool = False,
) -> Markup:
    """Draw how values in [0, 1] are spread; bars right of `split_at` are coloured as the chosen ones."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    counts, edges = np.histogram(flat[np.isfinite(flat)], bins=_BINS, range=(0.0, 1.0))
    highest = float(counts.max())
    y_axis = decades_axis(highest) if logarithmic else round_axis(0.0, max(highest, 1.0), whole=True)
    frame = _Frame(round_axis(0.0, 1.0, about=5), y_axis, WIDTH, _HEIGHT, rows=len(marks))
    bars = []
    for left, right, number in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True):
        if not number:
            continue
        top = frame.up(math.log10(number) if logarithmic else number)
        top = min(top, frame.bottom - 0.75)  # one sample among millions is still to be seen
        edge = right if split_at is None or math.isnan(split_at) else min(max(split_at, left), right)
        words = f"{decimal(left)} to {decimal(right)}: {count(number)}"
        for start, end, colour in ((left, edge, "below"), (edge, right, "s0")):
            if end > start:
                length = frame.across(end) - frame.across(start) - (1 if end == right else 0.5)
                bars.append((colour, frame.across(start) + 0.5, top, max(length, 0.2), words))
    uprights = _uprights(marks, frame)
    return _drawn("histogram", frame=frame, labels=labels, bars=bars, marks=uprights, empty=not highest)


def stacked_bar(parts: Sequence[tuple[str, int]], *, description: str, width: float = WIDTH) -> Markup:
    """Draw how a whole falls into parts, with the number and the share of each part written out."""
    whole, start, bars, names = sum(number for _, number in parts), 0.0, [], []
    for colour, (label, number) in enumerate(parts):
        length = width * number / whole if whole else 0.0
        if length:
            bars.append((f"s{colour % COLOURS}", start, length, f"{label}: {count(number)}"))
        start += length
        names.append(f"{shorten(label, 22)} {count(number)} ({percent(number / whole if whole else math.nan)})")
    legend, rows = _legend(names, width, top=40)
    return _drawn("stacked_bar", width=width, parts=bars, names=legend, rows=rows, description=description)


def share_bar(share: float, expected: float, *, description: str, width: float = WIDTH) -> Markup:
    """Draw a share of a whole as a filled bar, and the share that was expected as a tick across it."""
    filled = width * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    tick = min(max(width * expected, 1.0), width - 1)
    said = [(filled, 14, f"called positive {percent(share)}"), (tick, 56, f"expected {percent(expected)}")]
    words = []
    for x, y, text in said if math.isfinite(expected) else said[:1]:
        half = len(text) * _CHARACTER / 2
        words.append((min(max(x, half), width - half), y, text))
    return _drawn("share_bar", width=width, filled=filled, tick=tick, words=words, description=description)


def interval_chart(estimates: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw estimates (name, value, low, high) one below the other, each with its interval."""
    axis = round_axis(min(float(one["low"]) for one in estimates), max(float(one["high"]) for one in estimates))

    def across(value: Any) -> float:
        return axis.place(float(value), 110, WIDTH - 14)

    rows = [
        (one["name"], 22 * at + 12, *(across(one[key]) for key in ("low", "value", "high")))
        for at, one in enumerate(estimates)
    ]
    ends = [(across(at), f"{at:.2g}") for at in (axis.low, axis.high)]
    said = ", ".join(f"{one['name']} {float(one['value']):.3f}" for one in estimates)
    height, description = 22 * len(rows) + 24, f"Estimates of the prior: {said}"
    return _drawn("interval_chart", width=WIDTH, height=height, rows=rows, ends=ends, description=description)


def _drawn(macro: str, **values: Any) -> Markup:
    """Fill one of the drawings in the template, which escapes every name."""
    drawing = getattr(environment().get_template("charts.html").module, macro)(**values)
    return Markup(_BREAKS.sub("><", str(drawing).strip()))


def _legend(names: Sequence[str], width: float, top: float = 28) -> tuple[list[tuple[Any, ...]], int]:
    """Place, colour and words of the names of the series, and how many rows they take."""
    entries, x, row = [], 0.0, 0
    for number, full in enumerate(names):
        words = shorten(full, int((width - 24) / _CHARACTER))
        length = 22 + len(words) * _CHARACTER + 14
        if x and x + length - 14 > width:
            x, row = 0.0, row + 1
        entries.append((x, top + row * _ROW, f"s{number % COLOURS}", words, full))
        x += length
    return entries, (row + 1 if names else 0)


def _line(series: Series, frame: _Frame) -> dict[str, Any]:
    """One series as it is drawn; a gap where a value is missing, a dot where a point has no neighbour."""
    runs: list[list[str]] = [[]]
    around = [*zip(series.x, series.low, strict=False), *reversed([*zip(series.x, series.high, strict=False)])]
    for x, y in zip(series.x, series.y, strict=True):
        if y is None or not finite([y]) or not finite([x]):
            runs.append([])
        else:
            runs[-1].append(f"{frame.across(x):.1f} {frame.up(y):.1f}")
    return {
        "name": series.name,
        "path": " ".join("M" + "L".join(run) for run in runs if len(run) > 1),
        "dots": [run[0].split() for run in runs if len(run) == 1],
        "band": "L".join(f"{frame.across(x):.1f} {frame.up(y):.1f}" for x, y in around),
        "x": " ".join(f"{x:g}" for x in series.x),
        "y": " ".join("nan" if y is None else f"{y:.5g}" for y in series.y),
    }


def _uprights(marks: Sequence[Mark], frame: _Frame, first_row: int = 0) -> list[dict[str, Any]]:
    """Upright reference lines that can be drawn, with their words on the side where there is room for them."""
    placed = []
    for row, mark in enumerate(marks, start=first_row):
        if not finite([mark.at]):
            continue
        x, y, length = frame.across(mark.at), 28 + row * _ROW, len(mark.label) * _CHARACTER
        anchor, at, top = "middle", min(max(x, length / 2), frame.width - length / 2), y + 4
        if x + 5 + length < frame.width:
            anchor, at, top = "start", x + 5, y - 9
        elif x - 5 - length > 0:
            anchor, at, top = "end", x - 5, y - 9
        placed.append({"x": x, "y": y, "anchor": anchor, "at": at, "top": top, "label": mark.label})
    return placed


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Turn uint8 pixels of shape (H, W, 1), (H, W, 3) or (H, W, 4) into the bytes of a PNG file."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in _COLOUR_TYPES or 0 in pixels.shape:
        raise InputError(
            f"The pixels have shape {pixels.shape} and type {pixels.dtype}, which a PNG cannot hold; "
            "give uint8 of shape (height, width, 1, 3 or 4)."
        )
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    # Every scan line starts with the number of its filter; 0 = the bytes as they are.
    lines = np.zeros((height, 1 + width * channels), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, width * channels)
    chunks = (b"IHDR" + header, b"IDAT" + zlib.compress(lines.tobytes(), level=9), b"IEND")
    written = [struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks]
    return _SIGNATURE + b"".join(written)


def png_address(pixels: npt.NDArray[np.uint8]) -> str:
    """Write pixels as a `data:` address, so that an image lives inside the page itself."""
    return "data:image/png;base64," + b64encode(encode_png(pixels)).decode("ascii")
