"""Strong views of images: colours against independent references, shares of the images, blank squares."""

import colorsys
from dataclasses import replace

import numpy as np
import pytest
import torch
from view_tools import CALM, image_preprocessing, random_images, seeded, unnormalised, vector_preprocessing

from splitpu.config.schema import ViewsConfig
from splitpu.views import Views, adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation

# --- strong images ---


def test_strong_without_strength_is_weak():
    weak_only = replace(CALM, crop_padding=0.125, flip=True)
    for shape in [(8, 8, 1), (32, 32, 3)]:
        views = Views(image_preprocessing(shape), weak_only, "cpu")
        raw = random_images(9, shape)
        assert torch.equal(views.strong(raw, seeded()), views.weak(raw, seeded()))
    vectors = torch.randn((9, 5), generator=seeded())
    views = Views(vector_preprocessing(5), replace(CALM, noise=0.3), "cpu")
    assert torch.equal(views.strong(vectors, seeded()), views.weak(vectors, seeded()))


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_strong_pixels_stay_between_black_and_white(channels):
    preprocessing = image_preprocessing((8, 8, channels))
    config = ViewsConfig(brightness=1.0, contrast=1.0, saturation=1.0, hue=0.5)
    view = Views(preprocessing, config, "cpu").strong(random_images(200, (8, 8, channels)), seeded())
    pixels = unnormalised(view, preprocessing)
    assert pixels.min() > -1e-6
    assert pixels.max() < 1 + 1e-6


def test_every_image_has_its_own_colours():
    views = Views(image_preprocessing((8, 8, 3)), replace(CALM, brightness=0.4, hue=0.1), "cpu")
    raw = random_images(1, (8, 8, 3)).expand(50, -1, -1, -1)
    assert len({image.numpy().tobytes() for image in views.strong(raw, seeded())}) == 50


def test_a_grey_image_has_no_colour_to_change():
    shape = (8, 8, 3)
    raw = random_images(20, (8, 8, 1)).expand(20, *shape)
    views = Views(image_preprocessing(shape), replace(CALM, saturation=0.9, hue=0.5), "cpu")
    torch.testing.assert_close(views.strong(raw, seeded()), views.plain(raw), rtol=0, atol=3e-6)


def test_one_channel_jitter_is_brightness_then_contrast():
    preprocessing = image_preprocessing((8, 8, 1))
    config = replace(CALM, brightness=0.4, contrast=0.3, saturation=0.9, hue=0.4)
    raw = random_images(6, (8, 8, 1))
    draws = torch.rand((6, 2), generator=seeded()).numpy().astype(np.float64)
    expected = raw.numpy() / 255.0
    for image, (bright, contrast) in zip(expected, draws, strict=True):
        image[:] = np.clip(image * (0.6 + 0.8 * bright), 0, 1)
        image[:] = np.clip((image - image.mean()) * (0.7 + 0.6 * contrast) + image.mean(), 0, 1)
    view = Views(preprocessing, config, "cpu").strong(raw, seeded())
    np.testing.assert_allclose(unnormalised(view, preprocessing), expected, atol=1e-6)


def test_padding_stays_blank_and_out_of_the_contrast():
    shape = (8, 8, 1)
    even = torch.full((40, *shape), 200, dtype=torch.uint8)
    views = Views(image_preprocessing(shape), replace(CALM, crop_padding=0.25, contrast=0.9), "cpu")
    weak, strong = views.weak(even, seeded()), views.strong(even, seeded())
    assert torch.equal(weak == 0, strong == 0)
    assert (weak == 0).any()
    torch.testing.assert_close(strong, weak, rtol=0, atol=3e-6)  # an even image has no contrast to stretch


@pytest.mark.parametrize("shape", [(8, 8, 1), (16, 12, 3)])
def test_cutout_blanks_one_square_clipped_at_the_border(shape):
    views = Views(image_preprocessing(shape), replace(CALM, cutout=0.5), "cpu")
    white = torch.full((300, *shape), 255, dtype=torch.uint8)
    blank = views.strong(white, seeded()).numpy() == 0
    side = round(0.5 * min(shape[:2]))
    areas = set()
    for image in blank:
        assert (image == image[0]).all()
        rows, columns = np.nonzero(image.any(axis=(0, 2)))[0], np.nonzero(image.any(axis=(0, 1)))[0]
        assert image[0][rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()
        assert len(rows) == rows.max() - rows.min() + 1 <= side
        assert len(columns) == columns.max() - columns.min() + 1 <= side
        assert min(len(rows), len(columns)) >= side // 2
        areas.add(int(image[0].sum()))
    assert max(areas) == side * side
    assert len(areas) > 1
    assert not (views.weak(white, seeded()).numpy() == 0).any()


def test_a_share_of_the_images_keeps_its_colours():
    raw, preprocessing = random_images(400, (6, 6, 3)), image_preprocessing((6, 6, 3))
    config = replace(CALM, brightness=0.4, hue=0.1, jitter=0.25)
    plain = unnormalised(Views(preprocessing, CALM, "cpu").plain(raw), preprocessing)
    strong = unnormalised(Views(preprocessing, config, "cpu").strong(raw, seeded()), preprocessing)
    changed = np.abs(strong - plain).max(axis=(1, 2, 3)) > 1e-3
    assert 0.18 < changed.mean() < 0.32


def test_a_share_of_the_images_loses_its_colours():
    raw, preprocessing = random_images(400, (6, 6, 3)), image_preprocessing((6, 6, 3))
    strong = unnormalised(Views(preprocessing, replace(CALM, grey=0.25), "cpu").strong(raw, seeded()), preprocessing)
    plain = unnormalised(Views(preprocessing, CALM, "cpu").plain(raw), preprocessing)
    grey = np.ptp(strong, axis=3).max(axis=(1, 2)) < 1e-5
    assert 0.18 < grey.mean() < 0.32
    np.testing.assert_allclose(strong[grey, ..., 0], plain[grey] @ np.array([0.299, 0.587, 0.114]), atol=1e-5)
    np.testing.assert_allclose(strong[~grey], plain[~grey], atol=1e-5)


# --- colour, as pure functions ---


def random_colours(count: int = 500, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    colours = torch.rand((count, 2, 3, 3), generator=seeded(), dtype=torch.float64)
    colours[: count // 4] = (colours[: count // 4] * 4).round() / 4  # ties between channels, black, white, greys
    return colours.to(dtype)


def test_brightness_contrast_and_saturation_match_numpy():
    image = random_colours()
    factor = torch.rand((len(image), 1, 1, 1), generator=seeded(1)) * 2
    pixels, by = image.numpy().astype(np.float64), factor.numpy().astype(np.float64)
    grey = (pixels @ np.array([0.299, 0.587, 0.114]))[..., None]
    centre = grey.mean(axis=(1, 2), keepdims=True)
    expectations = {
        adjust_brightness: pixels * by,
        adjust_contrast: centre + (pixels - centre) * by,
        adjust_saturation: grey + (pixels - grey) * by,
    }
    for adjust, expected in expectations.items():
        np.testing.assert_allclose(adjust(image, factor).numpy(), np.clip(expected, 0, 1), atol=1e-6)


def test_factor_one_changes_nothing():
    image, one = random_colours(), torch.ones(())
    for adjust in (adjust_brightness, adjust_contrast, adjust_saturation):
        assert torch.equal(adjust(image, one), image)


@pytest.mark.parametrize("shift", [0.0, 1.0, -2.0])
def test_hue_turned_to_where_it_was_is_the_identity(shift):
    image = random_colours()
    turned = adjust_hue(image, torch.tensor(shift))
    torch.testing.assert_close(turned, image, rtol=0, atol=1e-6 if shift == 0 else 2e-6)


def test_hue_matches_colorsys():
    image = random_colours(200, torch.float64)
    shifts = torch.rand((len(image),), generator=seeded(1), dtype=torch.float64) - 0.5
    turned = adjust_hue(image, shifts[:, None, None])
    for pixels, results, shift in zip(image, turned, shifts.tolist(), strict=True):
        for pixel, result in zip(pixels.reshape(-1, 3).tolist(), results.reshape(-1, 3).tolist(), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
            expected = colorsys.hsv_to_rgb((hue + shift) % 1.0, saturation, value)
            assert result == pytest.approx(expected, abs=1e-9)


def test_strong_colours_match_the_reference_end_to_end():
    preprocessing = image_preprocessing((6, 6, 3))
    config = replace(CALM, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
    raw = random_images(5, (6, 6, 3))
    draws = torch.rand((5, 4), generator=seeded()).numpy().astype(np.float64)
    expected = raw.numpy() / 255.0
    grey_weights = np.array([0.299, 0.587, 0.114])
    for image, draw in zip(expected, draws, strict=True):
        bright, contrast, saturation = 0.6 + 0.8 * draw[:3]
        image[:] = np.clip(image * bright, 0, 1)
        centre = (image @ grey_weights).mean()
        image[:] = np.clip(centre + (image - centre) * contrast, 0, 1)
        grey = (image @ grey_weights)[..., None]
        image[:] = np.clip(grey + (image - grey) * saturation, 0, 1)
        for pixel in image.reshape(-1, 3):
            hue, colour, value = colorsys.rgb_to_hsv(*pixel)
            pixel[:] = colorsys.hsv_to_rgb((hue - 0.1 + 0.2 * draw[3]) % 1.0, colour, value)
    view = Views(preprocessing, config, "cpu").strong(raw, seeded())
    np.testing.assert_allclose(unnormalised(view, preprocessing), expected, atol=3e-6)
