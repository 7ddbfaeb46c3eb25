"""Free text in tables: found, encoded as scikit-learn does, kept sparse, saved without pickle, and asked again."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_tools import must_do, must_refuse, run_cli
from sklearn.feature_extraction.text import TfidfVectorizer
from table_tools import read_table_data, write_csv

from splitpu.data.sparse_rows import is_sparse
from splitpu.data.tables import read
from splitpu.data.tables.encode import TableRecipe, TableSource
from splitpu.data.tables.text_columns import MOST_WORDS, SentenceColumn, TextColumn, is_free_text, kinds_of_texts
from splitpu.errors import InputError, ModelFileError
from splitpu.runs.folder import RunFolder

LIKED = ["what a lovely kettle, it boils fast", "we like it very much indeed", "a fast and quiet one, lovely"]
BROKEN = ["it broke after the second week", "the lid fell off and it leaks", "came broken, and leaks badly"]


def reviews(count: int = 120, seed: int = 0) -> list[dict[str, Any]]:
    """Half are complaints, a third of these labelled; the price says a little, and the shop nothing."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        bad = number % 2 == 0
        words = " ".join(random.permutation(" ".join(random.choice(BROKEN if bad else LIKED, 2)).split()))
        rows.append(
            {
                "review": "" if number % 17 == 3 else f"{words} {number}",
                "price": f"{random.normal(20_000 - 5_000 * bad, 4_000):.0f}",
                "shop": random.choice(["north", "south"]),
                "patient": f"p{number // 3}",
                "s": int(bad and number % 6 == 0),
            }
        )
    return rows


def test_texts_become_the_numbers_of_scikit_learn() -> None:
    texts = [row["review"] or None for row in reviews()]
    column, note = TextColumn.fit("review", texts)
    assert column is not None and "TF-IDF" in note and "--ignore review" in note
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2, max_features=MOST_WORDS)
    expected = words.fit_transform(["" if text is None else text for text in texts])
    assert list(column.words) == words.get_feature_names_out().tolist()
    encoded = column.encode(texts, "a.csv")
    np.testing.assert_allclose(encoded[:, :-1].toarray(), expected.toarray(), atol=1e-6)
    assert encoded[:, -1].toarray().ravel().tolist() == [text is None for text in texts]
    new = ["Lovely kettle, LEAKS", None, "zzz"]
    expected = words.transform(["Lovely kettle, LEAKS", "", "zzz"])
    np.testing.assert_allclose(column.encode(new, "b.csv")[:, :-1].toarray(), expected.toarray(), atol=1e-6)


@pytest.mark.parametrize(
    ("cells", "is_text"),
    [
        ([f"{text} {number}" for number in range(40) for text in LIKED], True),
        ([f"patient-{number}" for number in range(90)], False),
        ([f"Smith, Mr. John {number}" for number in range(90)], False),
        (["in the north of the city", "in the south of the city"] * 50, False),
        (["2026-01-01 10:00:00", "2026-01-02 11:00:00"], False),
    ],
)
def test_sentences_are_told_from_names_and_categories(cells: list[str], is_text: bool) -> None:
    assert is_free_text(cells) == is_text


def test_a_table_with_text_is_sparse_and_its_numbers_neither_drown_nor_vanish(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", reviews())
    found = read_table_data(TableSource(path=str(path), label="s", ignore=("patient",)))
    assert is_sparse(found.features) and any("free text" in note for note in found.warnings)
    names = found.recipe.feature_names
    price = [place for place, name in enumerate(names) if name.startswith("price >= ")]
    others = [*price, *(place for place, name in enumerate(names) if name.startswith("shop = "))]
    dense = found.features.dense()
    assert len(price) == 4 and 0.05 < dense[:, price].max() < 0.6  # whatever the unit
    assert (dense[:, others] ** 2).sum(axis=1).mean() == pytest.approx(0.5, rel=1e-4)
    cheap, dear = (found.recipe.encode(read.Table({**cells(), "price": [one]}, "b.csv")) for one in ("1", "99999"))
    assert not cheap.dense()[0, price].any() and dear.dense()[0, price].all()


def cells() -> dict[str, list[Any]]:
    return {"review": ["it leaks"], "shop": ["north"], "price": ["1"]}


def test_a_recipe_with_words_survives_json_and_nonsense_in_it_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", reviews())
    found = read_table_data(TableSource(path=str(path), label="s"))
    stored = json.loads(json.dumps(found.recipe.to_dict()))
    again = TableRecipe.from_dict(stored)
    assert again == found.recipe
    table = read.read_table(path)
    assert (again.encode(table).tocsr() != found.features.tocsr()).nnz == 0
    for damage in (
        {"found_in": [0]},
        {"words": ["a", "a"], "found_in": [1, 1]},
        {"words": ["a" * 2_000], "found_in": [1]},
        {"words": ["a"], "found_in": [10**9]},
        {"words": [1], "found_in": [1]},
        {"words": [], "found_in": []},
        {"rows": "many"},
    ):
        broken = {**stored, "columns": [{**stored["columns"][0], **damage}, *stored["columns"][1:]]}
        with pytest.raises(ModelFileError, match="train the model again"):
            TableRecipe.from_dict(broken)


def test_short_texts_are_words_when_asked_for(tmp_path: Path) -> None:
    rows = [{**row, "review": " ".join(row["review"].split()[:2])} for row in reviews()]
    path = str(write_csv(tmp_path / "a.csv", rows))
    assert not is_sparse(read_table_data(TableSource(path=path, label="s")).features)
    assert is_sparse(read_table_data(TableSource(path=path, label="s", text=("review",))).features)
    for asked, match in (
        ({"text": ("reviews",)}, r"no column 'reviews' \(did you mean 'review'\?\): check --text"),
        ({"text": ("review",), "ignore": ("review",)}, "named by --text, but also as no feature"),
        ({"text": ("s",)}, "named by both --label and --text"),
    ):
        with pytest.raises(InputError, match=match):
            read_table_data(TableSource(path=path, label="s", **asked))
    unique = str(write_csv(tmp_path / "b.csv", [{**row, "id": f"x{n}"} for n, row in enumerate(rows)]))
    with pytest.raises(InputError, match=r"column 'id' holds texts of which no two share a word"):
        read_table_data(TableSource(path=unique, label="s", text=("id",)))


@pytest.fixture(scope="module")
def run_of_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_csv(folder / "a.csv", reviews())
    write_csv(folder / "test.csv", [{**row, "s": int(n % 2 == 0)} for n, row in enumerate(reviews(seed=1))])
    asked = ("fit", folder / "a.csv", "--label", "s", "--prior", "0.5", "--learner", "logistic", "--group", "patient")
    must_do(*asked, "--test", folder / "test.csv", "--out", folder / "run")
    return folder / "run"


def test_a_run_on_texts_is_asked_and_judged(
    run_of_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads((run_of_texts / "result.json").read_text())
    assert [one["learner"] for one in result["learners"]] == ["logistic"]
    assert any("'patient'" in note and "test figures flatter" in note for note in result["warnings"])
    out = tmp_path / "p.csv"
    must_do("predict", run_of_texts, run_of_texts.parent / "test.csv", "--out", out)
    said = [line.split(",")[-1] for line in out.read_text().splitlines()[1:]]
    assert np.mean([one == str(int(n % 2 == 0)) for n, one in enumerate(said)]) > 0.9
    code, _, notes = run_cli(capsys, "evaluate", run_of_texts, "--test", run_of_texts.parent / "test.csv")
    assert code == 0 and "values of column 'patient'" in notes
    must_do("hard", run_of_texts)
    assert "review: " in (run_of_texts / "report.html").read_text()
    source = RunFolder(run_of_texts).request().source  # as a run that is resumed reads it back
    assert isinstance(source, TableSource) and source.group == "patient"
    groups = source.load().data.groups
    assert groups is not None and len(set(groups.tolist())) == 40
    lacking = write_csv(tmp_path / "lacking.csv", [{"price": "1", "shop": "north"}])
    saying = "lacks columns that the model was trained on: add 'review'"
    must_refuse(capsys, "predict", run_of_texts, lacking, saying=saying)


def test_networks_say_that_they_take_no_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "a.csv", reviews())
    asked = ("fit", path, "--label", "s", "--method", "vpu", "--prior", "0.5", "--out", tmp_path / "run")
    code, _, err = run_cli(capsys, *asked)
    assert code == 2 and "leave its columns of free text out (--ignore COLUMN)" in err


def test_a_comparison_of_texts_is_one_of_learners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "a.csv", reviews())
    asked = ("compare", path, "--label", "s", "--group", "patient", "--prior", "0.5", "--seeds", "0")
    code, out, err = run_cli(capsys, *asked, "--learner", "logistic", "--out", tmp_path / "all", "--json")
    assert code == 0 and "compared are split-pu, logistic, elkan-noto" in err
    assert [one["method"] for one in json.loads(out)["methods"]] == ["split-pu", "logistic", "elkan-noto"]
    plain = write_csv(
        tmp_path / "plain.csv", [{"price": row["price"], "who": row["patient"], "s": row["s"]} for row in reviews()]
    )
    asked = ("fit", plain, "--label", "s", "--group", "who", "--method", "vpu", "--prior", "0.5")
    must_refuse(
        capsys, *asked, "--out", tmp_path / "run", saying="groups is for learners, and vpu trains networks here"
    )
    assert not (tmp_path / "run").exists()


def tiny_sentence_model(folder: Path, size: int) -> Path:
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "very", "tea"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    how = {"num_attention_heads": 1, "intermediate_size": 8, "max_position_embeddings": 32}
    config = transformers.BertConfig(len(words), hidden_size=size, num_hidden_layers=1, **how)
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_a_sentence_model_reads_a_column(tmp_path: Path) -> None:
    folder = tiny_sentence_model(tmp_path / "model", 8)
    cells = ["good tea", "very very bad tea", None, "good tea"]
    recipe, notes = TableRecipe.fit({"remark": cells}, kinds={"remark": f"text={folder}"})
    again = TableRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe and "8 numbers of the sentence model" in notes[0]
    rows = recipe.columns[0].encode(cells, "X")
    assert rows.shape == (4, 8) and np.allclose((rows**2).sum(1), 1, atol=1e-5)
    assert np.allclose(rows[0], rows[3], atol=1e-6) and not np.allclose(rows[0], rows[1], atol=1e-3)

    from transformers import AutoModel, AutoTokenizer

    alone = AutoTokenizer.from_pretrained(str(folder))([cells[1]], return_tensors="pt")  # nothing is filled up
    mean = AutoModel.from_pretrained(str(folder)).eval()(**alone).last_hidden_state[0].mean(0)
    assert np.allclose(rows[1], (mean / mean.norm()).detach().numpy(), atol=1e-5)
    tiny_sentence_model(tmp_path / "other", 4)
    moved = replace(recipe.columns[0], folder=str(tmp_path / "other"))
    with pytest.raises(InputError, match="another sentence model"):
        moved.encode(cells, "X")
    with pytest.raises(InputError, match="holds no sentence model"):
        SentenceColumn.fit("remark", str(tmp_path))
    with pytest.raises(InputError, match="holds lists"):
        recipe.columns[0].encode([["good"]], "X")


def test_sentence_models_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"splitpu\[sentences\]"):
        SentenceColumn.fit("remark", "anywhere")


def test_kinds_of_texts_in_short() -> None:
    assert kinds_of_texts(["a", "b=c", "d=e"], ["a", "b", "d=e"]) == {"a": "text", "b": "text=c", "d=e": "text"}
