"""The first screen: the answer in plain words, the figures of every model, and what can be done next."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

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


def headline(report: ReportData) -> dict[str, Any]:
    """What came of the run, in a sentence or two; the rest of the page is the evidence for it."""
    share, expected = called_positive(report), report.expected_positive_share
    return {
        "who": _final_model(report),
        "share": None if math.isnan(share) else share,
        "expected": expected if math.isfinite(expected) else None,
        "change": _change(report),
    }


def _final_model(report: ReportData) -> str:
    """Name the model that the answer comes from, and say so where the last students have no part in it."""
    if report.learners:
        return f"The model ({report.final.partition(': ')[2]}), chosen out of fold,"
    if not report.rounds:
        return "The base model" if report.method == "Split-PU" else f"The {report.method} model"
    taken = max((one.number for one in report.rounds if one.taken), default=None)
    if taken is None:
        return "No student was taken, as none learned anything: the base model"
    if taken < report.rounds[-1].number:
        return f"The student of round {taken}, the last one that was taken,"
    return f"After {count(len(report.rounds), 'round')} the student"


def _change(report: ReportData) -> dict[str, str] | None:
    """How the most telling figure moved from the first model to the final one."""
    if not report.figures:
        return None
    first = report.figures[0]
    named = (row for row in report.figures if report.final and row.get("model") == report.final)
    last = next(named, report.figures[-1])
    column = next((key for key in _HEADLINE_FIGURES if _is_number(first.get(key)) and _is_number(last.get(key))), None)
    if column is None:
        return None
    write = percent if column in _PERCENTAGES else decimal
    old, new = write(float(first[column])), write(float(last[column]))
    verb = "rose" if last[column] > first[column] else "fell"
    if last is first:
        verb = "is"
    elif old == new:
        verb = "stayed at"
    what = f"{_label(column)} on the test set"
    return {"what": what, "verb": verb, "old": old, "new": new, "first": str(first.get("model", "base"))}


def next_steps(report: ReportData) -> dict[str, Any]:
    """On what it depends what can be done with the run now."""
    last = report.rounds[-1] if report.rounds else None
    return {
        "hard": last.hard if last else 0,
        "unsure": last.unsure if last else 0,
        "pictures": any(sample.pixels is not None for sample in (*report.easiest, *report.hardest)),
        "tested": any(_is_number(row.get("accuracy")) for row in report.figures),
        "judged": bool(report.judged),
        "prior": math.isfinite(report.prior),
    }


def figure_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Set the models side by side, with the columns of all rows in the order of first sight.

    The best of a column is compared as it is written, so that rows that read the same are all in bold.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "model"))
    best: dict[str, str] = {}
    for column in _MORE_IS_BETTER.intersection(columns):
        numbers = [float(row[column]) for row in rows if _is_number(row.get(column))]
        if len({_value(column, number) for number in numbers}) > 1:
            best[column] = _value(column, max(numbers))
    lines = []
    for row in rows:
        written = [(column, _value(column, row.get(column))) for column in columns]
        cells = [(_label(column), value, value == best.get(column)) for column, value in written]
        lines.append((_capital(str(row.get("model", ""))), cells))
    return {
        "labels": [_label(column) for column in columns],
        "rows": lines,
        "has_best": bool(best),
        "has_test": not _MORE_IS_BETTER.isdisjoint(columns),
    }


def judged_figures(report: ReportData) -> list[dict[str, str]]:
    """The figures of the final model, those first that tell most, and what simpler models get."""
    rows = []
    for name, one in report.judged.items():
        kind, _, length = name.partition("@")
        written = {key: MISSING if value is None else f"{value:.3f}" for key, value in one.items()}
        label = f"{_label(kind)} in the top {int(length):,}" if length else _label(name)
        rows.append({"label": label, "interval": f"{written['low']} to {written['high']}", **written})
    return rows


def reliability(bins: Sequence[Mapping[str, float]]) -> dict[str, Any] | None:
    """How far the probabilities lie from the frequencies that P, U and the prior imply."""
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
    return {"points": 100 * error, "chart": chart}


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
