"""The Wisconsin breast cancer set that scikit-learn brings along: no download, a vector set for trying things out."""

import numpy as np

from splitpu.data.namedset import NamedSet, named_by_classes, stratified_rows

MALIGNANT = 0  # scikit-learn numbers malignant 0 and benign 1


def breast_cancer_set(split_seed: int = 0) -> NamedSet:
    """Malignant against benign tumours."""
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    features = raw.data.astype(np.float32)
    classes = raw.target
    train, test = stratified_rows(classes, split_seed)
    return named_by_classes(
        (features[train], classes[train]),
        (features[test], classes[test]),
        [MALIGNANT],
        name="breast-cancer",
        description="Breast cancer Wisconsin (diagnostic): 569 tumours, 30 measurements each",
        positive_meaning="malignant tumours",
        feature_names=tuple(str(name) for name in raw.feature_names),
    )
