"""Seeds as numpy and scikit-learn want them: none below nought, none of more than 32 bits."""

_SEEDS: int = 2**32  # as many as there are


def library_seed(seed: int) -> int:
    """Any whole number as a seed that may be given to numpy and scikit-learn; ordinary ones stay what they are.

    >>> library_seed(7), library_seed(-1), library_seed(2**32 + 7)
    (7, 4294967295, 7)
    """
    return seed % _SEEDS
