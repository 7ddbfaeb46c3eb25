"""A run whose students learn nothing: it ends with the base model, and says so wherever somebody may look."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import run_cli, write_npz
from safetensors.torch import load_file
from splitpu_tools import QUICK, mixture

from splitpu import SplitPUClassifier, SplitPUWarning
from splitpu.cli import main
from splitpu.cli.display import show_result
from splitpu.engine.stage import Observer
from splitpu.methods import split_pu as student
from splitpu.reproduce.declared import experiments
from splitpu.reproduce.summary import reading
from splitpu.reproduce.unit_runs import Workplace, run_unit
from splitpu.reproduce.units import smoke_units
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid import mean_rows, seed_rows, summary_of

ALL_POSITIVE = ("student.optimiser.rate=0.1", "student.positive_weight=100", "student.positives_per_batch=16")
NOT_TAKEN = ["round 1 student, not taken", "round 2 student, not taken"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("not-taken")
    rows, truth = mixture()
    test = {"X_test": rows.features[::3], "y_test": truth[::3].astype(int)}
    data = write_npz(place / "rows.npz", X=rows.features, s=rows.labelled.astype(int), truth=truth, names=None, **test)
    settings = [word for setting in (*QUICK, *ALL_POSITIVE) for word in ("--set", setting)]
    assert main(["fit", str(data), "--prior", "0.5", "--quiet", "--out", str(place / "run"), *settings]) == 0
    return place / "run"


def test_the_result_lists_all_models_and_names_the_final_one(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert [model["model"] for model in result["models"]] == ["base", *NOT_TAKEN]
    assert result["final"] == "base" and [one["taken"] for one in result["rounds"]] == [False, False]
    assert all(model["test"]["accuracy"] is not None for model in result["models"])
    weights = load_file(run / "model.safetensors")
    bases = {name.removeprefix("base/"): tensor for name, tensor in weights.items() if name.startswith("base/")}
    assert bases and all(weights[f"final/{name}"].equal(tensor) for name, tensor in bases.items())


def test_a_comparison_judges_the_model_that_was_kept(tmp_path: Path) -> None:
    rows, truth = mixture()
    parts = {"X": rows.features, "s": rows.labelled.astype(int), "truth": truth, "names": None}
    test = {"X_test": rows.features[::3], "y_test": truth[::3].astype(int)}
    data = write_npz(tmp_path / "rows.npz", **parts, **test)
    settings = [word for setting in (*QUICK, *ALL_POSITIVE) for word in ("--set", setting)]
    asked = ["compare", str(data), "--method", "split-pu,nnpu", "--seeds", "0", "--prior", "0.5"]
    assert main([*asked, "--out", str(tmp_path / "both"), *settings]) == 0
    lines = [json.loads(line) for line in (tmp_path / "both" / "runs.jsonl").read_text().splitlines()]
    assert [line["method"] for line in lines] == ["split-pu", "nnpu"]
    assert lines[0]["test"] == lines[1]["test"]  # its students were not taken, and its base is nnPU's


def test_scores_are_those_of_the_base(run: Path) -> None:
    with (run / "scores.csv").open() as file:
        scores = [float(line["probability"]) for line in csv.DictReader(file)]
    with (run / "split.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["round"] == "2"]
    taught = {int(line["index"]): float(line["teacher_probability"]) for line in lines}
    assert taught and [scores[row] for row in taught] == pytest.approx(list(taught.values()), rel=1e-4)


def test_the_command_line_says_which_model_it_is_and_why(run: Path, capsys: Capture) -> None:
    code, out, err = run_cli(capsys, "info", run)
    assert code == 0 and all(name in out for name in NOT_TAKEN)
    assert "base, as no student after it was taken" in " ".join(out.split())
    notes = err.splitlines()
    assert [note.split(":")[1] for note in notes] == [" round1.student", " round2.student"]
    assert all("the model that taught it stays" in note and "lower student." in note for note in notes)


def test_the_report_says_so_and_shows_what_the_base_doubts(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "No student was taken, as none learned anything: the base model calls" in page
    assert page.count("The student of this round was not taken") == 2
    assert "both times as the final model sees them" in page and "on the test set is <strong>" in page


def test_the_estimator_says_which_students_were_taken() -> None:
    data, _ = mixture()
    quick = dict(setting.split("=") for setting in (*QUICK, *ALL_POSITIVE))
    config = {key: float(value) if "." in value else int(value) for key, value in quick.items()}
    with pytest.warns(SplitPUWarning, match="so it is not taken"):
        fitted = SplitPUClassifier(prior=0.5, config=config, random_state=0).fit(data.features, data.labelled)
    assert [found.taken for found in fitted.rounds_] == [False, False]
    assert np.array_equal(fitted.predict_proba(data.features), fitted.base_.predict_proba(data.features))


def test_tables_and_choices_take_the_model_that_stayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = next(u for u in smoke_units(experiments().values()) if u.experiment.name == "main")
    monkeypatch.setattr(student, "_learned", lambda *_: False)
    line = run_unit(unit, Workplace(tmp_path, "cpu"), Observer(), lambda _: None)
    assert line["rounds"][0]["taken"] is False and line["rounds"][0]["accuracy"] is not None
    assert line["accuracy"] == line["base_accuracy"] == reading(line, "rounds.1")
    assert line["metrics"] == line["base_metrics"]


def test_seeds_that_end_with_different_models_are_summed_up_by_their_final_ones() -> None:
    def model(name: str, rate: float) -> dict[str, object]:
        return {"model": name, "positive_rate_unlabelled": rate, "test": None}

    taken = {"models": [model("base", 0.1), model("round 1 student", 0.2)], "final": "round 1 student"}
    not_taken = {"models": [model("base", 0.4), model("round 1 student, not taken", 1.0)], "final": "base"}
    summary = summary_of({0: taken | {"seconds_total": 1.0}, 1: not_taken | {"seconds_total": 1.0}})
    assert [row["model"] for row in mean_rows(summary)] == [
        *("base", "round 1 student", "round 1 student, not taken", "final"),
    ]
    assert [row["positive_rate_unlabelled"] for row in seed_rows(summary)] == [0.2, 0.4]
    alike = summary_of({seed: taken | {"seconds_total": 1.0} for seed in (0, 1)})
    assert [row["model"] for row in mean_rows(alike)] == ["base", "round 1 student"]


def test_a_model_not_to_be_relied_on_is_named_at_the_end(run: Path, capsys: Capture) -> None:
    folder = RunFolder(run)
    result = folder.read_result()
    show_result(
        folder, {**result, "warnings": ["column 'a' is empty.", student._never_learned("round1.student")]}, json=False
    )
    out, err = capsys.readouterr()
    assert "notes   2, all in the report" in out
    assert err.startswith("note: round1.student: after 3 attempts") and err.count("\n") == 1
