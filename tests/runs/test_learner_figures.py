"""What a run over a table says of itself: by learners that had not seen the row, in the folder and on the page."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, must_do, must_refuse, run_cli, tiny_arrays, write_npz
from sklearn.metrics import roc_auc_score

from splitpu import load_named, make_pu, preset
from splitpu.engine.hardware import Hardware
from splitpu.evaluation.judgement import estimated
from splitpu.training import TrainSpec, profile_of, train

Capture = pytest.CaptureFixture[str]
WITHOUT_TRUTH = {"X_test": None, "y_test": None, "truth": None}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with learners on rows of which no truth is known."""
    folder = tmp_path_factory.mktemp("learners")
    data = write_npz(folder / "pu.npz", **tiny_arrays(rows=240) | WITHOUT_TRUTH)
    must_do("fit", data, "--prior", 0.5, "--quiet", "--out", folder / "run")
    return folder / "run"


def test_the_result_names_the_learners_and_its_figures_are_those_of_evaluate(run: Path, capsys: Capture) -> None:
    result = json.loads((run / "result.json").read_text())
    assert result["models"][0]["model"].startswith("base: ") and result["final"] == result["models"][-1]["model"]
    assert all("student" not in model["model"] for model in result["models"])
    assert {"learner", "auc", "auc_low", "auc_high", "seconds", "chosen"} <= set(result["learners"][0])
    assert result["seconds_total"] > 0
    code, out, err = run_cli(capsys, "evaluate", run, "--json")
    found = json.loads(out)
    assert code == 0 and found["figures"] == result["figures"] and "out of fold" in found["note"]
    figure = found["figures"]["roc_auc"]
    assert figure["low"] <= figure["value"] <= figure["high"] and figure["naive"] is not None
    assert "positives" in found["note"]  # two clouds far apart: it looks too good, and is said to
    _, out, err = run_cli(capsys, "evaluate", run)
    assert "always negative" in out and "in the top 120" in out and "out of fold" in err


def test_the_answer_of_fit_shows_learners_and_figures(run: Path, capsys: Capture) -> None:
    code, out, err = run_cli(capsys, "resume", run)
    said = " ".join(out.split())
    assert code == 0 and "base: " in said and "out of fold" in said and "enrichment in the top 120" in said
    assert "estimated out of fold" in err


def test_the_page_shows_the_same(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert 'id="learners"' in page and 'id="curves"' not in page and "How right the final model is" in page
    assert "Every row was judged by models that had not seen it" in page and "training rows" not in page


@pytest.mark.parametrize(
    "stored",
    [
        np.zeros((2, 7)),
        np.zeros(240),
        np.full((2, 240), np.nan),
        np.zeros((2, 240), np.float32),
        np.array([[None] * 240] * 2),
        b"",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (2, 999999999999), }".ljust(128),
    ],
    ids=["other rows", "one line", "no numbers", "other numbers", "pickled", "empty", "promises more than it holds"],
)
def test_out_of_fold_decisions_that_are_not_those_of_the_run(
    run: Path, tmp_path: Path, stored: object, capsys: Capture
) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    if isinstance(stored, bytes):
        (copy / "out_of_fold.npy").write_bytes(stored)
    else:
        np.save(copy / "out_of_fold.npy", stored)
    must_refuse(
        capsys, "evaluate", copy, saying=r"out_of_fold\.npy (cannot be read|does not hold two finite).*copy the"
    )
    (copy / "out_of_fold.npy").unlink()
    must_refuse(capsys, "evaluate", copy, saying=r"out_of_fold\.npy cannot be read \(it is missing\); copy the run")


def test_a_network_that_saw_all_rows_says_how_to_have_figures(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "pu.npz", **WITHOUT_TRUTH)
    words = ["fit", data, "--prior", 0.5, "--quiet", *TINY]
    code, _, err = run_cli(capsys, *words, "--out", tmp_path / "run")
    assert code == 0 and "trained on all labelled rows" in err and "selection.held_out=0.2" in err
    assert "figures" not in json.loads((tmp_path / "run/result.json").read_text())
    assert not (tmp_path / "run/out_of_fold.npy").exists()
    page = (tmp_path / "run/report.html").read_text()
    assert "trained on all labelled rows" in page and 'id="reliability"' not in page
    advice = re.findall(r"--set \S+", err)
    code, _, err = run_cli(
        capsys, *words, "--out", tmp_path / "other", *(word for one in advice for word in one.split())
    )
    result = json.loads((tmp_path / "other/result.json").read_text())
    assert code == 0 and result["figures_notes"][0] == "estimated from the rows that were kept out of the training"
    assert json.loads(run_cli(capsys, "evaluate", tmp_path / "other", "--json")[1])["figures"] == result["figures"]


def test_with_test_rows_the_same_figures_are_counted(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=120))
    must_do("fit", data, "--prior", 0.5, "--quiet", "--out", tmp_path / "run")
    result = json.loads((tmp_path / "run/result.json").read_text())
    code, out, _ = run_cli(capsys, "evaluate", tmp_path / "run", "--json")
    answer = json.loads(out)
    assert code == 0 and {"precision@20", "lift@20", "average_precision"} <= set(answer["figures"])
    assert answer["figures"]["accuracy"]["value"] == result["models"][-1]["test"]["accuracy"]
    assert answer["figures"]["roc_auc"]["value"] == pytest.approx(result["figures"]["roc_auc"]["value"])
    assert answer["figures"]["accuracy"]["always_negative"] == 0.5 and answer["figures"]["f1"]["naive"] is not None


def test_estimated_figures_of_a_real_table_are_near_the_true_ones() -> None:
    gaps = []
    for seed in range(3):
        data, test = make_pu(load_named("breast-cancer"), 60, seed=seed)
        assert data.truth is not None
        prior = float(data.truth.mean())
        training = train(data, TrainSpec(config=preset("default", profile_of(data)), prior=prior, seed=seed))
        assert training.out_of_fold is not None
        decision, naive = training.out_of_fold
        found = estimated(decision, data.labelled, prior, scenario=data.scenario, naive=naive)["roc_auc"]
        scores = training.model.decision(test.features, Hardware.choose("cpu", training.model.config.engine))
        true = roc_auc_score(test.truth, scores)
        gaps.append(abs(found.value - true))
        assert found.low <= true <= found.high, (found, true)
    assert np.mean(gaps) < 0.03, gaps
