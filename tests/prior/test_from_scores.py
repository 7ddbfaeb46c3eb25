"""The prior from the order of scores: against formulas written down anew, and against drawn rows."""

import math

import numpy as np
import pytest

from splitpu.errors import InputError
from splitpu.prior import from_scores
from splitpu.prior.from_scores import (
    Counts,
    checked_rows,
    counted,
    in_population,
    posterior,
    prior_from_scores,
    share_bound,
)


def drawn(
    rows: int, prior: float, distance: float, labelled: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = np.zeros(rows, dtype=bool)
    truth[rng.choice(rows, round(prior * rows), replace=False)] = True
    known = np.zeros(rows, dtype=bool)
    known[rng.choice(np.flatnonzero(truth), labelled, replace=False)] = True
    return rng.normal(size=rows) + distance * truth, known, truth


@pytest.mark.parametrize(
    ("prior", "distance", "labelled"), [(0.01, 3.0, 60), (0.05, 2.5, 100), (0.3, 2.5, 150), (0.5, 2.0, 300)]
)
def test_the_interval_holds_the_true_share(prior: float, distance: float, labelled: int) -> None:
    rows = 10_000 if prior < 0.05 else 3000
    found = [prior_from_scores(*drawn(rows, prior, distance, labelled, seed)[:2]) for seed in range(4)]
    assert sum(one.interval[0] <= prior <= one.interval[1] for one in found) >= 3
    assert np.mean([abs(one.value - prior) for one in found]) < 0.25 * prior
    assert all(one.interval[0] <= one.value <= one.interval[1] for one in found)


def test_only_the_order_of_the_scores_counts() -> None:
    scores, known, _ = drawn(1000, 0.2, 2.0, 60)
    plain, bent = prior_from_scores(scores, known), prior_from_scores(np.exp(scores) - 7, known.astype(int))
    assert plain.value == bent.value and plain.interval == bent.interval


def test_overlap_gives_an_upper_end_only() -> None:
    scores, known, _ = drawn(1500, 0.1, 0.8, 40)
    found = prior_from_scores(scores, known)
    assert found.at_most and found.sentence.startswith("at most")
    assert found.interval[0] == pytest.approx(40 / 1500) and found.interval[1] > 0.1
    assert not found.all_labelled


def test_a_table_in_which_every_positive_is_labelled_is_recognised() -> None:
    scores, known, truth = drawn(4000, 0.1, 3.5, 400)
    assert (known == truth).all()
    found = prior_from_scores(scores, known)
    assert found.all_labelled and "every positive is labelled" in found.sentence
    assert found.value == pytest.approx(0.1, abs=0.005) and found.interval[0] == pytest.approx(0.1)
    assert not prior_from_scores(scores, known, scenario="case-control").all_labelled
    half = drawn(4000, 0.1, 3.5, 200)
    assert not prior_from_scores(*half[:2]).all_labelled


def test_scenarios_differ_by_the_labelled_rows_only() -> None:
    scores, known, _ = drawn(2000, 0.2, 2.5, 100)
    single, apart = (prior_from_scores(scores, known, scenario=one) for one in ("single-training-set", "case-control"))
    assert apart.value == apart.among_unlabelled
    assert single.among_unlabelled == pytest.approx(apart.among_unlabelled, rel=0.05)  # rows say more than labels
    assert single.value == pytest.approx((single.among_unlabelled * 1900 + 100) / 2000)
    assert in_population(0.25, 10, 90, "single-training-set") == pytest.approx((0.25 * 90 + 10) / 100)


def test_counts_hold_every_row_once_and_keep_ties_together() -> None:
    scores = np.repeat([0.0, 1.0, 2.0], 40)
    known = np.arange(120) % 4 == 0
    counts = counted(scores, known)
    assert counts.labelled.sum() == 30 and counts.unlabelled.sum() == 90
    assert len(counts.labelled) <= 3 and set(counts.labelled + counts.unlabelled) <= {40.0, 80.0, 120.0}


def test_the_likelihood_is_that_of_a_mixture_of_two_bells(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bisection for the cuts and math.erfc for the tails, one share and one distance at a time."""
    counts = Counts(np.array([8.0, 6.0, 1.0]), np.array([4.0, 26.0, 155.0]))

    def tail(at: float) -> float:
        return 0.5 * math.erfc(at / math.sqrt(2))

    def by_hand(share: float, distance: float, spread: float) -> float:
        known, reached, before, total = 15 / 200, 0.0, 0.0, 0.0
        mixed = known + (1 - known) * share
        for mine, others in zip(*counts, strict=True):
            reached += (mine + others) / 200
            low, high = -20.0, 20.0
            for _ in range(200):
                middle = (low + high) / 2
                above = mixed * tail((middle - distance) / spread) + (1 - mixed) * tail(middle)
                low, high = (middle, high) if above > reached else (low, middle)
            part = tail((low - distance) / spread) if reached < 1 - 1e-9 else 1.0
            chance = known * (part - before) / ((mine + others) / 200)
            total += mine * math.log(chance) + others * math.log(1 - chance)
            before = part
        return total

    monkeypatch.setattr(from_scores, "_SPREADS", np.array([-0.2, 0.0]))
    got = from_scores._log_likelihood(counts, np.array([1.5, 3.0]), np.array([0.05, 0.4]))
    for at, distance in enumerate((1.5, 3.0)):
        for which, spread in enumerate((math.exp(-0.2), 1.0)):
            for number, share in enumerate((0.05, 0.4)):
                assert got[at, which, number] == pytest.approx(by_hand(share, distance, spread), abs=0.02)


def test_where_rows_say_little_the_part_that_is_labelled_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the density of a beta distribution in the hidden positives, written down anew on a grid of counts."""
    scores, known, _ = drawn(1500, 0.4, 0.8, 180)
    shares, weights, _ = posterior(counted(scores, known))
    hidden = shares * 1320
    part = 180 / (180 + hidden)
    density = part ** (0.5 - 1) * (1 - part) ** (2.0 - 1) * 180 / (180 + hidden) ** 2  # of the number hidden
    even = 1 / np.sqrt(shares * (1 - shares))  # what `posterior` has taken, as a density of the share
    cumulated = np.cumsum(weights * density / even)
    middle = float(np.interp(0.5 * cumulated[-1], cumulated, shares))
    found = prior_from_scores(scores, known)
    assert found.among_unlabelled == pytest.approx(middle, rel=1e-6)
    assert found.interval[1] - found.interval[0] < 0.9 * (1 - 0.12)


def test_the_bound_is_exact_where_it_can_be_counted() -> None:
    from scipy.stats import binomtest

    rng = np.random.default_rng(3)
    positive, unlabelled = rng.normal(2, 1, 50), np.concatenate([rng.normal(2, 1, 60), rng.normal(-2, 1, 140)])
    ranks = [8, 13, 20, 30, 40, 50]
    best = 1.0
    for rank in ranks:
        above = int((unlabelled >= np.sort(positive)[::-1][rank - 1]).sum())
        each = 1 - 0.025 / len(ranks)  # two-sided, so that each side misses half as often
        most = binomtest(above, 200).proportion_ci(each, method="exact").high
        least = binomtest(rank, 50).proportion_ci(each, method="exact").low
        best = min(best, most / least)
    assert share_bound(positive, unlabelled) == pytest.approx(best, abs=1e-9)
    assert share_bound(positive, unlabelled) > 0.3


def test_doubt_widens(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, known, _ = drawn(2000, 0.2, 2.5, 100)
    spreads = []
    for doubt in (0.02, 0.6):
        monkeypatch.setattr(from_scores, "_DOUBT", doubt)
        shares, weights, _ = posterior(counted(scores, known))
        spreads.append(float(np.sqrt(np.cov(np.log(shares), aweights=weights))))
    assert spreads[0] < spreads[1]


@pytest.mark.parametrize(
    ("scores", "labelled", "says"),
    [
        (np.zeros(30), np.zeros(29), "do not fit"),
        (np.zeros((30, 1)), np.zeros((30, 1)), "one score"),
        (np.zeros(30), np.full(30, 2), "True or False"),
        (np.full(30, np.nan), np.arange(30) < 8, "finite"),
        (np.zeros(30), np.arange(30) < 2, "2 are labelled"),
        (np.zeros(30), np.arange(30) < 20, "10 are unlabelled"),
    ],
)
def test_what_cannot_be_used_is_refused(scores: np.ndarray, labelled: np.ndarray, says: str) -> None:
    with pytest.raises(InputError, match=says):
        checked_rows(scores, labelled)


def test_an_unknown_scenario_is_refused() -> None:
    scores, known, _ = drawn(200, 0.2, 2.5, 20)
    with pytest.raises(InputError, match="scenario"):
        prior_from_scores(scores, known, scenario="other")  # type: ignore[arg-type]


def test_in_population_in_short() -> None:
    assert (in_population(0.5, 2, 8, "single-training-set"), in_population(0.5, 2, 8, "case-control")) == (0.6, 0.5)


def test_share_bound_in_short() -> None:
    assert round(share_bound(np.arange(90.0, 100.0), np.arange(100.0)), 2) == 0.4


def test_prior_from_scores_in_short() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(5000) < 150
    scores = rng.normal(size=5000) + 3.0 * truth
    found = prior_from_scores(scores, np.arange(5000) < 60)
    assert (found.interval[0] < 0.03 < found.interval[1], found.at_most) == (True, False)
