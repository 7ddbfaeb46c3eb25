"""Tables whose cells are lists of numbers, as programs that make embeddings write them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from splitpu.data.table_files import read_table, write_parquet
from splitpu.data.table_frames import rows_for_table_model
from splitpu.data.tables import TableData, TableSource, read_table_data
from splitpu.errors import InputError

ROWS, WIDTH = 40, 3
EMBEDDINGS = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).round(3)
LABELS = [int(row < 8) for row in range(ROWS)]


def written(path: Path, **columns: list[Any]) -> str:
    write_parquet(path, columns)
    return str(path)


def trained(folder: Path, *, ignore: tuple[str, ...] = (), **more: list[Any]) -> TableData:
    columns = {"age": list(range(ROWS)), "embedding": EMBEDDINGS.tolist(), "s": LABELS, **more}
    return read_table_data(TableSource(path=written(folder / "a.parquet", **columns), label="s", ignore=ignore))


def test_every_number_of_a_list_is_a_column(tmp_path: Path) -> None:
    found = trained(tmp_path)
    assert found.recipe.feature_names == ("age", "embedding[0]", "embedding[1]", "embedding[2]")
    np.testing.assert_array_equal(found.features[:, 1:], EMBEDDINGS.astype(np.float32))


def test_rows_without_a_list_and_lists_with_gaps_are_filled(tmp_path: Path) -> None:
    cells: list[Any] = EMBEDDINGS.tolist()
    cells[3], cells[5] = None, [None, 1.0, float("nan")]
    found = trained(tmp_path, embedding=cells)
    values = dict(zip(found.recipe.feature_names, found.features.T, strict=True))
    assert np.flatnonzero(values["embedding[0] is missing"]).tolist() == [3, 5]
    assert np.flatnonzero(values["embedding[1] is missing"]).tolist() == [3]
    assert values["embedding[1]"][5] == 1.0 and np.isfinite(found.features).all()


@pytest.mark.parametrize(
    ("cells", "held"),
    [
        ([[1.0] * (1 + row % 2) for row in range(ROWS)], "lists of 1 to 2 values"),
        ([["a", "b"]] * ROWS, "lists of what are no numbers"),
        ([[[1.0], [2.0]]] * ROWS, "lists of what are no numbers"),
        ([[]] * ROWS, "lists of what are no numbers"),
        ([{"bytes": b"x", "path": "a.png"}] * ROWS, "structures or bytes"),
        ([b"x"] * ROWS, "structures or bytes"),
    ],
)
def test_what_cannot_be_columns_of_numbers_is_named_and_left_out(tmp_path: Path, cells: list[Any], held: str) -> None:
    found = trained(tmp_path, other=cells)
    assert not any("other" in name for name in found.recipe.feature_names)
    assert any(f"column 'other' holds {held}" in note for note in found.warnings)
    with pytest.raises(InputError, match=f"no column that can be used as a feature.*column 'other' holds {held}"):
        trained(tmp_path, other=cells, ignore=("embedding", "age"))


def test_a_list_is_ignored_by_its_name(tmp_path: Path) -> None:
    assert trained(tmp_path, ignore=("embedding",)).recipe.feature_names == ("age",)
    with pytest.raises(InputError, match=r"no column 'embeding' .*check --ignore"):
        trained(tmp_path, ignore=("embeding",))


def test_lists_of_another_length_are_refused(tmp_path: Path) -> None:
    recipe = trained(tmp_path).recipe
    for width in (2, 4):
        new = written(tmp_path / "new.parquet", age=[1, 2], embedding=[[0.0] * width] * 2)
        with pytest.raises(InputError, match=rf"has to hold a list of 3 numbers .* but holds lists of {width}"):
            recipe.encode(read_table(Path(new)))
    uneven = written(tmp_path / "new.parquet", age=[1, 2], embedding=[[0.0], [0.0, 1.0]])
    with pytest.raises(InputError, match="but holds others: make them as they were made"):
        recipe.encode(read_table(Path(uneven)))


def test_a_frame_with_lists_gives_what_the_file_gives(tmp_path: Path) -> None:
    found = trained(tmp_path)
    frame = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    np.testing.assert_array_equal(rows_for_table_model(found.recipe.to_dict(), frame), found.features)
