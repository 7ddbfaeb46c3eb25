"""How the run got there: the split of every round, and the curves of every stage.

What the final model says of the unlabelled rows: how its probabilities are spread, and rows at both ends.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.report.charts import Mark, Series, finite, histogram, line_chart, png_address, share_bar, stacked_bar
from splitpu.report.contents import (
    NO_BREAK,
    ReportData,
    RoundReport,
    Sample,
    count,
    decimal,
    escape,
    name,
    percent,
    probability,
)

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

Lines = dict[int, Mapping[str, Any]]  # epoch -> its line of the history


def split(round_report: RoundReport) -> str:
    """Tell how one round was split, and draw when its temporary network was stopped."""
    whole = round_report.easy + round_report.hard
    sizes = f"{count(round_report.easy)} easy and {count(round_report.hard)} hard of {count(whole)} unlabelled samples"
    bar = stacked_bar([("easy", round_report.easy), ("hard", round_report.hard)], description=sizes.capitalize())
    left = f"<p>{_stopping(round_report)}{_not_taken(round_report)}</p>{bar}{_noise(round_report)}"
    curve = _agreement(round_report)
    right = f"<div>{curve}</div>" if curve else ""
    return f'<h3>Round {round_report.number}</h3><div class="pair"><div>{left}</div>{right}</div>'


def curves(history: Sequence[Mapping[str, Any]]) -> str:
    """Draw every loss term of every stage; stages of the same kind share a panel, so that rounds can be compared."""
    kinds = _by_kind(history)
    if not kinds:
        return "<p>No history was recorded.</p>"
    return f'<div class="kinds">{"".join(_kind(title, stages) for title, stages in kinds.items())}</div>'


def _stopping(round_report: RoundReport) -> str:
    if not round_report.agreement:
        return "No temporary network was trained: every unlabelled sample counts as easy."
    tau = percent(round_report.tau)
    if round_report.reached:
        return (
            f"The temporary network agreed with the teacher on more than {tau} of the unlabelled after epoch "
            f"{round_report.stopped_epoch} and was stopped there. {_what_is_easy(round_report)}"
        )
    best = percent(max(finite(round_report.agreement), default=math.nan))
    return (
        f"<strong>The temporary network never agreed with the teacher on more than {tau} of the unlabelled</strong> "
        f"(at best {best}); the split was taken at epoch {round_report.stopped_epoch}. {_what_is_easy(round_report)}"
    )


def _what_is_easy(round_report: RoundReport) -> str:
    if not round_report.unsure:
        return "A sample is easy where the two agree, and hard elsewhere."
    return (
        "A sample is easy where the two agree and the temporary network is surest, and hard elsewhere: on "
        f"{count(round_report.unsure)} of the hard ones they agree too."
    )


def _not_taken(round_report: RoundReport) -> str:
    if round_report.taken:
        return ""
    return (
        " <strong>The student of this round was not taken</strong>: in every attempt it gave nearly all samples "
        "the same answer, so the model that taught it is kept."
    )


def _noise(round_report: RoundReport) -> str:
    if not round_report.noise:
        return ""
    items = "".join(
        f"<div><dt>{escape(part)}</dt><dd>{percent(float(rate))}</dd></div>"
        for part, rate in round_report.noise.items()
    )
    return f'<p class="note tight">Wrong teacher labels, known from the true ones:</p><dl class="trio">{items}</dl>'


def _agreement(round_report: RoundReport) -> str:
    values = round_report.agreement
    if not values:
        return ""
    stopped = round_report.stopped_epoch
    at_stop = values[stopped - 1] if 1 <= stopped <= len(values) else math.nan
    # Where tau is not reached, training goes on after the best epoch.
    place = "network was stopped" if round_report.reached else "split was taken"
    return line_chart(
        [Series("agreement", range(1, len(values) + 1), values)],
        description=(
            f"Agreement with the teacher over {count(len(values), 'epoch')}, {decimal(at_stop)} at epoch {stopped}, "
            f"where the {place}; tau is {decimal(round_report.tau)}."
        ),
        x_label="epoch of the temporary network",
        y_label="agreement with the teacher",
        level=Mark(round_report.tau, f"τ = {decimal(round_report.tau)}"),
        stop=Mark(stopped, f"{'stopped' if round_report.reached else 'split taken'} at epoch {stopped}"),
    )


def _by_kind(history: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Lines]]:
    """Sort the history into kinds of stages, stages and epochs; a resumed epoch replaces its earlier line."""
    kinds: dict[str, dict[str, Lines]] = {}
    for line in history:
        kind, label = _words_for(str(line.get("stage", "")))
        kinds.setdefault(kind, {}).setdefault(label, {})[int(line["epoch"])] = line
    return kinds


def _words_for(stage: str) -> tuple[str, str]:
    """Name a stage for the reader: its kind, and which one of that kind it is.

    >>> _words_for("round2.student"), _words_for("base.member2")
    (('Students', 'round 2'), ('Base', 'base, member 2'))
    >>> _words_for("round1.student.member3.again1")
    ('Students', 'round 1, member 3, attempt 2')
    """
    match = _STAGE.fullmatch(stage)
    if match is None:
        return stage, stage
    number, kind, member, again = match.groups()
    words = [f"round {number}" if number else kind]
    words += [f"member {member}"] if member else []
    words += [f"attempt {int(again) + 1}"] if again else []
    return _KINDS.get(kind, kind), ", ".join(words)


def _kind(title: str, stages: Mapping[str, Lines]) -> str:
    terms = list(dict.fromkeys(term for lines in stages.values() for line in lines.values() for term in _terms(line)))
    panels = "".join(f"<figure>{_panel(title, term, stages)}</figure>" for term in terms)
    notes = "<br>".join(_schedule(label if len(stages) > 1 else "", lines) for label, lines in stages.items())
    # A kind with a single term takes one column, beside its neighbours; the others take a row of their own.
    room = ' class="many"' if len(terms) > 1 else ""
    return f'<div{room}><h3>{name(title)}</h3><p class="note">{notes}</p><div class="panels">{panels}</div></div>'


def _panel(title: str, term: str, stages: Mapping[str, Lines]) -> str:
    lines = []
    for label, epochs in stages.items():
        ordered = sorted(epochs)
        values = [_number(_terms(epochs[epoch]).get(term)) for epoch in ordered]
        if any(value is not None for value in values):
            lines.append(Series(label, ordered, values))
    label = _TERMS.get(term, term)
    ends = "; ".join(_ends(line) for line in lines)
    return line_chart(
        lines,
        description=f"{title}, {label}: {ends}.",
        x_label="epoch",
        y_label=label,
        width=_PANEL_WIDTH,
        height=110,
    )


def _ends(line: Series) -> str:
    known = finite(line.y)
    if not known:
        return f"{line.name} has no values"
    return f"{line.name} from {decimal(known[0])} to {decimal(known[-1])} in {count(len(line.x), 'epoch')}"


def _schedule(label: str, lines: Lines) -> str:
    """Say in a few words how long a stage ran and how its learning rate moved."""
    first, last = lines[min(lines)], lines[max(lines)]
    planned = int(last.get("epochs", max(lines)))
    ran = max(lines)
    length = count(ran, "epoch") if ran >= planned else f"{count(ran)} of {count(planned, 'planned epoch')}"
    start = f"{escape(label).capitalize()}: " if label else ""
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


_FEATURES_AT_ONCE = 6
_SAME_PLACE = 0.005  # two lines closer than this cannot be told apart in the histogram
_SMALL_SIDE = 96  # pixels; smaller images are enlarged with sharp edges


def called_positive(report: ReportData) -> float:
    """Give the share of the unlabelled above the threshold; not a number where there is nothing to compare."""
    known = _known(report)
    if not known.size or math.isnan(report.threshold):
        return math.nan
    return float(np.mean(known > report.threshold))


def spread(report: ReportData) -> str:
    """Show the probabilities on the unlabelled, the threshold, and the cut at which the prior would be met."""
    known = _known(report)
    if not known.size:
        return "<p>There are no probabilities on unlabelled samples to show.</p>"
    share, expected = called_positive(report), report.expected_positive_share
    marks = _marks(report, known)
    summary = (
        f"{percent(share)} of {count(known.size)} unlabelled samples lie above the threshold "
        f"{decimal(report.threshold)}; {percent(expected)} are expected from the prior."
    )
    bar = share_bar(share, expected, description=summary)
    plain, logarithmic = (
        histogram(
            known,
            description=f"Histogram of the probabilities on the unlabelled. {summary}",
            x_label="probability of being positive",
            y_label="samples (logarithmic)" if is_logarithmic else "samples",
            marks=marks,
            split_at=report.threshold,
            logarithmic=is_logarithmic,
        )
        for is_logarithmic in (False, True)
    )
    lost = report.probabilities.size - known.size
    note = f'<p class="note">Left out: {count(lost, "sample")} without a probability.</p>' if lost else ""
    return (
        f'<p>{_verdict(report, share)}</p><div class="pair"><div class="narrow">{bar}</div></div>'
        f'<div class="pair"><figure>{plain}<figcaption>All samples.</figcaption></figure>'
        f"<figure>{logarithmic}<figcaption>The same on a logarithmic scale, which shows the undecided middle."
        f"</figcaption></figure></div>{note}"
    )


def gallery(samples: tuple[Sample, ...]) -> str:
    """Show samples as images where they are images, and as a table where they are not."""
    if not samples:
        return "<p>None to show.</p>"
    pictures = [sample for sample in samples if sample.pixels is not None]
    others = [sample for sample in samples if sample.pixels is None]
    shown = f'<div class="gallery">{"".join(_picture(sample) for sample in pictures)}</div>' if pictures else ""
    return shown + (_table(others) if others else "")


def _known(report: ReportData) -> npt.NDArray[np.float64]:
    flat = np.asarray(report.probabilities, dtype=np.float64).ravel()
    return flat[np.isfinite(flat)]


def _marks(report: ReportData, known: npt.NDArray[np.float64]) -> list[Mark]:
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


def _picture(sample: Sample) -> str:
    assert sample.pixels is not None
    pixels, note = _displayable(sample.pixels)
    small = ' class="pixelated"' if max(pixels.shape[:2]) < _SMALL_SIDE else ""
    teacher, student = probability(sample.teacher_probability), probability(sample.student_probability)
    words = escape(f"{sample.name}: teacher {teacher}, student {student}")
    return (
        f'<figure><img{small} src="{png_address(pixels)}" alt="{words}" loading="lazy">'
        f'<figcaption><span class="name" title="{escape(sample.name)}">{name(sample.name)}</span>'
        f"<span>teacher {escape(teacher)}</span><span>student {escape(student)}</span>{note}</figcaption></figure>"
    )


def _displayable(pixels: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], str]:
    """Bring pixels into a form a screen has: anything but grey, RGB and RGBA is shown by its first channel."""
    if pixels.ndim == 2:
        return pixels[:, :, None], ""
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4):
        return pixels[:, :, :1], "<span>first channel</span>"
    return pixels, ""


def _table(samples: list[Sample]) -> str:
    with_values = any(sample.values for sample in samples)
    head = '<th scope="col">Sample</th>'
    head += "".join(f'<th scope="col" class="number">{who}</th>' for who in ("Teacher", "Student"))
    head += '<th scope="col" class="values">Values</th>' if with_values else ""
    body = "".join(
        f'<tr><th scope="row">{name(sample.name)}</th>'
        f'<td class="number" data-label="Teacher">{escape(probability(sample.teacher_probability))}</td>'
        f'<td class="number" data-label="Student">{escape(probability(sample.student_probability))}</td>'
        + (f'<td class="values" data-label="Values">{_values(sample)}</td>' if with_values else "")
        + "</tr>"
        for sample in samples
    )
    return f'<table class="stacks"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _values(sample: Sample) -> str:
    written = [
        f'<span class="value">{name(feature)} <b>{escape(decimal(float(value)))}</b></span>'
        for feature, value in sample.values or ()
    ]
    shown, folded = written[:_FEATURES_AT_ONCE], written[_FEATURES_AT_ONCE:]
    if not folded:
        return f"<div>{' '.join(shown)}</div>"
    more = f"<details><summary>{len(folded)} more</summary>{' '.join(folded)}</details>"
    return f"<div>{' '.join(shown)}{more}</div>"
