"""Tables: numbers and categories with gaps, labels in words, and the recipe that the model file keeps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_tools import rows_of, write_csv

from splitpu.data.tables.encode import TableRecipe, TableSource, read_table_data
from splitpu.data.tables.read import read_table, write_parquet
from splitpu.errors import InputError, ModelFileError


def write_same_as_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    columns = {name: [row[name] if row[name] != "" else None for row in rows] for name in rows[0]}
    columns["age"] = [None if value is None else float(value) for value in columns["age"]]
    write_parquet(path, columns)
    return path


def test_columns_are_told_apart(tmp_path: Path) -> None:
    found = read_table_data(TableSource(path=str(write_csv(tmp_path / "a.csv", rows_of(60))), label="s"))
    assert found.recipe.feature_names == (
        *("age", "age is missing"),
        *("ward = east", "ward = north", "ward = south", "ward is missing"),
    )
    assert found.names is not None and found.names[3] == "patient-3"
    assert found.labelled.sum() == 10 and found.features.shape == (60, 6) and np.isfinite(found.features).all()
    assert any("'empty'" in note for note in found.warnings) and any("'id'" in note for note in found.warnings)
    ages = np.array([float(row["age"]) for row in rows_of(60) if row["age"]])
    assert found.features[4, :2].tolist() == [np.float32(np.median(ages)), 1.0]
    assert found.features[5, 2:].tolist() == [0, 0, 0, 1]


def test_recipe_survives_json_and_unknown_categories_are_all_zero(tmp_path: Path) -> None:
    recipe = read_table_data(TableSource(path=str(write_csv(tmp_path / "a.csv", rows_of(60))), label="s")).recipe
    again = TableRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe
    new = write_csv(tmp_path / "new.csv", [{"ward": "west", "age": "41", "more": "x"}])
    assert again.encode(read_table(new)).tolist() == [[41.0, 0, 0, 0, 0, 0]]
    with pytest.raises(ModelFileError, match="train the model again"):
        TableRecipe.from_dict({"columns": [{"name": "a"}], "names": None})


@pytest.mark.parametrize("way", ["semicolon", "tab", "parquet"])
def test_every_way_of_writing_gives_the_same(tmp_path: Path, way: str) -> None:
    rows = rows_of(60)
    plain = read_table_data(TableSource(path=str(write_csv(tmp_path / "a.csv", rows)), label="s"))
    other = {
        "semicolon": lambda: write_csv(tmp_path / "b.csv", rows, ";"),
        "tab": lambda: write_csv(tmp_path / "b.tsv", rows, "\t"),
        "parquet": lambda: write_same_as_parquet(tmp_path / "b.parquet", rows),
    }[way]()
    found = read_table_data(TableSource(path=str(other), label="s"))
    assert found.recipe == plain.recipe and found.names == plain.names
    np.testing.assert_array_equal(found.features, plain.features)
    np.testing.assert_array_equal(found.labelled, plain.labelled)


def test_spaces_round_words_are_no_part_of_them_in_parquet_either(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"ward": [" north", "north ", " NA "]})
    assert read_table(tmp_path / "a.parquet").columns == {"ward": ["north", "north", None]}


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("a (x, y, z), sum;b, kg;s\n1,5;2;1\n2;3;0\n", {"a (x, y, z), sum": ["1.5", "2"], "b, kg": ["2", "3"]}),
        ('"a\n(mmol)";b;s\n1;2;1\n', {"a\n(mmol)": ["1"], "b": ["2"]}),
        ("a,tags,s\n1,x;y;z,1\n2,x;y;z,0\n", {"a": ["1", "2"], "tags": ["x;y;z", "x;y;z"]}),
        ("a\nb\n", {"a": ["b"]}),
    ],
)
def test_what_parts_the_cells_is_told_by_whole_records(tmp_path: Path, content: str, columns: dict[str, Any]) -> None:
    (tmp_path / "a.csv").write_text(content)
    found = read_table(tmp_path / "a.csv").columns
    assert {name: found[name] for name in columns} == columns


@pytest.mark.parametrize(
    ("labels", "positive", "expected"),
    [
        (["1", "0", ""], None, [True, False, False]),
        (["1", "-1", "-1"], None, [True, False, False]),
        (["1", "-1", ""], None, [True, False, False]),
        (["True", "False", "false"], None, [True, False, False]),
        (["ill", "", "unknown"], "ill", [True, False, False]),
        (["7", "8", "9"], "7", [True, False, False]),
    ],
)
def test_labels(tmp_path: Path, labels: list[str], positive: str | None, expected: list[bool]) -> None:
    rows = [{"x": number, "s": label} for number, label in enumerate(labels)]
    path = write_csv(tmp_path / "a.csv", rows)
    assert read_table_data(TableSource(path=str(path), label="s", positive=positive)).labelled.tolist() == expected


def test_numbers_that_lie_far_from_nought_can_be_told_apart(tmp_path: Path) -> None:
    seconds = 1_700_000_000 + np.arange(40)
    rows = [{"when": int(second), "near": int(second) % 7, "s": int(second) % 4 // 3} for second in seconds]
    found = read_table_data(TableSource(path=str(write_csv(tmp_path / "a.csv", rows)), label="s"))
    assert np.diff(found.features[:, 0]).tolist() == [1.0] * 39
    assert [column.origin != 0 for column in found.recipe.columns] == [True, False]
    kept = TableRecipe.from_dict(json.loads(json.dumps(found.recipe.to_dict())))
    later = kept.encode(read_table(write_csv(tmp_path / "b.csv", [{**row, "when": row["when"] + 5} for row in rows])))
    np.testing.assert_array_equal(later[:, 0], found.features[:, 0] + 5)


def test_rows_of_nothing_at_the_end_are_no_patients(tmp_path: Path) -> None:
    lines = [f"P{number};{number % 7};{int(number < 3)}" for number in range(12)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["patient;x;s", *lines[:6], ";;", *lines[6:], ";;", "; ;"]))
    assert len(read_table(path)) == 13, "one between others is a row, so that rows can be counted"
    path.write_text("\n".join(["patient;x;s", *lines, ";;", "; ;"]))
    found = read_table_data(TableSource(path=str(path), label="s", test=str(path)))
    assert (len(found.features), found.names and found.names[0]) == (12, "P0")
    assert found.test_features is not None and len(found.test_features) == 12
    about = f"{path} ends in rows without a single value, 2 in all: they are not used."
    assert found.warnings.count(about) == 2, "once of the training rows and once of the test rows"
    path.write_text('x\n1\n""\n')
    assert read_table(path).columns == {"x": ["1", None]}


BAD: list[tuple[str, str]] = [
    ("", r"a\.csv is empty \(0 bytes\)"),
    ("\n", "no heading"),
    ("x,s\n1,\n2,\n", "column 's' of .* is empty in every row, so none is labelled: write 1 into"),
    ("x,s\n", "no rows"),
    ("x,\n1,1\n", r"empty name \(column 2 of 2\)"),
    ("sep=;\nx;s\n1;1\n2;0\n", "begins with a line 'sep=' for Excel"),
    ("x,x,s\n1,1,1\n", "more than one column 'x'"),
    ("x,s\n1,1\n2\n", "line 3"),
    ("x, in kg;s\n1;1\n2\n3;0\n", "line 3 of .* has 1 cells but the heading has 2"),
    ("x,y\n1,1\n2,0\n", "no column 's'"),
    ("x,s\n1,yes\n2,no\n", "--positive-label"),
    ("x,s\ninf,1\n2,0\n", "infinite"),
    ("x,s\n9e40,1\n2,0\n", r"'x' of .* holds 9e\+40, which is too large"),
    ("x,s\n1,1\n2,-1\n3,2\n", "holds '-1', '1', '2', but"),
    ("s\n1\n0\n", "no column that can be used"),
    ('x,s\n"1,1\n', "cannot be read as a CSV"),
]


@pytest.mark.parametrize(("content", "saying"), BAD, ids=[saying for _, saying in BAD])
def test_bad_tables(tmp_path: Path, content: str, saying: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(InputError, match=saying):
        read_table_data(TableSource(path=str(tmp_path / "a.csv"), label="s"))


def test_columns_that_are_no_features(tmp_path: Path) -> None:
    rows = [{"nr": number, **row} for number, row in enumerate(rows_of(60))]
    path = str(write_csv(tmp_path / "a.csv", rows))
    noted = read_table_data(TableSource(path=path, label="s"))
    assert "nr" in noted.recipe.feature_names and any("--ignore nr, or --names" in note for note in noted.warnings)
    found = read_table_data(TableSource(path=path, label="s", names="nr", ignore=("ward", "id")))
    assert found.recipe.feature_names == ("age", "age is missing")
    assert found.names is not None and found.names[:3] == ["0", "1", "2"]
    assert not any("nr" in note for note in found.warnings)
    again = TableRecipe.from_dict(found.recipe.to_dict())
    assert np.array_equal(again.encode(read_table(Path(path))), found.features)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"ignore": ("wards",)}, r"no column 'wards' \(did you mean 'ward'\?\): check --ignore"),
        ({"names": "patient"}, r"no column 'patient' \(it has 'id', .*\): check --names"),
        ({"ignore": ("s",)}, "'s' is named by both --label and --ignore"),
        ({"ignore": ("age", "ward", "id", "empty")}, "no column that can be used as a feature"),
    ],
)
def test_columns_that_cannot_be_left_out(chosen: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read_table_data(TableSource(path=str(write_csv(tmp_path / "a.csv", rows_of(60))), label="s", **chosen))


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,s\n\xff\xfe,1\n")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    for name, saying in (("a.csv", "UTF-8"), ("a.parquet", "Parquet"), ("b.csv", "does not exist")):
        with pytest.raises(InputError, match=saying):
            read_table(tmp_path / name)
