"""How the commands speak: results on standard output, everything else on standard error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    """Print rows side by side; text from files is shown as it is, never taken for markup."""
    table = Table(title=title, title_justify="left")
    chosen = list(columns)
    for number, column in enumerate(chosen):
        title = title_of(column)
        widest = max((len(_cell(column, row.get(column))) for row in rows), default=0)
        are_words = widest > _WHOLE_NUMBERS and any(_is_wordy(str(row.get(column))) for row in rows)
        table.add_column(
            title,
            justify="left" if number == 0 or are_words else "right",
            no_wrap=number == 0 and widest <= _WHOLE_NAMES,
            overflow="fold",
            # Where it gets narrow, titles are broken between words before numbers are.
            min_width=None if number == 0 else max(min(widest, _WHOLE_NUMBERS), *map(len, title.split())),
        )
    for row in rows:
        table.add_row(*(Text(_cell(column, row.get(column))) for column in chosen))
    Console(markup=False, highlight=False).print(table)


def _is_wordy(cell: str) -> bool:
    return sum(map(str.isalpha, cell)) > sum(map(str.isdigit, cell))


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values in two columns; plain text, so that long paths are neither cut nor broken."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


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
