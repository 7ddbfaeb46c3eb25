"""Calibration by P and U: probabilities come nearer to frequencies, and what cannot be calibrated is refused."""

import numpy as np
import pytest
from evaluation_tools import SHIFT, pu_sample, scores

from splitpu import InputError
from splitpu.evaluation.calibration import PUCalibrator, reliability
from splitpu.evaluation.diagnostics import find_degeneracies
from splitpu.evaluation.held_out import nnpu_value, pu_criterion
from splitpu.evaluation.metrics import evaluate_pu


def true_error(probability: np.ndarray, truth: np.ndarray) -> float:
    bins = np.clip((probability * 10).astype(int), 0, 9)
    return sum(
        (bins == b).mean() * abs(probability[bins == b].mean() - truth[bins == b].mean()) for b in np.unique(bins)
    )


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_calibration_improves_reliability(method, scenario):
    prior = 0.4
    rng = np.random.default_rng(0)
    # Overconfident by a factor; off centre, too, where the method can mend that.
    offset = 0.0 if method == "temperature" else 2.0
    centre = np.log(prior / (1 - prior)) / (2 * SHIFT)

    def distorted(values: np.ndarray) -> np.ndarray:
        return 8 * (values + centre) + offset

    positive, unlabelled = (distorted(x) for x in pu_sample(prior, 400, 4000, scenario, rng))
    fresh = [distorted(values) for values in scores(4000, 6000, rng)]
    truth, decision = np.arange(10_000) < 4000, np.concatenate(fresh)
    plain = PUCalibrator("temperature").probability(decision)
    fitted = PUCalibrator.fit(positive, unlabelled, prior, method=method, scenario=scenario)
    calibrated = fitted.probability(decision)
    assert true_error(calibrated, truth) < 0.5 * true_error(plain, truth)
    assert true_error(calibrated, truth) < 0.05
    order = np.argsort(decision)
    assert (np.diff(calibrated[order]) >= -1e-12).all()


@pytest.mark.parametrize("seed", range(6))
def test_with_a_slope_at_its_bound_the_offset_is_still_the_best(seed):
    """Fewer positives among the unlabelled than the prior says: the loss falls for ever as the slope grows."""
    rng = np.random.default_rng(seed)
    positive, population = rng.normal(2, size=40), rng.normal(size=400) + np.where(np.arange(400) < 130, 2, -2)
    fitted = PUCalibrator.fit(positive, population, 0.4, scenario="case-control")
    assert fitted.slope == 5
    assert fitted.probability(population).mean() == pytest.approx(0.4, abs=1e-4)


def test_reliability_sees_overconfidence():
    prior, rng = 0.4, np.random.default_rng(0)
    centre = np.log(prior / (1 - prior)) / (2 * SHIFT)
    honest, boastful = (PUCalibrator("temperature", slope=2 * SHIFT * factor) for factor in (1, 8))
    positive, unlabelled = (x + centre for x in pu_sample(prior, 500, 5000, "case-control", rng))
    errors = [
        reliability(one.probability(positive), one.probability(unlabelled), prior, scenario="case-control").error
        for one in (honest, boastful)
    ]
    assert errors[0] < 0.04 < errors[1]


def test_bad_calibration():
    with pytest.raises(InputError, match="temperature, platt or isotonic"):
        PUCalibrator.fit([1.0], [0.0], 0.5, method="beta")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give at least one"):
        PUCalibrator.fit([], [0.0], 0.5)
    with pytest.raises(InputError, match="NaN or infinite"):
        PUCalibrator.fit([1.0, np.nan], [0.0], 0.5)
    with pytest.raises(InputError, match="300 of the 400 rows are labelled"):
        PUCalibrator.fit(np.ones(300), np.zeros(100), 0.5)
    with pytest.raises(InputError, match="outside 0 to 1"):
        reliability([3.0], [-2.0, 1.0], 0.5)


def test_an_isotonic_map_of_equal_decisions_is_level():
    found = PUCalibrator.fit([1.0, 1.0], [1.0, 1.0, 1.0], 0.5, method="isotonic")
    np.testing.assert_allclose(found.decision(np.array([0.0, 1.0, 2.0])), 0.0, atol=1e-9)


def test_an_isotonic_map_on_one_side_of_a_half_cuts_nowhere():
    knots = np.array([-1.0, 1.0])
    low, high = (PUCalibrator("isotonic", knots=knots, heights=np.array(ends)) for ends in ([0.1, 0.5], [0.6, 0.9]))
    assert (low.cut(), high.cut()) == (np.inf, -np.inf)


@pytest.mark.parametrize("judge", [find_degeneracies, pu_criterion, nnpu_value, evaluate_pu, PUCalibrator.fit])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([0.9, np.nan], "hold NaN or infinite values"),
        ([], r"the shape \(0,\): give at least one"),
        ([[0.9, 0.8]], r"the shape \(1, 2\): give at least one, as a flat array"),
        (["high"], "are not numbers: give what decision_function returns"),
    ],
)
def test_decisions_that_cannot_be_judged(judge, given, sentence):
    fine = [0.2, -0.1, 0.9, -0.3]
    for both in ((given, fine), (fine, given)):
        with pytest.raises(InputError, match=f"the decisions on .*{sentence}"):
            judge(*both, 0.6)


def test_what_else_cannot_be_judged():
    fine = [0.2, 0.1, 0.9, 0.3]
    with pytest.raises(InputError, match="the probabilities on unlabelled rows hold NaN"):
        reliability(fine, [0.5, np.nan], 0.7)
    with pytest.raises(InputError, match="scenario='some' is unknown"):
        find_degeneracies(fine, fine, 0.6, scenario="some")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the decisions on held-out positives have the shape"):
        find_degeneracies(fine, [-0.5, *fine], 0.6, held_out_positive=[])
