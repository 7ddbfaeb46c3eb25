"""The column of a table that says which rows are labelled, or what they truly are."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.column_notes import is_number
from splitpu.data.table_files import TRUTH_WORDS, Table, is_nested, text
from splitpu.errors import InputError
from splitpu.labels import Mask, binary_truth, labelled_mask
from splitpu.listing import listed

_OFTEN_POSITIVE = ("yes", "y", "positive", "pos", "p", "true", "t", "+", "case", "ill", "confirmed", "labelled")


@dataclass(frozen=True)
class LabelColumn:
    """Its name, and the label in it that means positive, where that is not 1."""

    name: str
    positive: str | None = None

    def labelled(self, table: Table) -> tuple[Mask, tuple[Any, Any]]:
        """Which rows are labelled positive, and what the others and these are called; an empty cell is no label."""
        labels = self._of(table)
        if all(label is None for label in labels):
            means = self.positive or "1"
            raise InputError(
                f"column {self.name!r} of {table.where} is empty in every row, so none is labelled: write {means} into "
                "those that are known to be positive."
            )
        if self.positive is not None:
            mask, others = self._positive_rows(labels, table.where)
            return labelled_mask(mask, name=self.name), (others[0] if len(others) == 1 else 0, self.positive)
        return labelled_mask(self._numbers(labels, table.where), name=self.name), (0, 1)

    def truth(self, table: Table) -> Mask:
        """Which rows are positive, in a table that says it of all of them."""
        labels = self._of(table)
        if any(label is None for label in labels):
            raise InputError(
                f"column {self.name!r} of {table.where} has empty cells: test rows need their true labels."
            )
        if self.positive is not None:
            return self._positive_rows(labels, table.where)[0]
        return binary_truth(self._numbers(labels, table.where), self.name)

    def _of(self, table: Table) -> list[Any]:
        if self.name not in table.columns:
            raise InputError(
                f"{table.lacking(self.name)}: name with --label the column that says which rows are labelled."
            )
        if any(map(is_nested, table.columns[self.name])):
            raise InputError(
                f"column {self.name!r} of {table.where} holds lists or structures, which are no labels: name another "
                "with --label."
            )
        return table.columns[self.name]

    def _positive_rows(self, labels: list[Any], where: str) -> tuple[Mask, list[str]]:
        """Which rows hold the label that means positive, and what the others hold.

        A table that never holds it is written in other words (1 and 0 for yes and no, say): taking all its rows for
        negatives would give figures that look like figures.
        """
        held = {self._word(label) for label in labels if label is not None}
        if self.positive not in held:
            raise InputError(
                f"column {self.name!r} of {where} holds {listed(sorted(held), repr)} but never {self.positive!r}: say "
                "with --positive-label which of them means positive."
            )
        mask = np.array([label is not None and self._word(label) == self.positive for label in labels], dtype=np.bool_)
        return mask, sorted(held - {self.positive})

    def _word(self, label: Any) -> str:
        """A label as text; True and False, which only Parquet holds as such, also go by 1 and 0."""
        return text(int(label) if isinstance(label, bool) and self.positive in ("0", "1") else label)

    def _numbers(self, labels: list[Any], where: str) -> Array:
        said = [None if label is None else TRUTH_WORDS.get(text(label).lower(), label) for label in labels]
        nothing = -1 if any(is_number(label) and float(label) == -1 for label in said if label is not None) else 0
        plain = [nothing if label is None else label for label in said]
        others = sorted({text(label) for label in plain if not is_number(label)})
        numbers = {float(label) for label in plain if is_number(label)}
        if not others and not (numbers <= {0, 1} or numbers <= {1, -1}):
            others = [f"{one:g}" for one in sorted(numbers)]
        if others:
            raise InputError(
                f"column {self.name!r} of {where} holds {listed(others, repr)}, but labels are 1 and 0, or 1 and "
                f"nothing: say with --positive-label which of them means positive{_example(others)}."
            )
        return np.array([float(label) for label in plain])


def _example(labels: Sequence[str]) -> str:
    """The option as it may be copied; none at all where copying it could turn the labels round."""
    likely = labels if len(labels) == 1 else [label for label in labels if label.lower() in _OFTEN_POSITIVE]
    return f", such as --positive-label {shlex.quote(likely[0])}" if len(likely) == 1 else ""
