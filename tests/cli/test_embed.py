"""`splitpu embed`: vectors of images and volumes, with the names of their rows, by a tiny encoder of random weights."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from network_tools import TINY as NAME
from network_tools import with_tiny_encoder

from splitpu.cli import main
from splitpu.networks import embeddings
from splitpu.networks.embeddings import ViewPlan, embed
from splitpu.networks.encoders import encoder

IMAGES = np.random.default_rng(0).integers(0, 256, (9, 16, 20, 3), dtype=np.uint8)
WIDTH = 32


@pytest.fixture(autouse=True)
def timm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_tiny_encoder(monkeypatch, tmp_path / "cache")


def asked(*words: object) -> int:
    return main(["embed", *map(str, words), "--backbone", NAME])


def names_of(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [line["name"] for line in csv.DictReader(file)]


def by_the_library(images: np.ndarray, folder: Path) -> np.ndarray:
    return embed(images, encoder(NAME), ViewPlan(), folder=folder)


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    image = pytest.importorskip("PIL.Image")
    for number, picture in enumerate(IMAGES):
        folder = tmp_path / ("p" if number < 4 else "u")
        folder.mkdir(exist_ok=True)
        image.fromarray(picture).save(folder / f"{number}.png")
    return [tmp_path / "p", tmp_path / "u"]


def test_folders_become_rows_that_can_be_found(folders: list[Path], tmp_path: Path) -> None:
    (folders[1] / "broken.txt").write_text("no image")
    assert asked(*folders, "--out", tmp_path / "x.npy") == 0
    found, names = np.load(tmp_path / "x.npy"), names_of(tmp_path / "x.names.csv")
    assert found.shape == (9, WIDTH) and found.dtype == np.float32
    assert [Path(name).stem for name in names] == [str(number) for number in range(9)]
    assert np.allclose(found, by_the_library(IMAGES, tmp_path / "other").mean(axis=1), atol=1e-6)


def test_the_second_time_and_fit_find_what_is_there(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(*folders, "--out", tmp_path / "x.npy") == 0
    embeddings._remembered.clear()
    monkeypatch.setattr(embeddings, "_embedded", None)  # to compute one would fail
    assert asked(*folders, "--out", tmp_path / "again.npy") == 0
    assert (tmp_path / "again.npy").read_bytes() == (tmp_path / "x.npy").read_bytes()
    words = ["--positives", str(folders[0]), "--unlabelled", str(folders[1]), "--prior", "0.6", "--backbone", NAME]
    assert main(["fit", *words, "--out", str(tmp_path / "run"), "--quiet"]) == 0


def test_arrays_other_forms_and_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", X=IMAGES, names=np.array([f"case {number}" for number in range(9)]))
    assert asked(tmp_path / "in.npz", "--out", tmp_path / "x.npz", "--each", "view", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    with np.load(tmp_path / "x.npz") as found:
        assert found["X"].shape == (9, 5, WIDTH) == tuple(facts["shape"]) and found["names"][3] == "case 3"
        assert np.allclose(found["X"], by_the_library(IMAGES, tmp_path / "other"), atol=1e-6)
    np.save(tmp_path / "in.npy", IMAGES.astype(np.float32) / 255)
    parquet = pytest.importorskip("pyarrow.parquet")
    assert asked(tmp_path / "in.npy", "--out", tmp_path / "x.parquet") == 0
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.num_rows == 9 and table.column_names[:2] == ["name", "e0"] and len(table.column_names) == WIDTH + 1


def test_volumes_as_rows_and_slice_by_slice(tmp_path: Path) -> None:
    volumes = np.stack([IMAGES[:3], IMAGES[3:6]])
    volumes[1, 2] = 0
    np.save(tmp_path / "in.npy", volumes)
    assert asked(tmp_path / "in.npy", "--out", tmp_path / "x.npy") == 0
    assert asked(tmp_path / "in.npy", "--out", tmp_path / "slices.npy", "--each", "slice") == 0
    rows, slices = np.load(tmp_path / "x.npy"), np.load(tmp_path / "slices.npy")
    expected = ["0/slice-0", "0/slice-1", "0/slice-2", "1/slice-0", "1/slice-1"]
    assert names_of(tmp_path / "slices.names.csv") == expected
    assert np.allclose(rows, np.stack([slices[:3].mean(axis=0), slices[3:].mean(axis=0)]), atol=1e-5)


def test_a_named_set(tmp_path: Path) -> None:
    assert asked("digits", "--out", tmp_path / "x.npy") == 0
    names = names_of(tmp_path / "x.names.csv")
    assert len(np.load(tmp_path / "x.npy")) == 1797 and names[0] == "train-0" and names[-1].startswith("test-")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["in.npy", "--out", "x.csv"], ".npy or .npz or .parquet"),
        (["in.npy", "--out", "in.npy"], "would be overwritten"),
        (["in.npy", "--out", "x.parquet", "--each", "view"], "a table cannot hold"),
        (["in.npy", "--out", "x.npy", "--each", "slice"], "for volumes"),
        (["in.npy", "in.npy", "--out", "x.npy"], "not all folders"),
        (["table.csv", "--out", "x.npy"], "nothing with images"),
        (["vectors.npy", "--out", "x.npy"], "no pictures"),
        (["--out", "x.npy"], "nothing was given"),
    ],
)
def test_what_cannot_be_embedded_is_said(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", IMAGES)
    np.save("vectors.npy", np.zeros((4, 3), np.float32))
    assert asked(*words) == 2
    assert sentence in capsys.readouterr().err
