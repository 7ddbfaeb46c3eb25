"""What a report is made of: plain values, without torch and the run folder; and how they are written."""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

if TYPE_CHECKING:
    from splitpu.evaluation.judgement import Curve
    from splitpu.methods.split import Round

TEMPLATES = Path(__file__).parent / "templates"
WORDS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class Sample:
    """One row of the data as a gallery shows it: what it is, and what teacher and student made of it."""

    name: str
    teacher_probability: float
    student_probability: float
    pixels: npt.NDArray[np.uint8] | None = None  # (H, W, C)
    values: tuple[tuple[str, float | str], ...] | None = None  # (column, value), as its owner wrote it if that is known


@dataclass(frozen=True)
class RoundReport:
    """How one round told easy samples from hard ones."""

    number: int
    tau: float
    agreement: tuple[float, ...]  # with the teacher, after each epoch of the temporary network
    stopped_epoch: int
    reached: bool  # False: tau was never reached and the best epoch had to do
    easy: int
    hard: int
    noise: Mapping[str, float] | None = None  # share of wrong teacher labels in "easy", "hard", "all"; needs the truth
    taken: bool = True  # False: the student learned nothing, and its teacher stayed
    unsure: int = 0  # hard samples that were learned, but less surely than others

    @classmethod
    def of(cls, found: "Round", truth: npt.NDArray[np.bool_] | None) -> "RoundReport":
        """A round in numbers."""
        split = found.split
        easy, hard, unsure = (int(kind.sum()) for kind in (split.easy, ~split.easy, split.unsure))
        stopped = (found.number, split.tau, split.agreement, split.epoch, split.reached)
        return cls(*stopped, easy, hard, split.noise(truth), found.taken, unsure)


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything the page shows."""

    title: str
    asked: Mapping[str, str]  # in the order to be shown
    figures: Sequence[Mapping[str, Any]]  # one row a model, the base first, the last student last
    rounds: tuple[RoundReport, ...]
    history: Sequence[Mapping[str, Any]]  # the lines of metrics.jsonl
    probabilities: npt.NDArray[np.floating[Any]]  # of the final model, on the unlabelled rows
    prior: float
    expected_positive_share: float  # what the prior makes of the unlabelled rows
    threshold: float
    easiest: tuple[Sample, ...]
    hardest: tuple[Sample, ...]
    warnings: tuple[str, ...]
    config_text: str  # TOML
    environment: Mapping[str, str]
    method: str = "Split-PU"
    prior_table: Sequence[Mapping[str, Any]] = ()  # name, value, low, high of every estimator, the used one first
    reliability: Sequence[Mapping[str, float]] = ()  # low, high, share, promised, estimated of every bin
    reliability_rows: str = ""  # the sentence that says which rows these are
    for_f1: bool = False  # cut where the highest F1 is expected, not at the prior
    final: str = ""  # the name among the figures of the model that predicts; the last one if not given
    judged: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)  # figures of the final model
    judged_notes: Sequence[str] = ()  # what they rest on, or why there are none
    changes: Sequence[Mapping[str, str]] = ()  # by the answers of a review: figure, before, after, change, an answer
    learners: Sequence[Mapping[str, Any]] = ()  # of a table: how each ranks P against U out of fold, the best first
    curves: "Mapping[str, Curve]" = field(default_factory=dict)  # `roc` and `precision_recall` of the final model
    importance: Sequence[tuple[str, float]] = ()  # columns and what the order of rows owes to each, the most first
    importance_note: str = ""  # what these numbers are
    calibrated: bool = False  # all probabilities, the teacher's too, by the map of the final model


NO_BREAK = "\N{NO-BREAK SPACE}"
MISSING = "\N{EN DASH}"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")


def writable(text: str) -> str:
    """What a page can hold of a text: UTF-8 has no lone surrogates of file names, and XML no control characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode("utf-8"))


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def percent(share: float, decimals: int = 1) -> str:
    return f"{100 * share:.{decimals}f}{NO_BREAK}%" if math.isfinite(share) else MISSING


def count(number: int, thing: str = "") -> str:
    return f"{number:,}{NO_BREAK}{thing}{'' if number == 1 else 's'}" if thing else f"{number:,}"


def decimal(number: float, digits: int = 3) -> str:
    return f"{number:.{digits}g}".replace("-", "\N{MINUS SIGN}") if math.isfinite(number) else MISSING


def probability(number: float) -> str:
    """Write a probability; rounding never turns an almost certain one into a certain one."""
    if not math.isfinite(number):
        return MISSING
    if 0.9995 <= number < 1:
        return ">0.999"
    if 0 < number < 0.0005:
        return "<0.001"
    return f"{number:.3f}"


@cache
def environment() -> Environment:
    """The templates of pages and charts; no name from the data is ever markup."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=lambda name: name is None or name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: writable(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    made.filters |= {"percent": percent, "counted": count, "decimal": decimal, "probability": probability}
    made.filters |= {"f1": "{:.1f}".format, "f2": "{:.2f}".format, "g": "{:g}".format, "shorten": shorten}
    made.filters["figure"] = lambda value: MISSING if value is None else f"{value:.3f}"
    made.tests |= {"finite": math.isfinite, "in_top": lambda name: "@" in name, "ending": str.endswith}
    return made
