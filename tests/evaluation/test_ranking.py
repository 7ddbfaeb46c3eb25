"""Ranking figures without negatives, against the figures that the truth gives."""

import numpy as np
import pytest

from splitpu.evaluation.ranking import always_negative, corrected_auc, in_telling_order, ranking_figures, share_for_f1
from splitpu.prior.from_scores import prior_from_scores


def drawn(rows: int, prior: float, distance: float, labelled: int, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    truth = np.arange(rows) < round(prior * rows)
    known = np.zeros(rows, dtype=bool)
    known[rng.choice(int(truth.sum()), labelled, replace=False)] = True
    return rng.normal(size=rows) + distance * truth, known, truth


def true_auc(scores: np.ndarray, truth: np.ndarray) -> float:
    above = scores[truth][:, None] > scores[~truth][None]
    return float(above.mean())


def true_average_precision(scores: np.ndarray, truth: np.ndarray) -> float:
    ordered = truth[np.argsort(-scores)]
    return float((np.cumsum(ordered) / np.arange(1, len(ordered) + 1))[ordered].mean())


def test_the_correction_is_the_one_that_pairs_of_rows_give() -> None:
    """Of all pairs of P and U, those with an unlabelled positive are right half of the time."""
    rng = np.random.default_rng(0)
    positive, hidden, negative = rng.normal(1, 1, 300), rng.normal(1, 1, 100), rng.normal(-1, 1, 300)
    hidden = np.sort(np.concatenate([positive[:50], positive[:50] + 1e-12]))  # ranks like P, as far as it can
    pairs = positive[:, None] > np.concatenate([hidden, negative])[None]
    against_negatives = (positive[:, None] > negative[None]).mean()
    assert corrected_auc(float(pairs.mean()), 0.25) == pytest.approx(against_negatives, abs=0.03)
    assert corrected_auc(0.5 * 0.25 + 0.75 * 0.9, 0.25) == pytest.approx(0.9)


@pytest.mark.parametrize(("prior", "distance", "labelled"), [(0.02, 2.0, 60), (0.1, 2.5, 150), (0.4, 1.5, 300)])
def test_figures_lie_near_those_of_the_truth(prior: float, distance: float, labelled: int) -> None:
    held, errors = [], []
    for seed in range(3):
        scores, known, truth = drawn(3000, prior, distance, labelled if prior > 0.02 else 40, seed)
        length = round(3000 * prior)
        found = ranking_figures(scores, known, prior, prior_interval=(0.8 * prior, 1.2 * prior), seed=seed)
        top = truth[np.argsort(-scores)[:length]]
        for name, right in (
            ("roc_auc", true_auc(scores, truth)),
            ("average_precision", true_average_precision(scores, truth)),
            (f"precision@{length}", top.mean()),
            (f"recall@{length}", top.sum() / truth.sum()),
            (f"lift@{length}", top.mean() / prior),
            (f"enrichment@{length}", top.sum() / length),
            ("f1", 2 * top.sum() / (length + truth.sum())),
            ("accuracy", 1 - 2 * (length - top.sum()) / 3000),
        ):
            figure = found[name]
            assert figure.low <= figure.value <= figure.high
            held.append(figure.low <= right <= figure.high)
        errors.append(abs(found["roc_auc"].value - true_auc(scores, truth)))
    assert np.mean(held) > 0.8 and np.mean(errors) < 0.05


def test_the_doubt_about_the_prior_widens_every_interval() -> None:
    scores, known, _ = drawn(2000, 0.3, 1.5, 200, 0)
    sure = ranking_figures(scores, known, 0.3)
    unsure = ranking_figures(scores, known, 0.3, prior_interval=(0.15, 0.45))
    for name in ("roc_auc", "average_precision", "precision@300", "recall@300", "f1"):
        assert unsure[name].high - unsure[name].low > sure[name].high - sure[name].low
        assert unsure[name].value == sure[name].value


def test_an_estimated_prior_brings_its_own_doubt() -> None:
    scores, known, truth = drawn(3000, 0.2, 2.0, 150, 1)
    prior = prior_from_scores(scores, known)
    found = ranking_figures(scores, known, prior.value, prior_interval=prior.interval)
    assert found["roc_auc"].low < true_auc(scores, truth) < found["roc_auc"].high


def test_beside_every_figure_stands_that_of_calling_all_rows_negative() -> None:
    scores, known, _ = drawn(2000, 0.05, 2.0, 50, 3)
    beside = {name: always_negative(name, 0.05, 2000) for name in ranking_figures(scores, known, 0.05)}
    assert beside["roc_auc"] == 0.5 and beside["average_precision"] == 0.05
    assert beside["accuracy"] == pytest.approx(0.95) and beside["f1"] == 0
    assert beside["precision@50"] == 0.05 and beside["recall@200"] == pytest.approx(0.1) and beside["lift@50"] == 1
    assert beside["enrichment@200"] == pytest.approx(0.1)


def test_where_positives_are_rare_the_ranking_leads() -> None:
    scores, known, _ = drawn(2000, 0.05, 2.0, 50, 3)
    rare = in_telling_order(ranking_figures(scores, known, 0.05), 0.05)
    assert rare[0] == "roc_auc" and rare[-2:] == ("accuracy", "f1")
    figures = ranking_figures(*drawn(2000, 0.4, 2.0, 50, 3)[:2], 0.4)
    common = in_telling_order(figures, 0.4)
    assert common[:3] == ("roc_auc", "accuracy", "f1") and set(common) == set(figures)


def test_a_faultless_order_is_not_excluded_by_few_labels() -> None:
    scores, known, truth = drawn(1000, 0.1, 8.0, 40, 4)
    found = ranking_figures(scores, known, 0.1)
    assert true_auc(scores, truth) == 1 and found["roc_auc"].high == 1


def test_the_same_seed_gives_the_same_figures_and_u_alone_is_the_population_of_case_control_data() -> None:
    scores, known, _ = drawn(1000, 0.2, 2.0, 50, 5)
    one, same = (ranking_figures(scores, known, 0.2, seed=7) for _ in range(2))
    assert one == same
    apart = ranking_figures(scores, known, 150 / 950, scenario="case-control")
    assert f"precision@{round(150 / 2)}" in apart and "precision@100" in one  # half as many as there are positives


def test_without_intervals_the_values_are_the_same() -> None:
    scores, known, _ = drawn(1000, 0.2, 2.0, 50, 5)
    whole, values = (ranking_figures(scores, known, 0.2, intervals=one) for one in (True, False))
    assert {name: one.value for name, one in whole.items()} == {name: one.value for name, one in values.items()}
    assert all(one.low == one.value == one.high for one in values.values())


def test_in_telling_order_in_short() -> None:
    assert in_telling_order(["accuracy", "f1", "roc_auc", "lift@9"], 0.05) == ("roc_auc", "lift@9", "accuracy", "f1")
    assert in_telling_order(["accuracy", "f1", "roc_auc", "lift@9"], 0.3) == ("roc_auc", "accuracy", "f1", "lift@9")


def test_ranking_figures_in_short() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(4000) < 200
    scores = rng.normal(size=4000) + 2.0 * truth
    found = ranking_figures(scores, np.arange(4000) < 80, 0.05, prior_interval=(0.04, 0.06))
    assert found["roc_auc"].low < 0.921 < found["roc_auc"].high
    assert always_negative("average_precision", 0.05, 4000) == 0.05


@pytest.mark.parametrize(("prior", "distance"), [(0.4, 0.7), (0.3, 1.5), (0.05, 2.0), (0.3, 6.0)])
def test_the_share_for_f1_gets_nearly_the_best_f1_there_is(prior: float, distance: float) -> None:
    scores, known, truth = drawn(6000, prior, distance, round(prior * 3000), seed=3)
    hits = np.cumsum(truth[np.argsort(-scores)])
    f1 = 2 * hits / (np.arange(1, len(truth) + 1) + truth.sum())
    called = round(share_for_f1(scores, known, prior) * len(truth))
    assert f1[called - 1] > f1.max() - 0.03  # which is the luckiest cut of all
    assert distance >= 2 or called > 1.1 * truth.sum()  # a cut at the prior would call fewer
