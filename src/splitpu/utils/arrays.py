"""Rows a few megabytes at a time, so that a memory-mapped array larger than the RAM can be read; tensors that numpy can
read; seeds by one rule, and as scikit-learn wants them; scores, refused where they cannot be what they are called."""

import importlib
import mmap
import operator
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError, SplitPUWarning
from splitpu.types import Array, Floats

VALUES_PER_CHUNK = 1 << 21  # 16 MB once they are float64
_SEEDS: int = 2**32  # as many as scikit-learn knows
_WHAT_GIVES = {
    "decisions": "what decision_function returns, above 0 meaning positive",
    "probabilities": "the column of predict_proba that belongs to positives",
}


def row_slices(features: Array) -> Iterator[slice]:
    """Slices that together cover all rows once, in order."""
    rows = len(features)
    step = max(1, VALUES_PER_CHUNK * rows // max(1, features.size))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
        let_go(features)


def let_go(features: Array) -> None:
    """Give the pages of a memory-mapped file that have been read back to the system, which may keep them or not.

    Else they would count as this process's memory until all of the file does. The content is safe: in these modes the
    pages are the file's own."""
    if isinstance(features, np.memmap) and features.mode in ("r", "r+"):
        mapped: Any = getattr(features, "_mmap", None)
        if hasattr(mapped, "madvise"):  # not on Windows
            mapped.madvise(mmap.MADV_DONTNEED)


def readable_tensor(given: Any) -> Any:
    """A tensor where numpy can read it, on the CPU without gradient, and bfloat16 as float32; all else as it is."""
    if not (hasattr(given, "detach") and hasattr(given, "cpu")):
        return given
    plain = given.detach().cpu()
    return plain.float() if str(plain.dtype) == "torch.bfloat16" else plain


def leave_random_alone() -> None:
    """Import rich, as scikit-learn will: it draws from Python's own generator then, which is the caller's."""
    if "rich.style" not in sys.modules:
        before = random.getstate()
        importlib.import_module("rich.style")
        random.setstate(before)


def sklearn_seed(seed: int) -> int:
    """A seed for scikit-learn, which takes none of more than 32 bits."""
    return checked_seed(seed) % _SEEDS


def checked_seed(seed: object, given_as: str = "seed=") -> int:
    """A seed as Python's own number, whatever kind of whole number it came as; `given_as` is how the user wrote it."""
    try:
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{given_as}{seed!r} is not a whole number: give one, such as 0") from None
    if number < 0:  # numpy and scikit-learn take none either
        raise InputError(f"{given_as}{number} is negative: give a whole number, 0 or more")
    return number


def warn_of_probabilities(positive: Floats, unlabelled: Floats) -> None:
    """Scores from 0 to 1 are most probably those of predict_proba, all of which would count as called positive."""
    both = np.concatenate([positive, unlabelled])
    if both.min() > 0 and both.max() <= 1 and both.min() < both.max():
        wrong = "all decisions lie between 0 and 1, so every row counts as called positive"
        advice = "if they are probabilities, subtract 1/2 from them, or give what decision_function returns"
        warnings.warn(f"{wrong}: {advice}", SplitPUWarning, stacklevel=3)


def checked_scores(raw: npt.ArrayLike, name: str, what: Literal["decisions", "probabilities"] = "decisions") -> Floats:
    """Decisions as one flat array of finite numbers; `name` says in messages whose they are."""
    try:
        scores = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the {what} on {name} are not numbers: give {_WHAT_GIVES[what]}") from None
    if scores.ndim != 1 or len(scores) == 0:
        raise InputError(f"the {what} on {name} have the shape {scores.shape}: give at least one, as a flat array")
    if not np.isfinite(scores).all():
        raise InputError(f"the {what} on {name} hold NaN or infinite values: check the model that made them")
    return scores


def log_odds(share: Floats, tiniest: float) -> Floats:
    """Of shares that may be 0 or 1, where there are none: they are moved inside by so much."""
    inside = np.clip(share, tiniest, 1 - tiniest)
    return np.asarray(np.log(inside) - np.log1p(-inside))
