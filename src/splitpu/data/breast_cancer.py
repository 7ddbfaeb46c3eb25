"""The Wisconsin breast cancer set that scikit-learn brings along: no download, a vector set for trying things out."""

import numpy as np

from splitpu.data.namedset import NamedSet, stratified_rows

MALIGNANT = 0  # scikit-learn numbers malignant 0 and benign 1


def breast_cancer_set(split_seed: int = 0) -> NamedSet:
    """Malignant against benign tumours."""
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    features = raw.data.astype(np.float32)
    classes = raw.target.astype(np.int64)
    train, test = stratified_rows(classes, split_seed)
    return NamedSet(
        name="breast-cancer",
        description="Breast cancer Wisconsin (diagnostic): 569 tumours, 30 measurements each",
        positive_meaning="malignant tumours",
        features_train=features[train],
        features_test=features[test],
        truth_train=classes[train] == MALIGNANT,
        truth_test=classes[test] == MALIGNANT,
        feature_names=tuple(str(name) for name in raw.feature_names),
        classes_train=classes[train],
        classes_test=classes[test],
    )
