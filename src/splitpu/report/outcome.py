"""The first screen: the answer in plain words, what was asked, and the figures of every model.

What stands in for the truth: where the prior comes from, and how far the probabilities can be believed.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from splitpu.report.charts import Series, line_chart, round_axis
from splitpu.report.contents import MISSING, ReportData, count, decimal, escape, facts, name, percent, shorten
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


def headline(report: ReportData) -> str:
    """Say in a sentence or two what came of the run; the rest of the page is the evidence for it."""
    share = called_positive(report)
    who = _final_model(report)
    expected = report.expected_positive_share
    aside = f" (expected from the prior: {percent(expected)})" if math.isfinite(expected) else ""
    answer = f"{who} calls <strong>{percent(share)}</strong> of the unlabelled positive{aside}."
    if math.isnan(share):
        answer = f"{who} gave no probabilities on the unlabelled that could be judged."
    return f"{answer} {_change(report)}".rstrip()


def asked(report: ReportData) -> str:
    """Repeat the question: data, prior and choices as the run understood them."""
    return facts([(label, value) for label, value in report.asked.items()])


def next_steps(report: ReportData) -> str:
    """Say what can be done with the run now; RUN stands for its folder, which the page does not know the way to."""
    steps = [
        "<strong>Take the answer</strong>: <code>scores.csv</code> next to this page has the probability and the "
        "decision for every sample; sort it by descending probability to see those most likely to be positive first.",
        f"<strong>Score new samples</strong>: <code>splitpu predict RUN NEW --out new.csv</code>{_laid_aside(report)}.",
    ]
    if report.rounds and report.rounds[-1].hard:
        unsure = ", or follows it less surely than elsewhere" if report.rounds[-1].unsure else ""
        steps.insert(
            1,
            f'<strong>Look at the hard samples</strong>: some are shown <a href="#samples">below</a>; all '
            f"{count(report.rounds[-1].hard)} of them are in <code>split.csv</code>, and <code>splitpu hard RUN</code> "
            f"lists them, the most doubtful first{', and can copy their files' if _shows_pictures(report) else ''}. "
            f"On these a fresh network does not follow the model{unsure}, so this is where a second look by an expert, "
            "and a label where they are sure, is worth most.",
        )
    if not any(_is_number(row.get("accuracy")) for row in report.figures):
        steps.append(f"<strong>Ask how right it is</strong>: {_ways_to_judge(report)}.")
    if math.isfinite(report.prior):
        steps.append(
            "<strong>Question the prior</strong>: <code>splitpu sensitivity RUN</code> shows how many decisions "
            "depend on it."
        )
    items = "".join(f"<li>{step}</li>" for step in steps)
    return f'<ul class="steps">{items}</ul><p class="note">RUN is the folder that this page is in.</p>'


def _ways_to_judge(report: ReportData) -> str:
    """Without a prior nothing can be estimated from P and U, and the command would refuse."""
    if not math.isfinite(report.prior):
        return "<code>splitpu evaluate RUN --test</code> counts accuracy, F1 and AUC on samples whose truth is known"
    return (
        "<code>splitpu evaluate RUN</code> estimates accuracy, F1 and AUC without negatives; <code>--test</code> "
        "counts them on samples whose truth is known"
    )


def _laid_aside(report: ReportData) -> str:
    laid = ", with <code>--top 50 --copy-to review/</code> to copy the likeliest ones into a folder"
    return laid if _shows_pictures(report) else ""


def _shows_pictures(report: ReportData) -> bool:
    return any(sample.pixels is not None for sample in (*report.easiest, *report.hardest))


def figures(rows: Sequence[Mapping[str, Any]]) -> str:
    """Set the models side by side, the best of a column in bold."""
    if not rows:
        return "<p>No figures were recorded.</p>"
    columns = _columns(rows)
    best = {column: _best(column, rows) for column in columns}
    head = "".join(f'<th scope="col" class="number">{escape(_label(column))}</th>' for column in columns)
    body = "".join(_row(row, columns, best) for row in rows)
    notes = ["Bold: best of its column."] if any(best.values()) else []
    if not any(column in _MORE_IS_BETTER for column in columns):
        notes.append(
            "Without a test set there are no figures for correctness; where there is a prior, <code>splitpu evaluate"
            "</code> estimates them."
        )
    note = f'<p class="note">{" ".join(notes)}</p>' if notes else ""
    head = f'<thead><tr><th scope="col">Model</th>{head}</tr></thead>'
    return f'<table class="stacks">{head}<tbody>{body}</tbody></table>{note}'


def _row(row: Mapping[str, Any], columns: Sequence[str], best: Mapping[str, str]) -> str:
    cells = ""
    for column in columns:
        words = _value(column, row.get(column))
        shown = f"<strong>{escape(words)}</strong>" if best[column] and words == best[column] else escape(words)
        cells += f'<td class="number" data-label="{escape(_label(column))}">{shown}</td>'
    return f'<tr><th scope="row">{name(_capital(str(row.get("model", ""))))}</th>{cells}</tr>'


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the columns of all rows once, in the order of first sight."""
    return list(dict.fromkeys(key for row in rows for key in row if key != "model"))


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
    if not report.rounds:
        return "The base model" if report.method == "Split-PU" else f"The {escape(report.method)} model"
    taken = report.last_taken
    if taken is None:
        return "No student was taken, as none learned anything: the base model"
    if taken < report.rounds[-1].number:
        return f"The student of round {taken}, the last one that was taken,"
    return f"After {count(len(report.rounds), 'round')} the student"


def _change(report: ReportData) -> str:
    """Tell how the most telling figure moved from the first model to the final one."""
    rows = report.figures
    if not rows:
        return ""
    first = rows[0]
    last = next((row for row in rows if report.final and row.get("model") == report.final), rows[-1])
    column = next((key for key in _HEADLINE_FIGURES if _is_number(first.get(key)) and _is_number(last.get(key))), None)
    if column is None:
        return ""
    what = f"{_label(column)} on the test set"
    before, after = float(first[column]), float(last[column])
    write = percent if column in _PERCENTAGES else decimal
    old, new = escape(write(before)), escape(write(after))
    if last is first:
        return f"{what} is <strong>{new}</strong>."
    if old == new:
        return f"{what} stayed at <strong>{new}</strong>."
    verb = "rose" if after > before else "fell"
    return f"{what} {verb} from {old} ({name(first.get('model', 'base'))}) to <strong>{new}</strong>."


_ROW, _LEFT, _WIDTH = 22, 110, 380


def sections(report: ReportData) -> list[tuple[str, str, str]]:
    """Anchor, title and content of what there is to show."""
    found = []
    if report.prior_table:
        found.append(("prior", "The prior", _prior(report.prior_table)))
    if report.reliability:
        found.append(
            (
                "reliability",
                "Reliability of the probabilities",
                _reliability(report.reliability, report.reliability_rows),
            )
        )
    return found


def _prior(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw and list what every estimator makes of the prior."""
    head = "".join(f'<th scope="col" class="number">{label}</th>' for label in ("Prior", "95 % interval"))
    body = "".join(
        f'<tr><th scope="row">{name(row["name"])}</th>'
        f'<td class="number" data-label="Prior">{_share(row["value"])}</td>'
        f'<td class="number" data-label="95 % interval">{_share(row["low"])} to {_share(row["high"])}</td></tr>'
        for row in rows
    )
    return (
        "<p>Every estimator of the share of positives in the population, with its 95 % interval; the first one was "
        f'used.</p><div class="pair"><div>{_intervals(rows)}</div></div>'
        f'<table class="stacks"><thead><tr><th scope="col">Estimator</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _share(value: float) -> str:
    """With as many digits as those above and below it, zeros included."""
    return f"{value:.3f}"


def _reliability(bins: Sequence[Mapping[str, float]], rows: str) -> str:
    """Set probabilities against the frequencies that P, U and the prior imply."""
    promised = [bin_["promised"] for bin_ in bins]
    error = sum(bin_["share"] * abs(bin_["promised"] - bin_["estimated"]) for bin_ in bins)
    chart = line_chart(
        [
            Series("estimated from P, U and the prior", promised, [bin_["estimated"] for bin_ in bins]),
            Series("as promised", [0.0, 1.0], [0.0, 1.0]),
        ],
        description="Share of positives against the probability that the model gives",
        x_label="probability",
        y_label="share of positives",
        whole=False,
    )
    return (
        f"<p>On average the probabilities lie {100 * error:.1f} points away from the share of positives that the "
        f'labelled rows and the prior imply. {escape(rows)}</p><div class="pair"><div>{chart}</div></div>'
    )


def _intervals(rows: Sequence[Mapping[str, Any]]) -> str:
    axis = round_axis(min(float(row["low"]) for row in rows), max(float(row["high"]) for row in rows))
    height = _ROW * len(rows) + 24

    def across(value: float) -> float:
        return axis.place(value, _LEFT, _WIDTH - 14)

    drawn = ""
    for number, row in enumerate(rows):
        y = _ROW * number + 12
        low, value, high = (across(float(row[key])) for key in ("low", "value", "high"))
        drawn += (
            f'<text x="0" y="{y + 4}">{escape(row["name"])}</text>'
            f'<line class="mark" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'
            f'<circle class="fill s0" cx="{value:.1f}" cy="{y}" r="4"/>'
        )
    ends = "".join(
        f'<text text-anchor="middle" x="{across(at):.1f}" y="{height - 4}">{at:.2g}</text>'
        for at in (axis.low, axis.high)
    )
    description = ", ".join(f"{row['name']} {float(row['value']):.3f}" for row in rows)
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Estimates of the prior: '
        f'{escape(description)}">{drawn}{ends}</svg>'
    )
