"""`splitpu fit --seeds`: a run folder for every seed, the same as one by one, and what they say together."""

import json
import shutil
import signal
import statistics
import time
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, must_refuse, run_cli, tiny_arrays, write_npz
from process_tools import PATIENCE, start

from splitpu.cli import main
from splitpu.data.pudata import PUData
from splitpu.engine import hardware
from splitpu.runs import run as fitting
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid_folders import SeedsFolder, summary_of
from splitpu.training import Runtime, Training, TrainSpec
from splitpu.utils.reading import write_sealed
from splitpu.utils.warnings import UNRELIABLE

ASKED = ["--prior", "0.5", "--quiet", *TINY]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz(tmp_path_factory.mktemp("data") / "rows.npz")


@pytest.fixture(scope="module")
def several(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("several") / "run"
    assert main(["fit", str(data), "--seeds", "3,0,7", "--out", str(out), *ASKED]) == 0
    return out


def test_every_seed_is_the_run_it_would_be_alone(several: Path, data: Path, tmp_path: Path) -> None:
    for seed in (3, 7):
        alone = tmp_path / str(seed)
        assert main(["fit", str(data), "--seed", str(seed), "--out", str(alone), *ASKED]) == 0
        for name in ("model.safetensors", "split.csv", "config.toml"):
            assert (several / f"seed{seed}" / name).read_bytes() == (alone / name).read_bytes(), name
    assert (several / "seed3/model.safetensors").read_bytes() != (several / "seed7/model.safetensors").read_bytes()


def test_labelled_rows_of_named_sets_are_drawn_by_the_seed(tmp_path: Path) -> None:
    words = ["fit", "breast-cancer", "--labelled", "40", *ASKED]
    assert main([*words, "--seeds", "0,5", "--out", str(tmp_path / "both")]) == 0
    assert main([*words, "--seed", "5", "--out", str(tmp_path / "five")]) == 0
    both, five = tmp_path / "both", tmp_path / "five"
    assert (both / "seed5/model.safetensors").read_bytes() == (five / "model.safetensors").read_bytes()
    fingerprints = {json.loads((both / f"seed{seed}/request.json").read_text())["fingerprint"] for seed in (0, 5)}
    assert len(fingerprints) == 2


def test_summary_and_page(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads((several / "summary.json").read_text())
    assert summary["seeds"] == [3, 0, 7] and summary["models"][0]["model"] == "base"
    results = [json.loads((several / f"seed{seed}/result.json").read_text()) for seed in (3, 0, 7)]
    accuracies = [result["models"][-1]["test"]["accuracy"] for result in results]
    found = summary["models"][-1]["figures"]["accuracy"]
    assert list(found["values"].values()) == accuracies
    assert found["mean"] == pytest.approx(statistics.fmean(accuracies))
    assert found["sd"] == pytest.approx(statistics.stdev(accuracies))
    page = (several / "index.html").read_text()
    for seed in (0, 3, 7):
        assert f'href="seed{seed}/report.html"' in page and (several / f"seed{seed}/report.html").exists()
    code, out, _ = run_cli(capsys, "resume", several, "--quiet")
    assert code == 0 and "seed 7" in out and "standard deviation" in out
    code, out, _ = run_cli(capsys, "resume", several, "--quiet", "--json")
    assert code == 0 and json.loads(out)["models"] == summary["models"]


def test_page_and_command_have_each_warning_once_with_its_seeds(
    several: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared, own = "a column is empty & <b>bare</b>", f"base: no better than chance; {UNRELIABLE}: train longer."
    folder = SeedsFolder(shutil.copytree(several, tmp_path / "warned"))
    for seed, warnings in {3: [shared], 0: [own], 7: [shared, shared]}.items():
        write_sealed(folder.run(seed).result, folder.run(seed).read_result() | {"warnings": warnings})
    code, out, err = run_cli(capsys, "resume", folder.path, "--quiet")
    assert code == 0 and "notes   2, all in the report" in out
    assert err == f"note: seed 0: {own}\n"  # what is about the model itself; the page has the rest
    page = folder.page.read_text()
    box = page[page.index('<aside class="warnings"') : page.index("</aside>")]
    assert page.index("<h1>") < page.index(box) < page.index('<section id="figures"')
    shown = ["seeds 3, 7: a column is empty &amp; &lt;b&gt;bare&lt;/b&gt;", f"seed 0: {own}"]
    assert box.count("<li>") == 2 and all(one in box for one in shown)
    expected = [{"warning": shared, "seeds": [3, 7]}, {"warning": own, "seeds": [0]}]
    assert json.loads(folder.summary.read_text())["warnings"] == expected


def test_what_all_seeds_were_warned_of_is_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tiny_arrays()["s"]
    few = write_npz(tmp_path / "few.npz", s=np.where(np.cumsum(labels) <= 5, labels, 0))
    words = ["fit", few, "--seeds", "0,1", "--rounds", "0", "--out", tmp_path / "run", *ASKED]
    assert run_cli(capsys, *words)[0] == 0
    page = (tmp_path / "run" / "index.html").read_text()
    assert page.count("seeds 0, 1: 5 labelled positives are few") == page.count("5 labelled positives are few") == 1


def test_what_all_seeds_have_to_note_before_they_train_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tiny_arrays()["s"]
    few = write_npz(tmp_path / "few.npz", s=np.where(np.cumsum(labels) <= 5, labels, 0))
    code, _, told = run_cli(capsys, "fit", few, "--method", "vpu", "--seeds", "0,1", "--out", tmp_path / "run", *TINY)
    assert code == 0 and told.count("no prior could be estimated") == 1


def test_one_seed_has_no_deviation() -> None:
    model = {"model": "base", "positive_rate_unlabelled": 0.4, "test": None}
    (found,) = summary_of({0: {"models": [model], "final": "base", "seconds_total": 1.0}})["models"]
    assert found["figures"] == {"positive_rate_unlabelled": {"mean": 0.4, "sd": None, "values": {"0": 0.4}}}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seeds", "0,0"], "names a seed twice"),
        (["--seeds", "0,x"], "give whole numbers with commas"),
        (["--seeds", "0,1", "--seed", "2"], "leave out one of them"),
        (["--seeds", "0,1", "--backbone", "cnn13"], "needs images"),
    ],
)
def test_what_cannot_be_meant(
    data: Path, tmp_path: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_cli(capsys, "fit", data, *ASKED, "--out", tmp_path / "run", *words)
    assert code == 2 and sentence in err and len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_one_seed_that_fails_is_named_and_the_others_finish(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = fitting.train

    def train(data: PUData, spec: TrainSpec, runtime: Runtime) -> Training:
        if spec.seed == 1:
            raise RuntimeError("no luck today")
        return usual(data, spec, runtime)

    monkeypatch.setattr(fitting, "train", train)
    words = ["fit", data, *ASKED, "--seeds", "0,1,2", "--out", tmp_path / "run"]
    code, _, err = run_cli(capsys, *words)
    assert code == 2 and "seed 1 failed (no luck today); finished: seed 0, seed 2; continue with:" in err
    several = SeedsFolder(tmp_path / "run")
    assert [several.run(seed).finished for seed in (0, 1, 2)] == [True, False, True]
    assert not several.summary.exists()
    monkeypatch.setattr(fitting, "train", usual)
    code, _, _ = run_cli(capsys, "resume", tmp_path / "run", "--quiet")
    assert code == 0 and several.run(1).finished and several.summary.exists()


def test_ctrl_c_stops_all_and_all_go_on(data: Path, tmp_path: Path) -> None:
    settings = ["--set", "base.epochs=150", "--set", "rounds=0", "--set", "engine.checkpoint_every=10"]
    words = ["fit", str(data), "--seeds", "0,1", *ASKED, *settings]
    process = start(*words, "--out", tmp_path / "run")
    metrics = tmp_path / "run" / "seed0" / "metrics.jsonl"
    deadline = time.monotonic() + PATIENCE
    while not metrics.exists() or metrics.read_text().count("\n") < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and f"splitpu resume {tmp_path / 'run'}" in err
    several = SeedsFolder(tmp_path / "run")
    assert not several.run(0).finished and not several.run(1).finished
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    for seed in (0, 1):
        found, whole = (tmp_path / name / f"seed{seed}" / "model.safetensors" for name in ("run", "whole"))
        assert found.read_bytes() == whole.read_bytes()


def test_a_second_command_at_the_same_runs_is_told_of_the_first(
    several: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(several, tmp_path / "run")
    (tmp_path / "run" / "seed7" / "result.json").unlink()
    with RunFolder(tmp_path / "run").locked():  # by a command that is still at another seed
        must_refuse(capsys, "resume", tmp_path / "run", "--quiet", saying="another process is working on .*run;")
    assert not (tmp_path / "run" / "seed7" / "result.json").exists()


def test_finished_runs_are_shown_and_not_written_again(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that may only be read would refuse it; that a lock came and went can be told from the folder's time."""
    before = {path: path.stat().st_mtime_ns for path in (several, *several.iterdir())}
    code, out, _ = run_cli(capsys, "resume", several, "--quiet", "--json")
    assert code == 0 and json.loads(out)["seeds"] == [3, 0, 7]
    assert {path: path.stat().st_mtime_ns for path in (several, *several.iterdir())} == before


def test_a_folder_that_says_how_many_were_to_run_at_once_is_resumed(several: Path, tmp_path: Path) -> None:
    """As folders did while several runs could share a GPU."""
    shutil.copytree(several, tmp_path / "run")
    write_sealed(tmp_path / "run" / "seeds.json", {"seeds": [3, 0, 7], "at_once": 2})
    (tmp_path / "run" / "seed7" / "result.json").unlink()
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0
    found, whole = (place / "seed7" / "model.safetensors" for place in (tmp_path / "run", several))
    assert found.read_bytes() == whole.read_bytes()


def test_threads_are_chosen_once_for_all(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = iter(range(1, 100))
    monkeypatch.setattr(hardware, "_sensible_threads", lambda *_: next(load))
    words = ["fit", str(data), "--seeds", "0,1", "--out", str(tmp_path / "run"), "--prior", "0.5", "--quiet"]
    assert main([*words, "--method", "nnpu", "--set", "base.epochs=1"]) == 0
    assert {SeedsFolder(tmp_path / "run").run(seed).config().engine.threads for seed in (0, 1)} == {1}


def test_the_folder_of_several_seeds_is_not_called_unfinished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "seed3").mkdir()
    write_sealed(tmp_path / "seeds.json", {"seeds": [3]})
    for words in (("predict", tmp_path, "a.npy"), ("info", tmp_path), ("export", tmp_path, "m.onnx")):
        code, _, err = run_cli(capsys, *words)
        assert code == 2 and "several seeds: name one of them" in err and "seed3" in err
