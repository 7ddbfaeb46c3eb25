"""Estimators of the prior on mixtures whose answer is known, their intervals, and what users are told."""

import json
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from splitpu import InputError, SplitPUClassifier, SplitPUWarning, load_named, make_pu
from splitpu.data import PUData, true_prior
from splitpu.networks import build_network
from splitpu.prior import bbe, dedpul, estimate_prior, km2, penl1, population_share, resolve_prior, tice
from splitpu.prior.estimate import QUICK
from splitpu.prior.learners import KernelLogistic
from splitpu.prior.network_scores import Mirrored, _made_small, network_scores
from splitpu.prior.scores import classical_scores, pu_scores
from splitpu.prior.tedn import APART, CrossFitted, without_likely_positives

Capture = pytest.CaptureFixture[str]


def mixture(
    share: float, positives: int = 300, unlabelled: int = 1000, seed: int = 0, features: int = 1, apart: float = 4.0
) -> tuple[np.ndarray, np.ndarray]:
    """P and U of two clouds; a share of U is positive."""
    rng = np.random.default_rng(seed)
    hidden = round(share * unlabelled)
    cloud = rng.normal(size=(positives + unlabelled, features))
    cloud[: positives + hidden] += apart / np.sqrt(features)
    return cloud[:positives], cloud[positives:]


def pu_mixture(share: float, *, scenario: str = "case-control", **parts: object) -> PUData:
    positive, unlabelled = mixture(share, **parts)  # type: ignore[arg-type]
    labels = np.r_[np.ones(len(positive)), np.zeros(len(unlabelled))]
    return PUData.from_arrays(np.concatenate([positive, unlabelled]), labels, scenario=scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("estimator", [bbe, dedpul], ids=["bbe", "dedpul"])
def test_estimators_on_scores(estimator, share):
    errors = []
    for seed in range(5):
        positive, unlabelled = mixture(share, seed=seed)
        errors.append(estimator(positive[:, 0], unlabelled[:, 0]) - share)
    assert abs(np.mean(errors)) < 0.05 and np.abs(errors).max() < 0.12


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize(("estimator", "most"), [(penl1, 0.06), (km2, 0.15), (tice, 0.2)], ids=["penl1", "km2", "tice"])
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
    monkeypatch.setattr("splitpu.prior.learners.TREES", 10)
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

    monkeypatch.setattr("splitpu.prior.learners.TREES", 5)
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
    found = estimate_prior(data, seed=0)
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
    monkeypatch.setattr("splitpu.prior.learners.TREES", 10)
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


def test_images_through_the_networks(monkeypatch):
    import splitpu.prior.network_scores as module

    monkeypatch.setattr(module, "WARM_UP", 2)
    monkeypatch.setattr(module, "CLEANED", 2)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(160, 8, 8, 1)).astype(np.float32)
    images[:100, :4] += 1.5  # half of it bright: positive
    data = PUData.from_arrays(images, np.arange(160) < 50, scenario="case-control")
    found = network_scores(data, seed=0, device="cpu")
    assert np.isfinite(found.plain).all() and np.isfinite(found.cleaned).all()
    hidden, negative = found.cleaned[50:100], found.cleaned[100:]
    assert (hidden[:, None] > negative).mean() > 0.9
    assert pu_scores(data, how="network", device="cpu").how == "network"


def test_the_command_says_how_far_the_networks_have_got(tmp_path, monkeypatch, capsys):
    import splitpu.prior.network_scores as module
    from splitpu.cli import main

    monkeypatch.setattr(module, "WARM_UP", 2)
    monkeypatch.setattr(module, "CLEANED", 1)
    images = np.random.default_rng(0).normal(size=(120, 8, 8, 1)).astype(np.float32)
    images[:80, :4] += 2.0
    np.savez(tmp_path / "rows.npz", X=images, s=(np.arange(120) < 40).astype(int))
    words = ["prior", str(tmp_path / "rows.npz"), "--scores", "network", "--device", "cpu"]
    assert main(words) == 0
    said = capsys.readouterr().err
    for number in (1, 4):
        assert f"prior.fold{number}.plain, epochs: 8 of 8" in said  # two, four times as few rows make few steps
        assert f"prior.fold{number}.cleaned, epochs: 4 of 4" in said
    assert main([*words, "--json"]) == 0 and "epochs" not in capsys.readouterr().err


def test_on_a_cpu_a_small_network_sees_some_rows_made_small(monkeypatch):
    import splitpu.prior.network_scores as module

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (120, 64, 48, 3)).astype(np.uint8)
    data = PUData(images, np.arange(120) < 40, "case-control")
    rows, seen = np.arange(0, 120, 2), []
    monkeypatch.setattr(module, "network_scores", lambda data, **how: seen.append((data, how)))
    module.affordable_scores(data, rows, seed=3, device="cpu")
    small, how = seen[0]
    assert how == {"seed": 3, "device": "cpu", "network": "cnn-small", "observer": None, "checkpoints": None}
    assert small.features.shape == (60, 32, 24, 3) and small.features.dtype == np.uint8
    assert small.scenario == "case-control" and (small.labelled == data.labelled[rows]).all()
    blocks = images[rows].reshape(60, 32, 2, 24, 2, 3).mean((2, 4))
    assert np.abs(small.features - blocks).max() <= 0.5


def test_images_are_scored_from_both_sides():
    network = build_network("cnn-small", (8, 8, 1)).eval()
    batch = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        sides = [Mirrored(network)(images).logit for images in (batch, batch.flip(-1))]
        assert not torch.allclose(network(batch).logit, sides[0])
    torch.testing.assert_close(sides[0], sides[1])


def test_networks_need_no_copy_of_large_images(monkeypatch):
    import splitpu.prior.network_scores as module

    data = PUData(np.zeros((300, 64, 64, 3), dtype=np.uint8), np.arange(300) < 50, "case-control")
    scores = np.arange(300.0)
    monkeypatch.setattr(module, "network_scores", lambda data, **how: CrossFitted(scores, scores))
    tracemalloc.start()
    try:
        assert pu_scores(data).how == "network"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < data.features.nbytes


# ------------------------------------------------------------------------------------------------- what users are told


def test_every_estimator_has_an_interval():
    """KM2 knows few shares, and rows drawn again often give the very same one; that is no certainty."""
    found = estimate_prior(pu_mixture(0.3, positives=200, unlabelled=1000, apart=4.0), method="km2")
    assert {row.name for row in found.table} == {"consensus", "km2", *QUICK}
    assert all(row.high - row.low > 0.02 for row in found.table)
    assert found.interval[0] < 0.3 < found.interval[1]


def test_few_positives_with_a_given_prior_are_mentioned():
    with pytest.warns(SplitPUWarning, match="9 labelled positives are few, .* label at least 10"):
        resolve_prior(0.4, pu_mixture(0.3, positives=9, unlabelled=100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve_prior(0.4, pu_mixture(0.3, positives=10, unlabelled=100))


def test_too_few_positives():
    data = PUData.from_arrays(np.zeros((60, 1)), np.arange(60) < 7)
    with pytest.raises(InputError, match=r"7 labelled positives are too few .* label at least 10"):
        estimate_prior(data)


def test_too_few_unlabelled():
    with pytest.raises(InputError, match="unlabelled rows are too few"):
        estimate_prior(PUData.from_arrays(np.zeros((30, 1)), np.arange(30) < 15))


def test_no_overlap_between_labelled_and_unlabelled():
    with pytest.raises(InputError, match=r"hardly any of the 400 unlabelled rows .* recorded in the same way"):
        estimate_prior(pu_mixture(0.0, positives=100, unlabelled=400, features=2, apart=30.0))


def test_nothing_separates():
    with pytest.raises(InputError, match="cannot tell labelled from unlabelled"):
        estimate_prior(pu_mixture(0.0, positives=100, unlabelled=400, features=2, apart=0.0))


def test_unknown_estimator():
    with pytest.raises(InputError, match="no estimator named 'bbbe'"):
        estimate_prior(pu_mixture(0.3), method="bbbe")  # type: ignore[arg-type]


def test_what_nothing_can_be_estimated_from():
    with pytest.raises(InputError, match="scores='network ' is unknown"):
        estimate_prior(pu_mixture(0.3), scores="network ")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"data is a ndarray: give .* PUData.from_arrays"):
        estimate_prior(np.zeros((50, 2)))  # type: ignore[arg-type]


def test_a_doubtful_estimate_says_so():
    data = pu_mixture(0.5, positives=30, unlabelled=120, features=2, apart=1.8)
    with pytest.warns(SplitPUWarning, match="uncertain"):
        assert resolve_prior("auto", data).interval is not None


def test_labels_that_depend_on_the_features():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1200, 2))
    features[:600, 0] += 5
    chance = np.exp(2.5 * features[:600, 1])
    labelled = np.zeros(1200, dtype=bool)
    labelled[rng.choice(600, 150, replace=False, p=chance / chance.sum())] = True
    with pytest.warns(SplitPUWarning, match="do not look like a random draw"):
        resolve_prior("auto", PUData.from_arrays(features, labelled))


def test_an_estimate_that_was_made_before_is_taken_with_its_interval():
    data = pu_mixture(0.3, scenario="single-training-set")
    estimate = estimate_prior(data)
    taken = resolve_prior(estimate, data)
    assert (taken.value, taken.interval, taken.source) == (estimate.value, estimate.interval, estimate.source)
    model = SplitPUClassifier(prior=estimate, rounds=0, config={"base.epochs": 2}, random_state=0)
    fitted = clone(model).fit(data.features, data.labelled.astype(int))
    assert (fitted.prior_, fitted.prior_interval_) == (estimate.value, estimate.interval)


@pytest.mark.parametrize(("share", "word"), [(0.0, "none"), (1.0, "all")])
def test_an_estimate_that_leaves_nothing_to_learn(share, word):
    """The user gave no prior, so the sentence must not tell them to raise it."""
    data = pu_mixture(0.3, scenario="single-training-set")
    estimate = estimate_prior(data)
    diagnostics = {**estimate.diagnostics, "share_of_positives_among_unlabelled": share}
    useless = replace(estimate, value=population_share(data, share), diagnostics=diagnostics)
    with pytest.raises(InputError, match=f"{word} of the .* unlabelled rows seem to be positive by the estimate"):
        resolve_prior(useless, data)


def test_prior_below_the_labelled_share():
    with pytest.raises(InputError, match="already labelled"):
        resolve_prior(0.1, pu_mixture(0.3, scenario="single-training-set"))
    with pytest.raises(InputError, match="neither 'auto' nor a number"):
        resolve_prior("much", pu_mixture(0.3))


@pytest.mark.parametrize(
    ("data", "prior", "sentence"),
    [
        (pu_mixture(0.3), 0.1, r"prior=0.1 expects .* already labelled, which leaves none to find: raise the prior"),
        (pu_mixture(0.0, positives=100, unlabelled=300, apart=30.0), "auto", "no positive left to find: check that P"),
        (pu_mixture(0.3, positives=9, unlabelled=100), "auto", r"9 labelled positives are too few .* at least 10"),
    ],
    ids=["prior below the labelled share", "no overlap", "fewer than 10 positives"],
)
def test_wrong_use_is_said_to_users_of_the_classifier(data, prior, sentence):
    with pytest.raises(InputError, match=sentence):
        SplitPUClassifier(prior=prior, random_state=0).fit(data.features, data.labelled)


def test_few_rows_that_are_kept_need_not_be_in_every_part() -> None:
    """Of few unlabelled rows nearly all may be taken for positives; the others can lie in one fold together."""
    rng = np.random.default_rng(0)
    labelled = np.arange(40) < 20
    learner = KernelLogistic.over(rng.normal(size=(40, 3)), labelled, sharpness=1.0, seed=0)
    rows, kept = np.arange(40), labelled.copy()
    kept[20] = True
    judged = learner.judge(rows, kept, rows[:5], seed=0)
    assert np.isfinite(judged.own).all() and np.isfinite(judged.asked).all()


def test_rows_that_cannot_be_written_to_are_made_small_without_a_warning() -> None:
    rows = np.arange(2 * 40 * 40, dtype=np.float32).reshape(2, 40, 40, 1)
    rows.setflags(write=False)
    torch.set_warn_always(True)  # torch would say it once a process only, perhaps in another test
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            small = _made_small(PUData(rows, np.array([True, False]), "single-training-set"), np.array([0, 1]))
    finally:
        torch.set_warn_always(False)
    assert small.features.shape == (2, 32, 32, 1)
