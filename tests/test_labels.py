import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitpu.data.pudata import binary_truth, labelled_mask
from splitpu.errors import InputError


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
