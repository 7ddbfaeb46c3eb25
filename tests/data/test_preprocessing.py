"""What the model file remembers of the data: statistics in chunks, and what new features must look like."""

import json

import numpy as np
import pytest

from splitpu.data.preprocessing import Preprocessing, kind_of
from splitpu.errors import InputError, ModelFileError

NOISE = np.random.default_rng(0)


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


def test_kind_of_in_short() -> None:
    assert (kind_of(np.zeros((2, 3))), kind_of(np.zeros((2, 8, 8, 1))), kind_of(np.zeros((2, 5, 8, 8, 1)))) == (
        "vectors",
        "images",
        "volumes",
    )
