"""What users are told of an estimated prior: how sure it is, where it is doubtful, and why there is none."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from prior_tools import pu_mixture
from sklearn.base import clone

from splitpu import InputError, SplitPUClassifier, SplitPUWarning
from splitpu.data.pudata import PUData
from splitpu.prior.estimate import (
    NOT_ESTIMABLE,
    NOT_USED,
    QUICK,
    being_estimated,
    estimate_prior,
    population_share,
    prior_for,
    prior_in_words,
    resolve_prior,
)


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
    data = pu_mixture(0.5, positives=30, unlabelled=120, features=2, apart=1.6)
    with pytest.warns(SplitPUWarning, match="at most .* of the rows are positive"):
        assert resolve_prior("auto", data).interval is not None


def test_labels_that_depend_on_the_features():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1200, 2))
    features[:600, 0] += 5
    chance = np.exp(2.5 * features[:600, 1])
    labelled = np.zeros(1200, dtype=bool)
    labelled[rng.choice(600, 150, replace=False, p=chance / chance.sum())] = True
    with pytest.warns(SplitPUWarning, match="the labelled ones are not typical"):
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


def test_being_estimated_in_short() -> None:
    assert (
        being_estimated(PUData.from_arrays([[0.1], [0.9], [0.7]], [0, 1, 1]))
        == "prior: being estimated from the labelled and unlabelled rows"
    )


def test_prior_in_words_in_short() -> None:
    assert (prior_in_words(0.4752, (0.41, 0.54), "estimated by consensus"), prior_in_words(0.5, None, "given")) == (
        "0.4752 (95 % interval 0.41 to 0.54), estimated by consensus",
        "0.5, given",
    )
    assert (prior_in_words(None, None, NOT_ESTIMABLE), prior_in_words(None, None, NOT_USED)) == (
        "none could be estimated",
        "not given",
    )


def test_prior_for_in_short() -> None:
    data = PUData.from_arrays([[0.1], [0.2], [0.8], [0.9], [0.7]], [0, 0, 0, 1, 1])
    assert prior_for("vpu", None, data).source == "not used"


def test_resolve_prior_in_short() -> None:
    data = PUData.from_arrays([[0.1], [0.2], [0.8], [0.9], [0.7]], [0, 0, 0, 1, 1])
    assert resolve_prior(0.5, data).source == "given"
