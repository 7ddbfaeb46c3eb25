"""Axes: where a value lies on the paper, and which round numbers are written beside it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

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
    """Find the range of some values, opened up a little where they are all the same.

    >>> span_of([1.0, None, 3.0]), span_of([2.0]), span_of([])
    ((1.0, 3.0), (1.8, 2.2), (0.0, 1.0))
    """
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
    step = _round_step((high - low) / about)
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


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return power * next(factor for factor in (1, 2, 5, 10) if rough <= factor * power * (1 + 1e-9))


def _tick_label(value: float, step: float) -> str:
    if value == 0 and not 1e-4 <= step < 1:
        return "0"
    if step >= 1e-4 and abs(value) < 1e4:
        decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step < 1 else 0
        return f"{value:.{min(decimals, 4)}f}".replace("-", "\N{MINUS SIGN}")
    if 1e4 <= abs(value) < 1e9 and step % 100 == 0:
        size, suffix = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        return f"{value / size:g}{suffix}".replace("-", "\N{MINUS SIGN}")
    digits = 1 + max(0, round(math.log10(abs(value) / step)))  # as many as tell neighbours apart
    return f"{value:.{digits + 1}g}".replace("-", "\N{MINUS SIGN}")
