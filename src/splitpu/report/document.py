"""The shell of every page: complete in itself, and forbidden to load anything."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from splitpu.report.style import SCRIPT, STYLE
from splitpu.report.text import escape, name


def document(title: str, header: str, main: str, more_style: str = "") -> str:
    """A whole HTML page; `header` and `main` are HTML already, the title is text."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}{more_style}</style></head><body><header>{header}</header>"
        f"<main>{main}</main><footer>Written by splitpu. This page is complete in itself and loads nothing.</footer>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def section(anchor: str, title: str, content: str) -> str:
    """One part of a page under its heading; all three are HTML already."""
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{title}</h2>{content}</section>'
    )


def warnings_box(warnings: Sequence[str]) -> str:
    """What comes before everything else on a page, if there is something to warn of; the warnings are text."""
    if not warnings:
        return ""
    items = "".join(f"<li>{name(warning)}</li>" for warning in warnings)
    title = "Warning" if len(warnings) == 1 else "Warnings"
    heading = f'<h2 id="warnings-title">{title}</h2>'
    return f'<aside class="warnings" aria-labelledby="warnings-title">{heading}<ul>{items}</ul></aside>'


def _policy() -> str:
    """Forbid the network and every script but our own, in case a name should ever slip past the escaping."""
    digest = b64encode(sha256(SCRIPT.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
