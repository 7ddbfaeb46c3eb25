"""Every kind of data is one class: its words, its rows for training, prediction and evaluation, its form in JSON."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli

from splitpu.data import sources
from splitpu.data.array_files import ArraySource, NpzSource
from splitpu.data.images.folders import FolderSource
from splitpu.data.public.datasets import NamedSource
from splitpu.data.sources import Source, SourceWords, parse_source, source_from_dict
from splitpu.data.tables.encode import TableSource
from splitpu.errors import InputError

EMPTY = {"npz": None, "named": None, "positives": None, "draw_seed": 0, "folders": None, "table": None, "arrays": None}
FOLDERS = {"labels": None, "size": [48, 64], "strict": False, "series": None, "slices": 9}
TABLE = {"path": "/d/t.csv", "label": "s", "positive": None, "names": None, "test": None}
STORED: list[tuple[Source, dict[str, object]]] = [
    (NpzSource(path="/d/rows.npz"), {"npz": "/d/rows.npz"}),
    (NamedSource(name="digits", positives=50, draw_seed=3), {"named": "digits", "positives": 50, "draw_seed": 3}),
    (
        ArraySource(positives=("/d/p.npy",), unlabelled=("/d/u.npy",)),
        {"arrays": {"positives": ["/d/p.npy"], "unlabelled": ["/d/u.npy"], "test": []}},
    ),
    (
        FolderSource(positives=("/d/p",), unlabelled=("/d/u", "/d/v"), size=(48, 64), slices=9),
        {"folders": {"positives": ["/d/p"], "unlabelled": ["/d/u", "/d/v"], "test": [], **FOLDERS}},
    ),
    (
        TableSource(path="/d/t.csv", label="s", ignore=("id",)),
        {"table": {**TABLE, "ignore": ["id"]}},
    ),
    (
        TableSource(path="/d/t.csv", label="s", text=("note",), group="who"),
        {"table": {**TABLE, "ignore": [], "text": ["note"], "group": "who"}},
    ),
]


@pytest.mark.parametrize(("source", "entries"), STORED, ids=lambda one: type(one).__name__)
def test_sources_are_stored_in_the_form_that_earlier_runs_have(source: Source, entries: dict[str, object]) -> None:
    stored = json.loads(json.dumps(source.to_dict()))
    assert stored == EMPTY | {"scenario": "single-training-set"} | entries
    assert list(stored)[:5] == ["npz", "named", "positives", "draw_seed", "scenario"]
    assert source_from_dict(stored) == source


@pytest.mark.parametrize(("source", "entries"), STORED, ids=lambda one: type(one).__name__)
def test_sources_name_their_places(source: Source, entries: dict[str, object]) -> None:
    assert source.title in ("rows", "digits", "p", "t")
    assert source.draws_labels == (not source.paths) == (source.labelled_count is not None)
    assert all(path.startswith("/d/") for path in source.paths) and source.where


def test_words_become_the_source_of_their_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p").mkdir(), Path("u").mkdir(), Path("t.csv").touch(), Path("x.png").touch()
    assert isinstance(parse_source(SourceWords(data="digits", labelled=50)), NamedSource)
    assert isinstance(parse_source(SourceWords(data="any.npz")), NpzSource)
    assert isinstance(parse_source(SourceWords(data="t.csv", label="s")), TableSource)
    assert isinstance(parse_source(SourceWords(positives=["p"], unlabelled=["u"])), FolderSource)
    assert isinstance(parse_source(SourceWords(positives=["p.npy"], unlabelled=["u.npy"])), ArraySource)
    for word, sentence in (
        ("nothing", "no set named 'nothing'"),
        ("x.png", "is one image"),
        ("t.xlsx", "is a spreadsheet"),
        (None, "needs DATA"),
    ):
        with pytest.raises(InputError, match=sentence):
            parse_source(SourceWords(data=word))


def test_a_new_kind_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sources, "KINDS", (*sources.KINDS, "toy_source:ToySource"))
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(0).normal(size=80) + 3 * (np.arange(80) % 2)
    for name, known in (("rows", 4), ("truth", 2)):
        letters = np.where(np.arange(80) % known == 1, "p", "u")
        Path(f"{name}.toy").write_text("\n".join(f"{a} {b:.4f}" for a, b in zip(letters, numbers, strict=True)))
    words = ["--prior", "0.5", "--method", "nnpu", "--out", "run", "--quiet", *TINY]
    assert run_cli(capsys, "fit", "rows.toy", *words)[0] == 0
    assert json.loads(Path("run/request.json").read_text())["source"]["toy"] == {"path": str(tmp_path / "rows.toy")}
    code, out, _ = run_cli(capsys, "predict", "run", "truth.toy", "--json")
    assert code == 0 and json.loads(out)["rows"] == 80
    code, out, said = run_cli(capsys, "evaluate", "run", "--test", "truth.toy", "--json")
    assert code == 0 and json.loads(out)["models"][0]["accuracy"] > 0.5 and "training rows of this model" in said
    assert run_cli(capsys, "evaluate", "run")[0] == 2  # of any kind: rows that were trained on would flatter
    assert run_cli(capsys, "prior", "rows.toy", "--json")[0] == 0
    assert run_cli(capsys, "sensitivity", "run", "--json")[0] == 0
    assert run_cli(capsys, "hard", "run")[0] == 2  # of any kind: only split-pu has hard samples
