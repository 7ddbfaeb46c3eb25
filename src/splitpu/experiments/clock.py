"""The time there is, and what fits into it."""

import time
from collections.abc import Callable

from splitpu.experiments.units import Unit

RESERVE = 5.0  # seconds before the limit that belong to writing and leaving


class Clock:
    """How much time there is, and whether the next unit fits into it, judged by those before."""

    def __init__(self, minutes: float | None, now: Callable[[], float] = time.monotonic, *, fill: bool = False) -> None:
        self._now, self._fill = now, fill
        self._end = None if minutes is None else now() + 60 * minutes - RESERVE
        # Seconds of a recipe's and method's units that had a base to train, and of those that had none.
        self._longest: dict[tuple[str, str, bool], float] = {}
        self._slowest = 0.0  # seconds a guessed one
        self._bases: set[tuple[str, str, str, int, int]] = set()

    def left(self) -> float:
        """Seconds until the limit."""
        return float("inf") if self._end is None else self._end - self._now()

    def fits(self, unit: Unit) -> bool:
        """Whether a unit can be expected to end in time; the first one is always tried.

        Where the time is to be filled, every unit is: what it has trained by the end is not lost.
        """
        if self.left() <= 0 or self._fill:
            return self.left() > 0
        # What nothing like it has been run of takes as much longer than guessed as other things did.
        expected = self._longest.get(self._like(unit), self._slowest * unit.guessed_seconds)
        return expected <= self.left()

    def took(self, unit: Unit, seconds: float) -> None:
        """Remember how long a unit was."""
        like = self._like(unit)
        self._longest[like] = max(self._longest.get(like, 0.0), seconds)
        self._slowest = max(self._slowest, seconds / unit.guessed_seconds)
        self._bases.add(_base_of(unit))

    def is_fresh(self, unit: Unit) -> bool:
        """Whether the unit has a base model to train, as far as is known."""
        return _base_of(unit) not in self._bases

    def _like(self, unit: Unit) -> tuple[str, str, bool]:
        return unit.recipe, unit.method, self.is_fresh(unit)


def _base_of(unit: Unit) -> tuple[str, str, str, int, int]:
    return unit.work, unit.data, unit.recipe, unit.positives, unit.seed
