"""Labels that are no random draw: noticed where they can be, and made on purpose."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from splitpu.errors import InputError
from splitpu.evaluation import label_tests
from splitpu.evaluation.label_tests import held_out_line, random_labels_test

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from preferred_labels import preferred_labels


def drawn(rows: int, prior: float, distance: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = np.arange(rows) < round(prior * rows)
    centres = np.where(truth, distance / 2, -distance / 2)[:, None] * np.array([1.0, 1.0, 1.0, 0.0])
    return rng.normal(size=(rows, 4)) + centres, truth


def scores_of(rows: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    return held_out_line(rows, labelled, 0.01)


def test_random_labels_seldom_raise_an_alarm() -> None:
    alarms = 0
    for seed in range(20):
        rows, truth = drawn(1200, (0.05, 0.2, 0.4)[seed % 3], (1.0, 2.0)[seed % 2], seed)
        known = preferred_labels(rows, truth, 40, preference="random", seed=seed)
        alarms += random_labels_test(rows, scores_of(rows, known), known).doubtful
    assert alarms <= 1


def test_many_columns_do_not_make_random_labels_look_chosen() -> None:
    """All rows are of one kind, so that whatever tells labelled ones apart is chance."""
    found = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        rows, known = rng.normal(size=(600, 100)), np.zeros(600, np.bool_)
        known[rng.choice(600, 150, replace=False)] = True
        found.append(random_labels_test(rows, held_out_line(rows, known, 1.0), known))
    assert abs(np.mean([check.auc for check in found]) - 0.5) < 0.03
    assert sum(check.doubtful for check in found) <= 1


def test_labels_by_a_feature_that_tells_no_class_are_noticed() -> None:
    noticed = 0
    for seed in range(6):
        rows, truth = drawn(1500, 0.4, 3.0, seed)
        known = preferred_labels(rows, truth, 200, preference="feature", column=3, seed=seed)
        found = random_labels_test(rows, scores_of(rows, known), known)
        noticed += found.doubtful
        assert ("do not look like a random draw" in found.verdict) == found.doubtful
    assert noticed >= 5


def test_what_the_clearest_rows_show_is_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed = []
    for likely in (label_tests.LIKELY[:1], label_tests.LIKELY):
        monkeypatch.setattr(label_tests, "LIKELY", likely)
        draws = [(seed, *drawn(1500, 0.4, 2.0, seed)) for seed in range(12)]
        known = [preferred_labels(*one, 100, preference="feature", column=3, seed=seed) for seed, *one in draws]
        found = [random_labels_test(one[1], scores_of(one[1], by), by) for one, by in zip(draws, known, strict=True)]
        noticed.append(sum(check.doubtful for check in found))
    assert noticed[0] < noticed[1]


def test_two_groups_in_u_show_a_preference_by_a_column_that_tells_the_class() -> None:
    """The prior comes out too low then and would excuse it; the groups do not depend on labels."""
    noticed = {"feature": 0, "random": 0}
    for seed in range(4):
        rows, truth = drawn(1300, 0.46, 4.0, seed)
        for preference in noticed:
            known = preferred_labels(rows, truth, 200, preference=preference, column=0, seed=seed)  # type: ignore[arg-type]
            noticed[preference] += random_labels_test(rows, scores_of(rows, known), known).doubtful
    assert noticed["feature"] >= 3 and noticed["random"] == 0


def test_overlap_alone_is_no_alarm() -> None:
    """Half of the rows among the likely positives are negatives here, and a line tells them apart."""
    rows, truth = drawn(3000, 0.1, 1.2, 0)
    known = preferred_labels(rows, truth, 100, preference="random")
    found = random_labels_test(rows, scores_of(rows, known), known)
    assert not found.doubtful and found.auc is not None and found.expected is not None and found.expected > 0.6


def test_with_too_few_likely_positives_nothing_is_said() -> None:
    rows, truth = drawn(400, 0.1, 8.0, 0)
    found = random_labels_test(rows, rows[:, 0], truth)
    assert not found.doubtful and found.auc is None and "cannot be told" in found.verdict


def test_sparse_tables_are_taken_and_others_refused() -> None:
    rows, truth = drawn(400, 0.3, 2.0, 0)
    known = preferred_labels(rows, truth, 40, preference="random")
    scores = scores_of(rows, known)
    assert random_labels_test(csr_matrix(rows), scores, known).auc is not None
    with pytest.raises(InputError, match="do not fit"):
        random_labels_test(rows[:-1], scores, known)


def test_the_held_out_line_is_the_one_fitted_without_the_row() -> None:
    """Weighted ridge regression solved anew without each row; the centre and the weights stay those of all rows."""
    rows, truth = drawn(60, 0.4, 1.0, 3)
    weight = np.where(truth, 0.5 / truth.sum(), 0.5 / (~truth).sum())
    table = np.column_stack([rows - weight @ rows, np.ones(60)])
    target, ridge = np.where(truth, 1.0, -1.0), np.diag([0.7] * 4 + [0.0])
    by_hand = []
    for row in range(60):
        left = np.arange(60) != row
        root = np.sqrt(weight[left])[:, None]
        normal = (root * table[left]).T @ (root * table[left]) + ridge
        by_hand.append(table[row] @ np.linalg.solve(normal, table[left].T @ (weight[left] * target[left])))
    np.testing.assert_allclose(held_out_line(rows, truth, 0.7), by_hand, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("preference", ["random", "clear", "border", "feature"])
def test_preferred_labels_prefer_what_they_say(preference: str) -> None:
    rows, truth = drawn(2000, 0.5, 1.0, 1)
    known = preferred_labels(rows, truth, 200, preference=preference, column=3, seed=2)  # type: ignore[arg-type]
    assert known.sum() == 200 and not (known & ~truth).any()
    along = {"feature": rows[:, 3]}.get(preference, rows[:, :3].sum(1))
    moved = along[known].mean() - along[truth].mean()
    error = along[truth].std() / np.sqrt(200)
    expected = {"random": 0, "clear": 1, "border": -1, "feature": 1}[preference]
    assert (abs(moved) < 3.5 * error) if expected == 0 else expected * moved > 5 * error
    again = preferred_labels(rows, truth, 200, preference=preference, column=3, seed=2)  # type: ignore[arg-type]
    assert (known == again).all()


def test_the_first_component_is_what_labels_go_by_without_a_column() -> None:
    rows, truth = drawn(600, 0.5, 0.0, 1)
    rows = rows * np.array([1.0, 1.0, 1.0, 9.0]) + 0.8 * rows[:, 3:] * np.array([1.0, 0, 0, 0])
    known = preferred_labels(rows, truth, 60, preference="feature")
    assert abs(rows[known, 3].mean() - rows[truth, 3].mean()) > 0.4 * rows[:, 3].std()


@pytest.mark.parametrize(
    ("given", "says"),
    [({"preference": "none"}, "unknown"), ({"count": 0}, "cannot be labelled"), ({"count": 400}, "cannot be labelled")],
)
def test_what_cannot_be_labelled_is_refused(given: dict[str, object], says: str) -> None:
    rows, truth = drawn(600, 0.5, 1.0, 1)
    with pytest.raises(InputError, match=says):
        preferred_labels(rows, truth, **{"count": 20, **given})  # type: ignore[arg-type]


def test_random_labels_test_in_short() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3)) + np.where(np.arange(2000) < 600, 1.5, -1.5)[:, None]
    assert not random_labels_test(rows, rows.sum(1), np.arange(2000) < 200).doubtful
