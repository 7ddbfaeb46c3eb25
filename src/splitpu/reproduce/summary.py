"""From result lines to the cells of a table (the paper's figure, ours, and what it took), and to choices: which
candidate the accuracy estimated on held-out P and U picks. And the blocks of a results page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from markupsafe import Markup

from splitpu.report.contents import MISSING
from splitpu.reproduce.declared import Experiment, Row
from splitpu.reproduce.store import Line, ResultStore, device_seconds
from splitpu.reproduce.units import SMOKE_POSITIVES, Unit, known_set, rows_for
from splitpu.utils.statistics import mean, paired_gains, standard_deviation, standard_error

NOT_RUN = "not run"
ENOUGH_GAINS = 3  # for a standard error: of two it would be a guess that looks like knowledge


@dataclass(frozen=True)
class Cell:
    """One row of a table at one number of positives."""

    row: Row
    positives: int
    lines: list[Line] = field(default_factory=list)

    @property
    def seeds(self) -> set[int]:
        return {line["seed"] for line in self.lines}

    @property
    def by_seed(self) -> dict[int, float]:
        """The figure of every seed that has it."""
        found = {line["seed"]: reading(line, self.row.value) for line in self.lines}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def mean(self) -> float | None:
        return mean(self.by_seed.values())

    @property
    def paper(self) -> str:
        """The paper's figure as text; a dash where it gives none."""
        mean = self.row.paper.get(self.positives)
        return with_deviation(mean, self.row.paper_sd.get(self.positives)) if mean is not None else MISSING

    @property
    def ours(self) -> str:
        """Mean, standard deviation and number of seeds."""
        values, sign = list(self.by_seed.values()), "+" if self.row.value == "gain" and (self.mean or 0) > 0 else ""
        return f"{sign}{mean_and_deviation(values, NOT_RUN)} (n = {len(values)})" if values else NOT_RUN

    @property
    def difference(self) -> str:
        """Ours less the paper's, in points."""
        theirs = self.row.paper.get(self.positives)
        return f"{self.mean - theirs:+.2f}" if self.mean is not None and theirs is not None else MISSING

    def over(self, other: "Cell") -> str:
        """Its figures less the other's, seed by seed, as mean and standard error; a dash where no seed is common."""
        gains = paired_gains(self.by_seed, other.by_seed)
        return MISSING if self is other else signed(mean(gains), standard_error(gains, ENOUGH_GAINS))

    @property
    def time(self) -> str:
        """Mean training time of a run, device by device: a mean over several would be true of none."""
        times = []
        for lines in self._by_device.values():
            shares = [device_seconds(line) for line in lines]  # of runs that shared the device, their share of it
            alone = shares == [line["seconds"] for line in lines]
            times.append(f"{mean(shares):.0f} s{'' if alone else ' (shared)'}")
        return "; ".join(times) or MISSING

    @property
    def matched(self) -> str:
        """The final model's accuracy at the threshold that meets the prior; of other models it is not kept."""
        lines = self.lines if self.row.value == "accuracy" else ()
        return mean_and_deviation([line.get("matched_accuracy") for line in lines], MISSING)

    @property
    def ranking(self) -> str:
        """The area under the ROC curve, which no threshold moves."""
        kept = {"accuracy": "metrics", "base_accuracy": "base_metrics"}.get(self.row.value, "")
        figures = [line.get(kept) or {} for line in self.lines]  # a method without a base model has none
        return mean_and_deviation([100 * figure["roc_auc"] for figure in figures if figure.get("roc_auc")], MISSING)

    @property
    def device(self) -> str:
        return "; ".join(self._by_device) or MISSING

    @property
    def _by_device(self) -> dict[str, list[Line]]:
        devices = sorted({line["device"] for line in self.lines})
        return {device: [line for line in self.lines if line["device"] == device] for device in devices}


def reading(line: Line, value: str) -> float | None:
    """Read one figure from a result line."""
    if value.startswith("rounds."):
        return _after_round(line, value, "accuracy", line["base_accuracy"])
    return float(line["accuracy"] - line["base_accuracy"] if value == "gain" else line[value])


def estimate(line: Line, value: str, figure: str = "pu_accuracy") -> float | None:
    """The accuracy estimated on held-out P and U of the model that a row is about, or another figure of these rows."""
    if value.startswith("rounds."):
        return _after_round(line, value, figure, line.get("base_selection", {}).get(figure))
    return float(line["base_selection" if value == "base_accuracy" else "selection"][figure])


def _after_round(line: Line, value: str, figure: str, of_base: float | None) -> float | None:
    """A figure of the model that there is after some rounds (`rounds.2`, say): a student that was not taken is none."""
    number = int(value.removeprefix("rounds."))
    if len(line["rounds"]) < number:
        return None
    return next((one[figure] for one in reversed(line["rounds"][:number]) if one.get("taken", True)), of_base)


def with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def mean_and_deviation(values: Iterable[float | None], none: str) -> str:
    """Of those that are known; `none` where there are none."""
    known = [value for value in values if value is not None]
    found = mean(known)
    return none if found is None else with_deviation(found, standard_deviation(known))


def signed(gain: float | None, error: float | None) -> str:
    return MISSING if gain is None else f"{'+' * (gain > 0)}{with_deviation(gain, error)}"


def cells(experiment: Experiment, recipe: str, store: ResultStore) -> list[Cell]:
    """Every cell that the paper or the declaration has, whether it was run or not, size by size.

    A method or a size that somebody ran besides has cells only where it was run: nobody promised the others."""
    run = [line["method"] for line in store.lines.values() if line["experiment"] == experiment.name]
    methods = tuple(dict.fromkeys([*(row.method for row in experiment.rows), *run]))
    promised = _declared_sizes(experiment, store)
    found = [
        Cell(row, positives, found_lines(experiment, recipe, row, positives, store))
        for positives in sizes_of(experiment, store)
        for row in rows_for(experiment, methods)
    ]
    return [cell for cell in found if cell.lines or (cell.row in experiment.rows and cell.positives in promised)]


def found_lines(experiment: Experiment, recipe: str, row: Row, positives: int, store: ResultStore) -> list[Line]:
    """The results of a row, seed by seed, with seeds that were run besides those declared."""
    if experiment.unavailable or not (store.smoke or known_set(row.data or experiment.data)):
        return []
    seeds = set(experiment.seeds)
    if not experiment.second_look:  # and a choice has its own alone, so that no choice sees another's
        own = experiment.kind == "choice"
        seeds |= {line["seed"] for line in store.lines.values() if not own or line["experiment"] == experiment.name}
    found = [store.find(Unit(experiment, recipe, row, positives, seed, store.smoke)) for seed in sorted(seeds)]
    return [line for line in found if line is not None]


def sizes_of(experiment: Experiment, store: ResultStore) -> list[int]:
    """Every number of positives that is declared, in the paper, or was run."""
    run = {line["positives"] for line in store.lines.values() if line["experiment"] == experiment.name}
    return sorted(_declared_sizes(experiment, store) | (set() if store.smoke else run))


def _declared_sizes(experiment: Experiment, store: ResultStore) -> set[int]:
    in_paper = {size for row in experiment.rows for size in row.paper}
    return {SMOKE_POSITIVES} if store.smoke else {*experiment.positives, *in_paper}


@dataclass(frozen=True)
class Candidate:
    """A row of a choice by its estimates, and how it compares with the first row of its group.

    Pairs are numbers of positives and seeds: at the same pair both were judged on the same held-out rows."""

    row: Row
    mean: float | None  # the estimated accuracy, over all pairs
    gains: list[float]  # points over the first candidate, pair by pair
    complete: bool  # was run wherever the first one was: only then can it be compared fairly
    chosen: bool = False

    @property
    def gain(self) -> float | None:
        return mean(self.gains)

    @property
    def gain_error(self) -> float | None:
        return standard_error(self.gains, ENOUGH_GAINS)


def candidates(experiment: Experiment, recipe: str, store: ResultStore) -> dict[str, list[Candidate]]:
    """Every group of candidates, with the chosen one marked where any were compared."""
    groups: dict[str, list[Row]] = {}
    for row in experiment.rows:
        groups.setdefault(row.group, []).append(row)
    return {name: _compared(experiment, recipe, store, rows) for name, rows in groups.items()}


def _compared(experiment: Experiment, recipe: str, store: ResultStore, rows: list[Row]) -> list[Candidate]:
    """One alone is not chosen, and of equals the first is: nothing is changed for nothing."""
    group, reference, sizes = list[Candidate](), dict[tuple[int, int], float](), sizes_of(experiment, store)
    for row in rows:
        lines = [line for size in sizes for line in found_lines(experiment, recipe, row, size, store)]
        found = {(line["positives"], line["seed"]): estimate(line, row.value, experiment.criterion) for line in lines}
        own = {pair: value for pair, value in found.items() if value is not None}
        reference = own if row is rows[0] else reference
        complete = bool(reference) and set(reference) <= set(own)
        group.append(Candidate(row, mean(own.values()), paired_gains(own, reference), complete))
    compared = [one for one in group if one.complete]
    if len(compared) < 2:
        return group
    best = max(compared, key=lambda one: one.gain or 0.0)  # of equals the first one; a complete one has a gain
    if experiment.second_look and (best.gain_error is None or (best.gain or 0.0) <= best.gain_error):
        best = compared[0]  # a lead has to be more than its own error, which takes three pairs to know
    return [replace(one, chosen=one is best) for one in group]


def verdict(experiment: Experiment, recipe: str, store: ResultStore) -> str:
    """What was chosen, in one sentence a group; empty where nothing was compared."""
    sentences = []
    for name, group in candidates(experiment, recipe, store).items():
        for one in (one for one in group if one.chosen):
            lead, runs = "", f"{len(one.gains)} {'run' if len(one.gains) == 1 else 'runs'} each"
            if one is not group[0]:
                error = f" ± {one.gain_error:.2f}" if one.gain_error is not None else ""
                lead = f"{one.gain:+.2f}{error} points over '{group[0].row.label}', "
            compared = sum(candidate.complete for candidate in group)
            what = f"{name or experiment.what}: '{one.row.label}' of {compared} compared candidates"
            sentences.append(f"{what} ({lead}{runs})")
    return "; ".join(sentences)


class Heading(NamedTuple):
    text: str


class Paragraph(NamedTuple):
    text: str


class Grid(NamedTuple):
    """A table; the first `words` columns are words, the others figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


class Charts(NamedTuple):
    """Drawings side by side, as SVG text, each with its caption; Markdown points to the HTML page for them."""

    drawings: Sequence[tuple[str, Markup]]  # caption, SVG


class Pictures(NamedTuple):
    """A group of pictures as data addresses, each with its caption."""

    title: str
    pictures: Sequence[tuple[str, str]]  # address, caption


Block = Heading | Paragraph | Grid | Charts | Pictures


class Part(NamedTuple):
    anchor: str
    title: str
    blocks: Sequence[Block]
