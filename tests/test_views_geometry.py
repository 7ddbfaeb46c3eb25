"""Turning, zooming, enlarging a part and blurring, checked where the right answer is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional
from view_tools import CALM, image_preprocessing, random_images, seeded, unnormalised

from splitpu.augmentation import blurred, cropping, moved, one_after_the_other, turning
from splitpu.data.preprocessing import Preprocessing
from splitpu.views import Views


class TestTurning:
    """Rotation and zoom, checked where the right answer needs no interpolation."""

    IMAGES = torch.rand(3, 6, 6, 2, generator=torch.Generator().manual_seed(1))

    def turned(self, degrees: float, factor: float = 1.0, images: Tensor | None = None) -> Tensor:
        images = self.IMAGES if images is None else images
        angles, factors = (torch.full((len(images),), value) for value in (math.radians(degrees), factor))
        return moved(images, turning(angles, factors, *images.shape[1:3]))

    def test_nothing_asked_nothing_done(self) -> None:
        assert torch.allclose(self.turned(0), self.IMAGES, atol=1e-6)

    @pytest.mark.parametrize("quarters", [1, 2, 3])
    def test_quarter_turns_are_exact_and_anticlockwise(self, quarters: int) -> None:
        assert torch.allclose(self.turned(90 * quarters), self.IMAGES.rot90(quarters, dims=(1, 2)), atol=1e-5)

    def test_half_turn_of_an_oblong_image(self) -> None:
        oblong = torch.rand(2, 4, 10, 1, generator=torch.Generator().manual_seed(2))
        assert torch.allclose(self.turned(180, images=oblong), oblong.flip(1, 2), atol=1e-5)

    def test_an_oblong_image_is_not_sheared(self) -> None:
        """A round spot stays round when it is turned by 45 degrees."""
        rows, columns = torch.meshgrid(torch.arange(21.0) - 10, torch.arange(41.0) - 20, indexing="ij")
        spot = torch.exp(-(rows**2 + columns**2) / 8)[None, :, :, None]
        assert torch.allclose(self.turned(45, images=spot), spot, atol=0.07)  # interpolation alone costs up to 0.06

    def test_zooming_in_by_two_shows_the_middle(self) -> None:
        flat = torch.zeros(1, 8, 8, 1)
        flat[:, 2:6, 2:6] = 1.0
        assert self.turned(0, 2.0, flat)[:, 1:7, 1:7].min() == pytest.approx(1.0)
        assert self.turned(0, 0.5, flat).sum() == pytest.approx(4.0, rel=0.3)

    def test_every_image_has_its_own_draw_and_padding_is_the_mean(self) -> None:
        config = replace(CALM, rotation=30.0, zoom=0.2)
        preprocessing = Preprocessing("images", (6, 6, 1), 0.0, 1.0, (0.5,), (1.0,))
        views = Views(preprocessing, config, "cpu")
        same = torch.ones(4, 6, 6, 1)
        out = views.weak(same, torch.Generator().manual_seed(0))
        assert not torch.allclose(out[0], out[1])
        assert out.min() >= -1e-6  # ones become 0.5, what is outside 0
        assert out.max() <= 0.5 + 1e-6


def ones(*values: float) -> Tensor:
    return torch.tensor(values)


class TestResizedCrop:
    """Strong views that enlarge a part of the image."""

    IMAGES = torch.rand(4, 8, 8, 3, generator=seeded(3))

    def test_the_whole_image_stays_as_it_is(self) -> None:
        whole = cropping(torch.ones(4), torch.ones(4), torch.rand(4, 2, generator=seeded()))
        torch.testing.assert_close(moved(self.IMAGES, whole, beyond="border"), self.IMAGES)

    @pytest.mark.parametrize(("place", "rows", "columns"), [((-1, -1), 0, 0), ((1, -1), 0, 4), ((0, 1), 4, 2)])
    def test_a_quarter_of_the_image_is_that_quarter_enlarged(
        self, place: tuple[int, int], rows: int, columns: int
    ) -> None:
        image = self.IMAGES[:1]
        found = moved(image, cropping(ones(0.25), ones(1.0), ones(*place)[None]), beyond="border")
        part = image[:, rows : rows + 4, columns : columns + 4]
        # Each pixel of the part became four: their mean lies between it and its neighbours, weighted 9 to 3 to 3 to 1.
        padded = functional.pad(image.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate").permute(0, 2, 3, 1)
        for down in (0, 1):
            for right in (0, 1):
                beside = padded[:, rows + 2 * down :, columns + 2 * right :]
                beside_row, beside_column = (
                    padded[:, rows + 2 * down :, columns + 1 :],
                    padded[:, rows + 1 :, columns + 2 * right :],
                )
                expected = (
                    9 * part + 3 * beside_row[:, :4, :4] + 3 * beside_column[:, :4, :4] + beside[:, :4, :4]
                ) / 16
                torch.testing.assert_close(found[:, down::2, right::2], expected, atol=1e-5, rtol=1e-5)

    def test_width_and_height_share_the_area(self) -> None:
        motion = cropping(ones(0.5), ones(4 / 3), torch.zeros(1, 2))
        width, height = motion[0, 0, 0], motion[0, 1, 1]
        assert float(width * height) == pytest.approx(0.5) and float(width / height) == pytest.approx(4 / 3)

    def test_a_crop_of_a_turned_image(self) -> None:
        """One motion for both, and not far from one after the other, which interpolates twice."""
        smooth = torch.linspace(0, 1, 32)[None, :, None, None] * torch.linspace(1, 2, 32)[None, None, :, None]
        turn, crop = turning(ones(0.3), ones(1.1), 32, 32), cropping(ones(0.3), ones(1.2), ones(0.1, -0.2)[None])
        twice = moved(moved(smooth, turn), crop)
        torch.testing.assert_close(moved(smooth, one_after_the_other(turn, crop)), twice, atol=0.02, rtol=0)

    @pytest.mark.parametrize("shape", [(8, 8, 1), (12, 10, 3), (32, 32, 3)])
    def test_views_show_parts_of_the_image_and_nothing_else(self, shape: tuple[int, ...]) -> None:
        """On a ramp, every row and column of a view is a piece of the ramp, and its extent the drawn share."""
        across = torch.linspace(0, 1, shape[1]).expand(200, shape[0], shape[1])[..., None].expand(200, *shape)
        preprocessing = image_preprocessing(shape)
        raw = across / preprocessing.scale + preprocessing.offset
        config = replace(CALM, resized_crop=0.2, crop_padding=0.25)
        shown = unnormalised(Views(preprocessing, config, "cpu").strong(raw, seeded()), preprocessing)
        assert shown.min() >= -1e-5 and shown.max() <= 1 + 1e-5
        assert np.allclose(shown, shown[:, :1], atol=1e-5)  # the ramp goes across only
        extent = shown[:, 0, -1, 0] - shown[:, 0, 0, 0]
        assert (extent > 0.2 * math.sqrt(0.2)).all() and extent.std() > 0.05  # each has a draw of its own
        assert extent.max() > 0.85 and np.corrcoef(extent, shown.mean(axis=(1, 2, 3)))[0, 1] < 0.5

    def test_weak_views_are_not_resized(self) -> None:
        raw, preprocessing = random_images(6, (8, 8, 3)), image_preprocessing((8, 8, 3))
        views = [Views(preprocessing, replace(CALM, resized_crop=share), "cpu") for share in (1.0, 0.2)]
        weak = [one.weak(raw, seeded()) for one in views]
        assert torch.equal(*weak)
        assert not torch.equal(*(one.strong(raw, seeded()) for one in views))


def test_blur_matches_scipy():
    images = torch.rand(3, 20, 16, 2, generator=seeded())
    found = blurred(images, ones(0.01, 0.7, 2.0), 2.0)
    torch.testing.assert_close(found[0], images[0])
    for i, spread in ((1, 0.7), (2, 2.0)):
        sigma = (spread, spread, 0)
        expected = ndimage.gaussian_filter(images[i].numpy(), sigma, mode="nearest", radius=(6, 6, 0))
        np.testing.assert_allclose(found[i].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("side", "share"), [(32, 0.0), (64, 0.5)])
def test_only_large_images_are_blurred(side: int, share: float):
    shape = (side, side, 1)
    raw, preprocessing = random_images(100, shape), image_preprocessing(shape)
    strong = Views(preprocessing, replace(CALM, blur=0.5), "cpu").strong(raw, seeded())
    plain = Views(preprocessing, CALM, "cpu").plain(raw)
    assert abs(((strong - plain).abs().amax(dim=(1, 2, 3)) > 1e-3).double().mean() - share) < 0.2
