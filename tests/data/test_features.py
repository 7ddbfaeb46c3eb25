"""Features as users give them: in one layout, named where they are wrong, and never copied without need."""

import numpy as np
import pytest
import torch

from splitpu.data.features import canonical_features, rows_in_words
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.errors import InputError, SplitPUWarning

NOISE = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float64, np.bool_, ">f4"])
def test_vectors_become_float32(dtype):
    given = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    features = canonical_features(given)
    assert features.dtype == np.float32 and features.flags.c_contiguous
    np.testing.assert_array_equal(features, given.astype(float))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 8, 9), (2, 8, 9, 1)),
        ((2, 8, 9, 3), (2, 8, 9, 3)),
        ((2, 3, 8, 9), (2, 8, 9, 3)),
        ((2, 1, 8, 9), (2, 8, 9, 1)),
        ((2, 8, 9, 4), (2, 8, 9, 4)),
    ],
)
@pytest.mark.parametrize(("dtype", "kept"), [(np.uint8, np.uint8), (np.float64, np.float32), (np.int32, np.float32)])
def test_image_layouts(shape, expected, dtype, kept):
    given = NOISE.integers(0, 255, shape).astype(dtype)
    features = canonical_features(given)
    assert features.shape == expected and features.dtype == kept and features.flags.c_contiguous
    arranged = given[..., None] if given.ndim == 3 else given.transpose(0, 2, 3, 1) if shape != expected else given
    np.testing.assert_array_equal(features, arranged)


@pytest.mark.parametrize("shape", [(2, 3, 8, 3), (2, 8, 8, 8), (2, 2, 8, 8)])
def test_unclear_channels_must_be_said(shape):
    images = np.zeros(shape, np.uint8)
    with pytest.raises(InputError, match=r"pass images as \(n, H, W, C\)"):
        canonical_features(images)
    assert canonical_features(images, channels="last").shape == shape
    assert canonical_features(images, channels="first").shape == (shape[0], shape[2], shape[3], shape[1])
    with pytest.raises(InputError, match="channels='middle' is unknown"):
        canonical_features(images, channels="middle")


@pytest.mark.parametrize(
    "ready",
    [np.zeros((3, 6, 6, 3), np.uint8), np.zeros((3, 6, 6, 3), np.float32), np.zeros((3, 4), np.float32)],
)
def test_ready_arrays_are_not_copied(ready):
    assert np.shares_memory(canonical_features(ready), ready)


@pytest.mark.parametrize("shape", [(5, 6, 6, 3), (5, 3, 6, 6), (5, 6, 6)])
def test_memory_maps_stay_on_disk(tmp_path, shape):
    np.save(tmp_path / "images.npy", NOISE.integers(0, 255, shape).astype(np.uint8))
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    features = canonical_features(mapped)
    assert isinstance(features, np.memmap) and np.shares_memory(features, mapped)
    assert np.shares_memory(PUData.from_arrays(mapped, [1, 1, 0, 0, 0]).features, mapped)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_named(tiny_chunks, dtype, value):
    rows = np.zeros((40, 10), dtype)
    rows[[3, 17, 18, 20, 21, 39], 4] = value
    with pytest.raises(InputError, match=r"X_test holds NaN.* in 6 of 40 rows \(row 3, 17, 18, 20, 21, \.\.\.\)"):
        canonical_features(rows, "X_test")


def test_values_beyond_float32_are_refused():
    with pytest.raises(InputError, match=r"in 1 of 2 rows \(row 1\)"):
        canonical_features(np.array([[1.0], [1e300]]))


@pytest.mark.parametrize("dtype", [np.float64, np.int64, ">f8"])
def test_numbers_far_from_nought_keep_their_differences(tiny_chunks, dtype):
    times = (1.7e9 + NOISE.normal(size=(100, 1)) * 3600).astype(dtype)
    features = canonical_features(np.hstack([NOISE.integers(0, 9, (100, 2)).astype(dtype), times]))
    assert features.dtype == np.float64 and np.array_equal(features[:, 2:], times)
    assert canonical_features(times - times.mean().astype(dtype)).dtype == np.float32
    assert canonical_features(np.repeat(times[:1], 5, axis=0)).dtype == np.float32  # no differences to keep
    assert canonical_features(times[:1], double=True).dtype == np.float64
    assert canonical_features(times.astype(np.float32), double=True).dtype == np.float32


def test_a_memory_map_of_such_numbers_is_not_copied(tmp_path):
    np.save(tmp_path / "times.npy", 1.7e9 + NOISE.normal(size=(50, 2)))
    mapped = np.load(tmp_path / "times.npy", mmap_mode="r")
    assert canonical_features(mapped) is mapped


def test_rows_without_the_digits_the_model_needs_are_warned_of():
    precise = Preprocessing.fit(1e9 + NOISE.random((30, 2)))
    precise.check(np.full((1, 2), 1e9))
    with pytest.warns(SplitPUWarning, match="X comes as float32.*float64"):
        precise.check(np.full((1, 2), 1e9, np.float32))


def test_tensors_may_wait_for_gradients_and_have_few_digits():
    rows = torch.full((3, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)
    assert np.array_equal(canonical_features(rows), np.full((3, 2), 0.5, np.float32))
    with pytest.raises(InputError, match="X is not an array of numbers"):
        canonical_features(rows.detach().to_sparse())


class Sparse:
    def toarray(self):
        return np.zeros((2, 2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([["a"], ["b"]], "dtype <U1"),
        (np.array([[1], [None]], object), "dtype object"),
        (np.zeros((2, 2), complex), "Complex data not supported"),
        (np.zeros((0, 3)), "X has no rows"),
        (np.zeros((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required"),
        (np.zeros(3), r"X has the shape \(3,\)"),
        (np.zeros((2, 2, 2, 2, 2)), r"X has the shape \(2, 2, 2, 2, 2\)"),
        ([[1], [1, 2]], "not an array of numbers"),
        (Sparse(), "sparse matrix"),
        (np.ma.masked_array([[1.0], [2.0]], [[True], [False]]), "masked entries"),
    ],
)
def test_what_cannot_be_features(given, said):
    with pytest.raises(InputError, match=said):
        canonical_features(given)


def test_rows_in_words_in_short() -> None:
    assert rows_in_words(np.array([3, 5]), 9) == "2 of 9 rows (row 3, 5)"


def test_canonical_features_in_short() -> None:
    assert canonical_features(np.zeros((5, 3, 8, 8), np.uint8)).shape == (5, 8, 8, 3)
