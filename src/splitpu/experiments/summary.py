"""From result lines to the cells of a table: the paper's figure, ours, and what it took."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from splitpu.experiments.declared import Experiment, Row
from splitpu.experiments.store import Line, ResultStore, device_seconds
from splitpu.experiments.units import SMOKE_POSITIVES, Unit, known_set, rows_for
from splitpu.report.text import MISSING

NOT_RUN = "not run"


@dataclass(frozen=True)
class Cell:
    """One row of a table at one number of positives."""

    row: Row
    positives: int
    lines: list[Line] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """The figure of every seed."""
        return list(self._by_seed.values())

    @property
    def seeds(self) -> set[int]:
        """Those that were run."""
        return {line["seed"] for line in self.lines}

    @property
    def mean(self) -> float | None:
        """Over the seeds."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def paper(self) -> str:
        """The paper's figure as text; a dash where it gives none."""
        mean = self.row.paper.get(self.positives)
        return with_deviation(mean, self.row.paper_sd.get(self.positives)) if mean is not None else MISSING

    @property
    def ours(self) -> str:
        """Mean, standard deviation and number of seeds."""
        if self.mean is None:
            return NOT_RUN
        sign = "+" if self.row.value == "gain" and self.mean > 0 else ""
        return f"{sign}{with_deviation(self.mean, deviation(self.values))} (n = {len(self.values)})"

    @property
    def difference(self) -> str:
        """Ours less the paper's, in points."""
        theirs = self.row.paper.get(self.positives)
        return f"{self.mean - theirs:+.2f}" if self.mean is not None and theirs is not None else MISSING

    def over(self, other: "Cell") -> str:
        """Its figures less the other's, seed by seed, as mean and standard error: what they share is left out of both.

        A dash for the other itself, and where they have no seed in common.
        """
        own, theirs = self._by_seed, other._by_seed
        gains = [value - theirs[seed] for seed, value in own.items() if seed in theirs]
        if not gains or self is other:
            return MISSING
        mean = statistics.fmean(gains)
        return f"{'+' * (mean > 0)}{with_deviation(mean, standard_error(gains))}"

    @property
    def _by_seed(self) -> dict[int, float]:
        found = {line["seed"]: reading(line, self.row.value) for line in self.lines}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def time(self) -> str:
        """Mean training time of a run, device by device: a mean over several would be true of none."""
        return "; ".join(_mean_time(self._lines_by_device[device]) for device in self._devices) or MISSING

    @property
    def matched(self) -> str:
        """The final model's accuracy at the threshold that meets the prior."""
        if self.row.value != "accuracy":  # of other models only what they say themselves is kept
            return MISSING
        found = [line["matched_accuracy"] for line in self.lines if line.get("matched_accuracy") is not None]
        return with_deviation(statistics.fmean(found), deviation(found)) if found else MISSING

    @property
    def ranking(self) -> str:
        """The area under the ROC curve, which no threshold moves."""
        kept = {"accuracy": "metrics", "base_accuracy": "base_metrics"}.get(self.row.value, "")
        figures = [line.get(kept) or {} for line in self.lines]  # a method without a base model has none
        found = [100 * figure["roc_auc"] for figure in figures if figure.get("roc_auc")]
        return with_deviation(statistics.fmean(found), deviation(found)) if found else MISSING

    @property
    def device(self) -> str:
        """What it ran on."""
        return "; ".join(self._devices) or MISSING

    @property
    def _devices(self) -> list[str]:
        return sorted(self._lines_by_device)

    @property
    def _lines_by_device(self) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line["device"], []).append(line)
        return found


def _mean_time(lines: list[Line]) -> str:
    """Of runs that shared the device, their share of it."""
    shares = [device_seconds(line) for line in lines]
    alone = all(share == line["seconds"] for share, line in zip(shares, lines, strict=True))
    return f"{statistics.fmean(shares):.0f} s{'' if alone else ' (shared)'}"


def reading(line: Line, value: str) -> float | None:
    """Read one figure from a result line.

    >>> reading({"accuracy": 91.5, "base_accuracy": 90.5, "rounds": [{"accuracy": 91.0}]}, "gain")
    1.0
    >>> reading({"rounds": [{"accuracy": 91.0}]}, "rounds.1")
    91.0
    """
    if value.startswith("rounds."):
        return after_round(line, value, "accuracy", lambda: line["base_accuracy"])
    if value == "gain":
        return float(line["accuracy"] - line["base_accuracy"])
    return float(line[value])


def after_round(line: Line, value: str, figure: str, of_base: Callable[[], float | None]) -> float | None:
    """A figure of the model that there is after some rounds (`rounds.2`, say): a student that was not taken is none.

    >>> line = {"base_accuracy": 90.0, "rounds": [{"accuracy": 91.0}, {"accuracy": 50.0, "taken": False}]}
    >>> after_round(line, "rounds.2", "accuracy", lambda: line["base_accuracy"])
    91.0
    """
    number = int(value.removeprefix("rounds."))
    if len(line["rounds"]) < number:
        return None
    taken = [one for one in line["rounds"][:number] if one.get("taken", True)]
    found: float | None = taken[-1][figure] if taken else of_base()
    return found


def deviation(values: list[float]) -> float | None:
    """The standard deviation between seeds; one seed has none."""
    return statistics.stdev(values) if len(values) > 1 else None


def standard_error(values: list[float]) -> float | None:
    """That of their mean; of two it would be a guess that looks like knowledge."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 2 else None


def with_deviation(mean: float, deviation: float | None) -> str:
    """Write a figure.

    >>> with_deviation(90.513, 0.1), with_deviation(89.28, None)
    ('90.51 ± 0.10', '89.28')
    """
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def cells(experiment: Experiment, recipe: str, store: ResultStore, *, smoke: bool = False) -> list[Cell]:
    """Every cell that the paper or the declaration has, whether it was run or not, size by size.

    A method or a size that somebody ran besides has cells only where it was run: nobody promised the others.
    """
    promised = _declared_sizes(experiment, smoke)
    sizes = sizes_of(experiment, store, smoke)
    rows = rows_for(experiment, _methods_run(experiment, store))
    found = [
        Cell(row, positives, found_lines(experiment, recipe, row, positives, store, smoke=smoke))
        for positives in sizes
        for row in rows
    ]
    return [cell for cell in found if cell.lines or (cell.row in experiment.rows and cell.positives in promised)]


def found_lines(
    experiment: Experiment, recipe: str, row: Row, positives: int, store: ResultStore, *, smoke: bool = False
) -> list[Line]:
    """The results of a row, seed by seed."""
    if experiment.unavailable or not (smoke or known_set(row.data or experiment.data)):
        return []
    seeds = sorted({*experiment.seeds, *_further_seeds(experiment, store)})
    unit = Unit(experiment, recipe, row, positives, 0, smoke)
    found = (store.find(replace(unit, seed=seed)) for seed in seeds)
    return [line for line in found if line is not None]


def _further_seeds(experiment: Experiment, store: ResultStore) -> set[int]:
    """Seeds that were run besides those declared; of a choice its own alone, so that no choice sees another's."""
    if experiment.second_look:
        return set()
    lines = store.lines.values()
    return {line["seed"] for line in lines if experiment.kind != "choice" or line["experiment"] == experiment.name}


def _methods_run(experiment: Experiment, store: ResultStore) -> tuple[str, ...]:
    """The methods that the table declares, then those that somebody ran for it besides."""
    lines = (line for line in store.lines.values() if line["experiment"] == experiment.name)
    return tuple(dict.fromkeys([*(row.method for row in experiment.rows), *(line["method"] for line in lines)]))


def figure_lines(experiment: Experiment, recipe: str, store: ResultStore, *, smoke: bool = False) -> list[Line]:
    """The lines of a figure at the first number of positives that has any."""
    for positives in sizes_of(experiment, store, smoke):
        lines = found_lines(experiment, recipe, experiment.rows[0], positives, store, smoke=smoke)
        if lines:
            return lines
    return []


def mean_of(lines: list[Line], *path: str) -> float | None:
    """The mean of a figure that lies deeper in the lines.

    >>> mean_of([{"selection": {"nnpu_value": 0.25}}, {"selection": {"nnpu_value": 0.75}}], "selection", "nnpu_value")
    0.5
    """
    values = []
    for line in lines:
        value: Any = line
        for key in path:
            value = value[key]
        if value is not None:
            values.append(float(value))
    return statistics.fmean(values) if values else None


def sizes_of(experiment: Experiment, store: ResultStore, smoke: bool) -> list[int]:
    """Every number of positives that is declared, in the paper, or was run."""
    own = [] if smoke else [line for line in store.lines.values() if line["experiment"] == experiment.name]
    return sorted({*_declared_sizes(experiment, smoke), *(line["positives"] for line in own)})


def _declared_sizes(experiment: Experiment, smoke: bool) -> set[int]:
    in_paper = {size for row in experiment.rows for size in row.paper}
    return {SMOKE_POSITIVES} if smoke else {*experiment.positives, *in_paper}
