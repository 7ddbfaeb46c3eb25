"""How the run got there: the split of every round, and the curves of every stage.

What the final model says of the unlabelled rows: how its probabilities are spread, and rows at both ends.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from splitpu.report.charts import (
    Labels,
    Mark,
    Series,
    finite,
    histogram,
    line_chart,
    png_address,
    share_bar,
    stacked_bar,
)
from splitpu.report.contents import NO_BREAK, ReportData, RoundReport, Sample, count, decimal, percent
from splitpu.types import Floats

# round2.student.member3.again1, say: the second attempt at the third member of the second round's student
_STAGE = re.compile(r"(?:round(\d+)\.)?(.+?)(?:\.member(\d+))?(?:\.again(\d+))?")
_KINDS = {"warmup": "Warm-up", "base": "Base", "split": "Temporary networks", "student": "Students"}
_TERMS = {
    "loss": "total loss",
    "alignment": "cosine between two views of a row",
    "easy": "loss on easy samples",
    "positive": "loss on labelled positives",
    "low": "low-level consistency with the teacher",
    "prediction": "prediction consistency",
    "feature": "feature consistency",
}
_PANEL_WIDTH = 300
_SAME_PLACE = 0.005  # two lines closer than this cannot be told apart in the histogram
_SMALL_SIDE = 96  # pixels; smaller images are enlarged with sharp edges

Lines = dict[int, Mapping[str, Any]]  # epoch -> its line of the history


def split(report: RoundReport) -> dict[str, Any]:
    """How one round was split, and when its temporary network was stopped."""
    sizes = f"{count(report.easy)} easy and {count(report.hard)} hard of {count(report.easy + report.hard)}"
    parts = [("easy", report.easy), ("hard", report.hard)]
    bar = stacked_bar(parts, description=f"{sizes} unlabelled samples".capitalize())
    values, stopped, curve = report.agreement, report.stopped_epoch, None
    if len(values) > 1:  # a single point is no curve
        at_stop = values[stopped - 1] if 1 <= stopped <= len(values) else math.nan
        # Where tau is not reached, training goes on after the best epoch.
        place, mark = ("network was stopped", "stopped") if report.reached else ("split was taken", "split taken")
        curve = line_chart(
            [Series("agreement", range(1, len(values) + 1), values)],
            Labels(
                f"Agreement with the teacher over {count(len(values), 'epoch')}, {decimal(at_stop)} at epoch {stopped},"
                f" where the {place}; tau is {decimal(report.tau)}.",
                "epoch of the temporary network",
                "agreement with the teacher",
            ),
            level=Mark(report.tau, f"τ = {decimal(report.tau)}"),
            stop=Mark(stopped, f"{mark} at epoch {stopped}"),
        )
    return {"round": report, "best": max(finite(values), default=math.nan), "bar": bar, "curve": curve}


def curves(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Draw every loss term of every stage; stages of the same kind share a panel, so that rounds can be compared."""
    kinds: dict[str, dict[str, Lines]] = {}
    for line in history:  # a resumed epoch replaces its earlier line
        kind, label = _words_for(str(line.get("stage", "")))
        kinds.setdefault(kind, {}).setdefault(label, {})[int(line["epoch"])] = line
    drawn = []
    for title, stages in kinds.items():
        terms = dict.fromkeys(term for lines in stages.values() for line in lines.values() for term in _terms(line))
        notes = [_schedule(label if len(stages) > 1 else "", lines) for label, lines in stages.items()]
        drawn.append({"title": title, "notes": notes, "panels": [_panel(title, term, stages) for term in terms]})
    return drawn


def _words_for(stage: str) -> tuple[str, str]:
    """Name a stage for the reader: its kind, and which one of that kind it is.

    >>> _words_for("round1.student.member3.again1"), _words_for("base.member2")
    (('Students', 'round 1, member 3, attempt 2'), ('Base', 'base, member 2'))
    """
    match = _STAGE.fullmatch(stage)
    if match is None:
        return stage, stage
    number, kind, member, again = match.groups()
    words = [f"round {number}" if number else kind]
    words += [f"member {member}"] if member else []
    words += [f"attempt {int(again) + 1}"] if again else []
    return _KINDS.get(kind, kind), ", ".join(words)


def _panel(title: str, term: str, stages: Mapping[str, Lines]) -> str:
    lines, ends = [], []
    for name, epochs in stages.items():
        ordered = sorted(epochs)
        values = [_number(_terms(epochs[epoch]).get(term)) for epoch in ordered]
        if any(value is not None for value in values):
            lines.append(Series(name, ordered, values))
            path = [decimal(value) for value in finite(values)]
            course = f"from {path[0]} to {path[-1]} in {count(len(ordered), 'epoch')}" if path else "has no values"
            ends.append(f"{name} {course}")
    label = _TERMS.get(term, term)
    labels = Labels(f"{title}, {label}: {'; '.join(ends)}.", "epoch", label)
    return line_chart(lines, labels, width=_PANEL_WIDTH, height=110)


def _schedule(label: str, lines: Lines) -> str:
    """Say in a few words how long a stage ran and how its learning rate moved."""
    ran = max(lines)
    first, last = lines[min(lines)], lines[ran]
    planned = int(last.get("epochs", ran))
    length = count(ran, "epoch") if ran >= planned else f"{count(ran)} of {count(planned, 'planned epoch')}"
    start = f"{label.capitalize()}: " if label else ""
    rates = [_number(first.get("rate")), _number(last.get("rate"))]
    known = [decimal(rate, 2) for rate in rates if rate is not None]
    if not known:
        return f"{start}{length}"
    path = known[0] if known[0] == known[-1] else f"{known[0]}{NO_BREAK}→ {known[-1]}"
    return f"{start}{length}, learning rate {path}"


def _terms(line: Mapping[str, Any]) -> Mapping[str, Any]:
    terms = line.get("terms")
    return terms if isinstance(terms, Mapping) else {}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def called_positive(report: ReportData) -> float:
    """Give the share of the unlabelled above the threshold; not a number where there is nothing to compare."""
    known = _known(report)
    if not known.size or math.isnan(report.threshold):
        return math.nan
    return float(np.mean(known > report.threshold))


def spread(report: ReportData) -> dict[str, Any] | None:
    """How the probabilities on the unlabelled are spread about the threshold; None where there are none."""
    known = _known(report)
    if not known.size:
        return None
    share, expected = called_positive(report), report.expected_positive_share
    summary = (
        f"{percent(share)} of {count(known.size)} unlabelled samples lie above the threshold "
        f"{decimal(report.threshold)}; {percent(expected)} are expected from the prior."
    )
    description = f"Histogram of the probabilities on the unlabelled. {summary}"
    plain, logarithmic = (
        histogram(
            known,
            Labels(description, "probability of being positive", f"samples{' (logarithmic)' * is_logarithmic}"),
            marks=_marks(report, known),
            split_at=report.threshold,
            logarithmic=is_logarithmic,
        )
        for is_logarithmic in (False, True)
    )
    return {
        "verdict": _verdict(report, share),
        "bar": share_bar(share, expected, description=summary),
        "plain": plain,
        "logarithmic": logarithmic,
        "lost": report.probabilities.size - known.size,
    }


def _known(report: ReportData) -> Floats:
    flat = np.asarray(report.probabilities, dtype=np.float64).ravel()
    return flat[np.isfinite(flat)]


def _marks(report: ReportData, known: Floats) -> list[Mark]:
    """Mark the threshold and, where it lies elsewhere, the cut that calls as many positive as the prior expects."""
    threshold, expected = report.threshold, report.expected_positive_share
    words = f"threshold {decimal(threshold)}"
    if not 0 <= expected <= 1:
        return [Mark(threshold, words)]
    cut = float(np.quantile(known, 1 - expected))
    if abs(cut - threshold) < _SAME_PLACE:  # two marks would cover each other
        met = percent(called_positive(report)) == percent(expected)
        return [Mark(threshold, f"{words}, where the prior is met" if met else words)]
    return [Mark(threshold, words), Mark(cut, f"prior met at {decimal(cut)}")]


def _verdict(report: ReportData, share: float) -> str:
    expected = report.expected_positive_share
    if math.isnan(share):
        return "The threshold is not a number, so it is unknown which samples are called positive."
    if not math.isfinite(expected):
        return f"The final model calls {percent(share)} of the unlabelled positive."
    distance = share - expected
    points = f"{abs(100 * distance):.1f}"
    comparison = "as many as" if points == "0.0" else f"{points} points {'more' if distance > 0 else 'fewer'} than"
    # An estimate is not met to the point, and whoever sees the difference should not look for a mistake.
    why = " That prior is an estimate, which is followed only as closely as its interval requires."
    return (
        f"At the threshold {decimal(report.threshold)} the final model calls {percent(share)} of the unlabelled "
        f"positive, {comparison} the {percent(expected)} expected from the prior of {decimal(report.prior)}."
        f"{why if report.prior_table and points != '0.0' else ''}"
    )


def picture(sample: Sample) -> dict[str, Any]:
    """Show the pixels of a sample; where they are anything but grey, RGB and RGBA, by their first channel."""
    pixels = np.atleast_3d(np.asarray(sample.pixels))
    first_channel = pixels.shape[2] not in (1, 3, 4)
    shown = pixels[:, :, :1] if first_channel else pixels
    return {"address": png_address(shown), "small": max(shown.shape[:2]) < _SMALL_SIDE, "first_channel": first_channel}
