"""From result lines to the cells of a table: the paper's figure, ours, and what it took.

What a results page is made of, once, for Markdown and HTML alike.

A choice as a computed thing: which candidate the accuracy estimated on held-out P and U picks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import getitem
from typing import Any, ClassVar

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
        return mean(self.values)

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
        return f"{sign}{with_deviation(self.mean, standard_deviation(self.values))} (n = {len(self.values)})"

    @property
    def difference(self) -> str:
        """Ours less the paper's, in points."""
        theirs = self.row.paper.get(self.positives)
        return f"{self.mean - theirs:+.2f}" if self.mean is not None and theirs is not None else MISSING

    def over(self, other: "Cell") -> str:
        """Its figures less the other's, seed by seed, as mean and standard error: what they share is left out of both.

        A dash for the other itself, and where they have no seed in common.
        """
        gains = paired_gains(self._by_seed, other._by_seed)
        gain = mean(gains)
        if gain is None or self is other:
            return MISSING
        return f"{'+' * (gain > 0)}{with_deviation(gain, standard_error(gains, ENOUGH_GAINS))}"

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
        return mean_and_deviation([line.get("matched_accuracy") for line in self.lines], MISSING)

    @property
    def ranking(self) -> str:
        """The area under the ROC curve, which no threshold moves."""
        kept = {"accuracy": "metrics", "base_accuracy": "base_metrics"}.get(self.row.value, "")
        figures = [line.get(kept) or {} for line in self.lines]  # a method without a base model has none
        return mean_and_deviation([100 * figure["roc_auc"] for figure in figures if figure.get("roc_auc")], MISSING)

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
    return f"{mean(shares):.0f} s{'' if alone else ' (shared)'}"


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


def with_deviation(mean: float, deviation: float | None) -> str:
    """Write a figure.

    >>> with_deviation(90.513, 0.1), with_deviation(89.28, None)
    ('90.51 ± 0.10', '89.28')
    """
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def mean_and_deviation(values: Iterable[float | None], none: str) -> str:
    """Of those that are known; `none` where there are none."""
    known = [value for value in values if value is not None]
    found = mean(known)
    return none if found is None else with_deviation(found, standard_deviation(known))


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
    found: Iterable[Any] = (reduce(getitem, path, line) for line in lines)
    return mean(found)


def sizes_of(experiment: Experiment, store: ResultStore, smoke: bool) -> list[int]:
    """Every number of positives that is declared, in the paper, or was run."""
    own = [] if smoke else [line for line in store.lines.values() if line["experiment"] == experiment.name]
    return sorted({*_declared_sizes(experiment, smoke), *(line["positives"] for line in own)})


def _declared_sizes(experiment: Experiment, smoke: bool) -> set[int]:
    in_paper = {size for row in experiment.rows for size in row.paper}
    return {SMOKE_POSITIVES} if smoke else {*experiment.positives, *in_paper}


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Plain text."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Grid:
    """A table; the first `words` columns are words, the others figures."""

    kind: ClassVar[str] = "grid"
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


@dataclass(frozen=True)
class Charts:
    """Drawings side by side, as SVG text, each with its caption; Markdown points to the HTML page for them."""

    kind: ClassVar[str] = "charts"
    drawings: Sequence[tuple[str, Markup]]  # caption, SVG


@dataclass(frozen=True)
class Pictures:
    """A group of pictures as data addresses, each with its caption."""

    kind: ClassVar[str] = "pictures"
    title: str
    pictures: Sequence[tuple[str, str]]  # address, caption


Block = Heading | Paragraph | Grid | Charts | Pictures


@dataclass(frozen=True)
class Part:
    """One section of the page."""

    anchor: str
    title: str
    blocks: Sequence[Block]


def as_markdown(block: Block, page: str) -> str:
    """Write a block as Markdown; `page` is the HTML page that has what Markdown has not."""
    match block:
        case Heading(text):
            return f"### {text}"
        case Paragraph(text):
            return text
        case Grid(columns, rows, words):
            rule = ["---"] * words + ["---:"] * (len(columns) - words)
            return "\n".join("| " + " | ".join(_cell(c) for c in line) + " |" for line in (columns, rule, *rows))
        case Charts(drawings):
            return f"Drawn in [{page}]({page}): " + "; ".join(caption for caption, _ in drawings) + "."
        case Pictures(title, pictures):
            return f"{title}: {len(pictures)} pictures in [{page}]({page})."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


Pair = tuple[int, int]  # number of positives, seed


@dataclass(frozen=True)
class Candidate:
    """A row of a choice with its estimates, and how it compares with the first row of its group on the same pairs."""

    row: Row
    estimates: Mapping[Pair, float]
    reference: Mapping[Pair, float]
    chosen: bool = False

    @property
    def complete(self) -> bool:
        """Only a candidate that was run wherever the first one was can be compared fairly."""
        return bool(self.reference) and set(self.reference) <= set(self.estimates)

    @property
    def mean(self) -> float | None:
        """The estimated accuracy, over sizes and seeds."""
        return mean(self.estimates.values())

    @property
    def gains(self) -> list[float]:
        """Points over the first candidate, pair by pair: both were judged on the same held-out rows."""
        return paired_gains(self.estimates, self.reference)

    @property
    def gain(self) -> float | None:
        """The mean of the gains."""
        return mean(self.gains)

    @property
    def clearly_ahead(self) -> bool:
        """Whether the lead is more than its own error, which takes three pairs to know."""
        return self.gain is not None and self.gain_error is not None and self.gain > self.gain_error

    @property
    def gain_error(self) -> float | None:
        """The standard error of that mean."""
        return standard_error(self.gains, ENOUGH_GAINS)


def candidates(
    experiment: Experiment, recipe: str, store: ResultStore, *, smoke: bool = False
) -> dict[str, list[Candidate]]:
    """Every group of candidates, with the chosen one marked where any were compared."""
    groups: dict[str, list[Row]] = {}
    for row in experiment.rows:
        groups.setdefault(row.group, []).append(row)
    return {name: _compared(experiment, recipe, store, rows, smoke) for name, rows in groups.items()}


def estimate(line: Line, value: str) -> float | None:
    """The accuracy estimated on held-out P and U of the model that a row is about.

    >>> estimate({"rounds": [{"pu_accuracy": 91.0}], "selection": {"pu_accuracy": 92.0}}, "rounds.1")
    91.0
    """
    if value.startswith("rounds."):
        return after_round(line, value, "pu_accuracy", lambda: line["base_selection"]["pu_accuracy"])
    judged = line["base_selection" if value == "base_accuracy" else "selection"]
    return float(judged["pu_accuracy"])


def verdict(experiment: Experiment, recipe: str, store: ResultStore) -> str:
    """What was chosen, in one sentence a group; empty where nothing was compared."""
    sentences = []
    for name, group in candidates(experiment, recipe, store).items():
        compared = [one for one in group if one.complete]
        for one in compared:
            if one.chosen:
                found = f"{name or experiment.what}: '{one.row.label}' of {len(compared)} compared candidates"
                sentences.append(
                    f"{found} ({_lead(one, group[0])}{len(one.gains)} {'run' if len(one.gains) == 1 else 'runs'} each)"
                )
    return "; ".join(sentences)


def _lead(winner: Candidate, first: Candidate) -> str:
    """How far ahead of the first one the winner is, unless it is that one itself."""
    if winner.gain is None or winner is first:
        return ""
    error = f" ± {winner.gain_error:.2f}" if winner.gain_error is not None else ""
    return f"{winner.gain:+.2f}{error} points over '{first.row.label}', "


def print_choices(experiments: Iterable[Experiment], store: ResultStore) -> int:
    """Say for every choice that was asked for what its criterion picks."""
    for experiment in experiments:
        if experiment.kind != "choice":
            print(f"{experiment.name}: nothing is chosen there; name a choice, such as recipe-choice")
            continue
        for recipe in experiment.recipes:
            print(f"{experiment.name} / {recipe}: {verdict(experiment, recipe, store) or 'not run'}")
    return 0


def _compared(experiment: Experiment, recipe: str, store: ResultStore, rows: list[Row], smoke: bool) -> list[Candidate]:
    sizes = sizes_of(experiment, store, smoke)
    estimates = [
        _estimates(
            row, [line for size in sizes for line in found_lines(experiment, recipe, row, size, store, smoke=smoke)]
        )
        for row in rows
    ]
    group = [Candidate(row, own, estimates[0]) for row, own in zip(rows, estimates, strict=True)]
    winner = _best(group, second_look=experiment.second_look)
    return [replace(one, chosen=one is winner) for one in group]


def _best(group: list[Candidate], *, second_look: bool) -> Candidate | None:
    """The one furthest ahead. One alone is not chosen, and of equals the first is: nothing is changed for nothing."""
    compared = [one for one in group if one.complete]
    if len(compared) < 2:
        return None
    best = max(compared, key=lambda one: one.gain or 0.0)  # of equals the first one; a complete one has a gain
    return best if not second_look or best.clearly_ahead else compared[0]


def _estimates(row: Row, lines: list[Line]) -> dict[Pair, float]:
    found = {(line["positives"], line["seed"]): estimate(line, row.value) for line in lines}
    return {pair: value for pair, value in found.items() if value is not None}
