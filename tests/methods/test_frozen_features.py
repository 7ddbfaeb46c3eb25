"""Heads on embeddings: found where there is something to find, chosen out of fold, saved as plain tensors."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from sklearn.metrics import roc_auc_score

from splitpu.errors import InputError
from splitpu.methods import frozen_features
from splitpu.methods.frozen_features import (
    FrozenFit,
    FrozenHead,
    averaged_views,
    balanced_head,
    fit_frozen,
    frozen_scores,
    spread_labels,
)


def embeddings(seed: int = 0, *, rows: int = 240, apart: float = 0.6, views: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds in 40 dimensions, and views that each row is seen in with noise of its own."""
    draw = np.random.default_rng(seed)
    truth = draw.random(rows) < 0.5
    centres = np.where(truth, 1.0, -1.0)[:, None] * np.r_[np.full(10, apart), np.zeros(30)]
    vectors = centres + draw.normal(size=(rows, 40))
    return (vectors[:, None] + draw.normal(size=(rows, views, 40))).astype(np.float32), truth


def labels(truth: np.ndarray, count: int = 30, seed: int = 0) -> np.ndarray:
    mask = np.zeros(len(truth), np.bool_)
    mask[np.random.default_rng(seed).choice(np.flatnonzero(truth), count, replace=False)] = True
    return mask


def right(scores: np.ndarray, truth: np.ndarray) -> float:
    """The share of right answers with as many positives as there are."""
    return float(((scores > np.quantile(scores, 1 - truth.mean())) == truth).mean())


def aucs(fit: FrozenFit, labelled: np.ndarray) -> tuple[float, float]:
    return roc_auc_score(labelled, fit.base_out_of_fold), roc_auc_score(labelled, fit.student_out_of_fold)


def test_finds_two_clouds_and_knows_new_rows() -> None:
    views, truth = embeddings(apart=0.9)
    fit = fit_frozen(views[:160], labels(truth[:160]), 0)
    assert all(
        right(frozen_scores(fit.head, views[part]), truth[part]) > 0.9 for part in (slice(160), slice(160, None))
    )


def test_more_views_are_better_than_one() -> None:
    one, several = [], []
    for seed in range(5):
        views, truth = embeddings(seed, apart=0.35, views=8)
        mask = labels(truth)
        for found, used in ((one, views[:, :1]), (several, views)):
            found.append(right(frozen_scores(fit_frozen(used, mask, 0).head, used), truth))
    assert np.mean(several) > np.mean(one) + 0.02


def test_the_student_is_taken_where_neighbours_know_more() -> None:
    """Positives on two opposite sides: no linear head can tell, neighbours can."""
    draw = np.random.default_rng(1)
    truth = np.arange(300) < 120
    side = np.where(np.arange(300) % 2, 1.0, -1.0)[:, None]
    rows = draw.normal(size=(300, 12)) * 0.6
    rows[truth, :4] += 2.5 * side[truth]
    rows[~truth, 4:8] += 2.5 * side[~truth]
    fit = fit_frozen(rows, labels(truth, 40), 0)
    base_auc, student_auc = aucs(fit, labels(truth, 40))
    assert fit.taken == "student" and student_auc > base_auc + 0.1
    assert right(frozen_scores(fit.head, rows), truth) > right(frozen_scores(fit.base_head, rows), truth) + 0.03


def test_the_base_is_taken_where_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    views, truth = embeddings(3)
    with monkeypatch.context() as many:
        many.setattr(frozen_features, "MOST_IN_GRAPH", 100)
        alone = fit_frozen(views, labels(truth), 0)
    assert alone.taken == "base" and not alone.student_out_of_fold.any() and alone.student_head is None
    for name, value in {"NEIGHBOURS": 1, "REACH": 0.0, "SPREAD_WEIGHT": 50.0}.items():
        monkeypatch.setattr(frozen_features, name, value)
    fit = fit_frozen(views, labels(truth), 0)
    base_auc, student_auc = aucs(fit, labels(truth))
    assert fit.taken == "base" and base_auc > student_auc
    assert np.array_equal(frozen_scores(fit.head, views), frozen_scores(alone.head, views))


def test_same_seed_same_fit() -> None:
    views, truth = embeddings()
    first, again = (fit_frozen(views, labels(truth), 7) for _ in range(2))
    assert np.array_equal(first.student_out_of_fold, again.student_out_of_fold)
    assert np.array_equal(frozen_scores(first.head, views), frozen_scores(again.head, views))


def test_the_head_is_plain_tensors() -> None:
    views, truth = embeddings()
    fit = fit_frozen(views[:200], labels(truth[:200]), 0)
    for head in (fit.base_head, fit.student_head):
        assert head is not None
        back = FrozenHead.from_tensors(load(save(head.tensors())))
        assert np.array_equal(frozen_scores(back, views[200:]), frozen_scores(head, views[200:]))


def test_balanced_head_solves_the_least_squares_it_says() -> None:
    views, truth = embeddings(rows=50)
    rows, mask = averaged_views(views), labels(truth, 10)
    weight, bias = (torch.tensor(one, dtype=torch.float64) for one in balanced_head(rows, mask, 3.0))
    weight.requires_grad_(True)
    bias.requires_grad_(True)
    target = torch.from_numpy(np.where(mask, 1.0, -1.0))
    by_row = torch.from_numpy(np.where(mask, 0.5 / mask.mean(), 0.5 / (1 - mask.mean())))
    wrong = (by_row * (torch.from_numpy(rows) @ weight + bias - target) ** 2).sum()
    (wrong + 3.0 * rows.shape[1] * weight.square().sum()).backward()
    assert weight.grad is not None and weight.grad.abs().max() < 1e-8
    assert bias.grad is not None and bias.grad.abs() < 1e-8


def test_spread_labels_reach_the_cluster_of_the_labelled() -> None:
    draw = np.random.default_rng(0)
    rows = np.concatenate([draw.normal(size=(20, 5)) + 4 * np.eye(5)[0], draw.normal(size=(20, 5)) + 4 * np.eye(5)[1]])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    spread = spread_labels(unit @ unit.T, np.arange(40) < 3, 5, 0.9)
    assert spread[3:20].mean() > spread[20:].mean()


def test_constant_features_and_equal_rows_do_no_harm() -> None:
    views, truth = embeddings()
    views[..., 5] = 3.0
    views[1] = views[0]
    for rows, labelled in ((views, labels(truth)), (np.zeros((30, 4)), np.arange(30) < 5)):
        fit = fit_frozen(rows, labelled, 0)
        assert np.isfinite(frozen_scores(fit.head, rows)).all() and np.isfinite(fit.student_out_of_fold).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labelled": np.ones(3, bool)}, "one entry per row"),
        ({"labelled": np.arange(240) < 1}, "two of them"),
        ({"views": np.full((240, 2, 3), np.nan)}, "not finite"),
        ({"views": np.zeros((240, 0, 3))}, "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_refused(change: dict[str, object], words: str) -> None:
    views, truth = embeddings()
    given: dict[str, object] = {"views": views, "labelled": labels(truth), "seed": 0, **change}
    with pytest.raises(InputError, match=words):
        fit_frozen(**given)  # type: ignore[arg-type]


def test_known_negatives_move_the_head_and_the_spread_labels_away() -> None:
    draw = np.random.default_rng(0)
    truth = np.arange(200) < 80
    rows = draw.normal(size=(200, 16)) + 0.4 * truth[:, None]
    labelled = np.arange(200) < 30
    answers = np.zeros(200, dtype=np.int8)
    answers[100:140], answers[40:50] = -1, 1
    plain, told, none = (
        fit_frozen(rows, labelled, 0, answers=one) for one in (None, answers, np.zeros(200, dtype=np.int8))
    )
    for name in ("base_head", "student_head"):
        before, after, same = (frozen_scores(getattr(one, name), rows) for one in (plain, told, none))
        assert np.array_equal(before, same)
        standard = [(one - one.mean()) / one.std() for one in (before, after)]
        assert standard[1][100:140].mean() < standard[0][100:140].mean()
        assert standard[1][40:50].mean() > standard[0][40:50].mean()


def test_fit_frozen_in_short() -> None:
    draw = np.random.default_rng(0)
    truth = np.arange(200) < 80
    rows = draw.normal(size=(200, 3, 16)) + truth[:, None, None]
    fit = fit_frozen(rows, np.arange(200) < 30, seed=0)
    assert right(frozen_scores(fit.head, rows), truth) > 0.95
