"""Each claim of the paper, its effect there and here, and what may be said of it after a paired test.

A claim is judged by differences of the same seed at the same number of positives, so that what a draw of labels does to
both sides cancels. All claims that a recipe can judge are one family: its p-values are Holm's, by which the chance of
one false verdict among all of them stays below the level."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from splitpu.report.contents import MISSING
from splitpu.reproduce.declared import experiments, read_declared
from splitpu.reproduce.store import Line, ResultStore
from splitpu.reproduce.summary import (
    ENOUGH_GAINS,
    NOT_RUN,
    Block,
    Grid,
    Heading,
    Paragraph,
    cells,
    found_lines,
    signed,
    sizes_of,
)
from splitpu.utils.statistics import mean, standard_error

LEVEL = 0.05
RECIPES = ("default", "fast", "paper")  # those whose runs are held against the claims


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence of the paper and the differences that judge it."""

    says: str
    table: str
    row: str = ""
    against: str = ""
    measure: str = ""  # a figure of single runs, in place of two rows
    expect: Literal["more", "less", "none"] = "more"
    within: float = 0.5  # points that count as no difference, where none is expected

    @property
    def in_paper(self) -> float | None:
        """The effect that the paper's table has, over its sizes; of its figures there are no numbers."""
        rows = {row.label: row for row in experiments()[self.table].rows}
        if self.measure or not rows[self.row].paper:
            return None
        there, other = rows[self.row].paper, rows[self.against].paper
        return mean([there[size] - other[size] for size in there if size in other])


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the page."""
    return tuple(Claim(**one) for one in read_declared("claims.toml")["claims"])


def differences(claim: Claim, recipe: str, store: ResultStore) -> list[float]:
    """What judges the claim: one difference for every seed and size that both sides were run with."""
    experiment = experiments()[claim.table]
    if recipe not in experiment.recipes:
        return []
    if claim.measure:
        measured = []
        row = next(row for row in experiment.rows if row.value == "accuracy")
        for size in sizes_of(experiment, store):
            for line in found_lines(experiment, recipe, row, size, store):
                with suppress(KeyError, IndexError, TypeError):  # of lines that lack what is measured
                    measured.append(MEASURES[claim.measure](line))
        return measured
    found = {(cell.row.label, cell.positives): cell.by_seed for cell in cells(experiment, recipe, store)}
    gains = []
    for size in sizes_of(experiment, store):
        own, other = (found.get((label, size), {}) for label in (claim.row, claim.against))
        gains += [own[seed] - other[seed] for seed in own if seed in other]
    return gains


def _noise_suspected(line: Line) -> float:
    """Points of noise among what a detector suspects (SPR: at the last look) over the noise of all it looked at."""
    series = line["series"]
    looks = (series[key] for key in ("selected", "selected_noisy"))
    chosen, noisy = (one[-1] if isinstance(one, list) else one for one in looks)
    return 100 * float(noisy / chosen - series["noise_easy"])


def _noise_among_missed(line: Line) -> float:
    series = line["series"]
    pairs = zip(series["noisy_missed"], series["clean_missed"], strict=True)
    missed = mean([noisy / (noisy + clean) for noisy, clean in pairs if noisy + clean]) or 0.0
    return 100 * (missed - float(line["rounds"][0]["noise"]["all"]))


def _learned_better(line: Line) -> float:
    pairs = zip(line["series"]["clean"], line["series"]["noisy"], strict=True)
    return 100 * (mean([clean - noisy for clean, noisy in pairs]) or 0.0)


def _noise_in(part: str, line: Line) -> float:
    noise = line["rounds"][0]["noise"]
    return 100 * float(noise[part] - noise["all"])


MEASURES: Mapping[str, Callable[[Line], float]] = {
    "noise_in_hard": partial(_noise_in, "hard"),
    "noise_in_easy": partial(_noise_in, "easy"),
    "noise_suspected": _noise_suspected,
    "noise_among_missed": _noise_among_missed,
    "clean_learned_better": _learned_better,
}


def p_value(gains: Sequence[float]) -> float | None:
    """That of a two-sided paired t-test; None of fewer differences than say anything."""
    if len(gains) < ENOUGH_GAINS:
        return None
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(gains, 0.0).pvalue) if len(set(gains)) > 1 else None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment over those that are known."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[place] = highest
    return adjusted


def judged(claim: Claim, gains: Sequence[float], p: float | None) -> str:
    """What may be said of a claim; `p` is the adjusted one."""
    effect, clear = mean(gains), p is not None and p < LEVEL
    if effect is None:
        return NOT_RUN
    if claim.expect == "none":
        if clear and abs(effect) > claim.within:
            return "contradicted"
        if abs(effect) > claim.within:
            return "not seen"
        from scipy.stats import t

        error = standard_error(gains, ENOUGH_GAINS)
        reach = float(t.ppf(1 - LEVEL / 2, len(gains) - 1))  # standard errors on either side of a 95 % interval
        sure = error is not None and abs(effect) + reach * error <= claim.within
        return "holds" if sure else "same sign"
    if (effect > 0) == (claim.expect == "more"):
        return "holds" if clear else "same sign"
    return "contradicted" if clear else "not seen"


def claims_blocks(store: ResultStore) -> list[Block]:
    """The page: one table for every recipe that has runs which judge anything."""
    blocks: list[Block] = [Paragraph(read_declared("page.toml")["about_claims"])]
    for recipe in RECIPES:
        found = [differences(claim, recipe, store) for claim in claims()]
        adjusted = holm([p_value(gains) for gains in found])
        rows = [
            [
                claim.says,
                f"`{claim.table}`",
                signed(claim.in_paper, None),
                signed(mean(gains), standard_error(gains, ENOUGH_GAINS)),
                str(len(gains)),
                MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}",
                judged(claim, gains, p),
            ]
            for claim, gains, p in zip(claims(), found, adjusted, strict=True)
            if gains
        ]
        lacking = sum(not gains for gains in found)
        blocks += [Heading(f"Recipe: {recipe}"), Grid(["claim", "table", "paper", "ours", "n", "p", ""], rows, words=2)]
        if lacking:
            blocks.append(Paragraph(f"{lacking} of {len(found)} claims have not been run with this recipe."))
    return blocks
