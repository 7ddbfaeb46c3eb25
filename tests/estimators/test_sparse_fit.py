"""Classifiers on sparse matrices: the same answers as on dense ones of the same model, in memory that follows them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import SGDClassifier

from splitpu import (
    NNPUClassifier,
    PUBaggingClassifier,
    PUBoostingClassifier,
    PULogisticClassifier,
    SplitPUClassifier,
    estimate_prior,
)
from splitpu.data.pudata import PUData
from splitpu.errors import InputError


@pytest.fixture(scope="module")
def words() -> tuple[scipy.sparse.csr_matrix, np.ndarray, np.ndarray]:
    """Few words a row; positives use the first ten more often."""
    random = np.random.default_rng(0)
    truth = random.random(300) < 0.4
    chance = np.full((300, 60), 0.05)
    chance[truth, :10] = 0.4
    rows = scipy.sparse.csr_matrix((random.random((300, 60)) < chance).astype(float))
    return rows, truth & (random.random(300) < 0.5), truth


def test_sparse_and_dense_rows_are_scored_alike(words, tmp_path: Path) -> None:
    rows, labels, truth = words
    fitted = SplitPUClassifier(prior=0.4, random_state=0).fit(rows, labels)
    told = fitted.predict_proba(rows)
    assert ((told[:, 1] > 0.5) == truth).mean() > 0.8
    assert np.allclose(told, fitted.predict_proba(rows.toarray()))
    fitted.save(tmp_path)
    assert np.array_equal(SplitPUClassifier.load(tmp_path).predict_proba(rows.tocoo()), told)
    assert np.allclose(fitted.model_.predict_proba(rows), told)
    assert fitted.n_features_in_ == 60


def test_a_model_of_dense_rows_takes_sparse_ones(words) -> None:
    rows, labels, _ = words
    fitted = NNPUClassifier(prior=0.4, config={"base.epochs": 1}, random_state=0).fit(rows.toarray(), labels)
    assert np.allclose(fitted.predict_proba(rows), fitted.predict_proba(rows.toarray()))


@pytest.mark.parametrize(
    ("classifier", "said"),
    [
        (NNPUClassifier(prior=0.4), "take no sparse rows"),
        (SplitPUClassifier(prior=0.4, learner="network"), "take no sparse rows"),
        (SplitPUClassifier(prior=0.4, backbone="mlp"), "take no sparse rows"),
        (SplitPUClassifier(prior=0.4, learner="kernel"), "kernel learner takes no sparse rows"),
        (PUBoostingClassifier(prior=0.4), "boosting takes no sparse rows"),
    ],
)
def test_what_needs_dense_rows_says_so(words, classifier, said: str) -> None:
    with pytest.raises(InputError, match=said):
        classifier.fit(words[0], words[1])


@pytest.mark.parametrize(
    "classifier",
    [
        PULogisticClassifier(prior=0.4, random_state=0),
        PUBaggingClassifier(prior=0.4, random_state=0),
        SplitPUClassifier(
            prior=0.4,
            learner=SGDClassifier(loss="log_loss"),
            rounds=0,
            random_state=0,
            config={"threshold": "prior"},  # it ranks too badly for the cut at the highest F1 to be accurate
        ),
    ],
)
def test_other_learners_take_them(words, classifier) -> None:
    rows, labels, truth = words
    assert (classifier.fit(rows, labels).predict(rows) == truth).mean() > 0.7


def test_the_prior_is_estimated_from_them(words) -> None:
    data = PUData.from_arrays(words[0], words[1])
    assert 0.2 < estimate_prior(data).value < 0.6
    assert 0.1 < estimate_prior(data, method="bbe").value < 0.8


_LARGE = """
import resource
import numpy as np, scipy.sparse
from splitpu import SplitPUClassifier
random = np.random.default_rng(0)
rows, columns, each = 200_000, 50_000, 10
truth = random.random(rows) < 0.3
places = (random.random((rows, each)) ** 3 * columns).astype(np.int32)
places[:, 0] = random.integers(0, 200, rows) + 200 * truth
X = scipy.sparse.csr_matrix(
    (np.ones(rows * each, np.float32), places.ravel(), np.arange(0, rows * each + 1, each)), shape=(rows, columns)
)
fitted = SplitPUClassifier(prior=0.3, random_state=0).fit(X, truth & (random.random(rows) < 0.3))
assert ((fitted.predict_proba(X)[:, 1] > 0.5) == truth).mean() > 0.8
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in kilobytes")
def test_memory_follows_what_is_there() -> None:
    """Dense, these rows would take 40 GB."""
    done = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * 2**20  # 1.5 GB were seen, which was the limit before
