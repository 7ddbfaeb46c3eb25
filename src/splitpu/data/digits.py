"""The 8 x 8 digits that scikit-learn brings along: no download, an image set for trying things out."""

import numpy as np

from splitpu.data.namedset import NamedSet, stratified_rows

BRIGHTEST = 16


def digits_set(split_seed: int = 0) -> NamedSet:
    """Even against odd digits. Stored as floats in [0, 1], because 16 of 255 would be nearly black."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = (raw.images / BRIGHTEST).astype(np.float32)[..., None]
    classes = raw.target.astype(np.int64)
    train, test = stratified_rows(classes, split_seed)
    return NamedSet(
        name="digits",
        description="Optical recognition of handwritten digits: 1,797 images of 8 x 8 pixels",
        positive_meaning="even digits",
        features_train=images[train],
        features_test=images[test],
        truth_train=classes[train] % 2 == 0,
        truth_test=classes[test] % 2 == 0,
        classes_train=classes[train],
        classes_test=classes[test],
    )
