"""`splitpu sensitivity`: its rows follow the rule by which the run itself decides."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli, tiny_arrays, write_npz
from fault_tools import forge

Capture = pytest.CaptureFixture[str]


def fitted(place: Path, capsys: Capture, *words: object) -> Path:
    """A quick run on rows without any truth."""
    data = write_npz(place / "pu.npz", **tiny_arrays(rows=240) | {"X_test": None, "y_test": None, "truth": None})
    quick = ["--rounds", 1, "--quiet", *TINY]
    assert run_cli(capsys, "fit", data, "--out", place / "run", *quick, *words)[0] == 0
    return place / "run"


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_a_calibrated_run_is_calibrated_for_every_prior(tmp_path: Path, capsys: Capture, method: str) -> None:
    run = fitted(tmp_path, capsys, "--prior", 0.5, "--calibration", method, "--set", "selection.held_out=0.4")
    code, out, _ = run_cli(capsys, "sensitivity", run, "--lowest", 0.3, "--highest", 0.7, "--steps", 6, "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert 0.5 in [row["prior"] for row in rows]
    rates = [row["positive_rate_unlabelled"] for row in rows]
    assert rates == sorted(rates) and (rates[0] < rates[-1] or method == "isotonic")  # whose steps may be wide
    code, out, err = run_cli(capsys, "sensitivity", run)
    assert code == 0 and "calibrated for that prior" in " ".join(out.split()) and "kept out of the training" in err


def test_a_temperature_does_not_keep_other_priors_from_moving_the_threshold(tmp_path: Path, capsys: Capture) -> None:
    run = fitted(tmp_path, capsys, "--prior", 0.5, "--calibration", "temperature", "--set", "selection.held_out=0.4")
    code, out, _ = run_cli(capsys, "sensitivity", run, "--lowest", 0.3, "--highest", 0.7, "--steps", 5, "--json")
    rates = [row["positive_rate_unlabelled"] for row in json.loads(out)["rows"]]
    assert code == 0 and rates == sorted(rates) and rates[0] < rates[-1]
    assert "where that prior puts it" in run_cli(capsys, "sensitivity", run)[1]


def test_what_is_special_about_the_run_s_own_row(tmp_path: Path, capsys: Capture) -> None:
    run = fitted(tmp_path, capsys)  # its prior is estimated
    assert "is the run as it is: that prior is an estimate" in run_cli(capsys, "sensitivity", run)[2]
    code, out, _ = run_cli(capsys, "sensitivity", run, "--refit", "--steps", 2, "--json")
    answer = json.loads(out)
    own = next(row for row in answer["rows"] if row["prior"] == answer["prior"])
    assert code == 0 and own["changed_decisions"] == 0 and "takes its prior as known" in answer["note"]


@pytest.mark.parametrize("steps", [6, 7])
def test_the_run_s_own_prior_has_one_row(tmp_path: Path, capsys: Capture, steps: int) -> None:
    run = fitted(tmp_path, capsys, "--prior", 0.3, "--scenario", "case-control")
    words = ("--lowest", 0.1, "--highest", 0.6, "--steps", steps, "--json")
    priors = [row["prior"] for row in json.loads(run_cli(capsys, "sensitivity", run, *words)[1])["rows"]]
    assert priors == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) and 0.3 in priors  # one step is 0.3 but for rounding


def test_runs_that_cut_at_one_half_say_so(tmp_path: Path, capsys: Capture) -> None:
    run = fitted(tmp_path, capsys, "--prior", 0.5, "--set", "threshold=half", "--set", "split.tau=0.99")
    assert "threshold=half" in run_cli(capsys, "sensitivity", run)[2]
    code, _, err = run_cli(capsys, "sensitivity", run, "--refit", "--steps", 2)
    assert code == 0 and "note: prior 0.25: round1.split: agreement" in err
    assert "SplitPUWarning" not in err and "threshold=half" not in err


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
def test_a_doubtful_estimate_has_a_range_all_the_same(tmp_path: Path, capsys: Capture, scenario: str) -> None:
    """An interval may end where nothing is positive or nothing negative, which no training could be given."""
    run = fitted(tmp_path, capsys, "--prior", 0.5, "--scenario", scenario)
    forge(run / "request.json", {"prior_estimate": {"interval": [0.0, 1.0]}})
    code, out, err = run_cli(capsys, "sensitivity", run, "--json")
    assert code == 0, err
    priors = [row["prior"] for row in json.loads(out)["rows"]]
    lowest = 40 / 240 if scenario == "single-training-set" else 0.0
    assert len(priors) > 5 and lowest < priors[0] < 0.5 < priors[-1] < 1 and priors == sorted(priors)


def test_estimates_that_are_not_to_be_believed_are_named(tmp_path: Path, capsys: Capture) -> None:
    """Labelled rows that were recorded otherwise than the others make every prior look right."""
    labels = (np.arange(200) % 5 == 0).astype(int)
    rows = np.random.default_rng(0).normal(size=(200, 30)).astype(np.float32) + labels[:, None]
    data = write_npz(tmp_path / "pu.npz", **dict.fromkeys(tiny_arrays()) | {"X": rows, "s": labels})
    aside = ["--set", "selection.held_out=0.4", "--set", "selection.criterion=none"]
    words = ["--method", "naive", "--prior", 0.5, "--quiet", "--out", tmp_path / "run", *TINY, *aside]
    assert run_cli(capsys, "fit", data, *words)[0] == 0
    code, _, err = run_cli(capsys, "sensitivity", tmp_path / "run", "--lowest", 0.45, "--highest", 0.6, "--steps", 3)
    assert code == 0 and "the run's own prior 0.5: the model ranks labelled positives above nearly everything" in err
    assert "do not believe the estimated accuracy of these priors" in err and "0.6 (memorised positives" in err
    own = json.loads(run_cli(capsys, "evaluate", tmp_path / "run", "--json")[1])["degenerate"]
    found = json.loads(run_cli(capsys, "sensitivity", tmp_path / "run", "--steps", 2, "--json")[1])["rows"]
    assert own in [row["degenerate"] for row in found if row["prior"] == 0.5]
