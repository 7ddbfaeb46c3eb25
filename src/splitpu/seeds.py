"""Seeds: one rule for all of them, and as scikit-learn wants them. Those it takes already stay what they are."""

import operator

from splitpu.errors import InputError

_SEEDS: int = 2**32  # as many as scikit-learn knows


def sklearn_seed(seed: int) -> int:
    """A seed for scikit-learn, which takes none of more than 32 bits.

    >>> sklearn_seed(7), sklearn_seed(2**32 + 7)
    (7, 7)
    """
    return checked_seed(seed) % _SEEDS


def checked_seed(seed: object, given_as: str = "seed=") -> int:
    """A seed as Python's own number, whatever kind of whole number it came as; `given_as` is how the user wrote it.

    >>> checked_seed(True), checked_seed(2**40)
    (1, 1099511627776)
    """
    try:
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{given_as}{seed!r} is not a whole number: give one, such as 0") from None
    if number < 0:  # numpy and scikit-learn take none either
        raise InputError(f"{given_as}{number} is negative: give a whole number, 0 or more")
    return number
