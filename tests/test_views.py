"""Plain, weak and vector views: exact where they can be exact; what holds for every view, and their capture.

Turning, zooming, enlarging a part and blurring, checked where the right answer is known.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional
from view_tools import CALM, image_preprocessing, random_images, seeded, unnormalised, vector_preprocessing

from splitpu.config.schema import ViewsConfig, WarmupConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.views import Views, adjust_brightness, blurred, cropping, moved, one_after_the_other, slices_there, turning

SHAPES = [(8, 8, 1), (12, 10, 3), (9, 16, 2), (32, 32, 3), (1, 1, 3)]


# --- plain ---


@pytest.mark.parametrize("shape", SHAPES)
def test_plain_images_match_the_formula(shape):
    preprocessing = image_preprocessing(shape)
    raw = random_images(5, shape)
    expected = (raw.numpy() / 255.0 - np.array(preprocessing.mean)) / np.array(preprocessing.std)
    view = Views(preprocessing, CALM, "cpu").plain(raw)
    assert view.dtype == torch.float32
    np.testing.assert_allclose(view.numpy(), expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=2e-6)


def test_offset_and_scale_are_applied_before_mean_and_std():
    preprocessing = replace(image_preprocessing((8, 8, 1)), offset=-1.0, scale=0.5)
    raw = torch.rand((4, 8, 8, 1), generator=seeded()) * 2 - 1
    expected = ((raw.numpy() + 1) * 0.5 - preprocessing.mean[0]) / preprocessing.std[0]
    view = Views(preprocessing, CALM, "cpu").plain(raw)
    np.testing.assert_allclose(view.numpy(), expected.transpose(0, 3, 1, 2), atol=2e-6)


def test_plain_vectors_match_the_formula():
    preprocessing = vector_preprocessing(7)
    raw = torch.randn((11, 7), generator=seeded())
    expected = (raw.numpy() - np.array(preprocessing.mean)) / np.array(preprocessing.std)
    np.testing.assert_allclose(Views(preprocessing, CALM, "cpu").plain(raw).numpy(), expected, rtol=1e-5, atol=1e-6)


# --- what holds for every image view ---


@pytest.mark.parametrize("shape", SHAPES)
def test_image_views_are_float_channels_last_and_deterministic(shape):
    config = ViewsConfig(cutout=0.5)
    views = Views(image_preprocessing(shape), config, "cpu")
    raw = random_images(6, shape)
    height, width, channels = shape
    for make in (views.weak, views.strong):
        first, again, other = make(raw, seeded(3)), make(raw, seeded(3)), make(raw, seeded(4))
        assert first.shape == (6, channels, height, width)
        assert first.dtype == torch.float32
        assert first.is_contiguous(memory_format=torch.channels_last)
        assert torch.isfinite(first).all()
        assert torch.equal(first, again)
        if height > 1:
            assert not torch.equal(first, other)
    assert views.plain(raw).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("shape", [(8, 8, 1), (12, 10, 3)])
def test_bytes_and_floats_give_the_same_views(shape):
    views = Views(image_preprocessing(shape), ViewsConfig(cutout=0.3), "cpu")
    raw = random_images(6, shape)
    assert torch.equal(views.plain(raw), views.plain(raw.float()))
    assert torch.equal(views.weak(raw, seeded()), views.weak(raw.float(), seeded()))
    assert torch.equal(views.strong(raw, seeded()), views.strong(raw.float(), seeded()))


def test_the_raw_batch_is_left_alone():
    raw = random_images(4, (8, 8, 3))
    kept = raw.clone()
    Views(image_preprocessing((8, 8, 3)), ViewsConfig(cutout=0.5), "cpu").strong(raw, seeded())
    assert torch.equal(raw, kept)
    vectors = torch.randn((4, 3), generator=seeded())
    kept = vectors.clone()
    Views(vector_preprocessing(3), ViewsConfig(), "cpu").strong(vectors, seeded())
    assert torch.equal(vectors, kept)


# --- weak images ---


@pytest.mark.parametrize("shape", [(8, 8, 1), (12, 10, 3)])
@pytest.mark.parametrize("flip", [True, False])
def test_weak_images_are_shifted_or_mirrored_originals(shape, flip):
    config = replace(CALM, crop_padding=0.2, flip=flip)
    views = Views(image_preprocessing(shape), config, "cpu")
    raw = random_images(60, shape)
    plain, weak = views.plain(raw).numpy(), views.weak(raw, seeded()).numpy()
    seen = set()
    for original, view in zip(plain, weak, strict=True):
        candidates = every_shift(original, round(0.2 * shape[0]), round(0.2 * shape[1]), flip)
        matches = [key for key, candidate in candidates.items() if np.array_equal(candidate, view)]
        assert len(matches) == 1
        seen.add(matches[0])
    rows, columns, mirrored = zip(*seen, strict=True)
    assert set(rows) == set(range(2 * round(0.2 * shape[0]) + 1))
    assert set(columns) == set(range(2 * round(0.2 * shape[1]) + 1))
    assert set(mirrored) == ({False, True} if flip else {False})


def every_shift(
    image: np.ndarray, row_padding: int, column_padding: int, flip: bool
) -> dict[tuple[int, int, bool], np.ndarray]:
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (row_padding, row_padding), (column_padding, column_padding)))
    found = {}
    for row in range(2 * row_padding + 1):
        for column in range(2 * column_padding + 1):
            crop = padded[:, row : row + height, column : column + width]
            found[row, column, False] = crop
            if flip:
                found[row, column, True] = crop[:, :, ::-1]
    return found


def test_flip_alone_mirrors_about_half():
    views = Views(image_preprocessing((4, 4, 1)), replace(CALM, flip=True), "cpu")
    raw = random_images(2000, (4, 4, 1))
    mirrored = (views.weak(raw, seeded()) == views.plain(raw).flip(3)).flatten(1).all(dim=1)
    kept = (views.weak(raw, seeded()) == views.plain(raw)).flatten(1).all(dim=1)
    assert torch.all(mirrored | kept)
    assert 0.45 < mirrored.float().mean() < 0.55


def test_padding_never_hides_the_whole_image():
    shape = (3, 3, 1)
    views = Views(image_preprocessing(shape), replace(CALM, crop_padding=1.0), "cpu")
    white = torch.full((300, *shape), 255, dtype=torch.uint8)
    assert torch.all(views.weak(white, seeded()).flatten(1).amax(dim=1) > 0)


# --- vectors ---


def test_vector_noise_has_the_wanted_spread():
    preprocessing = vector_preprocessing(20)
    views = Views(preprocessing, replace(CALM, noise=0.3), "cpu")
    raw = torch.randn((2000, 20), generator=seeded())
    noise = views.weak(raw, seeded(1)) - views.plain(raw)
    assert noise.std().item() == pytest.approx(0.3, rel=0.02)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.01)


def test_vector_dropout_blanks_the_wanted_share():
    views = Views(vector_preprocessing(20), replace(CALM, noise=0.2, dropout=0.15), "cpu")
    raw = torch.randn((2000, 20), generator=seeded())
    weak, strong = views.weak(raw, seeded(1)), views.strong(raw, seeded(1))
    dropped = strong == 0
    assert dropped.float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert torch.equal(strong[~dropped], weak[~dropped])
    assert dropped.float().mean(dim=0).std() < 0.02


# --- capture ---


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(32, 32, 3), (8, 8, 1), (64, 64, 3), (20,)])
@pytest.mark.parametrize("config", [ViewsConfig(cutout=0.5), replace(WarmupConfig().views, rotation=10.0)])
def test_views_can_be_captured_in_a_cuda_graph(shape, config):
    preprocessing = vector_preprocessing(20) if len(shape) == 1 else image_preprocessing(shape)
    raw = (torch.randn((64, 20)) if len(shape) == 1 else random_images(64, shape)).cuda()
    views = Views(preprocessing, config, "cuda")

    def both(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return views.weak(raw, generator), views.strong(raw, generator)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both(torch.Generator("cuda"))
    torch.cuda.current_stream().wait_stream(stream)
    generator = torch.Generator("cuda").manual_seed(5)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        captured = both(generator)
    for seed in (5, 6):
        generator.manual_seed(seed)
        graph.replay()
        expected = both(torch.Generator("cuda").manual_seed(seed))
        for ours, theirs in zip(captured, expected, strict=True):
            assert torch.equal(ours, theirs)


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


def test_adjust_brightness_in_short() -> None:
    assert torch.allclose(
        adjust_brightness(torch.tensor([0.2, 0.8]), torch.tensor(1.5)), torch.tensor([0.3000, 1.0000]), atol=1e-4
    )


def test_slices_there_in_short() -> None:
    assert torch.equal(slices_there(torch.tensor([[[[[0]], [[7]]], [[[0]], [[0]]]]])), torch.tensor([[True, False]]))
