"""A run that takes long says so, and what would make it shorter.

Methods on the command line: listed, run, and without a prior where they need none.
"""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cli_tools import run_cli, tiny_arrays, write_npz
from method_tools import METHODS, SETTINGS, budget

from splitpu import preset
from splitpu.cli.progress import LineDisplay
from splitpu.cli.train import LongRun
from splitpu.data.pudata import PUData
from splitpu.engine.stage import CountedEpochs, EpochRecord


@pytest.mark.parametrize(("seconds", "restored", "said"), [(0.5, 0, 0), (90.0, 0, 1), (90.0, 7, 1)])
def test_a_run_that_takes_long_says_so_once_and_early(seconds: float, restored: int, said: int) -> None:
    config = preset("default")
    data = PUData.from_arrays(np.zeros((60, 96, 96)), np.arange(60) < 20)
    told: list[str] = []
    pace = LongRun(config, data, told.append, backbone="auto", from_files=True)
    pace.stage_started(SimpleNamespace(name="base"), restored)  # type: ignore[arg-type]
    for epoch in range(restored + 1, 41):
        pace.epoch_done(EpochRecord("base", epoch, 40, seconds, 1e-3, {}))
        assert len(told) == (said if epoch >= restored + 2 else 0)
    pace.stage_started(SimpleNamespace(name="round1.split"), 0)  # type: ignore[arg-type]
    pace.epoch_done(EpochRecord("round1.split", 2, 40, 1000.0, 1e-3, {}))
    assert len(told) == said
    assert not told or (" hours; " in told[0] and "--size 64" in told[0])


@pytest.mark.parametrize(
    ("side", "backbone", "from_files", "rounds", "advice"),
    [
        (32, "cnn13", True, 2, "Faster: a smaller network (--backbone cnn-small) or a single round (--rounds 1)."),
        (32, "auto", True, 2, "Faster: a single round (--rounds 1)."),  # which is the smaller network for so few
        (96, "cnn-small", True, 1, "Faster: smaller images (--size 64)."),
        (96, "cnn-small", False, 1, "stopped (Ctrl-C) and resumed."),  # --size is for folders
    ],
)
def test_a_long_run_is_told_only_what_would_make_it_shorter(
    side: int, backbone: str, from_files: bool, rounds: int, advice: str
) -> None:
    data = PUData.from_arrays(np.zeros((60, side, side), np.uint8), np.arange(60) < 20)
    told: list[str] = []
    config = dataclasses.replace(preset("default"), rounds=rounds)
    pace = LongRun(config, data, told.append, backbone=backbone, from_files=from_files)
    pace.stage_started(SimpleNamespace(name="base"), 0)  # type: ignore[arg-type]
    pace.epoch_done(EpochRecord("base", 2, 40, 90.0, 1e-3, {}))
    assert told[0].endswith(advice)


def test_the_time_is_guessed_before_anything_is_trained() -> None:
    data = PUData.from_arrays(np.random.default_rng(0).integers(0, 255, (60, 28, 28), np.uint8), np.arange(60) < 20)
    state, told = torch.get_rng_state(), []
    config = preset("default")
    pace = LongRun(config, data, told.append, backbone="auto", from_files=True, on_cpu=True)
    once, twice = pace.guess(), dataclasses.replace(pace, config=dataclasses.replace(config, rounds=8)).guess()
    assert 0 < once < 3600 and twice > 0 and torch.equal(torch.get_rng_state(), state) and not told


def test_lines_are_never_far_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("splitpu.cli.progress.time.monotonic", lambda: now[0])
    display, stage = LineDisplay(), SimpleNamespace(name="base", epochs=40)
    said: list[str] = []
    for step in range(100):  # of a second each
        now[0] += 1
        display.step_done(stage, 0, step, 100)  # type: ignore[arg-type]
        said.append(capsys.readouterr().err)
    spoken = [number for number, text in enumerate(said) if text]
    assert spoken and max(np.diff([0, *spoken, 100])) < 10 and "epoch 1/40, step 6 of 100" in said[5]
    for done in range(0, 101, 10):
        now[0] += 1
        display.watch("embedding", done, 100)
    assert "embedding: 70 of 100 (3 s left)" in capsys.readouterr().err


def test_no_part_of_a_run_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where learners are judged, nor networks tried on a table, nor the prior is found by classifiers."""
    monkeypatch.setattr("splitpu.cli.progress._LONGEST_SILENCE", 0.0)
    table, out = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=120)), tmp_path / "table"
    code, _, said = run_cli(capsys, "fit", table, "--out", out, "--learner", "logistic", "--rounds", 0)
    assert code == 0 and "learners judged: 0 of 1" in said and "figures and report: 2 of 3" in said
    CountedEpochs(LineDisplay().watch, what="networks tried, ").epoch_done(EpochRecord("base", 4, 40, 0.1, 1e-3, {}))
    assert "networks tried, base, epochs: 4 of 40" in capsys.readouterr().err
    CountedEpochs(LineDisplay().watch).step_done(SimpleNamespace(name="base", epochs=40), 1, 49, 90)  # type: ignore[arg-type]
    assert "base, steps: 140 of 3,600" in capsys.readouterr().err
    images = np.random.default_rng(0).integers(0, 90, (120, 6, 6), np.uint8)
    images[::2, :3] += 150
    alone = dict.fromkeys(("X_test", "y_test", "names", "truth"))
    pictures = write_npz(tmp_path / "pictures.npz", X=images, s=np.arange(120) % 4 == 0, **alone)
    _, _, said = run_cli(capsys, "prior", pictures)
    assert "prior, classifiers: 7 of 30" in said


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = run_cli(capsys, "methods")
    assert code == 0 and all(method.summary in shown and method.citation in shown for method in METHODS.values())
    listed = json.loads(run_cli(capsys, "methods", "--json")[1])["methods"]
    assert [one["name"] for one in listed] == list(METHODS)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "split-pu"])
def test_a_run_of_any_method(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    out, data = tmp_path / "run", write_npz(tmp_path / "rows.npz")
    prior = [] if method == "vpu" else ["--prior", "0.5" if METHODS[method].needs_prior else "none"]
    few_epochs = [word for setting in [*SETTINGS[:1], *budget(method, 2)] for word in ("--set", setting)]
    words = ["fit", data, "--method", method, "--out", out, "--quiet", *prior, *few_epochs]
    code, shown, said = run_cli(capsys, *words)
    assert code == 0, said
    result = json.loads((out / "result.json").read_text())
    assert result["method"] == method and result["rounds"] == [] and len(result["models"]) == 1
    assert (result["prior"] is None) == (prior == ["--prior", "none"])
    assert result["models"][0]["model"] == METHODS[method].title and result["models"][0]["test"]["accuracy"] is not None
    page = (out / "report.html").read_text()
    assert f"The {METHODS[method].title} model" in page and 'id="split"' not in page
    figures = json.loads(run_cli(capsys, "evaluate", out, "--json")[1])["models"]
    assert [one["model"] for one in figures] == [METHODS[method].title]
    assert figures[0]["accuracy"] == result["models"][0]["test"]["accuracy"]
    code, shown, _ = run_cli(capsys, "info", out)
    assert code == 0 and method in shown


def test_an_estimate_serves_methods_that_learn_without_a_prior(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a word about the prior a run of VPU can be judged without truth, and its prior be varied."""
    data = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=240) | {"X_test": None, "y_test": None, "truth": None})
    words = ["fit", data, "--method", "vpu", "--set", "vpu.epochs=3", *("--set", "engine.threads=1")]
    words += ["--set", "selection.held_out=0.3", "--set", "selection.criterion=none"]
    code, shown, said = run_cli(capsys, *words, "--out", tmp_path / "run", "--json")
    result = json.loads(shown)
    low, high = result["prior_interval"]
    assert code == 0 and low < result["prior"] < high and result["prior_source"] == "estimated by the order of scores"
    assert "prior: being estimated" in said
    assert f"95 % interval {low:.3g} to {high:.3g}" in (tmp_path / "run/report.html").read_text()
    code, shown, _ = run_cli(capsys, "evaluate", tmp_path / "run", "--json")
    assert code == 0 and json.loads(shown)["figures"]["accuracy"]["value"] > 0.8
    code, shown, _ = run_cli(capsys, "sensitivity", tmp_path / "run", "--json", "--steps", "3")
    rates = [row["positive_rate_unlabelled"] for row in json.loads(shown)["rows"]]
    assert code == 0 and rates == sorted(rates)
    code, _, said = run_cli(capsys, *words, "--prior", "none", "--out", tmp_path / "without", "--quiet")
    assert code == 0 and json.loads((tmp_path / "without/result.json").read_text())["prior"] is None
    assert "was trained without a prior" in run_cli(capsys, "sensitivity", tmp_path / "without")[2]
    code, _, said = run_cli(capsys, "fit", data, "--prior", "none", "--out", tmp_path / "no", "--quiet")
    assert code == 2 and "method 'split-pu' needs the prior" in said and not (tmp_path / "no").exists()


def test_wrong_method_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_npz(tmp_path / "rows.npz")
    code, _, said = run_cli(capsys, "fit", data, "--method", "vpuu", "--out", tmp_path / "run")
    assert code == 2 and "did you mean 'vpu'" in said
    code, _, said = run_cli(capsys, "fit", data, "--method", "vpu", "--set", "vpu.epoch=2")
    assert code == 2 and "did you mean 'vpu.epochs'" in said
