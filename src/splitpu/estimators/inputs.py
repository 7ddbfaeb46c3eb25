"""What scikit-learn users pass in - labels, settings, seeds - turned into what the package works with."""

import warnings
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from splitpu.config import Config, config_from_dict, read_config, validate_config
from splitpu.data.frames import column_names, is_missing
from splitpu.data.pudata import FEWEST_POSITIVES
from splitpu.errors import InputError, SplitPUWarning
from splitpu.labels import Mask
from splitpu.predictor import Array
from splitpu.seeds import checked_seed

CONVENTIONS = ({0, 1}, {-1, 1})  # labels that need no explanation, 1 being positive; False and True equal 0 and 1
LARGEST_SEED = 2**31 - 1


def has_image_axes(X: Any) -> bool:
    """Whether X looks like images or volumes rather than vectors."""
    if column_names(X):  # not every data frame can be made an array
        return False
    try:
        axes = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
        return axes in (3, 4, 5)
    except ValueError:  # rows of different lengths: scikit-learn will say so
        return False


def refuse_missing_labels(y: Any) -> None:
    """Say what scikit-learn cannot know: that a missing label most probably means 'unlabelled' here."""
    if y is None:
        return
    try:
        values = np.asarray(y)
    except ValueError:  # rows of different lengths: scikit-learn will say so
        return
    if np.ma.is_masked(y):
        missing = int(np.ma.getmaskarray(y).sum())
    elif values.dtype.kind == "f":
        missing = int(np.isnan(values).sum())
    else:
        missing = sum(map(is_missing, values.flat)) if values.dtype.kind == "O" else 0
    if missing:
        raise InputError(
            f"Input y contains NaN or nothing in {missing} rows: write 0 for unlabelled rows and 1 for labelled "
            "positives, as y.fillna(0) does to a column that holds 1 or nothing"
        )


def plain_labels(y: Any) -> Any:
    """Labels as they are, but booleans and numbers among objects, which scikit-learn does not know, as such."""
    values = np.asarray(y) if hasattr(y, "dtype") or isinstance(y, list | tuple) else y
    if getattr(values, "dtype", None) == np.dtype(object) and all(
        isinstance(value, Real | np.bool_) for value in values.flat
    ):
        return np.array(values.tolist())
    return y


def still_on_disk(given: Any, checked: Any) -> Any:
    """A memory-mapped array as it was given, where checking it made a plain one of the same memory: to be streamed."""
    same = isinstance(given, np.memmap) and given.dtype == checked.dtype and np.may_share_memory(given, checked)
    return given if same else checked


def two_classes(labels: Array, pos_label: Any) -> tuple[Array, Any]:
    """The two labels in sorted order, and which of them means positive."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(
            f"y holds one class only, {classes.tolist()[0]!r}: give labelled positives and unlabelled rows together"
        )
    first, second = classes.tolist()
    if pos_label is not None:
        if pos_label not in (first, second):
            raise InputError(
                f"y holds the values {first!r} and {second!r}, neither of which is pos_label={pos_label!r}"
            )
        return classes, first if pos_label == first else second
    if {first, second} not in CONVENTIONS:
        warnings.warn(
            f"y holds the values {first!r} and {second!r}: {second!r}, the later in sorted order, is taken as "
            f"labelled positive; pass pos_label={second!r} to say that this is right, or pos_label={first!r}",
            SplitPUWarning,
            stacklevel=3,
        )
    return classes, second


def labelled_rows(labels: Array, positive: Any) -> Mask:
    """Which rows are labelled positive; a batch needs a few of them."""
    labelled = np.asarray(labels == positive, dtype=np.bool_)
    if labelled.sum() < FEWEST_POSITIVES:
        raise InputError(
            f"y marks only {labelled.sum()} row as labelled positive ({positive!r}): label at least {FEWEST_POSITIVES}"
        )
    return labelled


def laid_over(start: Config, config: Any) -> Config:
    """A whole configuration from what the user gave, on top of where the preset starts."""
    if config is None:
        return start
    if isinstance(config, Config):
        return validate_config(config)
    if isinstance(config, Mapping):
        return config_from_dict(config, start)
    if isinstance(config, str | Path):
        return read_config(config, start)
    kind = type(config).__name__
    raise InputError(f"config={config!r} is of type {kind}: give a Config, a dict or the path of a TOML file")


def integer_seed(random_state: Any) -> int:
    """An integer stays itself, so that the command line with the same seed gives the same model."""
    if isinstance(random_state, int | np.integer):
        return checked_seed(random_state, "random_state=")
    return int(check_random_state(random_state).randint(LARGEST_SEED))
