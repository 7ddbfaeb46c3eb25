"""Embeddings: computed once, the same alone and among others, taken up again after a kill, streamed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from network_tools import encoded
from torch import Tensor, nn

from splitpu.errors import InputError
from splitpu.networks import embeddings
from splitpu.networks.embeddings import CHUNK, ViewPlan, embed, embed_chunk, volume_slices
from splitpu.networks.encoders import Encoder

IMAGES = np.random.default_rng(0).integers(0, 256, (CHUNK + 5, 16, 20, 1), dtype=np.uint8)
PLAN = ViewPlan(weak=2, strong=1)


class Corners(nn.Module):
    """Means of the four quarters of a picture: quick, and moved by every motion."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor), requires_grad=False)

    def forward(self, batch: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(batch, 2).flatten(1) * self.factor


class Means(nn.Module):
    """Means of a picture's channels."""

    def forward(self, batch: Tensor) -> Tensor:
        return batch.mean((2, 3))


def corners(factor: float = 1.0) -> Encoder:
    return Encoder("corners", Corners(factor), 16, (0.5, 0.4, 0.3), (0.25, 0.25, 0.25), 12)


def never(*_: object) -> None:
    raise AssertionError("computed again")


def test_shape_and_what_the_views_are(tmp_path: Path) -> None:
    found = embed(IMAGES, corners(), PLAN, folder=tmp_path)
    assert found.shape == (len(IMAGES), len(PLAN.names), 12) and found.dtype == np.float32
    assert np.allclose(found[:, 0], encoded(corners(), IMAGES), atol=1e-5)
    assert np.allclose(found[:, 1], encoded(corners(), IMAGES[:, :, ::-1]), atol=1e-5)
    assert len({found[0, view].tobytes() for view in range(len(PLAN.names))}) == len(PLAN.names)


def test_the_second_time_nothing_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = embed(IMAGES, corners(), PLAN, folder=tmp_path)
    monkeypatch.setattr(embeddings, "embed_chunk", never)
    assert np.array_equal(embed(IMAGES, corners(), PLAN, folder=tmp_path), first)
    more = np.concatenate([IMAGES[:CHUNK], IMAGES[:0]])
    assert np.array_equal(embed(more, corners(), PLAN, folder=tmp_path), first[:CHUNK])


@pytest.mark.parametrize("change", ["images", "encoder", "plan", "size"])
def test_anything_else_is_computed_anew(tmp_path: Path, change: str) -> None:
    first = embed(IMAGES[:3], corners(), PLAN, folder=tmp_path)
    images = 255 - IMAGES[:3] if change == "images" else IMAGES[:3]
    made = corners(2.0) if change == "encoder" else corners().at_size(8) if change == "size" else corners()
    plan = ViewPlan(weak=2, strong=1, seed=1) if change == "plan" else PLAN
    embed(images, made, plan, folder=tmp_path)
    assert len(list(tmp_path.glob("*.npy"))) == 2
    assert np.array_equal(embed(IMAGES[:3], corners(), PLAN, folder=tmp_path), first)


def test_a_picture_has_the_same_embedding_alone(tmp_path: Path) -> None:
    together = embed(IMAGES[:6], corners(), PLAN, folder=tmp_path)
    alone = embed(IMAGES[4:5], corners(), PLAN, folder=tmp_path)
    assert np.allclose(alone[0], together[4], atol=1e-5)


def test_damaged_and_half_files_are_computed_anew(tmp_path: Path) -> None:
    first = embed(IMAGES[:3], corners(), PLAN, folder=tmp_path)
    (file,) = tmp_path.glob("*.npy")
    for content in (b"", file.read_bytes()[:90], b"nothing"):
        file.write_bytes(content)
        assert np.array_equal(embed(IMAGES[:3], corners(), PLAN, folder=tmp_path), first)


def test_an_iterator_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    given, finished = [], []

    def pictures() -> Iterator[np.ndarray]:
        for number in range(3 * CHUNK):
            given.append(number)
            # No more than the chunk that is being gathered is ahead of what is finished.
            assert len(given) - (finished[-1] if finished else 0) <= CHUNK + 1
            yield IMAGES[number % len(IMAGES)]

    found = embed(pictures(), corners(), PLAN, folder=tmp_path, watch=finished.append)
    assert finished == [CHUNK, 2 * CHUNK, 3 * CHUNK] and len(found) == 3 * CHUNK


def test_pictures_of_different_sizes_and_none(tmp_path: Path) -> None:
    some = [IMAGES[0], np.repeat(IMAGES[1][:9], 3, axis=-1)]
    assert embed(some, corners(), PLAN, folder=tmp_path).shape == (2, 5, 12)
    assert embed([], corners(), PLAN, folder=tmp_path).shape == (0, 5, 12)


def test_volumes_are_pooled_over_slices_that_show_anything(tmp_path: Path) -> None:
    volume = np.stack([IMAGES[0], np.zeros_like(IMAGES[0]), IMAGES[1]])
    empty = np.zeros_like(volume)
    found = embed(np.stack([volume, empty]), corners(), PLAN, folder=tmp_path)
    slices = embed(IMAGES[:2], corners(), PLAN, folder=tmp_path)
    assert np.allclose(found[0], slices.mean(axis=0), atol=1e-5)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("images", [IMAGES.astype(np.float32), IMAGES[..., 0], np.zeros((2, 4, 4, 2), np.uint8)])
def test_what_is_no_picture_is_refused(tmp_path: Path, images: np.ndarray) -> None:
    with pytest.raises(InputError, match="give bytes of shape"):
        embed(images, corners(), PLAN, folder=tmp_path)
    with pytest.raises(InputError, match="processes=0"):
        embed(IMAGES, corners(), PLAN, folder=tmp_path, processes=0)


def test_goes_on_after_an_interruption_and_in_several_processes(tmp_path: Path) -> None:
    store = tmp_path / "store"

    def interrupted() -> Iterator[np.ndarray]:
        yield from IMAGES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(interrupted(), corners(), PLAN, folder=store)
    there = {file: file.stat().st_mtime_ns for file in store.glob("*.npy")}
    assert len(there) == 1
    found = embed(IMAGES, corners(), PLAN, folder=store, processes=2)
    assert np.array_equal(found, embed(IMAGES, corners(), PLAN, folder=tmp_path / "apart"))
    assert all(file.stat().st_mtime_ns == when for file, when in there.items())
    assert len(list(store.glob("*.npy"))) == 2


def test_viewplan_in_short() -> None:
    assert ViewPlan(weak=2, strong=1).names == ("plain", "mirrored", "weak-0", "weak-1", "strong-0")


def test_volume_slices_in_short() -> None:
    assert volume_slices(np.array([[[[0]]], [[[7]]], [[[0]]]], np.uint8)).shape == (1, 1, 1, 1)


def test_masks_are_shown_as_black_and_white(tmp_path: Path) -> None:
    mask = (np.indices((1, 32, 32, 1))[1] > 12).astype(np.uint8)
    one = corners()
    assert np.array_equal(embed(mask, one, folder=tmp_path), embed(255 * mask, one, folder=tmp_path))
    assert np.array_equal(embed_chunk(list(mask), one, ViewPlan()), embed(mask, one, folder=tmp_path))
    assert not np.array_equal(embed(2 * mask, one, folder=tmp_path), embed(mask, one, folder=tmp_path))
