"""The first screen: the answer in plain words, the figures of every model, and what can be done next.

How far the probabilities can be believed, by what stands in for the truth.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from markupsafe import Markup

from splitpu.report.charts import Labels, Series, line_chart
from splitpu.report.contents import MISSING, ReportData, count, decimal, percent, shorten
from splitpu.report.training_section import called_positive

_LABELS = {
    "accuracy": "Accuracy",
    "f1": "F1",
    "precision": "Precision",
    "recall": "Recall",
    "roc_auc": "ROC AUC",
    "average_precision": "Average precision",
    "positive_rate": "Called positive (of the test rows)",
    "positive_rate_unlabelled": "Called positive (of the unlabelled)",
}
_PERCENTAGES = {"accuracy", "precision", "recall", "positive_rate", "positive_rate_unlabelled"}
_MORE_IS_BETTER = {"accuracy", "f1", "precision", "recall", "roc_auc", "average_precision"}
_HEADLINE_FIGURES = ("accuracy", "f1", "roc_auc", "average_precision")


@dataclass(frozen=True)
class Change:
    """How the most telling figure moved from the first model to the final one."""

    what: str
    verb: str
    old: str
    new: str
    first: str  # the name of the first model


@dataclass(frozen=True)
class Headline:
    """What came of the run, in a sentence or two; the rest of the page is the evidence for it."""

    who: str
    share: float | None  # called positive; None where there is nothing to judge
    expected: float | None
    change: Change | None


@dataclass(frozen=True)
class NextSteps:
    """On what it depends what can be done with the run now."""

    hard: int
    unsure: int
    pictures: bool
    tested: bool
    judged: bool
    prior: bool


@dataclass(frozen=True)
class FigureTable:
    """Models side by side; `best` is the best value of a column as it is written, so that equals are all in bold."""

    labels: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    best: Sequence[str]
    has_test: bool

    @property
    def has_best(self) -> bool:
        """Whether anything is in bold."""
        return any(self.best)

    def cells(self, values: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
        """Label, value, and whether it is the best, for every value of a row."""
        for label, value, best in zip(self.labels, values, self.best, strict=True):
            yield label, value, bool(best) and value == best


@dataclass(frozen=True)
class JudgedFigure:
    """A figure of the final model as the page writes it, and what simpler models get."""

    label: str
    value: str
    interval: str
    always_negative: str
    naive: str


@dataclass(frozen=True)
class Reliability:
    """How far the probabilities lie from the frequencies that P, U and the prior imply."""

    points: float
    chart: Markup


def headline(report: ReportData) -> Headline:
    """Say what came of the run."""
    share, expected = called_positive(report), report.expected_positive_share
    return Headline(
        _final_model(report),
        None if math.isnan(share) else share,
        expected if math.isfinite(expected) else None,
        _change(report),
    )


def next_steps(report: ReportData) -> NextSteps:
    """Say what the run has to go on with."""
    last = report.rounds[-1] if report.rounds else None
    return NextSteps(
        hard=last.hard if last else 0,
        unsure=last.unsure if last else 0,
        pictures=any(sample.pixels is not None for sample in (*report.easiest, *report.hardest)),
        tested=any(_is_number(row.get("accuracy")) for row in report.figures),
        judged=bool(report.judged),
        prior=math.isfinite(report.prior),
    )


def figure_table(rows: Sequence[Mapping[str, Any]]) -> FigureTable:
    """Set the models side by side, with the columns of all rows in the order of first sight."""
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "model"))
    return FigureTable(
        labels=[_label(column) for column in columns],
        rows=[
            (_capital(str(row.get("model", ""))), [_value(column, row.get(column)) for column in columns])
            for row in rows
        ],
        best=[_best(column, rows) for column in columns],
        has_test=any(column in _MORE_IS_BETTER for column in columns),
    )


def judged_figures(report: ReportData) -> list[JudgedFigure]:
    """The figures of the final model, those first that tell most."""

    def written(value: float | None) -> str:
        return MISSING if value is None else f"{value:.3f}"

    return [
        JudgedFigure(
            _judged_label(name),
            written(one["value"]),
            f"{written(one['low'])} to {written(one['high'])}",
            written(one["always_negative"]),
            written(one["naive"]),
        )
        for name, one in report.judged.items()
    ]


def _judged_label(name: str) -> str:
    """The label, with the length of the list that is looked through.

    >>> _judged_label("recall@50"), _judged_label("roc_auc")
    ('Recall in the top 50', 'ROC AUC')
    """
    kind, _, length = name.partition("@")
    return f"{_label(kind)} in the top {int(length):,}" if length else _label(name)


def reliability(bins: Sequence[Mapping[str, float]]) -> Reliability | None:
    """Set probabilities against the frequencies that P, U and the prior imply."""
    if not bins:
        return None
    promised = [bin_["promised"] for bin_ in bins]
    error = sum(bin_["share"] * abs(bin_["promised"] - bin_["estimated"]) for bin_ in bins)
    chart = line_chart(
        [
            Series("estimated from P, U and the prior", promised, [bin_["estimated"] for bin_ in bins]),
            Series("as promised", [0.0, 1.0], [0.0, 1.0]),
        ],
        Labels("Share of positives against the probability that the model gives", "probability", "share of positives"),
        whole=False,
    )
    return Reliability(100 * error, chart)


def _best(column: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Give the best value of a column as it is written, so that rows that read the same are all in bold."""
    numbers = [float(row[column]) for row in rows if _is_number(row.get(column))]
    worded = {_value(column, number) for number in numbers}
    if len(worded) < 2 or column not in _MORE_IS_BETTER:
        return ""
    return _value(column, max(numbers))


def _value(column: str, value: Any) -> str:
    if isinstance(value, str):
        return shorten(value, 32)
    if not _is_number(value):
        return MISSING
    if column in _PERCENTAGES:
        return percent(float(value), 2)
    if column in _MORE_IS_BETTER:
        return f"{float(value):.4f}"  # a column of figures between 0 and 1, which are all to have the same length
    return count(value) if isinstance(value, int) else decimal(float(value), 4)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _label(column: str) -> str:
    return _LABELS.get(column, shorten(_capital(column.replace("_", " ")), 32))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _final_model(report: ReportData) -> str:
    """Name the model that the answer comes from, and say so where the last students have no part in it."""
    if report.learners:
        return f"The model ({report.final.partition(': ')[2]}), chosen out of fold,"
    if not report.rounds:
        return "The base model" if report.method == "Split-PU" else f"The {report.method} model"
    taken = report.last_taken
    if taken is None:
        return "No student was taken, as none learned anything: the base model"
    if taken < report.rounds[-1].number:
        return f"The student of round {taken}, the last one that was taken,"
    return f"After {count(len(report.rounds), 'round')} the student"


def _change(report: ReportData) -> Change | None:
    rows = report.figures
    if not rows:
        return None
    first = rows[0]
    last = next((row for row in rows if report.final and row.get("model") == report.final), rows[-1])
    column = next((key for key in _HEADLINE_FIGURES if _is_number(first.get(key)) and _is_number(last.get(key))), None)
    if column is None:
        return None
    what = f"{_label(column)} on the test set"
    before, after = float(first[column]), float(last[column])
    write = percent if column in _PERCENTAGES else decimal
    old, new = write(before), write(after)
    verb = "rose" if after > before else "fell"
    if last is first:
        verb = "is"
    elif old == new:
        verb = "stayed at"
    return Change(what, verb, old, new, str(first.get("model", "base")))
