"""Models that are worth nothing are found out by their own training rows."""

from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli, write_npz

from splitpu.evaluation.diagnostics import find_worthlessness
from splitpu.runs.folder import RunFolder

Capture = pytest.CaptureFixture[str]


def test_a_model_that_learned_nothing_is_found_out_without_truth(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "same.npz", X=np.ones((80, 4)), X_test=None, y_test=None, truth=None, names=None)
    run = tmp_path / "run"
    code, _, err = run_cli(capsys, "fit", data, "--prior", 0.5, "--quiet", "--out", run, "--rounds", 1, *TINY)
    assert (
        code == 0 and err.count("round 1 student: the model gives every row the same score") == 2
    )  # when, and at the end
    assert any("do not rely on it" in warning for warning in RunFolder(run).read_result()["warnings"])


@pytest.mark.parametrize(
    ("labelled", "shift", "prior", "found"),
    [(40, 0, 0.3, True), (40, 1, 0.3, False), (3, 0, 0.3, False), (40, 0, 0.95, False)],
)
def test_no_better_than_chance_is_said_where_it_would_show(
    labelled: int, shift: float, prior: float, found: bool
) -> None:
    random = np.random.default_rng(0)
    positive, unlabelled = random.normal(shift, 1, labelled), random.normal(0, 1, 300)
    assert bool(find_worthlessness(positive, unlabelled, prior)) == found


@pytest.mark.parametrize(
    ("moved", "saying"), [(0, None), (9, "nearly all unlabelled rows positive"), (-9, "next to nothing positive")]
)
def test_without_a_prior_a_model_that_says_the_same_of_all_rows_is_found(moved: float, saying: str | None) -> None:
    random = np.random.default_rng(0)
    positive, unlabelled = random.normal(moved + 1, 1, 40), random.normal(moved, 1, 300)
    found = find_worthlessness(positive, unlabelled, None)
    assert found is None if saying is None else saying in str(found)


def test_a_run_without_a_prior_that_calls_everything_positive_is_found_out(tmp_path: Path, capsys: Capture) -> None:
    rows = np.random.default_rng(0).normal(size=(480, 5)).astype(np.float32)
    data = write_npz(
        tmp_path / "noise.npz", X=rows, s=np.arange(480) < 80, X_test=None, y_test=None, truth=None, names=None
    )
    words = ["fit", data, "--method", "vpu", "--prior", "none", "--set", "vpu.epochs=3", "--quiet"]
    code, _, err = run_cli(capsys, *words, "--out", tmp_path / "run")
    assert code == 0 and "VPU: the model calls nearly all unlabelled rows positive" in err
