"""Scores in parts: every input has one row, whoever scores which part, and nothing is scored twice or mixed."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, must_do, must_refuse, write_npz
from PIL import Image

from splitpu.runs import scoring

Capture = pytest.CaptureFixture[str]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PART_ROWS", 4)


@pytest.fixture(scope="module")
def vector_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    must_do("fit", write_npz(folder / "rows.npz"), "--prior", 0.5, "--out", folder / "run", "--quiet", *TINY)
    np.save(folder / "new.npy", np.random.default_rng(1).normal(size=(18, 4)) + 1)
    return folder


@pytest.fixture(scope="module")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for place, count, light in (("known", 8, 120), ("others", 24, 0), ("new", 13, 60)):
        (folder / place).mkdir()
        for number in range(count):
            noise = random.integers(0, 130, (8, 8, 3)) + (light if number % 2 or place == "known" else 0)
            Image.fromarray(noise.astype(np.uint8)).save(folder / place / f"{number:02}.png")
    (folder / "new" / "broken.png").write_bytes(b"\x89PNG not really")
    sides = ["--positives", folder / "known", "--unlabelled", folder / "others"]
    words = ["--method", "nnpu", "--backbone", "cnn-small", *TINY]
    must_do("fit", *sides, "--prior", 0.4, "--out", folder / "run", "--quiet", *words)
    return folder


def test_shards_together_are_what_predict_says(vector_run: Path, tmp_path: Path) -> None:
    run, new, parts = vector_run / "run", vector_run / "new.npy", tmp_path / "parts"
    must_do("predict", run, new, "--out", tmp_path / "whole.csv")
    for shard in ("3/3", "1/3", "2/3"):
        must_do("predict", run, new, "--shard", shard, "--out", parts)
    must_do("merge", parts, tmp_path / "merged.csv")
    whole, merged = rows_of(tmp_path / "whole.csv"), rows_of(tmp_path / "merged.csv")
    assert [row["index"] for row in merged] == [str(number) for number in range(18)]
    assert [row["decision"] for row in merged] == [row["decision"] for row in whole]
    shares = [[float(row["probability"]) for row in rows] for rows in (merged, whole)]
    assert shares[0] == pytest.approx(shares[1], abs=1e-5)
    must_do("merge", parts, tmp_path / "merged.parquet")
    import pyarrow.dataset
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(tmp_path / "merged.parquet").num_rows == 18
    assert pyarrow.dataset.dataset(sorted(map(str, parts.glob("*.parquet")))).count_rows() == 18


def test_what_is_there_is_not_scored_again_and_what_is_missing_is_named(
    vector_run: Path, tmp_path: Path, capsys: Capture
) -> None:
    run, new, parts = vector_run / "run", vector_run / "new.npy", tmp_path / "parts"
    must_do("predict", run, new, "--shard", "1/2", "--out", parts)
    must_refuse(capsys, "merge", parts, tmp_path / "all.csv", saying=r"lacks 3 of 5 parts .*part-00002")
    before = {path.name: path.stat().st_mtime_ns for path in parts.glob("part-*")}
    must_do(
        "predict", run, new, "--shard", "1/1", "--out", parts
    )  # another number of shards goes on with the same parts
    after = {path.name: path.stat().st_mtime_ns for path in parts.glob("part-*")}
    assert len(after) == 5 and all(after[name] == time for name, time in before.items())
    shutil.copy(parts / "part-00001.parquet", parts / "part-00003.parquet")
    must_refuse(capsys, "merge", parts, tmp_path / "all.csv", saying="part-00003.*it is not what was written")


def test_other_rows_or_another_model_do_not_get_mixed_in(vector_run: Path, tmp_path: Path, capsys: Capture) -> None:
    run, parts = vector_run / "run", tmp_path / "parts"
    must_do("predict", run, vector_run / "new.npy", "--shard", "1/2", "--out", parts)
    np.save(tmp_path / "others.npy", np.zeros((18, 4)))
    asked = ["--shard", "2/2", "--out", parts]
    must_refuse(capsys, "predict", run, tmp_path / "others.npy", *asked, saying="other rows or of another model")
    for shard in ("0/2", "3/2", "1", "a/b"):
        refused = ["predict", run, vector_run / "new.npy", "--shard", shard, "--out", tmp_path / "x"]
        must_refuse(capsys, *refused, saying="is not one of several")
    must_refuse(capsys, "predict", run, vector_run / "new.npy", "--shard", "1/2", saying="give it with --out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    refused = ["predict", run, vector_run / "new.npy", "--shard", "1/2", "--out", tmp_path / "mine"]
    must_refuse(capsys, *refused, saying="not empty")
    must_refuse(capsys, "merge", tmp_path / "mine", tmp_path / "a.csv", saying="predict --shard has made")


def test_images_that_cannot_be_read_have_their_row(image_run: Path, tmp_path: Path, capsys: Capture) -> None:
    new, parts = image_run / "new", tmp_path / "parts"
    must_do("predict", image_run / "run", new, "--shard", "1/1", "--out", parts)
    must_do("merge", parts, tmp_path / "all.csv")
    rows = rows_of(tmp_path / "all.csv")
    assert [row["name"] for row in rows] == [*(f"{number:02}.png" for number in range(13)), "broken.png"]
    assert [row["why"] != "" for row in rows] == [False] * 13 + [True] and rows[-1]["decision"] == ""
    listing = tmp_path / "list.txt"
    listing.write_text("\n".join(str(new / f"{number:02}.png") for number in (3, 1, 12)) + f"\n{new}/gone.png\n")
    must_do("predict", image_run / "run", listing, "--shard", "1/1", "--out", tmp_path / "listed")
    must_do("merge", tmp_path / "listed", tmp_path / "listed.csv")
    listed = rows_of(tmp_path / "listed.csv")
    assert [Path(row["name"]).name for row in listed] == ["03.png", "01.png", "12.png", "gone.png"]
    assert [row["probability"] for row in listed][:3] == [rows[number]["probability"] for number in (3, 1, 12)]
    assert listed[3]["why"] and listed[3]["probability"] == ""
    strict = ["predict", image_run / "run", new, "--shard", "1/1", "--strict", "--out", tmp_path / "strict"]
    must_refuse(capsys, *strict, saying="broken.png")


def test_a_parquet_dataset_is_scored_file_by_file(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    random = np.random.default_rng(0)
    with (tmp_path / "rows.csv").open("w") as file:
        file.write("a,b,label\n")
        for number in range(60):
            a, b = random.normal(size=2) + 2 * (number % 2)
            file.write(f"{a},{b},{int(number % 4 == 1)}\n")
    learner = ["--method", "logistic"]
    must_do(
        "fit", tmp_path / "rows.csv", "--label", "label", "--prior", 0.5, "--out", tmp_path / "run", *learner, "--quiet"
    )
    (tmp_path / "new").mkdir()
    for name, count in (("one", 6), ("two", 5)):
        columns = {"a": random.normal(size=count), "b": random.normal(size=count)}
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "new" / f"{name}.parquet")
    must_do("predict", tmp_path / "run", tmp_path / "new", "--shard", "1/1", "--out", tmp_path / "parts")
    must_do("merge", tmp_path / "parts", tmp_path / "all.csv")
    assert len(rows_of(tmp_path / "all.csv")) == 11 and len(list((tmp_path / "parts").glob("part-*"))) == 4


def test_it_is_said_how_many_rows_have_a_score(vector_run: Path, tmp_path: Path, capsys: Capture) -> None:
    must_do("predict", vector_run / "run", vector_run / "new.npy", "--shard", "1/1", "--out", tmp_path / "parts")
    assert "scoring: 18 of 18" in capsys.readouterr().err


def test_shards_in_short() -> None:
    assert scoring.parse_shard("2/8") == (2, 8)
    assert [list(scoring.shard_of(range(5), one, 3)) for one in (1, 2, 3)] == [[0], [1, 2], [3, 4]]  # type: ignore[arg-type]
