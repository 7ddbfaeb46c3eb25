"""Models that say nothing are found out without negatives, and others seldom taken for one."""

import numpy as np
import pytest
from evaluation_tools import pu_sample, scores

from splitpu.evaluation.diagnostics import find_degeneracies
from splitpu.evaluation.metrics import evaluate_pu


def kinds(*arguments, **options) -> list[str]:
    return [one.kind for one in find_degeneracies(*arguments, **options)]


def test_degenerate_models_are_found():
    rng = np.random.default_rng(0)
    positive, unlabelled = pu_sample(0.4, 200, 2000, "case-control", rng)
    options = {"scenario": "case-control"}
    assert kinds(positive, unlabelled, 0.4, **options) == []
    assert kinds(np.ones(9), np.ones(50), 0.4, **options) == ["constant"]
    assert kinds(positive + 9, unlabelled + 9, 0.4, **options) == ["all positive"]
    assert kinds(positive - 9, unlabelled - 9, 0.4, **options) == ["all negative"]
    assert kinds(positive + 5, unlabelled, 0.4, **options) == ["memorised positives"]
    assert kinds(positive + 9, unlabelled, 0.4, held_out_positive=positive - 1, **options) == ["memorised positives"]
    assert kinds(positive, unlabelled, 0.4, held_out_positive=scores(100, 0, rng)[0], **options) == []


def test_figures_that_leave_no_room_for_the_prior_are_called_an_upper_limit():
    known, other = np.ones(40), np.r_[np.ones(21), -np.ones(39)]
    found = evaluate_pu(known, other, 0.514, scenario="case-control")
    assert found["accuracy"].value > 0.99  # though 51 % are positive and 35 % are called so
    (one,) = find_degeneracies(known, other, 0.514, scenario="case-control")
    assert one.kind == "too few positives" and "upper limit" in one.sentence
    assert "35.0 % of the unlabelled rows" in one.sentence and "51.4 % necessary" in one.sentence
    assert "at most 0.350 would fit" in one.sentence and "at least 16.4 %" in one.sentence
    *_, one = find_degeneracies(known, other, 0.8)
    assert "at most 0.610 would fit" in one.sentence  # where the labelled rows are part of the population
    assert kinds(known, np.r_[np.ones(27), -np.ones(33)], 0.514, scenario="case-control") == []


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
@pytest.mark.parametrize("prior", [0.2, 0.5])
def test_chance_alone_seldom_calls_too_few_positive(prior, scenario):
    """Of a model that makes no mistakes the share that is called positive is low by chance half of the time."""
    rng = np.random.default_rng(1)
    found = [kinds(*pu_sample_without_mistakes(prior, scenario, rng), prior, scenario=scenario) for _ in range(400)]
    assert sum("too few positives" in one for one in found) < 0.05 * len(found)


def pu_sample_without_mistakes(prior: float, scenario: str, rng: np.random.Generator):
    hidden = rng.binomial(600, prior) - (50 if scenario == "single-training-set" else 0)
    unlabelled = 550 if scenario == "single-training-set" else 600
    return np.ones(50), np.r_[np.ones(hidden), -np.ones(unlabelled - hidden)]


def test_labelled_rows_that_leave_no_positives_among_the_others_are_told_of():
    known, other = np.linspace(-0.1, 2, 50), np.linspace(-2, 1, 60)
    evaluate_pu(known, other, 0.4)  # 44 of 110 are expected, and 50 may be by chance
    (one,) = find_degeneracies(known, other, 0.4)
    assert one.kind == "no positives left" and "50 of the 110 rows are labelled" in one.sentence
    assert "expects 44 positives" in one.sentence and "scenario='case-control'" in one.sentence
    assert "no positives left" not in kinds(known, other, 0.4, scenario="case-control") + kinds(known, other, 0.6)
