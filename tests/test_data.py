import json

import numpy as np
import pytest
import torch

from splitpu.data import (
    HeldOut,
    Preprocessing,
    PUData,
    canonical_features,
    check_prior,
    chunks,
)
from splitpu.errors import InputError, ModelFileError, SplitPUWarning

NOISE = np.random.default_rng(0)


@pytest.fixture
def tiny_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "VALUES_PER_CHUNK", 50)


# --- canonical_features ------------------------------------------------------------------------------------------


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


# --- PUData ------------------------------------------------------------------------------------------------------


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


# --- Preprocessing -----------------------------------------------------------------------------------------------


def test_vector_statistics_match_numpy_in_chunks(tiny_chunks):
    rows = (NOISE.normal(size=(200, 3)) * [1, 100, 1e-3] + [0, 1e4, 5]).astype(np.float32)
    fitted = Preprocessing.fit(rows)
    assert (fitted.kind, fitted.shape, fitted.offset, fitted.scale) == ("vectors", (3,), 0, 1)
    np.testing.assert_allclose(fitted.mean, rows.astype(float).mean(0), rtol=1e-12)
    np.testing.assert_allclose(fitted.std, rows.astype(float).std(0), rtol=1e-9)


@pytest.mark.parametrize(
    ("images", "offset", "scale"),
    [
        (NOISE.integers(0, 255, (30, 4, 5, 3)).astype(np.uint8), 0, 1 / 255),
        (NOISE.uniform(size=(30, 4, 5, 3)).astype(np.float32), 0, 1),
        ((NOISE.uniform(size=(30, 4, 5, 1)) * 8 - 4).astype(np.float32), None, None),
    ],
)
def test_image_statistics_match_numpy_in_chunks(tiny_chunks, images, offset, scale):
    fitted = Preprocessing.fit(images)
    if offset is None:
        offset, scale = images.min(), 1 / (float(images.max()) - float(images.min()))
    assert fitted.kind == "images" and fitted.shape == images.shape[1:]
    assert fitted.offset == pytest.approx(offset) and fitted.scale == pytest.approx(scale)
    unit = (images.astype(float) - fitted.offset) * fitted.scale
    assert unit.min() >= 0 and unit.max() <= 1 + 1e-12
    np.testing.assert_allclose(fitted.mean, unit.mean((0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(fitted.std, unit.std((0, 1, 2)), rtol=1e-9)


def test_bytes_are_counted_exactly():
    # Nearly all at 255 in nearly a thousand rows: a sum that loses a one anywhere gives another deviation.
    images = np.full((997, 2, 3, 2), 255, np.uint8)
    images[5, 1, 2, 0], images[990, 0, 0, 1] = 254, 0
    fitted, count = Preprocessing.fit(images), 997 * 6
    expected = [((1 / count) * (1 - 1 / count)) ** 0.5 * step / 255 for step in (1, 255)]
    np.testing.assert_allclose(fitted.std, expected, rtol=1e-14)
    assert fitted.mean == tuple((255 * count - step) / count * (1 / 255) for step in (1, 255))


def test_what_never_varies_is_not_divided_by_nothing():
    assert Preprocessing.fit(np.full((1000, 2), 0.1, np.float32)).std == (1, 1)
    assert Preprocessing.fit(np.full((3, 4, 4, 1), 7, np.uint8)).std == (1,)
    constant = Preprocessing.fit(np.full((3, 4, 4, 1), 7, np.float32))
    assert (constant.offset, constant.scale, constant.mean, constant.std) == (7, 1, (0,), (1,))


def test_what_varies_less_than_float32_can_divide_by_counts_as_constant():
    features = np.zeros((9, 2), np.float32)
    features[0] = 1e-40, 1e-30
    fitted = Preprocessing.fit(features)
    assert fitted.std[0] == 1 and fitted.std[1] == pytest.approx(features[:, 1].std(dtype=np.float64))


def test_preprocessing_survives_json():
    fitted = Preprocessing.fit(NOISE.integers(0, 255, (30, 4, 5, 3)).astype(np.uint8))
    assert Preprocessing.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted
    assert "double" not in fitted.to_dict()  # so that files of the usual kind stay as they were
    precise = Preprocessing.fit(1e9 + NOISE.random((30, 2)))
    assert Preprocessing.from_dict(json.loads(json.dumps(precise.to_dict()))) == precise and precise.double


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "sounds"},
        {"kind": "vectors"},
        {"kind": ["images"]},
        {"shape": [4, 5]},
        {"shape": [4, 5, 0]},
        {"shape": [4, 5.0, 3]},
        {"shape": None},
        {"mean": [0.0]},
        {"mean": "abc"},
        {"std": [1.0, 0.0, 1.0]},
        {"std": [1.0, float("nan"), 1.0]},
        {"scale": 0.0},
        {"offset": float("inf")},
        {"offset": None},
    ],
)
def test_nonsense_in_a_model_file(change):
    stored = Preprocessing.fit(np.eye(60, dtype=np.float32).reshape(60, 4, 5, 3)).to_dict()
    with pytest.raises(ModelFileError, match="the stored preprocessing"):
        Preprocessing.from_dict({**stored, **change})
    for key in stored:
        with pytest.raises(ModelFileError, match=key):
            Preprocessing.from_dict({name: value for name, value in stored.items() if name != key})


def test_new_features_must_look_like_the_old_ones():
    vectors = Preprocessing.fit(np.eye(3, dtype=np.float32))
    vectors.check(np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match=r"new holds vectors of shape \(4,\).*trained on vectors of shape \(3,\)"):
        vectors.check(np.zeros((1, 4), np.float32), "new")
    with pytest.raises(InputError, match=r"images of shape \(3, 3, 1\), but .* vectors of shape \(3,\)"):
        vectors.check(np.zeros((1, 3, 3, 1), np.float32))


def test_new_images_must_be_on_the_scale_of_the_old_ones():
    bright = np.full((1, 2, 2, 1), 200)
    on_bytes = Preprocessing.fit(NOISE.integers(0, 255, (9, 2, 2, 1)).astype(np.uint8))
    on_unit = Preprocessing.fit(NOISE.uniform(size=(9, 2, 2, 1)).astype(np.float32))
    for image in (bright.astype(np.uint8), bright.astype(np.float32), np.zeros((1, 2, 2, 1), np.float32)):
        on_bytes.check(image)
    on_unit.check((bright / 255).astype(np.float32))
    with pytest.raises(InputError, match=r"X has no value above 0.78.*values from 0 to 255: rescale"):
        on_bytes.check((bright / 255).astype(np.float32))
    with pytest.raises(InputError, match="values from 0 to 1: rescale"):
        on_unit.check(bright.astype(np.uint8))


def test_images_of_sixteen_bits_and_of_bytes_are_not_mixed_up():
    deep = np.random.default_rng(0).integers(0, 60000, (6, 4, 4, 1)).astype(np.float32)
    fitted = Preprocessing.fit(deep)
    for image in (deep, deep * 0, deep % 2):  # some images are black, or nearly so
        fitted.check(image)
    with pytest.raises(InputError, match=r"new.npy holds bytes.*from \d+ to \d+: rescale .*give them as float32"):
        fitted.check((deep // 257).astype(np.uint8), "new.npy")
    with pytest.raises(InputError, match=r"X has no value above 0\.\d+, but .*: rescale the images$"):
        fitted.check(deep / 60001)
    fitted.check((deep // 257).astype(np.uint8).astype(np.float32))  # as the sentence says
