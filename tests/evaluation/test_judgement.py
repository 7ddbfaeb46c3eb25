"""One list of figures, counted or estimated: both say the same of the same scores, and neither more than it knows."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve, roc_auc_score, roc_curve

from splitpu.evaluation.judgement import counted, counted_curves, estimated, estimated_curves, too_good
from splitpu.evaluation.metrics import PUFigure, evaluate_pu


def drawn(rows: int, prior: float, seed: int, distance: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Truth and scores."""
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < prior
    return truth, rng.normal(size=rows) + distance * truth


def test_counted_figures_are_those_of_scikit_learn() -> None:
    truth, scores = drawn(500, 0.2, 0)
    scores = np.round(scores, 1) - 1.05  # with ties
    found = counted(truth, scores)
    assert found["roc_auc"].value == pytest.approx(roc_auc_score(truth, scores))
    assert found["average_precision"].value == pytest.approx(average_precision_score(truth, scores))
    assert found["f1"].value == pytest.approx(f1_score(truth, scores > 0))
    assert found["accuracy"].value == pytest.approx(((scores > 0) == truth).mean())
    assert all(one.low <= one.value <= one.high for one in found.values())


def test_lists_of_any_length_are_counted() -> None:
    truth, scores = drawn(1000, 0.1, 1)
    found, positives = counted(truth, scores), int(truth.sum())
    top = truth[np.argsort(-scores)[:positives]].mean()
    assert found[f"precision@{positives}"].value == pytest.approx(top)
    assert found[f"lift@{positives}"].value == pytest.approx(top / truth.mean())
    assert found[f"enrichment@{positives}"].value == pytest.approx(top)
    assert found[f"recall@{positives}"].always_negative == pytest.approx(truth.mean())


@pytest.mark.parametrize("rows", [300, 6000])
def test_intervals_of_counted_figures_hold_the_truth(rows: int) -> None:
    truth, scores = drawn(400_000, 0.1, 0)
    expected = counted(truth, scores - 1.5)
    held = dict.fromkeys(("roc_auc", "average_precision", "accuracy", "recall"), 0)
    for seed in range(1, 41):
        found = counted(*(lambda t, s: (t, s - 1.5))(*drawn(rows, 0.1, seed)))
        for name in held:
            held[name] += found[name].low <= expected[name].value <= found[name].high
    assert all(count >= 34 for count in held.values()), held


@pytest.mark.parametrize(("truth", "scores"), [([1, 1], [1.0, 2.0]), ([0, 0], [1.0, 2.0]), ([0, 1], [np.nan, 1.0])])
def test_where_nothing_can_be_counted(truth: list[int], scores: list[float]) -> None:
    assert counted(truth, np.array(scores)) == {}


def test_estimates_and_counts_have_the_same_list() -> None:
    truth, scores = drawn(3000, 0.05, 3)
    labelled = truth & (np.random.default_rng(3).random(3000) < 0.4)
    found = estimated(scores - 1.6, labelled, 0.05, scenario="single-training-set", naive=scores - 4).figures
    known = counted(truth, scores - 1.6, scores - 4)
    assert {name.partition("@")[0] for name in found} == {name.partition("@")[0] for name in known}
    assert list(found)[:2] == ["roc_auc", "average_precision"] and list(found)[-4] == "accuracy"  # positives are rare
    for name in ("roc_auc", "average_precision", "accuracy", "f1", "recall"):
        assert found[name].low <= known[name].value <= found[name].high, name
        assert found[name].naive == pytest.approx(known[name].naive, abs=0.1), name
    assert found["accuracy"].always_negative == 0.95 and found["f1"].naive < found["f1"].value


def test_a_few_rows_have_the_figures_that_counting_gives() -> None:
    scores, labelled = np.linspace(-1, 1, 18), np.arange(18) >= 15
    found = estimated(scores, labelled, 0.4, scenario="single-training-set").figures
    assert set(found) == {"roc_auc", "accuracy", "f1", "precision", "recall", "average_precision"}


def test_what_looks_too_good_is_said_to_rest_on_few_rows() -> None:
    truth = np.arange(400) < 20
    found = counted(truth, np.where(truth, 3.0, -3.0))
    assert found["roc_auc"].value == found["roc_auc"].high == 1.0 and found["roc_auc"].low < 0.99
    assert "ROC AUC 1.000 rests on 20 positives" in str(too_good(found, 20))
    assert too_good({"roc_auc": PUFigure(0.9, 0.8, 0.95)}, 20) is None


def test_counted_in_short() -> None:
    figures = counted(np.arange(100) >= 80, np.arange(100) - 84.5)
    assert (
        figures["roc_auc"].value,
        figures["recall"].value,
        figures["precision@20"].value,
        figures["lift@20"].value,
    ) == (1.0, 0.75, 1.0, 5.0)
    assert (figures["roc_auc"].low < 0.99, figures["accuracy"].always_negative) == (True, 0.8)


def true_curves(truth: np.ndarray, scores: np.ndarray, grid: np.ndarray) -> dict[str, np.ndarray]:
    alarm, recall, _ = roc_curve(truth, scores)
    precision, recalled, _ = precision_recall_curve(truth, scores)
    return {"roc": np.interp(grid, alarm, recall), "precision_recall": np.interp(grid, recalled[::-1], precision[::-1])}


def test_counted_curves_are_those_of_scikit_learn() -> None:
    truth, scores = drawn(2000, 0.3, 3)
    found = counted_curves(truth, scores)
    for name, true in true_curves(truth, scores, found["roc"].x).items():
        curve = found[name]
        assert np.abs(curve.y - true)[5:].max() < 0.02, name
        assert (curve.low <= curve.y).all() and (curve.y <= curve.high).all() and (curve.high > curve.low).mean() > 0.8
    assert found["roc"].area == pytest.approx(roc_auc_score(truth, scores))
    assert found["precision_recall"].area == pytest.approx(average_precision_score(truth, scores))


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
def test_estimated_curves_hold_the_truth_and_know_less_with_a_doubtful_prior(scenario: str) -> None:
    truth, scores = drawn(6000, 0.3, 4)
    labelled = truth & (np.random.default_rng(5).random(6000) < 0.3)
    if scenario == "case-control":
        truth, scores = np.r_[truth, truth[labelled]], np.r_[scores, scores[labelled]]
        labelled = np.arange(len(scores)) >= 6000
    sure = estimated_curves(scores, labelled, 0.3, scenario=scenario)
    unsure = estimated_curves(scores, labelled, 0.3, scenario=scenario, prior_interval=(0.2, 0.4))
    for name, true in true_curves(truth[:6000], scores[:6000], sure["roc"].x).items():
        inside = (sure[name].low - 0.02 <= true) & (true <= sure[name].high + 0.02)
        assert inside[20:190].mean() > 0.9, name
        single = evaluate_pu(scores[labelled], scores[~labelled], 0.3, scenario=scenario)
        figure = single["roc_auc" if name == "roc" else "average_precision"].value
        assert sure[name].area == pytest.approx(figure, abs=0.02), "no other figure than in tables"
        width = [float((one[name].high - one[name].low).mean()) for one in (sure, unsure)]
        assert width[1] > 1.2 * width[0], name
