"""What stands in for the truth: where the prior comes from, and how far the probabilities can be believed."""

from collections.abc import Mapping, Sequence
from typing import Any

from splitpu.report.charts import Series, line_chart
from splitpu.report.model import ReportData
from splitpu.report.scales import round_axis
from splitpu.report.text import escape, name

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
