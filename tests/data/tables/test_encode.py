"""Tables: numbers and categories with gaps, labels in words, and the recipe that the model file keeps.

Models of tables: trained, asked and judged on the command line, and loaded in Python.
"""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from cli_tools import TINY, must_do, must_refuse, run_cli
from table_tools import read_table_data, rows_of, write_csv

from splitpu.cli import main
from splitpu.config.schema import EngineConfig
from splitpu.data.tables.checks import if_lists_are_written_out
from splitpu.data.tables.encode import LabelColumn, TableRecipe, TableSource, fit_frame
from splitpu.data.tables.read import read_table, write_parquet
from splitpu.data.tables.text_columns import is_free_text
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError, ModelFileError
from splitpu.estimators.classifiers import SplitPUClassifier
from splitpu.model import Model


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
    assert LabelColumn("s", positive).labelled(read_table(path))[0].tolist() == expected


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
    assert found.loaded.held_out is not None and len(found.loaded.held_out) == 12
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
    assert found.names is not None and found.names[:3] == ("0", "1", "2")
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


Capture = pytest.CaptureFixture[str]


def test_what_is_no_feature_is_remembered(tmp_path: Path, capsys: Capture) -> None:
    table = write_csv(tmp_path / "a.csv", [{"nr": number, **row} for number, row in enumerate(rows_of(60))])
    words = ("fit", table, "--label", "s", "--names", "nr", "--ignore", "id", "ward", "--prior", "0.5", "--quiet")
    aside = ("--set", "selection.held_out=0.3", "--set", "selection.criterion=none")
    assert run_cli(capsys, *words, "--out", tmp_path / "run", *TINY, *aside)[0] == 0
    with (tmp_path / "run" / "scores.csv").open(encoding="utf-8") as file:
        assert [row["name"] for row in csv.DictReader(file)][:3] == ["0", "1", "2"]
    assert run_cli(capsys, "resume", tmp_path / "run", "--quiet")[0] == 0
    assert run_cli(capsys, "evaluate", tmp_path / "run", table)[0] == 0
    code, _, err = run_cli(capsys, "evaluate", tmp_path / "run", table, "--ignore", "id")
    assert code == 2 and "--ignore is for training" in err
    code, _, err = run_cli(capsys, "fit", "digits", "--labelled", "50", "--names", "nr")
    assert code == 2 and "--names is for .csv and .parquet tables" in err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over a table, beside it."""
    place = tmp_path_factory.mktemp("tables")
    table, test = write_csv(place / "ward.csv", rows_of(90)), write_csv(place / "test.csv", rows_of(40, 1, False))
    words = ["fit", table, "--label", "s", "--test", test, "--prior", 0.5, "--out", place / "run", "--quiet", *TINY]
    must_do(*words)
    return place


def test_fit_evaluate_and_report(trained: Path, capsys: Capture) -> None:
    result = json.loads((trained / "run" / "result.json").read_text())
    assert (result["rows"], result["labelled"], result["test_rows"]) == (90, 15, 40)
    assert any("'id'" in warning for warning in result["warnings"])
    assert "patient-" in (trained / "run" / "split.csv").read_text()
    records = re.findall(r'ward</bdi> <b><bdi title="(\w+)"', (trained / "run" / "report.html").read_text())
    assert records and set(records) <= {"east", "north", "south"}
    code, out, _ = run_cli(capsys, "evaluate", trained / "run", "--json")
    assert code == 0 and json.loads(out)["rows"] == 40


def test_the_report_shows_numbers_far_from_nought_as_they_are(tmp_path: Path) -> None:
    rows = [{**row, "when": 1_700_000_000 + number} for number, row in enumerate(rows_of(60))]
    table = write_csv(tmp_path / "a.csv", rows)
    must_do("fit", table, "--label", "s", "--prior", 0.5, "--out", tmp_path / "run", "--quiet", *TINY)
    shown = re.findall("when</bdi> <b>(.*?)</b>", (tmp_path / "run" / "report.html").read_text())
    written = [f'<bdi title="{row["when"]}">{row["when"]}</bdi>' for row in rows]
    assert shown and set(shown) <= set(written)


def test_predict_as_csv_and_parquet(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    new = write_csv(tmp_path / "new.csv", [{**row, "s": ""} for row in rows_of(20, 5)])
    for out in (tmp_path / "scores.csv", tmp_path / "scores.parquet"):
        code, said, _ = run_cli(capsys, "predict", trained / "run", new, "--out", out)
        assert code == 0 and "20 rows" in said
    lines = read_table(tmp_path / "scores.csv").columns
    assert list(lines) == ["index", "name", "probability", "decision"] and lines["name"][2] == "patient-2"
    typed = read_table(tmp_path / "scores.parquet").columns
    assert [float(value) for value in lines["probability"]] == typed["probability"]


def test_categories_that_the_model_does_not_know_are_told(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    rows = rows_of(20, 5, labelled=False)
    strange = write_csv(tmp_path / "strange.csv", [{**row, "ward": row["ward"].upper()} for row in rows])
    saying = "values in column 'ward' of"
    for words in (["predict", trained / "run", strange], ["evaluate", trained / "run", "--test", strange]):
        code, _, err = run_cli(capsys, *words)
        assert code == 0 and saying in err and "('EAST', 'NORTH', 'SOUTH')" in err and "it knows 'east'" in err
    _, _, err = run_cli(capsys, "predict", trained / "run", write_csv(tmp_path / "known.csv", rows))
    assert saying not in err


def test_predict_refuses_what_does_not_fit(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "folder").mkdir()
    cases = [
        (write_csv(tmp_path / "a.csv", [{"age": 1}]), "lacks columns that the model was trained on: add 'ward'"),
        (write_csv(tmp_path / "b.csv", [{"age": "old", "ward": "north"}]), "'age'"),
        (tmp_path / "folder", "give it a table with its columns"),
        (tmp_path / "none.csv", "does not exist"),
        (tmp_path / "encoded.npy", "holds arrays, but the model was trained on a table"),
    ]
    np.save(cases[-1][0], np.zeros(Model.load(trained / "run").preprocessing.shape, dtype=np.float32)[None])
    for path, saying in cases:
        code, _, err = run_cli(capsys, "predict", trained / "run", path)
        assert code == 2 and saying in err and err.count("\n") == 1
    code, _, err = run_cli(capsys, "predict", trained / "run", cases[0][0], "--top", 3, "--copy-to", tmp_path / "x")
    assert code == 2 and "for folders of images" in err


def test_evaluate_refuses_arrays_as_predict_does(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    encoded = np.zeros((4, *Model.load(trained / "run").preprocessing.shape), dtype=np.float32)
    np.save(tmp_path / "rows.npy", encoded)
    np.savez(tmp_path / "rows.npz", X_test=encoded, y_test=[0, 1, 0, 1])
    np.savez(tmp_path / "pu.npz", X=encoded, s=[0, 1, 0, 1])
    rows = tmp_path / "rows.npy"
    for words in (
        ["--test", rows, rows],
        [tmp_path / "rows.npz"],
        [tmp_path / "pu.npz"],
        ["--positives", rows, "--unlabelled", rows],
    ):
        must_refuse(capsys, "evaluate", trained / "run", *words, saying="arrays, but the model was trained on a table")


def test_what_is_read_is_not_written_over(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    table = write_csv(tmp_path / "new.csv", rows_of(20, 5))
    before = table.read_bytes()
    must_refuse(capsys, "predict", trained / "run", table, "--out", table, saying="is the input and")
    (tmp_path / "link.csv").symlink_to(table)
    must_refuse(capsys, "predict", trained / "run", table, "--out", tmp_path / "link.csv", saying="is the input and")
    must_refuse(capsys, "export", trained / "run", table, saying="give it the ending .onnx")
    assert table.read_bytes() == before


def test_wrong_words(trained: Path, capsys: Capture) -> None:
    table = trained / "ward.csv"
    for words, saying in (
        ([table], "--label"),
        ([table, "--label", "t"], "no column 't'"),
        ([table, "--label", "s", "--labelled", 5], "--labelled is for named sets"),
        ([table, "--label", "s", "--size", 5], "for folders"),
        (["digits", "--labelled", 50, "--label", "s"], "tables"),
    ):
        code, _, err = run_cli(capsys, "fit", *words, "--prior", 0.5)
        assert code == 2 and saying in err and err.count("\n") == 1


def fitted_on(table: Path, run: Path) -> Path:
    words = ["fit", str(table), "--label", "s", "--prior", "0.5", "--out", str(run), "--quiet", *TINY]
    assert main(words) == 0
    return run


@pytest.fixture(scope="module")
def run_of_a_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    rows = [{**row, "seen": str(number % 5 == 0).upper()} for number, row in enumerate(rows_of(60))]
    data = write_csv(folder / "a.csv", rows)
    return fitted_on(data, folder / "run")


def test_a_loaded_model_finds_the_columns_of_a_data_frame_by_name(run_of_a_table: Path) -> None:
    loaded, model = SplitPUClassifier.load(run_of_a_table), Model.load(run_of_a_table)
    table = read_table(run_of_a_table.parent / "a.csv")
    encoded = TableRecipe.from_dict(model.inputs or {}).encode(table)
    expected = model.decision(encoded, Hardware.choose("cpu", EngineConfig(threads=1)))
    ages = [None if age is None else float(age) for age in table.columns["age"]]
    frame = pyarrow.table({**table.columns, "age": ages})
    for order in (frame.column_names, ["seen", "ward", "age"]):
        np.testing.assert_allclose(loaded.decision_function(frame.select(order)), expected, atol=1e-6)
    np.testing.assert_allclose(loaded.base_.predict_proba(frame)[:, 1].round(), loaded.base_.predict(frame))


def test_what_a_loaded_model_cannot_find_in_x_is_named(run_of_a_table: Path) -> None:
    loaded = SplitPUClassifier.load(run_of_a_table)
    cells: dict[str, Any] = {"age": [41.0], "ward": ["north"], "seen": ["TRUE"]}
    with pytest.raises(InputError, match="X lacks columns that the model was trained on: add 'ward'"):
        loaded.predict(pyarrow.table({name: cells[name] for name in ("age", "seen")}))
    with pytest.raises(InputError, match=r"'age' of X holds 'old', .*: replace it or leave the cell empty"):
        loaded.predict(pyarrow.table(cells | {"age": ["old"]}))
    words, values = (pyarrow.table(cells | {"seen": [seen]}) for seen in ("TRUE", True))
    assert loaded.decision_function(words) == loaded.decision_function(values)
    with pytest.raises(InputError, match="'seen' of X holds '2026-01-01', but the model takes numbers there"):
        loaded.predict(pyarrow.table(cells | {"seen": [np.datetime64("2026-01-01", "s")]}))
    with pytest.raises(InputError, match=r"no column names.*give X as a data frame"):
        loaded.predict(np.zeros((2, 8)))


def test_a_table_of_plain_numbers_may_be_an_array_too(tmp_path: Path) -> None:
    rows = [{name: round(float(value), 3) for name, value in row.items()} for row in plain_numbers()]
    data = write_csv(tmp_path / "a.csv", rows)
    loaded = SplitPUClassifier.load(fitted_on(data, tmp_path / "run"))
    frame = pyarrow.table({name: [row[name] for row in rows] for name in ("b", "a")})
    in_the_files_order = np.array([[row["a"], row["b"]] for row in rows])
    np.testing.assert_array_equal(loaded.decision_function(frame), loaded.decision_function(in_the_files_order))


def plain_numbers() -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [{"a": random.normal(3 * (n % 2)), "b": random.normal(), "s": n % 4 == 1} for n in range(40)]


def test_if_lists_are_written_out_in_short() -> None:
    assert if_lists_are_written_out("text", ["[0.1, 0.2]", "[0.3, 0.4]"]) == [
        "column 'text' seems to hold lists written out as text: save the table as Parquet to have their numbers used."
    ]


def test_fit_frame_in_short() -> None:
    class Frame(dict):  # type: ignore[type-arg]
        columns = ("age", "ward")
        dtypes = (float, object)

    _, recipe, _ = fit_frame(Frame(age=[40.0, None], ward=["north", "south"]))
    assert recipe.feature_names == ("age", "age is missing", "ward = north", "ward = south")


def test_is_free_text_in_short() -> None:
    assert is_free_text(["the battery died after a week", "works as it should, very quiet indeed"])
    assert (is_free_text(["very good"] * 3), is_free_text(["in the north of the city"] * 9)) == (False, False)
