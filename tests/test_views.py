"""Plain, weak and vector views: exact where they can be exact; what holds for every view, and their capture."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from view_tools import CALM, image_preprocessing, random_images, seeded, vector_preprocessing

from splitpu.config.schema import ViewsConfig, WarmupConfig
from splitpu.views import Views

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
