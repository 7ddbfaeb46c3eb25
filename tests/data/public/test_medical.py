"""Sets that are read from files the user has: which samples are taken, and what is said where the file is not right."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import run_cli

from splitpu.data.public.datasets import load_named
from splitpu.data.public.medical import drawn_parts, local_file, why_missing
from splitpu.data.public.named_set import make_pu
from splitpu.errors import InputError

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of the right form with tiny pictures, each of which shows its own number in the file."""
    (tmp_path / "medmnist").mkdir()
    groups = ["benign"] * 437 + ["malignant"] * 210 + ["normal"] * 133
    numbers = [*range(1, 438), *range(1, 211), *range(1, 134)]
    names = [f"{group} ({number}).png" for group, number in zip(groups, numbers, strict=True)]
    pictures = np.zeros((780, 4, 4), np.uint8)
    pictures[:, :2, :2] = (np.arange(780) // 256)[:, None, None]
    pictures[:, 2:, 2:] = (np.arange(780) % 256)[:, None, None]
    np.savez(tmp_path / "busi780_224.npz", images=pictures, group=np.array(groups), name=np.array(names))
    for file, shape, sizes in (("breastmnist", (4, 4), (546, 156)), ("adrenalmnist3d_64", (4, 4, 4), (1188, 298))):
        arrays = {}
        for part, size in zip(("train", "test"), sizes, strict=True):
            arrays[f"{part}_images"] = np.ones((size, *shape), np.uint8)
            arrays[f"{part}_labels"] = (np.arange(size) % 4 == 0).astype(np.uint8)[:, None]
        np.savez(tmp_path / "medmnist" / f"{file}.npz", **arrays)
    return tmp_path


def busi_numbers(pictures: np.ndarray) -> list[int]:
    found: list[int] = (pictures[:, 0, 0, 0].astype(int) * 256 + pictures[:, 1, 1, 0]).tolist()
    return found


def test_busi_has_the_papers_counts_and_neither_of_the_equal_pictures(folder: Path) -> None:
    busi = load_named("busi", folder=folder)
    assert busi.features_train.shape == (395, 2, 2, 1) and busi.features_test.shape == (112, 2, 2, 1)
    assert (busi.truth_train.sum(), busi.truth_test.sum()) == (231, 65)
    train, test = busi_numbers(busi.features_train), busi_numbers(busi.features_test)
    assert len({*train, *test}) == 395 + 112 and not {432, 437 + 144} & {*train, *test}
    assert [number < 437 for number in train] == busi.truth_train.tolist()
    assert busi_numbers(load_named("busi", folder=folder).features_train) == train
    data, _ = make_pu(busi, 40, seed=0)
    assert len(data.positives) == 40


def test_adrenal_is_a_series_of_slices_with_the_papers_counts(folder: Path) -> None:
    adrenal = load_named("adrenal", folder=folder)
    assert adrenal.features_train.shape == (259, 2, 4, 4, 1) and adrenal.features_test.shape == (100, 2, 4, 4, 1)
    assert (adrenal.truth_train.sum(), adrenal.truth_test.sum()) == (145, 35)


def test_breastmnist_counts_label_0_as_positive(folder: Path) -> None:
    breast = load_named("breastmnist", folder=folder)
    assert breast.features_train.shape == (546, 4, 4, 1) and breast.truth_train.tolist()[:5] == [0, 1, 1, 1, 0]


def test_files_are_found_where_the_user_says(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("SPLITPU_DATA", str(folder))
    assert local_file("busi") == folder / "busi780_224.npz"
    listed = {one["name"]: one["state"] for one in json.loads(run_cli(capsys, "data", "list", "--json")[1])["sets"]}
    assert listed["busi"] == f"read from {folder / 'busi780_224.npz'}"
    assert local_file("busi", folder / "elsewhere") is None
    with pytest.raises(InputError, match=r"needs the file busi780_224\.npz, which is not in"):
        load_named("busi", folder=folder / "elsewhere")


def test_files_are_looked_for_nowhere_else(tmp_path: Path) -> None:
    assert local_file("busi", cache=tmp_path) is None
    missing = why_missing("busi", cache=tmp_path)
    assert missing and "which is not in $SPLITPU_DATA or the cache; give its folder with --data-dir" in missing


def test_a_file_that_is_not_right(folder: Path) -> None:
    np.savez(folder / "busi780_224.npz", images=np.zeros((3, 4, 4), np.uint8))
    with pytest.raises(InputError, match="has no array 'group'"):
        load_named("busi", folder=folder)
    few = {
        "images": np.zeros((3, 4, 4), np.uint8),
        "group": np.array(["benign"] * 3),
        "name": np.array(["a", "b", "c"]),
    }
    np.savez(folder / "busi780_224.npz", **few)
    with pytest.raises(InputError, match="too few samples for its train part"):
        load_named("busi", folder=folder)
    (folder / "busi780_224.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"busi780_224\.npz"):
        load_named("busi", folder=folder)


def test_drawn_parts_in_short() -> None:
    parts = drawn_parts(np.arange(5), np.arange(5, 9), {"train": (3, 2), "test": (2, 1)})
    assert ([len(rows) for rows in parts.values()], len(set(np.concatenate(list(parts.values())).tolist()))) == (
        [5, 3],
        8,
    )
