"""Which stages units have in common: one lane trains such a stage, and no other lane should stand and wait for it."""

from collections.abc import Iterator, Sequence

from splitpu.config import config_hash
from splitpu.experiments.declared import SPLIT_PU
from splitpu.experiments.units import Unit, what_is_computed

# In the order they are trained; what comes after them is hardly ever shared. Each depends on all before it, too.
_WARMUP, _BASE, _SPLIT, _STUDENT = range(4)
_NOT_OF_THE_BASE = ("rounds", "threshold", "split", "student")


class SharedStages:
    """What the units that run are still to make. Asked and told under the lock of whoever hands out units."""

    def __init__(self, units: Sequence[Unit]) -> None:
        """Units are known by their number."""
        self._units = units
        self._known: dict[int, dict[int, str]] = {}  # the stages of those somebody has asked about
        self._ahead: dict[int, dict[int, str]] = {}

    def begin(self, number: int) -> None:
        """A unit is handed out: all its stages lie ahead of it."""
        self._ahead[number] = self._stages(number)

    def reached(self, number: int, stage: str) -> None:
        """A unit has begun a stage, so the ones before it are made."""
        here = _place(stage)
        self._ahead[number] = {place: name for place, name in self._ahead[number].items() if place >= here}

    def end(self, number: int) -> None:
        """A unit has ended, one way or another."""
        del self._ahead[number]

    def would_wait(self, number: int) -> bool:
        """Whether the unit needs a stage that one of those that run has not made yet."""
        ahead = {name for names in self._ahead.values() for name in names.values()}
        return bool(ahead) and not ahead.isdisjoint(self._stages(number).values())

    def _stages(self, number: int) -> dict[int, str]:
        if number not in self._known:
            self._known[number] = dict(shareable_stages(self._units[number]))
        return self._known[number]


def shareable_stages(unit: Unit) -> Iterator[tuple[int, str]]:
    """Place and name of every stage that another unit may need as well; equal names stand for the same training."""
    config, read = unit.config, what_is_computed(unit.config)
    if config.warmup.name != "none":
        yield _WARMUP, _named("warmup", unit.data, unit.network, unit.seed, config_hash(config, "warmup", "views.flip"))
    sections = [section for section in read if section not in _NOT_OF_THE_BASE]
    draw = (unit.data, unit.network, unit.seed, unit.positives, unit.experiment.held_out, unit.method)
    yield _BASE, _named("base", *draw, config_hash(config, *sections))
    if unit.method != SPLIT_PU or not config.rounds:
        return
    sections += ["threshold", "split"]
    if config.split.enabled:
        yield _SPLIT, _named("split", *draw, config_hash(config, *sections))
    # Figures look into their students while these learn, which others cannot use.
    watched = unit.experiment.kind == "figure"
    yield _STUDENT, _named("student", *draw, watched, config_hash(config, *sections, "student"))


def _named(*parts: object) -> str:
    return " ".join(map(str, parts))


def _place(stage: str) -> int:
    """Where a stage stands in the order; one that is trained again or has members is named after the first of them."""
    starts = {"warmup": _WARMUP, "round1.split": _SPLIT, "round1.student": _STUDENT, "round": _STUDENT + 1}
    return next((place for start, place in starts.items() if stage.startswith(start)), _BASE)
