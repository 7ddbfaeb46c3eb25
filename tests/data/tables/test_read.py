"""Columns of tables as users have them: labels in their own words, and features that are not what they seem.

Tables whose cells are lists of numbers, as programs that make embeddings write them.
"""

import csv
import json
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import numpy as np
import pyarrow.parquet
import pytest
from cli_tools import TINY, must_do, run_cli, tiny_arrays
from table_tools import TableData, read_table_data

from splitpu import SplitPUClassifier
from splitpu.data.tables.encode import TableRecipe, TableSource, rows_for_table_model
from splitpu.data.tables.read import Table, as_days, as_numbers, order_of_dates, read_table, write_parquet
from splitpu.errors import InputError
from splitpu.prior.estimate import ResolvedPrior

Capture = pytest.CaptureFixture[str]


def write_table(path: Path, positive: str, other: str, *, truth: bool = False, extra: bool = False) -> Path:
    """Tiny rows with labels in the user's own words; `extra` is filled in for labelled rows only."""
    arrays = tiny_arrays()
    rows, labels = (arrays["X_test"], arrays["y_test"]) if truth else (arrays["X"], arrays["s"])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x0", "x1", "x2", "x3", *(["biopsy"] if extra else []), "state"])
        for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
            biopsy = [str(2010 + number % 7) if label else ""] if extra else []
            writer.writerow([*row.tolist(), *biopsy, positive if label else other])
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over a table whose labels are yes and no, and test rows whose labels are 1 and 0."""
    folder = tmp_path_factory.mktemp("labels")
    table = write_table(folder / "yes no.csv", "yes", "no")
    write_table(folder / "test 1 0.csv", "1", "0", truth=True)
    asked = ["fit", table, "--label", "state", "--positive-label", "yes", "--prior", 0.5, "--quiet", "--rounds", 1]
    must_do(*asked, "--out", folder / "table", *TINY)
    return folder


# ------------------------------------------------------------------------------------------------------------ labels


def test_a_test_table_in_other_words_is_no_table_of_negatives(place: Path, capsys: Capture) -> None:
    asked = ["evaluate", place / "table", "--test", place / "test 1 0.csv"]
    code, out, err = run_cli(capsys, *asked)
    assert (code, out) == (2, "") and "holds '0', '1' but never 'yes'" in err and "--positive-label" in err
    code, out, _ = run_cli(capsys, *asked, "--positive-label", "1")
    assert code == 0 and "50.0 % of the test rows are positive" in out


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("yes", "no"), "such as --positive-label yes"),
        (("ill", "healthy"), "such as --positive-label ill"),
        (("a b", ""), "such as --positive-label 'a b'"),
        (("0.7", "0.2"), "holds '0.2', '0.7'"),
        (("gut", "schlecht"), "--positive-label which of them means positive."),
    ],
)
def test_labels_in_words_are_never_turned_round(tmp_path: Path, words: tuple[str, str], advice: str) -> None:
    path = write_table(tmp_path / "t.csv", *words)
    with pytest.raises(InputError, match="--positive-label") as raised:
        read_table_data(TableSource(path=str(path), label="state"))
    assert advice in str(raised.value) and f"such as --positive-label {words[1] or '0'}" not in str(raised.value)


def test_words_that_look_the_same_are_the_same(tmp_path: Path) -> None:
    places, states = ("S\xfcd", "Nord"), ("", "best\xe4tigt")
    rows = [f"M\xfcller {row},{row % 7},{places[row % 2]},{states[row % 3 == 0]}" for row in range(30)]
    content = "\n".join(["n\xe4me,x,st\xe4tte,gepr\xfcft", *rows])
    found = []
    ways: list[tuple[Literal["NFC", "NFD"], Literal["NFC", "NFD"]]] = [("NFC", "NFD"), ("NFD", "NFC")]
    for file, words in ways:
        (tmp_path / f"{file}.csv").write_text(normalize(file, content), encoding="utf-8")
        label, positive = (normalize(words, word) for word in ("gepr\xfcft", "best\xe4tigt"))
        found.append(read_table_data(TableSource(path=str(tmp_path / f"{file}.csv"), label=label, positive=positive)))
    assert found[0].labelled.sum() == 10
    np.testing.assert_array_equal(found[0].features, found[1].features)
    assert found[1].names is not None and found[1].names[0] == normalize("NFD", "M\xfcller 0")  # as the table has it
    older = found[0].recipe.to_dict()
    older["columns"] = [{**one, "name": normalize("NFD", one["name"])} for one in older["columns"]]
    encoded = TableRecipe.from_dict(older).encode(read_table(tmp_path / "NFD.csv"))
    np.testing.assert_array_equal(encoded, found[0].features)


def test_misspelt_labels_and_columns(place: Path, capsys: Capture) -> None:
    table = place / "yes no.csv"
    _, _, err = run_cli(capsys, "fit", table, "--label", "state", "--positive-label", "Yes")
    assert "holds 'no', 'yes' but never 'Yes'" in err
    _, _, err = run_cli(capsys, "fit", table, "--label", "stat")
    assert "did you mean 'state'?" in err
    _, _, err = run_cli(capsys, "fit", table, "--label", "target")
    heading = table.read_text(encoding="utf-8").splitlines()[0].split(",")
    assert f"no column 'target' (it has {', '.join(map(repr, heading))})" in err
    wide = table.with_name("wide.csv")  # the column meant often is the last one
    wide.write_text(",".join([f"c{number}" for number in range(40)] + ["confirmed"]) + "\n" + "1," * 40 + "1\n")
    _, _, err = run_cli(capsys, "fit", wide, "--label", "target")
    assert "(it has 'c0', 'c1'," in err and "'c14', ..., 'c26'," in err and "'c39', 'confirmed')" in err


# ---------------------------------------------------------------------------------------------------------- features


def test_true_and_false_are_the_same_from_csv_and_parquet(tmp_path: Path) -> None:
    truth = [None if number == 7 else number % 3 == 0 for number in range(12)]
    words = [f"{'' if one is None else str(one).upper()},{number < 3}" for number, one in enumerate(truth)]
    (tmp_path / "a.csv").write_text("\n".join(["flag,s", *words]))
    write_parquet(tmp_path / "a.parquet", {"flag": truth, "s": [number < 3 for number in range(12)]})
    found = [read_table_data(TableSource(path=str(tmp_path / name), label="s")) for name in ("a.csv", "a.parquet")]
    assert found[0].recipe == found[1].recipe and found[0].recipe.feature_names == ("flag", "flag is missing")
    np.testing.assert_array_equal(found[0].features, found[1].features)
    assert found[0].features[[0, 1, 7], 0].tolist() == [1, 0, 0]
    for positive in ("1", "True"):  # what a Parquet table may call its positives
        labelled = read_table_data(TableSource(path=str(tmp_path / "a.parquet"), label="s", positive=positive)).labelled
        assert labelled.tolist() == [number < 3 for number in range(12)]


def test_a_run_is_evaluated_as_its_columns_were_once_understood(tmp_path: Path, capsys: Capture) -> None:
    """Columns of a training table may be understood in another way by now, of which its run must not know."""
    table = write_table(tmp_path / "a.csv", "1", "0")
    heading, *rows = table.read_text().splitlines()
    flagged = [f"{number % 5 < 2},{row}" for number, row in enumerate(rows)]
    table.write_text("\n".join([f"flag,{heading}", *flagged]))
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr("splitpu.data.tables.read.truth_as_numbers", lambda values: values)
        words = ["fit", table, "--label", "state", "--prior", 0.5, "--out", tmp_path / "run", "--quiet", *TINY]
        words += ["--set", "selection.held_out=0.3", "--set", "selection.criterion=none"]
        assert run_cli(capsys, *words)[0] == 0
    for command in (["evaluate"], ["sensitivity", "--steps", 2]):
        code, _, err = run_cli(capsys, command[0], tmp_path / "run", *command[1:])
        assert code == 0, err


def test_codes_with_underscores_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("code,s\n" + "".join(f"1_{number % 3},{int(number < 4)}\n" for number in range(12)))
    found = read_table_data(TableSource(path=str(path), label="s"))
    assert found.recipe.feature_names == ("code = 1_0", "code = 1_1", "code = 1_2")


def test_a_column_that_only_labelled_rows_have_is_named(tmp_path: Path, capsys: Capture) -> None:
    leaking = write_table(tmp_path / "t.csv", "1", "0", extra=True)
    plain = write_table(tmp_path / "u.csv", "1", "0")
    said = {
        path.name: read_table_data(TableSource(path=str(path), label="state")).warnings for path in (leaking, plain)
    }
    assert said["u.csv"] == () and len(said["t.csv"]) == 1
    assert "column 'biopsy' alone tells every labelled row" in said["t.csv"][0]
    code, _, err = run_cli(capsys, "fit", leaking, "--label", "state", "--quiet", "--out", tmp_path / "run")
    assert code == 2 and "column 'biopsy' alone" in err  # before the sentence about the prior it makes impossible


@pytest.mark.parametrize("words", [["fit"], ["fit", "--seeds", "0,1"], ["compare", "--method", "nnpu", "--seeds", "0"]])
def test_what_is_wrong_with_the_data_is_said_once_and_before_the_prior_is_estimated(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    said_before: list[str] = []

    def noting(*_: object, **__: object) -> ResolvedPrior:
        said_before.append(capsys.readouterr().err)
        return ResolvedPrior(0.5, None, "given")

    monkeypatch.setattr("splitpu.cli.train.prior_for", noting)
    rows = [f"{row},2023-03-0{1 + row % 9},{int(row % 3 == 0)}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,seen,s", *rows]))
    _, _, err = run_cli(
        capsys, *words, tmp_path / "t.csv", "--label", "s", "--quiet", "--out", tmp_path / "run", "--rounds", 1, *TINY
    )
    assert said_before[0].count("column 'seen' holds dates") == 1
    assert "holds dates" not in "".join([*said_before[1:], err])


def read_notes(path: Path, content: str) -> tuple[str, ...]:
    path.write_text(content)
    return read_table_data(TableSource(path=str(path), label="s")).warnings


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_are_numbers(tmp_path: Path, delimiter: str) -> None:
    lines = [f"{number},5{delimiter}a,{number % 2}{delimiter}{number % 3 // 2}" for number in range(12)]
    (tmp_path / "t.csv").write_text("\n".join([delimiter.join(("x", "kind", "s")), *lines]))
    found = read_table_data(TableSource(path=str(tmp_path / "t.csv"), label="s"))
    assert found.recipe.feature_names == ("x", "kind = a,0", "kind = a,1")
    assert found.features[:3, 0].tolist() == [0.5, 1.5, 2.5]


SWISS_AND_FRENCH = ["1'{0:03}", "1\u2019{0:03}", "1\xa0{0:03}", "1\u202f{0:03}"]  # how spreadsheets part thousands


@pytest.mark.parametrize(
    "written", ["{0} %", "€ {0}", '"{0},5"', "{0}.25 mg/dl", "<{0}", '"1,{0:03}.5"', *SWISS_AND_FRENCH]
)
@pytest.mark.parametrize("different", [12, 36])
def test_numbers_with_signs_and_units_are_told(tmp_path: Path, written: str, different: int) -> None:
    rows = [f"{written.format(row % different)},{row},{int(row < 3)}" for row in range(36)]
    notes = read_notes(tmp_path / "a.csv", "\n".join(["value,x,s", *rows]))
    assert any("column 'value' holds numbers written as" in note for note in notes), notes


@pytest.mark.parametrize("written", ["{0}a", "T{0}", "{0}-{1}", "{0}_1", "ward {0}", "{0}.1.2"])
def test_codes_with_numbers_in_them_are_no_numbers(tmp_path: Path, written: str) -> None:
    rows = [f"{written.format(row % 12, row % 12 + 5)},{row},{int(row < 3)}" for row in range(36)]
    notes = read_notes(tmp_path / "a.csv", "\n".join(["value,x,s", *rows]))
    assert not any("column 'value'" in note for note in notes), notes


def test_thousands_parted_by_points_are_told(tmp_path: Path) -> None:
    lines = [f"{f'{1 + number}.{number:03}' if number > 2 else 900 + number};{int(number < 3)}" for number in range(30)]
    (note,) = read_notes(tmp_path / "a.csv", "\n".join(["cells;s", *lines]))
    assert "column 'cells' holds '902' but also '4.003', which is read as 4.003: if it means 4003" in note
    recipe, _ = TableRecipe.fit({"cells": [str(903 + number) for number in range(30)]})
    assert note in recipe.notes_on(read_table(tmp_path / "a.csv"))


def test_numbers_spoilt_by_a_word_are_told(tmp_path: Path) -> None:
    lines = [f"{number / 4},{int(number < 3)}" for number in range(12)]
    assert read_notes(tmp_path / "a.csv", "\n".join(["x,s", *lines])) == ()
    (note,) = read_notes(tmp_path / "b.csv", "\n".join(["x,s", *lines, "<5,0"]))
    assert "column 'x' holds numbers but also '<5'" in note


def test_a_numbering_of_the_rows_is_told(tmp_path: Path) -> None:
    lines = [f"{100 + number},{number % 7},{int(number % 5 == 0)}" for number in range(30)]
    (note,) = read_notes(tmp_path / "t.csv", "\n".join(["nr,x,s", *lines]))
    assert "column 'nr' looks like a numbering of the rows" in note


def read_export(path: Path, rows: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and names of features of a table as a hospital's system writes it."""
    path.write_text("\n".join(["nr;value;seen;s", *rows]))
    found = read_table_data(TableSource(path=str(path), label="s"))
    return found.warnings, found.recipe.feature_names


def test_decimal_commas_spoilt_by_a_word_are_told(tmp_path: Path) -> None:
    rows = [f"P{row};{row},5;{1 + row % 9}.3.2023;{int(row < 3)}" for row in range(30)]
    notes, _ = read_export(tmp_path / "a.csv", [*rows, "P99;n.b.;1.1.2023;0"])
    assert any("column 'value' holds numbers but also 'n.b.'" in note for note in notes), notes


def test_a_new_table_without_the_word_has_the_same_categories(tmp_path: Path) -> None:
    rows = [f"P{row};{row % 3},5;{1 + row % 9}.3.2023;{int(row < 3)}" for row in range(30)]
    _, spoilt = read_export(tmp_path / "a.csv", [*rows, "P99;n.b.;1.1.2023;0"])
    assert {"value = 0.5", "value = 1.5", "value = n.b."} <= set(spoilt)


@pytest.mark.parametrize("date", ["3/{0}/23", "3/{0}/2023", "{0}-3-2023"])
def test_dates_of_which_nobody_knows_the_month_are_told_to_be_taken_for_categories(tmp_path: Path, date: str) -> None:
    rows = [f"P{row};{row % 5};{date.format(1 + row % 9)};{int(row < 3)}" for row in range(30)]
    notes, names = read_export(tmp_path / "a.csv", rows)
    assert any("column 'seen' holds dates that can be read in two ways" in note for note in notes), notes
    assert f"seen = {date.format(1)}" in names


@pytest.mark.parametrize(
    "date", ["{0}.03.2023", "2023-03-{0:02}", "3/{0}/2023", "{0}-3-2023", "2023-03-{0:02} 08:15:00", "2023-3-{0}T08Z"]
)
def test_dates_are_days(tmp_path: Path, date: str) -> None:
    rows = [f"P{row};{row % 5};{date.format(1 + row % 29)};{int(row < 3)}" for row in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["nr;value;seen;s", *rows]))
    found = read_table_data(TableSource(path=str(tmp_path / "a.csv"), label="s"))
    assert found.recipe.feature_names == ("value", "seen")
    assert any("column 'seen' holds dates, 2023-03-01 to 2023-03-29" in note for note in found.warnings)
    days = found.features[:, 1]
    np.testing.assert_allclose(days - days[0], np.arange(30) % 29)


def test_dates_of_a_model_are_read_however_new_tables_write_them(tmp_path: Path) -> None:
    rows = [f"{1 + row}.3.2023;{int(row < 9)}" for row in range(31)]
    (tmp_path / "a.csv").write_text("\n".join(["seen;s", *rows, ";0"]))
    read = read_table_data(TableSource(path=str(tmp_path / "a.csv"), label="s")).recipe
    recipe = TableRecipe.from_dict(json.loads(json.dumps(read.to_dict())))
    assert recipe.feature_names == ("seen", "seen is missing")
    cells = ["16.3.2023", "2023-03-17 12:00", datetime(2023, 3, 15), None, "1.2.0001"]
    found = recipe.encode(Table({"seen": cells}, "b.csv"))
    assert found[:, 0].tolist() == [0, 1.5, -1, 0, -738_563]
    assert found[:, 1].tolist() == [0, 0, 0, 1, 0]
    for odd in ("3/31/2023", "soon", 44_000.0, "30.2.2023", "2023-03-01T25:00"):
        with pytest.raises(InputError, match=r"column 'seen' of b.csv holds .*write it as in 2023-03-01"):
            recipe.encode(Table({"seen": ["1.3.2023", odd]}, "b.csv"))


def test_dates_that_all_differ_are_no_names_of_rows(tmp_path: Path) -> None:
    rows = [f"2023-03-{1 + row:02},{row % 3},{int(row < 9)}" for row in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["seen,x,s", *rows]))
    assert read_table_data(TableSource(path=str(tmp_path / "a.csv"), label="s")).names is None


@pytest.mark.parametrize(
    "said",
    [
        "3/14/2023 5:07",
        "3/14/2023 5:07 AM",
        "3/14/2023, 5:07:00 a.m.",
        "14.03.2023, 05:07",
        "2023-03-14 05:07 UTC",
        "2023-03-14 07:07:00 +02:00",
    ],
)
def test_the_time_of_a_date_is_read_as_spreadsheets_write_it(said: str) -> None:
    moment = datetime(2023, 3, 14, 5, 7) - datetime(1970, 1, 1)
    assert as_days([said], order_of_dates([said])) == pytest.approx(moment.total_seconds() / 86_400, abs=1e-9)
    for noon, hour in (("12 PM", 12), ("12:00 am", 0), ("1:00 P.M.", 13), ("13", 13)):
        assert as_days([f"1970-01-01 {noon}"], "ymd") == pytest.approx(hour / 24)


def test_days_before_months_are_known_by_points_and_not_by_the_points_of_a_clock() -> None:
    assert order_of_dates(["2023-05-04", "3.4.2023"]) == order_of_dates(["3.4.2023", "2023-05-04"]) == "ymd"
    assert as_days(["3.4.2023"], "ymd") == as_days(["2023-04-03"], "ymd")
    assert order_of_dates(["3.14.2023"]) == "mdy"
    assert order_of_dates(["3/4/2023 05:00:00.000", "5/6/2023 05:00:00.000"]) == ""
    assert as_days(["3/4/2023"], order_of_dates(["3.4.2023"])) is None  # in another writing it may be either


@pytest.mark.parametrize(("odd", "why"), [("unknown", "but also 'unknown'"), ("0000-00-00", "or are no days")])
@pytest.mark.parametrize("differ", [False, True])
def test_what_keeps_dates_from_being_days_is_said(tmp_path: Path, odd: str, why: str, differ: bool) -> None:
    days = [f"2023-{1 + row // 20:02}-{1 + row % 20:02}" for row in range(60)]
    rows = [f"{day},{row % 3},{int(row < 9)}" for row, day in enumerate([*days, odd] if differ else [*days, odd, odd])]
    notes = read_notes(tmp_path / "a.csv", "\n".join(["seen,x,s", *rows]))
    assert any("column 'seen' holds dates " in note and why in note for note in notes), notes


def test_one_date_a_row_is_no_numbering_to_name_rows_by(tmp_path: Path) -> None:
    rows = [f"2023-03-{1 + row:02},{row % 3},{int(row % 4 == 0)}" for row in range(30)]
    (note,) = read_notes(tmp_path / "a.csv", "\n".join(["seen,x,s", *rows]))
    assert "holds dates" in note


def test_beside_words_the_steps_of_dates_are_dates() -> None:
    columns = {"seen": [f"2023-03-{1 + row:02}" for row in range(30)], "title": ["one word more or less here"] * 30}
    recipe, _ = TableRecipe.fit(columns, kinds={"title": "text"})
    assert recipe.feature_names[0] == "seen >= 2023-03-06"


def test_how_long_something_took_is_a_number(tmp_path: Path) -> None:
    took = [timedelta(hours=6 * row) for row in range(9)]
    write_parquet(tmp_path / "a.parquet", {"took": took, "s": [1, 1] + 7 * [0]})
    found = read_table_data(TableSource(path=str(tmp_path / "a.parquet"), label="s"))
    assert found.recipe.feature_names == ("took",) and found.features[:, 0].tolist() == [row / 4 for row in range(9)]


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
    with pytest.raises(InputError, match="holds lists, not names: check --names"):
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
    fitted = SplitPUClassifier(prior=0.4, learner="logistic").fit(frame.select(["age", "embedding"]), LABELS)
    assert fitted.n_features_in_ == 2 and fitted.model_.preprocessing.shape == (found.features.shape[1],)


def test_words_that_are_written_as_bytes_are_words(tmp_path: Path) -> None:
    words = pyarrow.array([b"yes" if label else b"no" for label in LABELS], pyarrow.binary())
    found = trained(tmp_path, ward=words)
    assert {"ward = no", "ward = yes"} <= set(found.recipe.feature_names)


def test_as_numbers_in_short() -> None:
    assert as_numbers(["yes", "1"]) is None
    np.testing.assert_array_equal(as_numbers(["1", None, 2.5]), [1.0, np.nan, 2.5])
