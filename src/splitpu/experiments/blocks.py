"""What a results page is made of, once, for Markdown and HTML alike."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from splitpu.report.text import escape


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True)
class Grid:
    """A table; the first `words` columns are words, the others figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


@dataclass(frozen=True)
class Charts:
    """Drawings side by side, as SVG text, each with its caption; Markdown points to the HTML page for them."""

    drawings: Sequence[tuple[str, str]]  # caption, SVG


@dataclass(frozen=True)
class Pictures:
    """A group of pictures as data addresses, each with its caption."""

    title: str
    pictures: Sequence[tuple[str, str]]  # address, caption


Block = Heading | Paragraph | Grid | Charts | Pictures


@dataclass(frozen=True)
class Part:
    """One section of the page."""

    anchor: str
    title: str
    blocks: Sequence[Block]


def as_markdown(block: Block, page: str) -> str:
    """Write a block as Markdown; `page` is the HTML page that has what Markdown has not."""
    match block:
        case Heading(text):
            return f"### {text}"
        case Paragraph(text):
            return text
        case Grid(columns, rows, words):
            rule = ["---"] * words + ["---:"] * (len(columns) - words)
            return "\n".join("| " + " | ".join(_cell(c) for c in line) + " |" for line in (columns, rule, *rows))
        case Charts(drawings):
            return f"Drawn in [{page}]({page}): " + "; ".join(caption for caption, _ in drawings) + "."
        case Pictures(title, pictures):
            return f"{title}: {len(pictures)} pictures in [{page}]({page})."


def as_html(block: Block) -> str:
    """Write a block as HTML in the style of the report page."""
    match block:
        case Heading(text):
            return f"<h3>{escape(text)}</h3>"
        case Paragraph(text):
            return f"<p>{words_in_html(text)}</p>"
        case Grid():
            return _html_table(block)
        case Charts(drawings):
            figures = (f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for caption, svg in drawings)
            return f'<div class="pair">{"".join(figures)}</div>'
        case Pictures(title, pictures):
            figures = (
                f'<figure><img class="pixelated" src="{address}" alt="{escape(title)}: {escape(caption)}">'
                f"<figcaption>{escape(caption)}</figcaption></figure>"
                for address, caption in pictures
            )
            return f'<h3>{escape(title)}</h3><div class="gallery">{"".join(figures)}</div>'


def words_in_html(text: str) -> str:
    """Text with `commands` and names in it, as Markdown marks them.

    >>> words_in_html("`tau` < 1")
    '<code>tau</code> &lt; 1'
    """
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _html_table(grid: Grid) -> str:
    kinds = ["" if number < grid.words else ' class="number"' for number in range(len(grid.columns))]
    head = "".join(f'<th scope="col"{kind}>{escape(c)}</th>' for kind, c in zip(kinds, grid.columns, strict=True))
    body = ""
    for row in grid.rows:
        cells = "".join(
            f'<td{kind} data-label="{escape(column)}">{words_in_html(cell)}</td>'
            for kind, column, cell in zip(kinds[1:], grid.columns[1:], row[1:], strict=True)
        )
        body += f'<tr><th scope="row">{escape(row[0])}</th>{cells}</tr>'
    return f'<table class="stacks"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
