"""A plan: what would be run, in which order, and how long it may take."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from splitpu.experiments.costs import LONG
from splitpu.experiments.store import ResultStore, device_seconds
from splitpu.experiments.units import Unit


def plan_lines(units: Sequence[Unit], store: ResultStore) -> Iterator[str]:
    """One line a unit, with the minutes up to its end, and the sum; stages that units share count in each of them."""
    total, longer = 0.0, 0
    for unit in units:
        measured = measured_seconds(unit, store)
        seconds = unit.guessed_seconds if measured is None else measured
        total += seconds
        longer += seconds > LONG
        source = "guessed" if measured is None else "measured"
        mark = "  long" if seconds > LONG else ""
        yield f"{total / 60:7.1f} min  {seconds:6.0f} s {source:8}  {unit}{mark}"
    yield f"{len(units)} units, about {total / 60:.0f} minutes; {longer} of them over {LONG:.0f} s each."


def measured_seconds(unit: Unit, store: ResultStore) -> float | None:
    """What the same training took on a GPU with another seed, if one is there."""
    seeds = {line["seed"] for line in store.lines.values()}
    found = (store.lines.get(replace(unit, seed=seed).work_key) for seed in sorted(seeds))
    return next((device_seconds(line) for line in found if line and " CPU" not in line["device"]), None)
