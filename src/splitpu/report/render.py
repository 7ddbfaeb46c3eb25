"""The pages: templates with autoescape, filled with plain values, so that no name from the data is ever markup.

Each is one file that opens anywhere, asks nothing of the network, and can be sent to a colleague. That of a run has the
answer first, in plain words, then the evidence for it."""

import math
import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from splitpu.report import charts
from splitpu.report.contents import (
    MISSING,
    NO_BREAK,
    TEMPLATES,
    WORDS,
    ReportData,
    RoundReport,
    Sample,
    count,
    decimal,
    environment,
    percent,
    shorten,
)
from splitpu.types import Floats
from splitpu.utils.files import write_text

_PERCENTAGES = {"accuracy", "precision", "recall", "positive_rate", "positive_rate_unlabelled"}
_MORE_IS_BETTER = {"accuracy", "f1", "precision", "recall", "roc_auc", "average_precision"}
_HEADLINE_FIGURES = ("accuracy", "f1", "roc_auc", "average_precision")
# round2.student.member3.again1, say: the second attempt at the third member of the second round's student
_STAGE = re.compile(r"(?:round(\d+)\.)?(.+?)(?:\.member(\d+))?(?:\.again(\d+))?")
_JUDGED = ("value", "low", "high", "always_negative")
_FAR = 0.15  # below one half: an AUC that no bad luck explains
_PANEL_WIDTH = 300
_SAME_PLACE = 0.005  # two lines closer than this cannot be told apart in the histogram
_SMALL_SIDE = 96  # pixels; smaller images are enlarged with sharp edges

Lines = dict[int, Mapping[str, Any]]  # epoch -> its line of the history


def render(report: ReportData) -> str:
    """Draw the page of a run as HTML text."""
    return render_page(
        "report.html",
        title=report.title,
        report=report,
        share=called_positive(report),
        change=change(report),
        table=figure_table(report.figures),
        splits=[split(one) for one in report.rounds],
        spread=spread(report),
        advice=advice(report),
        judged_curves=judged_curves(report),
        reliable=reliability(report.reliability),
        kinds=curves(report.history),
        picture=picture,
        interval_chart=charts.interval_chart,
        label=figure_label,
    )


def write_report(path: str | os.PathLike[str], report: ReportData) -> None:
    """Write the page in one move, so that nobody ever opens half of it."""
    write_text(Path(path), render(report))


def render_seeds(
    title: str,
    means: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    pages: Mapping[str, str],
    warnings: Sequence[str],
) -> str:
    """Draw the page over several seeds: means and deviations, the final model of each seed, and pages by their name."""
    tables = {"means": figure_table(means), "runs": figure_table(runs)}
    return render_page("seeds.html", title=title, **tables, pages=pages, warnings=warnings)


def render_page(template: str, **values: Any) -> str:
    """Fill one of the templates."""
    page = environment().get_template(template)
    return page.render(values, own_file=_own_file, policy=_policy).rstrip("\n") + "\n"


def _own_file(name: str) -> Markup:
    """Our own style and script, which are put into the page as they are."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _policy() -> str:
    """Forbid the network and every script but our own, in case a name should ever slip past the escaping."""
    digest = b64encode(sha256(_own_file("page.js").encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def change(report: ReportData) -> dict[str, str] | None:
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
    what = f"{figure_label(column)} on the test set"
    return {"what": what, "verb": verb, "old": old, "new": new, "first": str(first.get("model", "base"))}


def advice(report: ReportData) -> list[tuple[str, str]]:
    """What to do about a model that does not do what it should, each with the reason; nothing of one that does."""
    (auc, least, most, _), (accuracy, _, at_most, of_none) = (
        [math.nan if (value := report.judged.get(name, {}).get(key)) is None else value for key in _JUDGED]
        for name in ("roc_auc", "accuracy")
    )
    found, moved = list[tuple[str, str]](), change(report)

    def say(kind: str, **figures: str) -> None:
        advised, reason = WORDS["advice"][kind]
        found.append((advised, reason.format(**figures)))

    if most < 0.5 and auc < 0.5 - _FAR:
        tested = any(_is_number(row.get("accuracy")) for row in report.figures)
        fix = "in those of --test 1 means positive, and of two folders that of the positives comes first"
        fix = fix if tested else "--positive-label says which label means positive"
        say("swapped", auc=decimal(auc), fix=fix)
        return found  # no other figure means anything then
    if least <= 0.5:
        say("chance", low=decimal(least), high=decimal(most))
    if accuracy <= of_none:
        beside = "below" if at_most < of_none else "no better than"
        fewer = "; --set threshold=prior calls fewer of them positive" if report.for_f1 else ""
        say("decisions", accuracy=percent(accuracy), beside=beside, none=percent(of_none), fewer=fewer)
    if moved is not None and moved["verb"] == "fell":
        say("fell", **moved)
    elif report.rounds and not any(one.taken for one in report.rounds):
        say("no_student")
    return found


def judged_curves(report: ReportData) -> list[tuple[str, Markup]]:
    """ROC and precision over recall of the final model, with their bands, and what they are called."""
    drawn = []
    for kind, (title, x, y) in WORDS["curves"].items():
        if (curve := report.curves.get(kind)) is None:
            continue
        every_second = (part[::2].round(4).tolist() for part in curve[:4])
        lines, level = [charts.Series("final model", *every_second)], None
        if kind == "roc":
            lines.append(charts.Series("chance", [0.0, 1.0], [0.0, 1.0]))
        elif (at := report.judged.get("average_precision", {}).get("always_negative")) is not None:
            level = charts.Mark(at, f"chance {decimal(at)}")
        labels = charts.Labels(f"{title}; the area under the curve is {decimal(curve.area)}.", x, y)
        drawn.append((title, charts.line_chart(lines, labels, level=level, whole=False)))
    return drawn


def figure_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Set the models side by side, with the columns of all rows in the order of first sight."""
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "model"))
    best: dict[str, str] = {}
    for column in _MORE_IS_BETTER.intersection(columns):
        numbers = [float(row[column]) for row in rows if _is_number(row.get(column))]
        if len({_value(column, number) for number in numbers}) > 1:
            best[column] = _value(column, max(numbers))
    lines = []
    for row in rows:
        written = [(column, _value(column, row.get(column))) for column in columns]
        cells = [(figure_label(column), value, value == best.get(column)) for column, value in written]
        lines.append((_capital(str(row.get("model", ""))), cells))
    has = {"has_best": bool(best), "has_test": not _MORE_IS_BETTER.isdisjoint(columns)}
    has["has_accuracy"] = any(_is_number(row.get("accuracy")) for row in rows)
    return {"labels": [figure_label(column) for column in columns], "rows": lines, **has}


def reliability(bins: Sequence[Mapping[str, float]]) -> dict[str, Any] | None:
    """How far the probabilities lie from the frequencies that P, U and the prior imply."""
    if not bins:
        return None
    promised = [bin_["promised"] for bin_ in bins]
    error = sum(bin_["share"] * abs(bin_["promised"] - bin_["estimated"]) for bin_ in bins)
    lines = [charts.Series("estimated from P, U and the prior", promised, [bin_["estimated"] for bin_ in bins])]
    lines.append(charts.Series("as promised", [0.0, 1.0], [0.0, 1.0]))
    what = "Share of positives against the probability that the model gives"
    labels = charts.Labels(what, "probability", "share of positives")
    return {"points": 100 * error, "chart": charts.line_chart(lines, labels, whole=False)}


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


def figure_label(column: str) -> str:
    return str(WORDS["labels"].get(column, shorten(_capital(column.replace("_", " ")), 32)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.partition(" ")[0].islower() else text  # nnPU stays nnPU


def split(report: RoundReport) -> dict[str, Any]:
    """How one round was split, and when its temporary network was stopped."""
    sizes = f"{count(report.easy)} easy and {count(report.hard)} hard of {count(report.easy + report.hard)}"
    parts = [("easy", report.easy), ("hard", report.hard)]
    bar = charts.stacked_bar(parts, description=f"{sizes} unlabelled samples".capitalize())
    values, stopped, curve = report.agreement, report.stopped_epoch, None
    if len(values) > 1:  # a single point is no curve
        at_stop = values[stopped - 1] if 1 <= stopped <= len(values) else math.nan
        # Where tau is not reached, training goes on after the best epoch.
        place, mark = ("network was stopped", "stopped") if report.reached else ("split was taken", "split taken")
        reached = f"{decimal(at_stop)} at epoch {stopped}, where the {place}; tau is {decimal(report.tau)}."
        what = f"Agreement with the teacher over {count(len(values), 'epoch')}, {reached}"
        labels = charts.Labels(what, "epoch of the temporary network", "agreement with the teacher")
        level = charts.Mark(report.tau, f"τ = {decimal(report.tau)}")
        stop = charts.Mark(stopped, f"{mark} at epoch {stopped}")
        lines = [charts.Series("agreement", range(1, len(values) + 1), values)]
        curve = charts.line_chart(lines, labels, level=level, stop=stop)
    return {"round": report, "best": max(charts.finite(values), default=math.nan), "bar": bar, "curve": curve}


def curves(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Draw every loss term of every stage; stages of the same kind share a panel, so that rounds can be compared."""
    kinds: dict[str, dict[str, Lines]] = {}
    for line in history:  # a resumed epoch replaces its earlier line
        kind, label = _words_for(line["stage"])
        kinds.setdefault(kind, {}).setdefault(label, {})[int(line["epoch"])] = line
    drawn = []
    for title, stages in kinds.items():
        terms = dict.fromkeys(term for lines in stages.values() for line in lines.values() for term in line["terms"])
        notes = [_schedule(label if len(stages) > 1 else "", lines) for label, lines in stages.items()]
        drawn.append({"title": title, "notes": notes, "panels": [_panel(title, term, stages) for term in terms]})
    return drawn


def _words_for(stage: str) -> tuple[str, str]:
    """Name a stage for the reader: its kind, and which one of that kind it is."""
    match = _STAGE.fullmatch(stage)
    if match is None:
        return stage, stage
    number, kind, member, again = match.groups()
    words = [f"round {number}" if number else kind]
    words += [f"member {member}"] if member else []
    words += [f"attempt {int(again) + 1}"] if again else []
    return str(WORDS["kinds"].get(kind, kind)), ", ".join(words)


def _panel(title: str, term: str, stages: Mapping[str, Lines]) -> str:
    lines, ends = [], []
    for name, epochs in stages.items():
        ordered = sorted(epochs)
        values = [epochs[epoch]["terms"].get(term) for epoch in ordered]
        if any(value is not None for value in values):
            lines.append(charts.Series(name, ordered, values))
            path = [decimal(value) for value in charts.finite(values)]
            course = f"from {path[0]} to {path[-1]} in {count(len(ordered), 'epoch')}" if path else "has no values"
            ends.append(f"{name} {course}")
    label = WORDS["terms"].get(term, term)
    labels = charts.Labels(f"{title}, {label}: {'; '.join(ends)}.", "epoch", label)
    return charts.line_chart(lines, labels, width=_PANEL_WIDTH, height=110)


def _schedule(label: str, lines: Lines) -> str:
    """Say in a few words how long a stage ran and how its learning rate moved."""
    ran = max(lines)
    first, last = lines[min(lines)], lines[ran]
    planned = int(last.get("epochs", ran))
    length = count(ran, "epoch") if ran >= planned else f"{count(ran)} of {count(planned, 'planned epoch')}"
    start = f"{label.capitalize()}: " if label else ""
    known = [decimal(line["rate"], 2) for line in (first, last) if line.get("rate") is not None]
    if not known:
        return f"{start}{length}"
    path = known[0] if known[0] == known[-1] else f"{known[0]}{NO_BREAK}→ {known[-1]}"
    return f"{start}{length}, learning rate {path}"


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
    how: dict[str, Any] = {"marks": _marks(report, known), "split_at": report.threshold}

    def drawn(*, logarithmic: bool) -> Markup:
        counted = f"samples{' (logarithmic)' * logarithmic}"
        labels = charts.Labels(description, "probability of being positive", counted)
        return charts.histogram(known, labels, **how, logarithmic=logarithmic)

    bar, lost = charts.share_bar(share, expected, description=summary), report.probabilities.size - known.size
    both = {"plain": drawn(logarithmic=False), "logarithmic": drawn(logarithmic=True)}
    return {"bar": bar, **both, "lost": lost}


def _known(report: ReportData) -> Floats:
    flat = np.asarray(report.probabilities, dtype=np.float64).ravel()
    return flat[np.isfinite(flat)]


def _marks(report: ReportData, known: Floats) -> list[charts.Mark]:
    """Mark the threshold and, where it lies elsewhere, the cut that calls as many positive as the prior expects."""
    threshold, expected = report.threshold, report.expected_positive_share
    words = f"threshold {decimal(threshold)}"
    if not 0 <= expected <= 1:
        return [charts.Mark(threshold, words)]
    cut = float(np.quantile(known, 1 - expected))
    if abs(cut - threshold) < _SAME_PLACE:  # two marks would cover each other
        met = percent(called_positive(report)) == percent(expected)
        return [charts.Mark(threshold, f"{words}, where the prior is met" if met else words)]
    return [charts.Mark(threshold, words), charts.Mark(cut, f"prior met at {decimal(cut)}")]


def picture(sample: Sample) -> dict[str, Any]:
    """Show the pixels of a sample; where they are anything but grey, RGB and RGBA, by their first channel."""
    pixels = np.atleast_3d(np.asarray(sample.pixels))
    first_channel = pixels.shape[2] not in (1, 3, 4)
    shown = pixels[:, :, :1] if first_channel else pixels
    small = max(shown.shape[:2]) < _SMALL_SIDE
    return {"address": charts.png_address(shown), "small": small, "first_channel": first_channel}
