"""What the final model says of the unlabelled rows: how its probabilities are spread, and rows at both ends."""

import math

import numpy as np
import numpy.typing as npt

from splitpu.report.charts import Mark, histogram, share_bar
from splitpu.report.model import ReportData, Sample
from splitpu.report.png import png_address
from splitpu.report.text import count, decimal, escape, name, percent, probability

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
