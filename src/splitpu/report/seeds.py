"""The page over several runs that differ in their seed: their figures together, and a link to each one's own page."""

from collections.abc import Mapping, Sequence
from typing import Any

from splitpu.report.document import document, section, warnings_box
from splitpu.report.outcome import figures
from splitpu.report.text import escape, name


def render_seeds(
    title: str,
    means: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    pages: Mapping[str, str],
    warnings: Sequence[str],
) -> str:
    """Draw the page: rows of means and deviations, rows of the final models seed by seed, and pages by their name.

    Warnings of the runs come first, as on their own pages.
    """
    links = "".join(f'<li><a href="{escape(path)}">{name(label)}</a></li>' for label, path in pages.items())
    header = f'<h1>{name(title)}</h1><p class="answer">{len(runs)} runs that differ in their seed.</p>'
    header += warnings_box(warnings)
    parts = [
        section("figures", "Mean and standard deviation over the seeds", figures(means)),
        section("seeds", "The final model of every seed", figures(runs)),
        section("reports", "Reports", f"<ul>{links}</ul>"),
    ]
    return document(title, header, "".join(parts))
