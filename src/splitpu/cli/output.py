"""How the commands speak: results on standard output, everything else on standard error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitpu.cli.option_words import as_options

_PERCENTAGES = {"accuracy", "precision", "recall", "positive_rate", "true_rate", "positive_rate_unlabelled"}
_TITLES = {
    "model": "model",
    "f1": "F1",
    "roc_auc": "ROC AUC",
    "average_precision": "avg prec.",
    "positive_rate": "called positive",
    "positive_rate_unlabelled": "called positive (of the unlabelled)",
    "teacher_probability": "teacher",
}


def print_json(content: Mapping[str, Any]) -> None:
    """Print exactly one object, valid JSON whatever is in it."""
    from splitpu.metrics import finite_or_none

    print(json.dumps(finite_or_none(dict(content)), indent=2))


def print_note(text: str) -> None:
    """Say something that is not an error, in one line."""
    print(note_line(text), file=sys.stderr)


def note_line(text: str) -> str:
    """A note as it is shown everywhere: one line, in the words of the command line.

    >>> note_line("the prior was not given:\\n  give prior=0.3")
    'note: the prior was not given: give --prior 0.3'
    """
    return f"note: {as_options(' '.join(text.split()))}"


_WHOLE_NUMBERS = 12  # characters; longer cells are words, which may be broken
_WHOLE_NAMES = 30  # characters; longer names in the first column are paths, which may be broken, too


def title_of(figure: str) -> str:
    """What a figure is called, the same in every table.

    >>> title_of("roc_auc"), title_of("recall")
    ('ROC AUC', 'recall')
    """
    return _TITLES.get(figure, figure.replace("_", " "))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], title: str | None = None) -> None:
    """Print rows side by side; text from files is shown as it is, never taken for markup.

    A terminal that is too narrow even for the narrowest columns breaks the lines itself: rich would leave columns out.
    """
    table = Table(title=title, title_justify="left")
    chosen = list(columns)
    cells = {column: [_cell(column, row.get(column)) for row in rows] for column in chosen}
    console = Console(markup=False, highlight=False)
    borders = 3 * len(chosen) + 1
    widths = _widths([(title_of(column), cells[column]) for column in chosen], console.width - borders)
    for number, (column, width) in enumerate(zip(chosen, widths, strict=True)):
        widest = max(map(cell_len, cells[column]), default=0)
        are_words = widest > _WHOLE_NUMBERS and any(_is_wordy(str(row.get(column))) for row in rows)
        table.add_column(
            title_of(column),
            justify="left" if number == 0 or are_words else "right",
            overflow="fold",
            width=width,
        )
    for line in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, line))
    console.width = max(console.width, sum(widths) + borders)
    console.print(table)


def _widths(columns: Sequence[tuple[str, Sequence[str]]], room: int) -> list[int]:
    """How wide each column is, of which titles and cells are given, if all of them should fit into so much room.

    Where it gets narrow, titles are broken between words, and long texts anywhere, but numbers and names never are.

    >>> _widths([("name", ["a"]), ("called positive", ["31.4 %"])], 80), _widths([("called positive", ["31.4 %"])], 5)
    ([4, 15], [8])
    """
    widths, least = [], []
    for number, (title, cells) in enumerate(columns):
        widest = max(map(cell_len, cells), default=0)
        whole = _WHOLE_NAMES if number == 0 and widest <= _WHOLE_NAMES else _WHOLE_NUMBERS
        least.append(max([min(widest, whole), *map(cell_len, title.split())]))
        widths.append(max(widest, cell_len(title)))
    while sum(widths) > room and widths != least:
        wide = [number for number, width in enumerate(widths) if width > least[number]]
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _is_wordy(cell: str) -> bool:
    return sum(map(str.isalpha, cell)) > sum(map(str.isdigit, cell))


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values in two columns; plain text, so that long paths are neither cut nor broken."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


def notes_in_report(warnings: Sequence[object]) -> dict[str, str]:
    """How many warnings there were, and where they are kept: a fact, if there were any.

    >>> notes_in_report(["column 'a' is empty"]), notes_in_report([])
    ({'notes': '1, all in the report'}, {})
    """
    return {"notes": f"{len(warnings)}, all in the report"} if warnings else {}


def percent(share: float | None) -> str:
    """Write a share for people.

    >>> percent(0.9314), percent(None)
    ('93.1 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return percent(value) if column in _PERCENTAGES else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
