"""The pages: templates with autoescape, filled with plain values, so that no name from the data is ever markup.

Each is one file that opens anywhere, asks nothing of the network, and can be sent to a colleague.
"""

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from markupsafe import Markup

from splitpu.report import sections
from splitpu.report.charts import interval_chart
from splitpu.report.contents import TEMPLATES, ReportData, environment
from splitpu.utils.files import write_text


def render(report: ReportData) -> str:
    """Draw the page of a run as HTML text."""
    return render_page(
        "report.html",
        title=report.title,
        report=report,
        share=sections.called_positive(report),
        change=sections.change(report),
        table=sections.figure_table(report.figures),
        splits=[sections.split(one) for one in report.rounds],
        spread=sections.spread(report),
        reliable=sections.reliability(report.reliability),
        kinds=sections.curves(report.history),
        picture=sections.picture,
        interval_chart=interval_chart,
        label=sections.figure_label,
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
    tables = {"means": sections.figure_table(means), "runs": sections.figure_table(runs)}
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
