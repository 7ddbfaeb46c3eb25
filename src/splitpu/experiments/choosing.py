"""A choice as a computed thing: which candidate the accuracy estimated on held-out P and U picks."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from splitpu.experiments.declared import Experiment, Row
from splitpu.experiments.store import Line, ResultStore
from splitpu.experiments.summary import after_round, found_lines, sizes_of, standard_error

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
        return statistics.fmean(self.estimates.values()) if self.estimates else None

    @property
    def gains(self) -> list[float]:
        """Points over the first candidate, pair by pair: both were judged on the same held-out rows."""
        return [value - self.reference[pair] for pair, value in self.estimates.items() if pair in self.reference]

    @property
    def gain(self) -> float | None:
        """The mean of the gains."""
        return statistics.fmean(self.gains) if self.gains else None

    @property
    def clearly_ahead(self) -> bool:
        """Whether the lead is more than its own error, which takes three pairs to know."""
        return self.gain is not None and self.gain_error is not None and self.gain > self.gain_error

    @property
    def gain_error(self) -> float | None:
        """The standard error of that mean."""
        return standard_error(self.gains)


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
