"""The 8 x 8 digits that scikit-learn brings along: no download, an image set for trying things out."""

import numpy as np

from splitpu.data.namedset import EVEN_DIGITS, NamedSet, named_by_classes, stratified_rows

BRIGHTEST = 16


def digits_set(split_seed: int = 0) -> NamedSet:
    """Even against odd digits. Stored as floats in [0, 1], because 16 of 255 would be nearly black."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = (raw.images / BRIGHTEST).astype(np.float32)[..., None]
    classes = raw.target
    train, test = stratified_rows(classes, split_seed)
    return named_by_classes(
        (images[train], classes[train]),
        (images[test], classes[test]),
        EVEN_DIGITS,
        name="digits",
        description="Optical recognition of handwritten digits: 1,797 images of 8 x 8 pixels",
        positive_meaning="even digits",
    )
