"""Tables whose cells are lists of numbers, as programs that make embeddings write them."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from splitpu import SplitPUClassifier
from splitpu.data.tables.encode import TableData, TableRecipe, TableSource, read_table_data, rows_for_table_model
from splitpu.data.tables.read import read_table, write_parquet
from splitpu.errors import InputError

ROWS, WIDTH = 40, 3
EMBEDDINGS = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).round(3)
LABELS = [int(row < 8) for row in range(ROWS)]


def trained(folder: Path, *, label: str = "s", more: TableSource | None = None, **columns: Any) -> TableData:
    held = {"age": list(range(ROWS)), "embedding": EMBEDDINGS.tolist(), "s": LABELS, **columns}
    write_parquet(folder / "a.parquet", held)
    asked = {} if more is None else {"names": more.names, "ignore": more.ignore}
    return read_table_data(TableSource(path=str(folder / "a.parquet"), label=label, **asked))


def asked(**more: Any) -> TableSource:
    return TableSource(path="", label="s", **more)


def encoded(recipe: TableRecipe, folder: Path, **columns: Any) -> np.ndarray:
    write_parquet(folder / "new.parquet", {"age": [1, 2], **columns})
    return recipe.encode(read_table(folder / "new.parquet"))


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed_size_list"])
@pytest.mark.parametrize("of", [pyarrow.float16(), pyarrow.float32(), pyarrow.float64()])
def test_every_number_of_a_list_is_a_feature(tmp_path: Path, kind: str, of: Any) -> None:
    made = {
        "list": lambda: pyarrow.list_(of),
        "large_list": lambda: pyarrow.large_list(of),
        "fixed_size_list": lambda: pyarrow.list_(of, WIDTH),
    }
    exact = EMBEDDINGS.astype(of.to_pandas_dtype())
    found = trained(tmp_path, embedding=pyarrow.array(list(exact), made[kind]()))
    assert found.recipe.feature_names == ("age", "embedding[0]", "embedding[1]", "embedding[2]")
    assert found.recipe.column_of_feature == ["age", *["embedding"] * WIDTH]
    np.testing.assert_array_equal(found.features[:, 1:], exact.astype(np.float32))
    assert any("'embedding' holds lists of 3 numbers, each of which is a feature" in note for note in found.warnings)


@pytest.mark.parametrize("cells", [[[1, 2]] * ROWS, [[True, False]] * ROWS, [[Decimal("1.5"), None]] * ROWS])
def test_numbers_of_other_kinds_are_numbers_too(tmp_path: Path, cells: list[Any]) -> None:
    found = trained(tmp_path, embedding=cells)
    assert found.features[0, 1] in (1.0, 1.5) and "embedding[1]" in found.recipe.feature_names


def test_gaps_are_filled_and_told_by_one_feature(tmp_path: Path) -> None:
    cells: list[Any] = EMBEDDINGS.tolist()
    cells[3], cells[4], cells[5] = None, [], [None, 1.0, float("nan")]
    found = trained(tmp_path, embedding=cells)
    values = dict(zip(found.recipe.feature_names, found.features.T, strict=True))
    assert np.flatnonzero(values["embedding is missing"]).tolist() == [3, 4, 5]
    median = np.median(np.delete(EMBEDDINGS[:, 0], [3, 4, 5]))
    assert values["embedding[0]"][[3, 4, 5]].tolist() == [np.float32(median)] * 3 and values["embedding[1]"][5] == 1.0
    # One row alone has the same features as among others, even if it has no list at all.
    alone = encoded(found.recipe, tmp_path, embedding=pyarrow.array([None, None], pyarrow.list_(pyarrow.float64())))
    assert alone[0, 1:].tolist() == found.features[3, 1:].tolist()


@pytest.mark.parametrize(
    ("cells", "held"),
    [
        ([["a", "b"]] * ROWS, "lists whose values are no numbers"),
        ([[]] * ROWS, "empty lists only"),
        ([[[1.0], [2.0]]] * ROWS, "lists"),
        ([[[1.0], [2.0, 3.0]]] * ROWS, "lists"),
        ([{"bytes": b"x", "path": "a.png"}] * ROWS, "structures or bytes"),
        ([b"\x89PNG\xff"] * ROWS, "structures or bytes"),
    ],
)
def test_what_cannot_be_numbers_is_named_and_left_out(tmp_path: Path, cells: list[Any], held: str) -> None:
    found = trained(tmp_path, other=cells)
    assert not any("other" in name for name in found.recipe.feature_names)
    assert any(note.startswith(f"column 'other' holds {held}") for note in found.warnings)
    with pytest.raises(InputError, match=f"no column that can be used as a feature.*column 'other' holds {held}"):
        trained(tmp_path, other=cells, more=asked(ignore=("embedding", "age")))
    assert not any("other" in note for note in trained(tmp_path, other=cells, more=asked(ignore=("other",))).warnings)


def test_lists_of_different_lengths_are_refused_unless_ignored(tmp_path: Path) -> None:
    cells = EMBEDDINGS.tolist()
    cells[7] = [1.0]
    with pytest.raises(
        InputError, match=r"often 3 numbers, in row 7 1\): make them equally long .* --ignore embedding"
    ):
        trained(tmp_path, embedding=cells)
    assert trained(tmp_path, embedding=cells, more=asked(ignore=("embedding",))).recipe.feature_names == ("age",)


def test_a_list_is_neither_label_nor_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'embedding' of .* holds lists or structures, which are no labels"):
        trained(tmp_path, label="embedding")
    with pytest.raises(InputError, match="holds lists or structures, not names: check --names"):
        trained(tmp_path, more=asked(names="embedding"))


def test_a_column_named_as_a_number_of_a_list_is_another_one(tmp_path: Path) -> None:
    more = {"embedding[0]": [float(row % 5) for row in range(ROWS)]}
    found = trained(tmp_path, **more)
    np.testing.assert_array_equal(found.features[:, 1 : 1 + WIDTH], EMBEDDINGS.astype(np.float32))
    assert found.features[:, -1].tolist() == more["embedding[0]"]


@pytest.mark.parametrize(
    ("cells", "held"),
    [
        ([[0.0] * 2] * 2, "lists of 2 numbers"),
        ([[0.0] * 4] * 2, "lists of 4 numbers"),
        ([[0.0], [0.0, 1.0]], "lists of different lengths"),
        ([1.0, 2.0], "1.0, which is no list"),
        (["[0, 1, 2]", "[0, 1, 2]"], "'[0, 1, 2]', which is no list"),
    ],
)
def test_other_lists_than_those_of_the_training_are_refused(tmp_path: Path, cells: list[Any], held: str) -> None:
    recipe = TableRecipe.from_dict(json.loads(json.dumps(trained(tmp_path).recipe.to_dict())))
    with pytest.raises(InputError) as refused:
        encoded(recipe, tmp_path, embedding=cells)
    assert f"holds {held}" in str(refused.value) and "the model was trained on lists of 3 numbers" in str(refused.value)


def test_numbers_that_cannot_be_computed_with_are_named(tmp_path: Path) -> None:
    recipe = trained(tmp_path).recipe
    for value, said in ((float("inf"), "an infinite value"), (1e300, "1e.300, which is too large")):
        with pytest.raises(InputError, match=f"column 'embedding' of .* holds {said}"):
            encoded(recipe, tmp_path, embedding=[[0.0, value, 0.0]] * 2)


def test_lists_where_the_model_takes_single_values_are_refused(tmp_path: Path) -> None:
    recipe = trained(tmp_path).recipe
    with pytest.raises(InputError, match=r"column 'age' of .* holds lists or structures, but the model takes single"):
        encoded(recipe, tmp_path, age=[[1.0], [2.0]], embedding=[[0.0] * 3] * 2)


def test_a_frame_with_lists_gives_what_the_file_gives(tmp_path: Path) -> None:
    found = trained(tmp_path)
    frame = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    np.testing.assert_array_equal(rows_for_table_model(found.recipe.to_dict(), frame), found.features)
    with pytest.raises(InputError, match=r"columns that are not numbers \('embedding'\)"):
        SplitPUClassifier(prior=0.4).fit(frame.select(["age", "embedding"]), LABELS)


def test_words_that_are_written_as_bytes_are_words(tmp_path: Path) -> None:
    words = pyarrow.array([b"yes" if label else b"no" for label in LABELS], pyarrow.binary())
    found = trained(tmp_path, ward=words)
    assert {"ward = no", "ward = yes"} <= set(found.recipe.feature_names)
