"""Splits that keep the share of labelled rows the same in every part, so that each part is a PU sample of its own."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError
from splitpu.labels import Mask, labelled_mask

Rows = npt.NDArray[np.int64]


class PUStratifiedKFold:
    """Folds for cross-validation; takes any of the PU label conventions, and works wherever scikit-learn wants `cv`.

    >>> folds = PUStratifiedKFold(2, random_state=0)
    >>> [int(np.array([1, 1, 0, 0, 0, 0])[test].sum()) for _, test in folds.split(np.zeros((6, 1)), [1, 1, 0, 0, 0, 0])]
    [1, 1]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None, positive: object = None
    ) -> None:
        if isinstance(n_splits, bool) or not isinstance(n_splits, int | np.integer) or n_splits < 2:
            raise InputError(f"n_splits={n_splits!r} is not a split: give a whole number that is at least 2")
        self.n_splits, self.shuffle, self.random_state, self.positive = int(n_splits), shuffle, random_state, positive

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"

    def split(self, X: Any, y: npt.ArrayLike | None = None, groups: object = None) -> Iterator[tuple[Rows, Rows]]:
        """Row numbers of training and test part, fold by fold."""
        from sklearn.model_selection import StratifiedKFold

        if y is None:
            raise InputError("y is missing: the folds follow the labels, so give them as well, split(X, y)")
        labelled = labelled_mask(y, name="y", positive=self.positive)
        _check_rows(X, labelled, "y")
        fewest = min(int(labelled.sum()), int((~labelled).sum()))
        if fewest < self.n_splits:
            kind = "labelled positives" if labelled.sum() == fewest else "unlabelled rows"
            raise InputError(
                f"n_splits={self.n_splits} is too many for {fewest} {kind}: every fold needs one; give at most {fewest}"
            )
        seed = self.random_state if self.shuffle else None
        inner = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=seed)
        yield from inner.split(np.zeros(len(labelled)), labelled)

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """How many folds there are, as scikit-learn asks."""
        return self.n_splits


def pu_train_test_split(
    *arrays: Any, s: npt.ArrayLike, test_size: float = 0.25, random_state: Any = None, positive: object = None
) -> list[Any]:
    """Split arrays and PU labels `s` (which come last in the result) with the same labelled share in both parts.

    `test_size` is a share of the rows or, as a whole number, how many of them.

    >>> X_train, X_test, s_train, s_test = pu_train_test_split(np.arange(8), s=[1, 1, 0, 0, 0, 0, 0, 0], test_size=0.5)
    >>> int(s_train.sum()), int(s_test.sum())
    (1, 1)
    """
    from sklearn.model_selection import train_test_split

    labelled = labelled_mask(s, name="s", positive=positive)
    for array in arrays:
        _check_rows(array, labelled, "s")
    test_size = _plain_number(test_size)
    share = test_size / len(labelled) if isinstance(test_size, int) else test_size
    kinds = {"labelled positives": int(labelled.sum()), "unlabelled rows": int((~labelled).sum())}
    for kind, count in kinds.items():
        if not 1 <= round(share * count) <= count - 1:
            raise InputError(
                f"test_size={test_size:g} of {count} {kind} leaves none on one side: choose another test_size or label "
                "more rows"
            )
    parts: list[Any] = train_test_split(
        *arrays, np.asarray(s), test_size=test_size, random_state=random_state, stratify=labelled
    )
    return parts


def _plain_number(test_size: object) -> float:
    """As Python's own number, because scikit-learn takes no other ones of numpy's than float64."""
    if isinstance(test_size, int | np.integer) and not isinstance(test_size, bool):
        return int(test_size)
    if isinstance(test_size, float | np.floating) and math.isfinite(test_size):
        return float(test_size)
    raise InputError(f"test_size={test_size!r} is not a number: give a share such as 0.25, or a number of rows")


def _check_rows(X: Any, labelled: Mask, name: str) -> None:
    """Refuse labels that belong to other rows: row numbers of a shorter list would silently leave rows out."""
    shape = getattr(X, "shape", None)
    rows = shape[0] if shape else len(X) if hasattr(X, "__len__") else None
    if rows is not None and rows != len(labelled):
        raise InputError(f"{name} has {len(labelled)} labels for {rows} rows: give one label per row")
