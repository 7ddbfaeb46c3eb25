"""The page: one file that opens anywhere, asks nothing of the network, and can be sent to a colleague."""

import os
from pathlib import Path

from splitpu.files import write_text
from splitpu.report import judging, outcome, predictions, training
from splitpu.report.document import document, section, warnings_box
from splitpu.report.model import ReportData
from splitpu.report.text import escape, facts, name


def render(report: ReportData) -> str:
    """Draw the whole page as HTML text."""
    sections = _sections(report)
    links = "".join(f'<a href="#{anchor}">{anchor.capitalize()}</a>' for anchor, _, _ in sections)
    header = (
        f'<h1>{name(report.title)}</h1><p class="answer">{outcome.headline(report)}</p>'
        f'<nav aria-label="Sections">{links}</nav>{warnings_box(report.warnings)}'
    )
    return document(report.title, header, "".join(section(*parts) for parts in sections))


def write_report(path: str | os.PathLike[str], report: ReportData) -> None:
    """Write the page in one move, so that nobody ever opens half of it."""
    write_text(Path(path), render(report))


def _sections(report: ReportData) -> list[tuple[str, str, str]]:
    """List anchor, title and content of every section, in reading order."""
    splits = "".join(training.split(round_report) for round_report in report.rounds)
    environment = facts([(label, value) for label, value in report.environment.items()])
    configuration = (
        f"<details><summary>Show the configuration (TOML)</summary><pre>{escape(report.config_text)}</pre></details>"
    )
    sections = [
        ("question", "What was asked", outcome.asked(report)),
        ("outcome", "What came out", outcome.figures(report.figures)),
        ("next", "What to do next", outcome.next_steps(report)),
        ("split", "Easy and hard", splits or "<p>No round was run: the base model is the result.</p>"),
        ("samples", "Hardest and easiest samples", _galleries(report)),
        ("probabilities", "Probabilities on the unlabelled", predictions.spread(report)),
        *judging.sections(report),
        ("curves", "Training curves", training.curves(report.history)),
        ("configuration", "Configuration", configuration),
        ("environment", "Environment", environment),
    ]
    # Only Split-PU tells easy from hard samples.
    others_lack = () if report.method == "Split-PU" else ("split", "samples")
    return [section for section in sections if section[0] not in others_lack]


def _galleries(report: ReportData) -> str:
    if not report.easiest and not report.hardest:
        return "<p>No samples were kept to be shown.</p>"
    words = (
        "Probabilities of being positive, as the last teacher (the model before the final one) and the final "
        "student see them. The hard samples begin with those on which the two differ most or the student "
        "cannot decide, the easy ones with those it is surest of."
    )
    if report.rounds and not report.rounds[-1].taken:
        words = (
            "Probabilities of being positive, both times as the final model sees them: it is the last teacher, whose "
            "student was not taken. The hard samples begin with those on which it cannot decide, the easy ones with "
            "those it is surest of."
        )
    if report.calibrated:
        words += " All of them are calibrated by the map of the final model, so that they can be compared."
    return (
        f"<p>{words}</p>"
        f"<h3>Hardest</h3>{predictions.gallery(report.hardest)}<h3>Easiest</h3>{predictions.gallery(report.easiest)}"
    )
