"""Plots: the curves that P, U and the prior imply are those of the truth, up to their bands."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score

from splitpu import plots
from splitpu.errors import InputError, MissingExtraError
from splitpu.prior.estimate import EstimatorRow, PriorEstimate

pytest.importorskip("matplotlib", reason="no matplotlib here: it comes with the extra plots").use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def overlapping(rows: int = 6000, prior: float = 0.4, seed: int = 0):
    """Truth, labels (a third of the positives) and scores."""
    random = np.random.default_rng(seed)
    truth = random.random(rows) < prior
    return truth, truth & (random.random(rows) < 1 / 3), random.normal(size=rows) + 1.5 * truth


def test_curves_are_those_of_the_truth() -> None:
    truth, labelled, scores = overlapping()
    roc = plots.PURocDisplay.from_predictions(labelled, scores, prior=0.4, name="model")
    assert roc.value == pytest.approx(roc_auc_score(truth, scores), abs=0.02)
    shown = plots.PUPrecisionRecallDisplay.from_predictions(labelled, scores, prior=0.4)
    assert shown.value == pytest.approx(average_precision_score(truth, scores), abs=0.03)
    precision, recall, _ = precision_recall_curve(truth, scores)
    true = np.interp(shown.x, recall[::-1], precision[::-1])
    middle = slice(20, 190)  # at the very top a few rows decide
    assert np.mean(((shown.low <= true + 0.01) & (true - 0.01 <= shown.high))[middle]) > 0.8
    assert np.abs(shown.y - true)[middle].max() < 0.08
    assert shown.ax_.get_xlabel() == "recall" and "AP" in shown.ax_.get_legend().get_texts()[0].get_text()
    assert shown.figure_ is shown.ax_.figure


def test_bands_narrow_with_rows() -> None:
    widths = []
    for rows in (300, 6000):
        _, labelled, scores = overlapping(rows)
        shown = plots.PURocDisplay.from_predictions(labelled, scores, prior=0.4)
        widths.append(float((shown.high - shown.low).mean()))
    assert widths[0] > 2 * widths[1] > 0


def test_estimators_and_axes_as_in_scikit_learn() -> None:
    from splitpu import SplitPUClassifier

    random = np.random.default_rng(0)
    truth = np.arange(200) % 2 == 0
    X, labelled = random.normal(size=(200, 2)) + 2 * truth[:, None], truth & (np.arange(200) % 6 == 0)
    model = SplitPUClassifier(prior=0.5, config={"base.epochs": 5, "rounds": 0}, random_state=0).fit(X, labelled)
    _, ax = pyplot.subplots()
    first = plots.PURocDisplay.from_estimator(model, X, labelled, ax=ax)
    plots.PURocDisplay.from_estimator(model, X, labelled, ax=ax, name="again")
    assert first.ax_ is ax and len(ax.lines) == 2 and first.prior == 0.5
    assert plots.PUCalibrationDisplay.from_estimator(model, X, labelled).found.bins
    assert plots.PriorDisplay.from_estimator(model).estimate.interval == (0.5, 0.5)
    moved = plots.SensitivityDisplay.from_estimator(model, X, labelled)
    rates = [row["positive_rate_unlabelled"] for row in moved.rows]
    assert moved.own == 0.5 and rates == sorted(rates) and rates[0] < 0.3 < 0.6 < rates[-1]
    for kind in (plots.PUCalibrationDisplay, plots.SensitivityDisplay):
        with pytest.raises(InputError, match=r"no prior_: .* from_predictions"):
            kind.from_estimator(LogisticRegression().fit(X, labelled), X, labelled)
    with pytest.raises(InputError, match="no split_"):
        plots.SplitDisplay.from_estimator(model)
    model.set_params(config={"base.epochs": 5, "student.epochs": 5, "rounds": 1}).fit(X, labelled)
    split = plots.SplitDisplay.from_estimator(model)
    assert len(split.probability) == (~labelled).sum() and split.easy.sum() == model.split_.easy.sum()
    with pytest.raises(InputError, match="one value a row"):
        plots.PURocDisplay.from_predictions(labelled, np.zeros(3), prior=0.5)


def test_prior_split_and_sensitivity() -> None:
    row = EstimatorRow("order", 0.3, 0.2, 0.4, 0.25)
    estimate = PriorEstimate(0.3, (0.2, 0.4), "order", (row, row), {}, ())
    assert len(plots.PriorDisplay.from_estimate(estimate).ax_.get_yticks()) == 2
    truth, labelled, scores = overlapping(2000)
    told = plots.PriorDisplay.from_predictions(labelled, scores).estimate
    assert told.interval[0] < truth.mean() < told.interval[1] and len(told.table) == 1
    split = plots.SplitDisplay.from_predictions(np.linspace(-3, 3, 50), np.arange(50) % 2)
    assert "easy (25)" in split.ax_.get_legend().get_texts()[0].get_text()
    rows = [{"prior": p, "positive_rate_unlabelled": p, "estimated_accuracy": None} for p in (0.2, 0.3)]
    assert len(plots.SensitivityDisplay.from_rows(rows, own=0.25).ax_.lines) == 2


def test_results_show_themselves_in_notebooks() -> None:
    from splitpu import evaluate_pu

    _, labelled, scores = overlapping(500)
    page = evaluate_pu(scores[labelled], scores[~labelled], 0.4)._repr_html_()
    assert page.startswith("<table>") and "accuracy" in page
    row = EstimatorRow("<b>", 0.3, 0.2, 0.4, 0.25)
    page = PriorEstimate(0.3, (0.2, 0.4), "order", (row,), {}, ("a & b",))._repr_html_()
    assert "&lt;b&gt;" in page and "a &amp; b" in page


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"splitpu\[plots\]"):
        plots.SensitivityDisplay.from_rows([{"prior": 0.5}])
