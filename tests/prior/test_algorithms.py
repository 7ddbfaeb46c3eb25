"""Estimators of the prior on mixtures whose answer is known, and their intervals."""

import json

import numpy as np
import pytest
from prior_tools import mixture, pu_mixture

from splitpu import load_named, make_pu
from splitpu.data.public.named_set import true_prior
from splitpu.data.pudata import PUData
from splitpu.prior.algorithms import PenL1, bbe, dedpul, gap_at, km2, share_above_dip, tice
from splitpu.prior.estimate import estimate_prior, population_share
from splitpu.prior.scores import (
    APART,
    CrossFitted,
    KernelLogistic,
    classical_scores,
    mean_scores,
    pu_scores,
    too_few_rows,
    without_likely_positives,
)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("estimator", [bbe, dedpul], ids=["bbe", "dedpul"])
def test_estimators_on_scores(estimator, share):
    errors = []
    for seed in range(5):
        positive, unlabelled = mixture(share, seed=seed)
        errors.append(estimator(positive[:, 0], unlabelled[:, 0]) - share)
    assert abs(np.mean(errors)) < 0.05 and np.abs(errors).max() < 0.12


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize(
    ("estimator", "most"),
    [(lambda *rows: PenL1.fit(*rows).share(), 0.06), (km2, 0.15), (tice, 0.2)],
    ids=["penl1", "km2", "tice"],
)
def test_estimators_on_features(estimator, most, share):
    errors = [estimator(*mixture(share, seed=seed, features=2), seed) - share for seed in range(2)]
    assert np.abs(errors).max() < most


def test_conversion_between_scenarios():
    single = pu_mixture(0.25, positives=100, unlabelled=400, scenario="single-training-set")
    apart = pu_mixture(0.25, positives=100, unlabelled=400)
    assert population_share(single, 0.25) == pytest.approx(200 / 500)
    assert population_share(apart, 0.25) == 0.25


def test_dropping_spares_labelled_rows_and_some_of_the_unlabelled():
    labelled = np.arange(20) < 5
    scores = np.arange(20, dtype=float)
    kept = without_likely_positives(labelled, scores, 0.2)
    assert kept[labelled].all() and np.flatnonzero(~kept).tolist() == [17, 18, 19]
    assert without_likely_positives(labelled, scores, 1.0)[~labelled].sum() >= 1


def test_held_out_scores_do_not_know_the_labels():
    """With nothing to learn, labelled and unlabelled rows must score alike, cleaned or not."""
    rng = np.random.default_rng(0)
    features, labelled = rng.normal(size=(400, 3)), np.arange(400) < 100
    for scores in classical_scores(features, labelled, images=False, seed=0):
        difference = scores[labelled].mean() - scores[~labelled].mean()
        assert abs(difference) < 4 * scores.std() / np.sqrt(80)


def test_rows_that_are_only_judged_score_like_the_others(monkeypatch):
    """Rows that nothing was learned from come out where their kind does."""
    monkeypatch.setattr("splitpu.prior.scores.TREES", 10)
    rng = np.random.default_rng(0)
    positive = np.arange(600) % 3 == 0
    features, labelled = rng.normal(size=(600, 2)) + 3 * positive[:, None], positive & (np.arange(600) < 240)
    learned = labelled | (np.arange(600) < 300)
    found = classical_scores(features, labelled, images=False, seed=0, learned=learned).cleaned
    for kind in (positive, ~positive):
        usual, only_judged = (float(np.median(found[kind & chosen])) for chosen in (learned, ~learned))
        assert abs(usual - only_judged) < 0.1 * found.std()
    assert found[positive].mean() > found[~positive].mean() + found.std()


def test_more_unlabelled_rows_are_judged_than_learned_from(monkeypatch):
    import splitpu.prior.scores as module

    monkeypatch.setattr("splitpu.prior.scores.TREES", 5)
    monkeypatch.setattr(module, "MOST_UNLABELLED", 100)
    monkeypatch.setattr(module, "MOST_JUDGED", 250)
    data = pu_mixture(0.4, positives=50, unlabelled=400, features=3)
    found = pu_scores(data)
    assert len(found.rows) == len(set(found.rows)) == 250 and found.labelled.sum() == 50
    assert (data.labelled[found.rows] == found.labelled).all() and np.isfinite(found.cleaned).all()
    monkeypatch.setattr(module, "MOST_JUDGED_VALUES", 3 * 200)
    assert len(pu_scores(data).rows) == 200
    monkeypatch.setattr(module, "MOST_JUDGED_VALUES", 3)
    assert len(pu_scores(data).rows) == 150  # what is learned from is judged in any case


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
def test_consensus_and_its_interval(scenario):
    data = pu_mixture(0.4, positives=200, unlabelled=600, features=3, scenario=scenario)
    found = estimate_prior(data, seed=0, scores="classical")
    truth = population_share(data, 0.4)
    assert abs(found.value - truth) < 0.04
    assert found.interval[0] < truth < found.interval[1]
    assert (
        found.method == "consensus" and found.table[0].name == "consensus" and found.source == "estimated by consensus"
    )
    assert {row.name for row in found.table} == {"consensus", "bbe", "dedpul", "tedn", "tedn-dedpul", "penl1"}
    said = {row.name: row.value for row in found.table}
    assert found.value == np.median([said[name] for name in ("tedn", "tedn-dedpul", "penl1")])
    json.dumps(found.to_dict())


def test_every_cross_fitting_has_folds_of_its_own(monkeypatch):
    monkeypatch.setattr("splitpu.prior.scores.TREES", 10)
    rng = np.random.default_rng(0)
    labelled = np.arange(120) < 30
    features = rng.normal(size=(120, 2)) + labelled[:, None]
    one, two = (
        classical_scores(features, labelled, images=False, seed=0, cross_fittings=count).cleaned for count in (1, 2)
    )
    other = classical_scores(features, labelled, images=False, seed=APART, cross_fittings=1).cleaned
    assert not np.allclose(one, other)
    np.testing.assert_allclose(two, (one + other) / 2)


def test_intervals_cover_over_seeds():
    covered = []
    for seed in range(4):
        data = pu_mixture(0.3, positives=80, unlabelled=300, features=2, apart=3.0, seed=seed)
        low, high = estimate_prior(data, seed=seed).interval
        covered.append(low <= 0.3 <= high)
    assert sum(covered) >= 3


def test_breast_cancer_in_both_scenarios():
    named = load_named("breast-cancer")
    data, _ = make_pu(named, 60, seed=1)
    assert abs(estimate_prior(data, seed=1).value - true_prior(named)) < 0.06


def test_same_seed_same_estimate():
    data = pu_mixture(0.4, positives=60, unlabelled=200, features=3)
    assert estimate_prior(data, seed=3).to_dict() == estimate_prior(data, seed=3).to_dict()


def test_few_rows_that_are_kept_need_not_be_in_every_part() -> None:
    """Of few unlabelled rows nearly all may be taken for positives; the others can lie in one fold together."""
    rng = np.random.default_rng(0)
    labelled = np.arange(40) < 20
    learner = KernelLogistic(rng.normal(size=(40, 3)), labelled, sharpness=1.0, seed=0)
    rows, kept = np.arange(40), labelled.copy()
    kept[20] = True
    judged = learner.judge(rows, kept, rows[:5], seed=0)
    assert np.isfinite(judged.own).all() and np.isfinite(judged.asked).all()


def test_mean_scores_in_short() -> None:
    found = mean_scores([CrossFitted(np.zeros(2), np.ones(2)), CrossFitted(np.ones(2), np.ones(2))])
    assert found.plain.tolist() == [0.5, 0.5] and found.cleaned.tolist() == [1.0, 1.0]


def test_too_few_rows_in_short() -> None:
    assert (
        too_few_rows(PUData.from_arrays(np.zeros((12, 1)), [0] + 11 * [1])).partition(":")[0]
        == "1 unlabelled row is too few to estimate the prior from"
    )


def test_gap_at_in_short() -> None:
    assert round(gap_at(0.5), 3) == 0.05


@pytest.mark.parametrize(("share", "distance"), [(0.5, 6.0), (0.2, 7.0)])
def test_the_share_above_a_dip(share: float, distance: float) -> None:
    draw = np.random.default_rng(0)
    positive = draw.normal(size=150) + distance
    hidden = np.arange(2000) < 2000 * share
    unlabelled = draw.normal(size=2000) + distance * hidden
    found, off = share_above_dip(positive, unlabelled) or (0.0, 0.0)
    assert found == pytest.approx(share, abs=0.01) and abs(found - share) <= off < 0.1
    bent = share_above_dip(3 * positive + 2, 3 * unlabelled + 2)
    assert bent is not None and bent[0] == pytest.approx(found, abs=1e-3)


def test_no_dip_where_classes_overlap_or_what_lies_above_it_is_not_alike() -> None:
    draw = np.random.default_rng(0)
    hidden = np.arange(2000) < 1000
    overlapping = draw.normal(size=2000) + 3 * hidden
    assert share_above_dip(draw.normal(size=150) + 3, overlapping) is None
    # A few odd rows far below all others are no class.
    odd = np.where(np.arange(2000) % 20 == 0, -9.0, 0.0)
    assert share_above_dip(draw.normal(size=150) + 1, draw.normal(size=2000) + hidden + odd) is None
    # Above the only dip, labelled rows rank above the others: many of those are negative.
    far = np.where(np.arange(2000) % 4 == 0, -9.0, 0.0)
    mixed = draw.normal(size=2000) + 2 * (draw.random(2000) < 0.3) + far
    assert share_above_dip(draw.normal(size=150) + 2, mixed) is None
    assert share_above_dip(np.ones(50), np.ones(200)) is None
