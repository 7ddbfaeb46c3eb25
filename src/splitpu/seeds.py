"""Seeds as numpy and scikit-learn want them. Those they take already stay what they are: results depend on them."""

_SEEDS: int = 2**32  # as many as scikit-learn knows


def numpy_seed(seed: int) -> int:
    """Any whole number as a seed for numpy, which takes none below nought.

    >>> numpy_seed(7), numpy_seed(2**40), numpy_seed(-1)
    (7, 1099511627776, 4294967295)
    """
    return seed if seed >= 0 else seed % _SEEDS


def sklearn_seed(seed: int) -> int:
    """Any whole number as a seed for scikit-learn, which takes none below nought and none of more than 32 bits.

    >>> sklearn_seed(7), sklearn_seed(2**32 + 7), sklearn_seed(-1)
    (7, 7, 4294967295)
    """
    return seed % _SEEDS
