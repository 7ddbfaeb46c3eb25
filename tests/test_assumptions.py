"""Whether labels look like a random draw of the positives, on rows whose labelling is known."""

import numpy as np
import pytest

from splitpu.data.pudata import PUData
from splitpu.evaluation.diagnostics import check_random_labelling


def labelled_by(strength: float, seed: int) -> PUData:
    """Positives whose chance of a label grows with their second feature."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(900, 2))
    features[:450, 0] += 5
    chance = np.exp(strength * features[:450, 1])
    labelled = np.zeros(900, dtype=bool)
    labelled[rng.choice(450, 120, replace=False, p=chance / chance.sum())] = True
    return PUData.from_arrays(features, labelled)


def test_random_labelling_is_believed():
    for seed in range(2):
        found = check_random_labelling(labelled_by(0.0, seed), seed=seed)
        assert not found.doubtful and "nothing speaks against" in found.verdict


def test_biased_labelling_is_noticed():
    found = check_random_labelling(labelled_by(2.0, 0), seed=0)
    assert found.doubtful and "do not look like a random draw" in found.verdict and "label positives" in found.verdict


@pytest.mark.parametrize(("feature", "sign"), [(0, -1.0), (5, 1.0)], ids=["nearest to the negatives", "by another one"])
def test_labels_that_prefer_some_positives_are_noticed_though_classes_overlap(feature, sign):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1500, 6))
    chance = 1 / (1 + np.exp(-3 * sign * features[:600, feature]))
    features[:600, :5] += 2.0
    labelled = np.zeros(1500, dtype=bool)
    labelled[rng.choice(600, 200, replace=False, p=chance / chance.sum())] = True
    assert check_random_labelling(PUData.from_arrays(features, labelled), seed=0).doubtful


def test_too_few_rows_to_judge_the_labelling():
    data = PUData.from_arrays(np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) < 15)
    found = check_random_labelling(data, seed=0)
    assert not found.doubtful and found.auc is None and "cannot be told" in found.verdict


def test_with_hardly_a_label_nothing_is_asked_for_that_cannot_be_given():
    data = PUData.from_arrays(np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) < 5)
    found = check_random_labelling(data, seed=0)
    assert found.auc is None and "cannot be told: only 5 labelled and 295 unlabelled rows are there" in found.verdict
