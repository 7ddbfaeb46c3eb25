"""Charts as SVG text: pure functions of numbers and names; colours come from the style of the page around them.

A PNG encoder of a few lines: the galleries need nothing more, and so the package needs no imaging library.
"""

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import markupsafe
import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from splitpu.errors import InputError
from splitpu.report.contents import count, decimal, percent, shorten, writable

_LARGEST = 1e300  # beyond this, differences of floats overflow


@dataclass(frozen=True)
class Axis:
    """A range of values, the ticks on it, and the words at the ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def place(self, value: float, start: float, end: float) -> float:
        """Find the point between start and end where a value is drawn; values off the axis stay on its edge."""
        share = (value - self.low) / (self.high - self.low)
        return start + min(max(share, 0.0), 1.0) * (end - start)


def finite(values: Iterable[float | None]) -> list[float]:
    """Keep what can be drawn."""
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
    """Choose ticks at multiples of 1, 2 or 5 times a power of ten.

    >>> round_axis(0.13, 0.92).labels
    ('0.0', '0.2', '0.4', '0.6', '0.8', '1.0')
    >>> round_axis(1, 7, whole=True, widen=False).ticks
    (2.0, 4.0, 6.0)
    """
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
    """Make an axis of log10(count) from just below one to the largest count.

    >>> decades_axis(250).labels
    ('1', '10', '100')
    """
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


WIDTH = 380
_HEIGHT = 150
_BINS = 25
COLOURS = 6  # the style knows this many colours of series, s0 to s5
_CHARACTER = 6.3  # average width of a letter at the 12-unit type of the charts
_ROW = 16
_BOTTOM = 36
_RIGHT = 12


@dataclass(frozen=True)
class Series:
    """One line: its name and its points; a y that is None or not finite leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]


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

    def across(self, value: float) -> float:
        return self.x.place(value, self.left, self.right)

    def up(self, value: float) -> float:
        return self.y.place(value, self.bottom, self.top)

    def drawing(self, labels: Labels, body: str, *, empty: bool, more: str = "") -> Markup:
        """Axes and what is drawn between them; words where that is nothing."""
        left, right, bottom = f"{self.left:.1f}", f"{self.right:.1f}", self.bottom
        longest = int((self.width - 8) / _CHARACTER)
        parts = [f'<text class="label" x="0" y="12">{_escape(shorten(labels.y, longest))}</text>']
        for tick, label in zip(self.y.ticks, self.y.labels, strict=True):
            y = self.up(tick)
            parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{self.left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{_escape(label)}</text>')
        parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom:g}" y2="{bottom:g}"/>')
        for tick, label in zip(self.x.ticks, self.x.labels, strict=True):
            x = self.across(tick)
            parts.append(f'<text x="{x:.1f}" y="{bottom + 15:g}" text-anchor="middle">{_escape(label)}</text>')
        across = f'x="{(self.left + self.right) / 2:.1f}"'
        below = f'{across} y="{bottom + 31:g}" text-anchor="middle"'
        parts += [f'<text class="label" {below}>{_escape(labels.x)}</text>', body]
        if empty:
            parts.append(f'<text {across} y="{(self.top + bottom) / 2:.1f}" text-anchor="middle">no values</text>')
        return _drawing(self.width, bottom + _BOTTOM, labels.description, "".join(parts), more)


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
    """Draw lines over epochs, or over numbers that need not be `whole`, with a level to be reached and a moment of
    stopping where they are given.
    """
    xs = [x for line in series for x in line.x] + ([stop.at] if stop else [])
    ys = [y for line in series for y in line.y] + ([level.at] if level else [])
    x_axis, y_axis = round_axis(*span_of(xs), whole=whole, widen=False), round_axis(*span_of(ys))
    body, legend_rows = _legend([line.name for line in series], width) if len(series) > 1 else ("", 0)
    frame = _Frame(x_axis, y_axis, width, height, rows=legend_rows + bool(stop))
    if level and finite([level.at]):
        y = frame.up(level.at)
        body += (
            f'<line class="mark dashed" x1="{frame.left:.1f}" x2="{frame.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="strong halo" x="{frame.left + 4:.1f}" y="{y - 5:.1f}">{_escape(level.label)}</text>'
        )
    body += "".join(_line(line, number, frame) for number, line in enumerate(series))
    body += _upright(stop, frame, legend_rows) if stop else ""
    corners = (frame.left, frame.right, x_axis.low, x_axis.high, frame.top, frame.bottom)
    across = _escape(labels.x.partition(" ")[0])
    hover = f' data-frame="{" ".join(f"{corner:g}" for corner in corners)}" data-across="{across}"'
    return frame.drawing(labels, body, empty=not any(finite(line.y) for line in series), more=hover)


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
    body = ""
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
                body += (
                    f'<rect class="fill {colour}" x="{frame.across(start) + 0.5:.2f}" y="{top:.2f}" '
                    f'width="{max(length, 0.2):.2f}" '
                    f'height="{frame.bottom - top:.2f}"><title>{_escape(words)}</title></rect>'
                )
    body += "".join(_upright(mark, frame, row) for row, mark in enumerate(marks))
    return frame.drawing(labels, body, empty=not highest)


def stacked_bar(parts: Sequence[tuple[str, int]], *, description: str, width: float = WIDTH) -> Markup:
    """Draw how a whole falls into parts, with the number and the share of each part written out."""
    whole = sum(number for _, number in parts)
    body = f'<rect class="rest" x="0" y="0" width="{width:g}" height="22" rx="3"/>'
    start = 0.0
    for colour, (label, number) in enumerate(parts):
        length = width * number / whole if whole else 0.0
        if length:
            words = _escape(f"{label}: {count(number)}")
            # A gap of one unit tells neighbours apart without relying on their colours.
            body += (
                f'<rect class="fill s{colour % COLOURS}" x="{start:.2f}" y="0" width="{max(length - 1, 0.5):.2f}" '
                f'height="22" rx="2"><title>{words}</title></rect>'
            )
        start += length
    shares = [percent(number / whole if whole else math.nan) for _, number in parts]
    names = [f"{shorten(part, 22)} {count(n)} ({share})" for (part, n), share in zip(parts, shares, strict=True)]
    legend, rows = _legend(names, width, top=40, squares=True)
    return _drawing(width, 30 + _ROW * rows, description, body + legend)


def share_bar(share: float, expected: float, *, description: str, width: float = WIDTH) -> Markup:
    """Draw a share of a whole as a filled bar, and the share that was expected as a tick across it."""
    filled = width * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    body = f'<rect class="rest" x="0" y="20" width="{width:g}" height="18" rx="3"/>'
    body += f'<rect class="fill s0" x="0" y="20" width="{filled:.2f}" height="18" rx="3"/>'
    body += _at_bar(filled, f"called positive {percent(share)}", width, 14)
    if math.isfinite(expected):
        tick = min(max(width * expected, 1.0), width - 1)
        body += f'<line class="mark" x1="{tick:.2f}" x2="{tick:.2f}" y1="16" y2="44"/>'
        body += _at_bar(tick, f"expected {percent(expected)}", width, 56)
    return _drawing(width, 62, description, body)


def interval_chart(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw estimates (name, value, low, high) one below the other, each with its interval."""
    axis = round_axis(min(float(row["low"]) for row in rows), max(float(row["high"]) for row in rows))
    step, left = 22, 110
    height = step * len(rows) + 24

    def across(value: float) -> float:
        return axis.place(value, left, WIDTH - 14)

    body = ""
    for number, row in enumerate(rows):
        y = step * number + 12
        low, value, high = (across(float(row[key])) for key in ("low", "value", "high"))
        body += (
            f'<text x="0" y="{y + 4}">{_escape(row["name"])}</text>'
            f'<line class="mark" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'
            f'<circle class="fill s0" cx="{value:.1f}" cy="{y}" r="4"/>'
        )
    for at in (axis.low, axis.high):
        body += f'<text text-anchor="middle" x="{across(at):.1f}" y="{height - 4}">{at:.2g}</text>'
    description = ", ".join(f"{row['name']} {float(row['value']):.3f}" for row in rows)
    return _drawing(WIDTH, height, f"Estimates of the prior: {description}", body)


def _at_bar(x: float, words: str, width: float, y: float) -> str:
    half = len(words) * _CHARACTER / 2
    middle = min(max(x, half), width - half)
    return f'<text x="{middle:.1f}" y="{y:g}" text-anchor="middle" class="strong">{_escape(words)}</text>'


def _drawing(width: float, height: float, description: str, body: str, more: str = "") -> Markup:
    """The one place where a chart is marked as safe: all names in its body went through `_escape`."""
    return Markup(
        f'<svg class="chart" role="img" viewBox="0 0 {width:g} {height:g}" aria-label="{_escape(description)}"{more}>'
        f"{body}</svg>"
    )


def _escape(text: str) -> str:
    return str(markupsafe.escape(writable(text)))


def _legend(names: Sequence[str], width: float, top: float = 28, squares: bool = False) -> tuple[str, int]:
    """Write the names of the series in as many rows as they take; give the drawing and the number of rows."""
    body, x, row = "", 0.0, 0
    for number, full in enumerate(names):
        words = shorten(full, int((width - 24) / _CHARACTER))
        length = 22 + len(words) * _CHARACTER + 14
        if x and x + length - 14 > width:
            x, row = 0.0, row + 1
        y, colour = top + row * _ROW, f"s{number % COLOURS}"
        if squares:
            body += f'<rect class="fill {colour}" x="{x:.1f}" y="{y - 9:g}" width="10" height="10" rx="2"/>'
        else:
            body += f'<line class="line {colour}" x1="{x:.1f}" x2="{x + 16:.1f}" y1="{y - 4:g}" y2="{y - 4:g}"/>'
        indent = 15 if squares else 21
        body += f'<text x="{x + indent:.1f}" y="{y:g}"><title>{_escape(full)}</title>{_escape(words)}</text>'
        x += length
    return body, (row + 1 if names else 0)


def _line(series: Series, number: int, frame: _Frame) -> str:
    """Draw one series; a gap where a value is missing, a dot where a point has no neighbour."""
    runs: list[list[str]] = [[]]
    for x, y in zip(series.x, series.y, strict=True):
        if y is None or not finite([y]) or not finite([x]):
            runs.append([])
        else:
            runs[-1].append(f"{frame.across(x):.1f} {frame.up(y):.1f}")
    colour = f"s{number % COLOURS}"
    path = " ".join("M" + "L".join(run) for run in runs if len(run) > 1)
    dots = [run[0].split() for run in runs if len(run) == 1]
    drawn = f'<path class="line {colour}" d="{path}"/>' if path else ""
    drawn += "".join(f'<circle class="fill {colour}" cx="{x}" cy="{y}" r="3"/>' for x, y in dots)
    xs = " ".join(f"{x:g}" for x in series.x)
    ys = " ".join("nan" if y is None else f"{y:.5g}" for y in series.y)
    return f'<g data-name="{_escape(series.name)}" data-x="{xs}" data-y="{ys}">{drawn}</g>'


def _upright(mark: Mark, frame: _Frame, row: int) -> str:
    """Draw an upright reference line from its words, which stand above the plot in a row of their own."""
    if not finite([mark.at]):
        return ""
    x = frame.across(mark.at)
    y = 28 + row * _ROW
    length = len(mark.label) * _CHARACTER
    anchor, at, top = "middle", min(max(x, length / 2), frame.width - length / 2), y + 4
    if x + 5 + length < frame.width:
        anchor, at, top = "start", x + 5, y - 9
    elif x - 5 - length > 0:
        anchor, at, top = "end", x - 5, y - 9
    return (
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{frame.bottom:g}"/>'
        f'<text class="strong halo" x="{at:.1f}" y="{y:g}" text-anchor="{anchor}">{_escape(mark.label)}</text>'
    )


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> greyscale, RGB, RGBA as the PNG standard numbers them


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
