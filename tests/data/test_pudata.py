"""`PUData` and held-out rows: who is who, what fits together, and which priors are possible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitpu.data.pudata import HeldOut, PUData, binary_truth, check_prior, labelled_mask
from splitpu.errors import InputError
from splitpu.utils import arrays as chunks

NOISE = np.random.default_rng(0)


def some_data(scenario="single-training-set", **more):
    return PUData.from_arrays(np.arange(10.0).reshape(5, 2), [0, 1, 0, 1, 0], scenario=scenario, **more)


def test_who_is_who():
    data = some_data(names="abcde", truth=[1, 1, 0, 1, 0])
    assert len(data) == 5 and data.kind == "vectors" and data.labelled_share == 0.4
    assert data.positives.tolist() == [1, 3] and data.unlabelled.tolist() == [0, 2, 4]
    assert data.population.tolist() == [0, 1, 2, 3, 4]
    assert some_data("case-control").population.tolist() == [0, 2, 4]
    assert {data.positives.dtype, data.unlabelled.dtype, data.population.dtype} == {np.dtype(np.int64)}
    assert data.names == tuple("abcde") and data.truth.tolist() == [True, True, False, True, False]
    assert PUData.from_arrays(np.zeros((3, 8, 8)), ["p", "p", "u"], positive="p").kind == "images"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"s": [1, 1, 0]}, "s has 3 entries but X has 5 rows"),
        ({"truth": [1, 0]}, "truth has 2 entries but X has 5 rows"),
        ({"names": ["a"]}, "names has 1 entries but X has 5 rows"),
        ({"s": [1, 0, 0, 0, 0]}, "s marks only 1 row .* fewer positives than a batch can use"),
        ({"scenario": "other"}, "scenario='other' is unknown: choose 'single-training-set' or 'case-control'"),
    ],
)
def test_data_that_do_not_fit_together(change, said):
    arguments = {"X": np.zeros((5, 2)), "s": [1, 1, 0, 0, 0], **change}
    with pytest.raises(InputError, match=said):
        PUData.from_arrays(**arguments)


def test_fingerprint_follows_all_that_training_sees(tiny_chunks, monkeypatch):
    X, s = NOISE.normal(size=(60, 3)).astype(np.float32), np.arange(60) < 20
    fingerprint = PUData.from_arrays(X, s).fingerprint()
    assert len(fingerprint) == 64
    assert PUData.from_arrays(X.astype(float), s.astype(int), truth=s, names=map(str, s)).fingerprint() == fingerprint
    changed = X.copy()
    changed[-1, -1] += 1
    assert PUData.from_arrays(changed, s).fingerprint() != fingerprint
    assert PUData.from_arrays(X, np.roll(s, 1)).fingerprint() != fingerprint
    assert PUData.from_arrays(X, s, scenario="case-control").fingerprint() != fingerprint
    assert PUData.from_arrays(X.reshape(60, 3, 1), s).fingerprint() != fingerprint
    monkeypatch.setattr(chunks, "VALUES_PER_CHUNK", 1)
    assert PUData.from_arrays(X, s).fingerprint() == fingerprint


@pytest.mark.parametrize("prior", [0.41, np.float32(0.5), 0.999])
def test_possible_priors(prior):
    assert check_prior(prior, some_data()) == pytest.approx(float(prior))


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (0, "prior=0 is not a share"),
        (1, "prior=1 is not a share"),
        (-0.2, "prior=-0.2 is not a share"),
        (float("nan"), "prior=nan is not a share"),
        ("0.5", "prior='0.5' is not a number"),
        (None, "prior=None is not a number"),
        (True, "prior=True is not a number"),
        (0.2, "expects 1 positives among the 5 rows, but 2 are already labelled.*scenario='case-control'"),
        (0.4, "which leaves none to find: raise the prior"),
    ],
)
def test_impossible_priors(prior, said):
    with pytest.raises(InputError, match=said):
        check_prior(prior, some_data())


def test_a_small_prior_is_fine_where_positives_were_collected_apart():
    assert check_prior(0.2, some_data("case-control")) == 0.2


def test_held_out_rows():
    held_out = HeldOut.from_arrays(np.zeros((2, 3)), [1, 1])
    assert len(held_out) == 2 and held_out.truth.all() and held_out.features.dtype == np.float32
    with pytest.raises(InputError, match="y_test has 1 entries but X_test has 2 rows"):
        HeldOut.from_arrays(np.zeros((2, 3)), [1])


@pytest.mark.parametrize(
    "labels",
    [
        [1, 0, 1],
        [1, -1, 1],
        [1.0, 0.0, 1.0],
        np.array([1, -1, 1], np.float32),
        np.array([1, 0, 1], np.uint8),
        [True, False, True],
        np.array([1, 0, 1], object),
        np.array([True, False, True], object),
    ],
)
def test_every_convention_gives_the_same_mask(labels):
    mask = labelled_mask(labels)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [True, False, True]


@given(st.lists(st.booleans(), min_size=2).filter(lambda bits: any(bits) and not all(bits)), st.sampled_from([0, -1]))
def test_a_mask_survives_any_spelling(bits, rest):
    spelt = [1 if bit else rest for bit in bits]
    assert labelled_mask(spelt).tolist() == bits
    assert labelled_mask([str(value) for value in spelt], positive="1").tolist() == bits


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([1, 0, -1], "-1, 0, 1"),
        ([1, 2], "1, 2"),
        ([0, -1], "-1, 0"),
        ([0.5, 1], "0.5, 1.0"),
        ([1, np.nan], "1.0, nan"),
        (["p", "u"], "'p', 'u'"),
        (["1", "0"], "'0', '1'"),
        (np.array([1, None], object), "None"),
        ([1, 2, 3, 4, 5, 6], "1, 2, 3, 4, 5, ..."),
    ],
)
def test_other_values_are_named_together_with_the_accepted_ones(labels, said):
    with pytest.raises(InputError, match="labels must be 1 = positive") as caught:
        labelled_mask(labels, name="my labels")
    assert str(caught.value).startswith("my labels holds the values ")
    assert said in str(caught.value)
    assert "6" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 0], "marks no row as labelled positive"),
        ([-1, -1], "marks no row as labelled positive"),
        ([1, 1, 1], "marks all 3 rows as labelled positive"),
        ([], "s is empty"),
        ([[1, 0]], r"its shape is \(1, 2\)"),
        (1, r"its shape is \(\)"),
        ([[1], [1, 0]], "not an array of labels"),
    ],
)
def test_labels_that_leave_nothing_to_learn(labels, said):
    with pytest.raises(InputError, match=said):
        labelled_mask(labels)


def test_a_named_positive_value():
    assert labelled_mask(["seen", "new", "seen"], positive="seen").tolist() == [True, False, True]
    assert labelled_mask([7, 3], positive=3).tolist() == [False, True]
    with pytest.raises(InputError, match="none of which is positive='old'"):
        labelled_mask(["seen", "new"], positive="old")
    with pytest.raises(InputError, match="may hold only two"):
        labelled_mask([1, 2, 3], positive=1)
    with pytest.raises(InputError, match="marks all 2 rows"):
        labelled_mask(["seen", "seen"], positive="seen")


def test_truth_may_lack_a_class():
    assert binary_truth([1, 1], "y_test").tolist() == [True, True]
    assert binary_truth([-1, -1], "y_test").tolist() == [False, False]
    assert binary_truth(["m", "b"], "y_test", positive="m").tolist() == [True, False]
    with pytest.raises(InputError, match="y_test holds the values 2"):
        binary_truth([2, 2], "y_test")


def test_answers_are_labels_to_learn_and_leave_p_and_u_as_they_were():
    data = PUData.from_arrays(np.arange(6.0)[:, None], [1, 1, 0, 0, 0, 0])
    told = data.answered(negatives=[0, 0, 1, 0, 0, 0], confirmed=[0, 0, 0, 1, 0, 0])
    assert told.positives.tolist() == [0, 1] and told.unlabelled.tolist() == [2, 3, 4, 5]
    assert len(told.population) == 6 and told.labelled_share == data.labelled_share
    assert told.known_positives.tolist() == [0, 1, 3] and told.known_negatives.tolist() == [2]
    assert told.labels_known.tolist() == [1, 1, -1, 1, 0, 0]
    assert told.fingerprint() != data.fingerprint()
    assert data.answered(negatives=[0] * 6).fingerprint() == data.fingerprint()  # no answer is no other data
    assert data.known_positives.tolist() == [0, 1] and data.known_negatives.tolist() == []


@pytest.mark.parametrize(
    ("negatives", "confirmed", "said"),
    [
        ([1, 0, 0, 0], None, "negatives names 1 rows that are labelled positive"),
        ([0, 0, 1, 0], [0, 0, 1, 0], "confirmed names 1 rows .* named on the other side"),
        ([0, 0, 1], None, "negatives has 3 entries but X has 4 rows"),
        ([0, 0, 1, 0], [0, 0, 0, 1], "nothing is left to find"),
    ],
)
def test_answers_that_contradict_the_labels(negatives, confirmed, said):
    data = PUData.from_arrays(np.arange(4.0)[:, None], [1, 1, 0, 0])
    with pytest.raises(InputError, match=said):
        data.answered(negatives, confirmed)


def test_labelled_mask_in_short() -> None:
    assert labelled_mask([1, -1, -1, 1]).tolist() == [True, False, False, True]
    assert labelled_mask(["seen", "unknown"], positive="seen").tolist() == [True, False]
