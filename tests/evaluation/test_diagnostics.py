"""Whether labels look like a random draw of the positives, on rows whose labelling is known.

Models that say nothing are found out without negatives, and others seldom taken for one.

Models that are worth nothing are found out by their own training rows.
"""

from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli, write_npz
from evaluation_tools import pu_sample, scores

from splitpu.data.pudata import PUData
from splitpu.evaluation.diagnostics import check_random_labelling, find_degeneracies, find_worthlessness
from splitpu.evaluation.metrics import evaluate_pu
from splitpu.runs.folder import RunFolder


def labelled_by(strength: float, seed: int) -> PUData:
    """Positives whose chance of a label grows with their second feature."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(900, 2))
    features[:450, 0] += 5
    chance = np.exp(strength * features[:450, 1])
    labelled = np.zeros(900, dtype=bool)
    labelled[rng.choice(450, 120, replace=False, p=chance / chance.sum())] = True
    return PUData.from_arrays(features, labelled)


def test_random_labelling_is_believed():
    for seed in range(2):
        found = check_random_labelling(labelled_by(0.0, seed), seed=seed)
        assert not found.doubtful and "nothing speaks against" in found.verdict


def test_biased_labelling_is_noticed():
    found = check_random_labelling(labelled_by(2.0, 0), seed=0)
    assert found.doubtful and "do not look like a random draw" in found.verdict and "label positives" in found.verdict


@pytest.mark.parametrize(("feature", "sign"), [(0, -1.0), (5, 1.0)], ids=["nearest to the negatives", "by another one"])
def test_labels_that_prefer_some_positives_are_noticed_though_classes_overlap(feature, sign):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1500, 6))
    chance = 1 / (1 + np.exp(-3 * sign * features[:600, feature]))
    features[:600, :5] += 2.0
    labelled = np.zeros(1500, dtype=bool)
    labelled[rng.choice(600, 200, replace=False, p=chance / chance.sum())] = True
    assert check_random_labelling(PUData.from_arrays(features, labelled), seed=0).doubtful


def test_too_few_rows_to_judge_the_labelling():
    data = PUData.from_arrays(np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) < 15)
    found = check_random_labelling(data, seed=0)
    assert not found.doubtful and found.auc is None and "cannot be told" in found.verdict


def test_with_hardly_a_label_nothing_is_asked_for_that_cannot_be_given():
    data = PUData.from_arrays(np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) < 5)
    found = check_random_labelling(data, seed=0)
    assert found.auc is None and "cannot be told: only 5 labelled and 295 unlabelled rows are there" in found.verdict


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


Capture = pytest.CaptureFixture[str]


def test_a_model_that_learned_nothing_is_found_out_without_truth(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "same.npz", X=np.ones((80, 4)), X_test=None, y_test=None, truth=None, names=None)
    run = tmp_path / "run"
    code, _, err = run_cli(capsys, "fit", data, "--prior", 0.5, "--quiet", "--out", run, "--rounds", 1, *TINY)
    assert (
        code == 0 and err.count("round 1 student: the model gives every row the same score") == 2
    )  # when, and at the end
    assert any("do not rely on it" in warning for warning in RunFolder(run).read_result()["warnings"])


@pytest.mark.parametrize(
    ("labelled", "shift", "prior", "found"),
    [(40, 0, 0.3, True), (40, 1, 0.3, False), (3, 0, 0.3, False), (40, 0, 0.95, False)],
)
def test_no_better_than_chance_is_said_where_it_would_show(
    labelled: int, shift: float, prior: float, found: bool
) -> None:
    random = np.random.default_rng(0)
    positive, unlabelled = random.normal(shift, 1, labelled), random.normal(0, 1, 300)
    assert bool(find_worthlessness(positive, unlabelled, prior)) == found


@pytest.mark.parametrize(
    ("moved", "saying"), [(0, None), (9, "nearly all unlabelled rows positive"), (-9, "next to nothing positive")]
)
def test_without_a_prior_a_model_that_says_the_same_of_all_rows_is_found(moved: float, saying: str | None) -> None:
    random = np.random.default_rng(0)
    positive, unlabelled = random.normal(moved + 1, 1, 40), random.normal(moved, 1, 300)
    found = find_worthlessness(positive, unlabelled, None)
    assert found is None if saying is None else saying in str(found)


def test_a_run_without_a_prior_that_calls_everything_positive_is_found_out(tmp_path: Path, capsys: Capture) -> None:
    rows = np.random.default_rng(0).normal(size=(480, 5)).astype(np.float32)
    data = write_npz(
        tmp_path / "noise.npz", X=rows, s=np.arange(480) < 80, X_test=None, y_test=None, truth=None, names=None
    )
    words = ["fit", data, "--method", "vpu", "--prior", "none", "--set", "vpu.epochs=3", "--quiet"]
    code, _, err = run_cli(capsys, *words, "--out", tmp_path / "run")
    assert code == 0 and "VPU: the model calls nearly all unlabelled rows positive" in err


def test_find_worthlessness_in_short() -> None:
    rising = np.linspace(-1, 1, 200)
    assert (
        find_worthlessness(rising[::10], rising, 0.3)
        == "the model ranks the positives it was taught no higher than unlabelled rows (AUC 0.48, 0.5 is chance)"
    )
    assert find_worthlessness(rising[::10] + 1, rising, 0.3) is None
