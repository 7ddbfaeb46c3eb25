"""Seeds as numpy and scikit-learn want them. Those they take already stay what they are: results depend on them."""

import operator

from splitpu.errors import InputError

_SEEDS: int = 2**32  # as many as scikit-learn knows


def numpy_seed(seed: int) -> int:
    """Any whole number as a seed for numpy, which takes none below nought.

    >>> numpy_seed(7), numpy_seed(2**40), numpy_seed(-1)
    (7, 1099511627776, 4294967295)
    """
    seed = whole_number(seed)
    return seed if seed >= 0 else seed % _SEEDS


def sklearn_seed(seed: int) -> int:
    """Any whole number as a seed for scikit-learn, which takes none below nought and none of more than 32 bits.

    >>> sklearn_seed(7), sklearn_seed(2**32 + 7), sklearn_seed(-1)
    (7, 7, 4294967295)
    """
    return whole_number(seed) % _SEEDS


def whole_number(seed: object) -> int:
    """A seed as Python's own number, whatever kind of whole number it came as.

    >>> whole_number(True), whole_number(3)
    (1, 3)
    """
    try:
        return operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"seed={seed!r} is not a whole number: give one, such as 0") from None
