"""`docs/RESULTS.md` and `docs/results.html` from the result lines. No figure is typed by hand."""

from pathlib import Path

from splitpu.experiments.blocks import Part, as_html, as_markdown, words_in_html
from splitpu.experiments.contents import headline, page_parts
from splitpu.experiments.store import ResultStore
from splitpu.files import write_text
from splitpu.report.document import document, section
from splitpu.report.text import escape

MARKDOWN, PAGE = "RESULTS.md", "results.html"
TITLE = "Results of splitpu"
_GENERATED = "<!-- Written by `splitpu reproduce --render` from the lines in results/; changes here are lost. -->"


def render(store: ResultStore, folder: Path, *, smoke: bool = False) -> tuple[Path, Path]:
    """Write both pages, each in one move; give their paths."""
    parts, answer = page_parts(store, smoke=smoke), headline(store, smoke=smoke)
    write_text(folder / MARKDOWN, _markdown(parts, answer))
    write_text(folder / PAGE, _html(parts, answer))
    return folder / MARKDOWN, folder / PAGE


def _markdown(parts: list[Part], answer: str) -> str:
    sections = [
        "\n\n".join([f"## {part.title} (`{part.anchor}`)", *(as_markdown(block, PAGE) for block in part.blocks)])
        for part in parts
    ]
    return "\n\n".join([f"# {TITLE}", _GENERATED, answer, *sections]) + "\n"


# Tables of nine columns: more room than a report, and names are not broken within a word to make them fit.
_WIDE = """
main, header, footer { max-width: 78rem; }
td, th { overflow-wrap: break-word; }
@media (min-width: 40.01rem) {
  section { overflow-x: auto; }
  th[scope=row] { min-width: 9rem; }
  td.number { white-space: nowrap; }
}
"""


def _html(parts: list[Part], answer: str) -> str:
    links = "".join(f'<a href="#{part.anchor}">{escape(part.anchor)}</a>' for part in parts)
    header = (
        f'<h1>{escape(TITLE)}</h1><p class="answer">{words_in_html(answer)}</p><nav aria-label="Sections">{links}</nav>'
    )
    main = "".join(
        section(part.anchor, escape(part.title), "".join(as_html(block) for block in part.blocks)) for part in parts
    )
    return document(TITLE, header, main, _WIDE)
