"""Columns that were filled in because of the label: they tell labelled rows from all others, and new rows lack them."""

from collections.abc import Sequence

from splitpu.data.chunks import Array
from splitpu.labels import Mask

FEWEST_LABELLED, FEWEST_UNLABELLED = 5, 20  # below, a column may part the rows by chance


def giveaways(features: Array, labelled: Mask, columns: Sequence[str]) -> list[str]:
    """The columns with a number that is larger, or smaller, in every labelled row than in any unlabelled one.

    Positives among the unlabelled rows look like labelled ones in all that says something about the class. A column
    that parts the two without a single exception says who was labelled: the year of a biopsy that only confirmed cases
    had, or a number counted up in one file after the other. `columns` names the column of every feature.

    >>> import numpy as np
    >>> labelled = np.arange(36) % 6 == 0
    >>> year, size = np.where(labelled, 2020.0, 0.0), np.arange(36.0)
    >>> giveaways(np.stack([year, size], axis=1), labelled, ["year of biopsy", "size"])
    ['year of biopsy']
    """
    if labelled.sum() < FEWEST_LABELLED or (~labelled).sum() < FEWEST_UNLABELLED:
        return []
    known, others = features[labelled], features[~labelled]
    parts = (known.min(axis=0) > others.max(axis=0)) | (known.max(axis=0) < others.min(axis=0))
    return list(dict.fromkeys(column for column, is_giveaway in zip(columns, parts, strict=True) if is_giveaway))


def in_words(columns: Sequence[str]) -> list[str]:
    """A warning for each."""
    return [
        f"column {column!r} alone tells every labelled row from every unlabelled one, which nothing about "
        "positives themselves can do: if it was filled in because of the label, remove it and train again, as the "
        "model would find only what is labelled already."
        for column in columns
    ]
