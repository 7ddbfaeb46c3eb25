"""A plan for a stretch of GPU time: what would be run, in which order, and how long it may take."""

from collections.abc import Iterator, Sequence

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
    """What the same training took with another seed, if one is there."""
    same = {
        "data": unit.data,
        "network": unit.network,
        "work": unit.work,
        "method": unit.method,
        "positives": unit.positives,
        "config_hash": unit.config_hash,
    }
    found = (line for line in store.lines.values() if all(line.get(key) == value for key, value in same.items()))
    return next((device_seconds(line) for line in found if " CPU" not in line["device"]), None)
