"""Tables and files of figures, in plain text: a machine that only measures needs nothing for it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import in_words, machine


def show(title: str, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """One table, numbers with four digits."""
    written = [[_text(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *written, strict=True)]
    print(f"\n{title}")
    for line in (list(columns), ["-" * width for width in widths], *written):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def write(path: Path | None, **found: Any) -> None:
    """Say which machine the figures are from; with a path, write both as JSON."""
    print(f"\n{in_words()}", flush=True)
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n", encoding="utf-8")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
