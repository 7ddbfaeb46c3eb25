"""`splitpu compare`: the same rows, prior and network for every method, and one table.

A comparison that was begun before: nothing is trained twice, lost or mixed, whoever else works on it.
"""

import json
import shutil
import signal
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import TINY, must_do, must_refuse, run_cli, tiny_arrays, write_npz
from compare_tools import ASKED, METHODS, lines_of, no_training
from process_tools import PATIENCE, start, wait_for

from splitpu.cli import main
from splitpu.cli import several_runs as comparing
from splitpu.cli import train as estimating
from splitpu.data.pudata import PUData
from splitpu.errors import InputError
from splitpu.prior.estimate import ResolvedPrior, prior_for
from splitpu.runs import run as fitting
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid_folders import ComparisonFolder
from splitpu.training import Runtime, Training, TrainSpec
from splitpu.utils.reading import SEAL, sealed
from splitpu.utils.statistics import by_chance

Capture = pytest.CaptureFixture[str]


def test_every_run_is_the_one_that_fit_gives(compared: Path, compared_rows: Path, tmp_path: Path) -> None:
    for method, seed in (("nnpu", 3), ("supervised", 0)):
        alone = tmp_path / method
        assert (
            main(["fit", str(compared_rows), "--method", method, "--seed", str(seed), "--out", str(alone), *ASKED]) == 0
        )
        for name in ("model.safetensors", "config.toml", "scores.csv"):
            assert (compared / method / f"seed{seed}" / name).read_bytes() == (alone / name).read_bytes(), name


def test_a_line_a_run_says_what_it_rests_on(compared: Path) -> None:
    lines = lines_of(compared)
    assert sorted(lines) == [(method, seed) for method in ("naive", "nnpu", "supervised") for seed in (0, 3)]
    for (method, seed), line in lines.items():
        result = json.loads((compared / line["run"] / "result.json").read_text())
        assert (result["method"], result["seed"]) == (method, seed)
        assert line["test"] == result["models"][-1]["test"] and line["seconds"] == result["seconds_total"] > 0
        assert line["versions"]["torch"] and line["network"] == "mlp" and line["prior"] == 0.5
    assert len({line["data_fingerprint"] for line in lines.values()}) == 1
    assert lines["nnpu", 0]["config_hash"] == lines["nnpu", 3]["config_hash"] != lines["naive", 0]["config_hash"]


def test_table_means_and_paired_differences(
    compared: Path, compared_rows: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "train", no_training)  # the same command only shows what is there
    words = ["compare", compared_rows, *METHODS, "--seeds", "0,3", "--out", compared, *ASKED]
    code, out, _ = run_cli(capsys, *words, "--json")
    assert code == 0
    methods, lines = json.loads(out)["methods"], lines_of(compared)
    assert [one["method"] for one in methods] == ["nnpu", "naive", "supervised"]
    values = {one["method"]: [lines[one["method"], seed]["test"]["accuracy"] for seed in (0, 3)] for one in methods}
    for one in methods:
        found = one["figures"]["accuracy"]
        assert found["mean"] == pytest.approx(statistics.fmean(values[one["method"]]))
        assert found["sd"] == pytest.approx(statistics.stdev(values[one["method"]]))
    assert methods[0]["difference"] == {}
    gains = [own - first for own, first in zip(values["naive"], values["nnpu"], strict=True)]
    difference = methods[1]["difference"]["accuracy"]
    assert difference["mean"] == pytest.approx(statistics.fmean(gains))
    assert difference["standard_error"] == pytest.approx(statistics.stdev(gains) / 2**0.5)
    code, out, _ = run_cli(capsys, *words)
    assert code == 0 and "less nnpu" in " ".join(out.split()) and "on 40 test rows" in out
    assert f"{100 * difference['mean']:+.1f}±{100 * difference['standard_error']:.1f}" in out
    assert "a smaller difference is chance" in out and "single seed" not in out
    code, out, _ = run_cli(capsys, *words[:4], "--seeds", "3", "--out", compared, *ASKED)
    assert code == 0 and "a single seed has none" in out and "±" not in out


def test_warnings_are_kept_in_reports_that_are_named(
    compared: Path, compared_rows: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = shutil.copytree(compared, tmp_path / "warned")
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    warned = [line | {"warnings": ["a column is empty"] if line["method"] == "naive" else []} for line in lines]
    plain = ({name: value for name, value in line.items() if name != SEAL} for line in warned)
    (folder / "runs.jsonl").write_text("".join(f"{json.dumps(sealed(line))}\n" for line in plain))
    code, out, _ = run_cli(capsys, "compare", compared_rows, *METHODS, "--seeds", "0,3", "--out", folder, *ASKED)
    assert code == 0 and "warnings    in the reports of naive/seed0, naive/seed3 in the folder" in out


@pytest.mark.parametrize(
    ("difference", "chance"), [((0.1, 0.2), True), ((-0.1, 0.2), True), ((0.0, 0.0), True), ((-0.3, 0.2), False)]
)
def test_what_counts_as_chance(difference: tuple[float, float], chance: bool) -> None:
    assert by_chance({"mean": difference[0], "standard_error": difference[1]}) is chance


def test_labels_of_named_sets_are_drawn_by_the_seed(tmp_path: Path, capsys: Capture) -> None:
    words = ["compare", "breast-cancer", "--labelled", "40", "--method", "nnpu,naive", "--seeds", "0,5", "--quiet"]
    code, out, _ = run_cli(capsys, *words, "--prior", "true", "--out", tmp_path / "all", *TINY)
    assert code == 0 and "0.3732, the true share in the set; the same for all methods" in " ".join(out.split())
    lines = lines_of(tmp_path / "all")
    for seed in (0, 5):
        for shared in ("prior", "data_fingerprint", "network"):
            assert lines["naive", seed][shared] == lines["nnpu", seed][shared] is not None
    assert lines["nnpu", 0]["data_fingerprint"] != lines["nnpu", 5]["data_fingerprint"]


def test_the_prior_is_estimated_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    estimated: list[int] = []

    def counted(*given: Any, seed: int, **options: Any) -> ResolvedPrior:
        estimated.append(seed)
        return prior_for(*given, seed=seed, **options)

    monkeypatch.setattr(estimating, "prior_for", counted)
    data = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=200))
    words = ["compare", data, "--method", "nnpu,naive", "--out", tmp_path / "all", "--quiet", *TINY, "--seeds"]
    code, out, _ = run_cli(capsys, *words, "3,0")
    assert code == 0 and estimated == [3] and "estimated by" in out
    must_do(*words, "0,7")
    assert estimated == [3]  # not again for a seed that was added: it is kept with what it rests on
    lines = lines_of(tmp_path / "all")
    assert len(lines) == 6 and len({line["prior"] for line in lines.values()}) == 1
    first, added = (json.loads((tmp_path / f"all/naive/seed{seed}/request.json").read_text()) for seed in (3, 7))
    assert first["prior_estimate"]["table"] and first["prior_estimate"] == added["prior_estimate"]


def test_of_a_named_set_the_prior_is_estimated_unless_the_true_one_is_asked_for(
    tmp_path: Path, capsys: Capture
) -> None:
    words = ["compare", "breast-cancer", "--labelled", 60, "--method", "naive", "--seeds", 0, "--quiet", *TINY]
    out = ["--out", tmp_path / "all"]
    code, said, _ = run_cli(capsys, *words, *out)
    assert code == 0 and "estimated by the order of scores; the same for all methods" in " ".join(said.split())
    request = json.loads((tmp_path / "all/naive/seed0/request.json").read_text())
    assert request["prior_estimate"]["table"] and request["prior_source"] == "estimated by the order of scores"
    assert run_cli(capsys, *words, *out, "--prior", "auto")[0] == 0  # the same in other words: nothing to train
    must_refuse(capsys, *words, *out, "--prior", "true", saying="another prior")
    own = write_npz(tmp_path / "rows.npz")
    must_refuse(capsys, "compare", own, "--prior", "true", saying="--prior true is for named sets.*rows.npz")


def test_without_truth_figures_are_what_evaluate_gives(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "pu.npz", X_test=None, y_test=None, truth=None)
    words = ["compare", data, "--method", "nnpu,naive", "--seeds", "0,1", "--out", tmp_path / "all", *ASKED]
    code, out, _ = run_cli(capsys, *words)
    said = " ".join(out.split())
    assert code == 0 and "estimated from P, U and the prior" in said and "(always negative)" in said
    assert "estimated from the rows that were kept out of the training" in said and "flatter" not in said
    assert "less nnpu" not in said
    config = (tmp_path / "all/nnpu/seed1/config.toml").read_text()
    assert "held_out = 0.2" in config and 'criterion = "none"' in config
    code, out, _ = run_cli(capsys, "evaluate", tmp_path / "all/nnpu/seed1", "--json")
    assert code == 0 and lines_of(tmp_path / "all")["nnpu", 1]["estimates"]["figures"] == json.loads(out)["figures"]
    code, out, _ = run_cli(capsys, *words, "--json")
    found = json.loads(out)["methods"][0]["figures"]["accuracy"]
    assert found["low"] <= found["mean"] <= found["high"] and found["sd"] is not None


def test_rows_are_kept_from_any_network_that_is_to_be_judged_by_them(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "pu.npz", **tiny_arrays(rows=200) | {"X_test": None, "y_test": None, "truth": None})
    words = ["compare", data, "--seeds", 0, "--prior", 0.5, "--quiet", "--out", tmp_path / "all"]
    quick = ["--set", "engine.threads=1", "--set", "dist_pu.epochs=2", "--set", "dist_pu.warmup_epochs=2"]
    code, out, _ = run_cli(capsys, *words, "--method", "split-pu,dist-pu", *quick, "--json")
    assert code == 0
    answer = json.loads(out)
    said = answer["notes"]["estimates"]
    assert "split-pu: estimated out of fold" in said and "dist-pu: estimated from the rows that were kept out" in said
    assert "X_test and y_test in a .npz file" in answer["notes"]["rows kept out"]
    assert answer["always_negative"] == {"accuracy": 0.5, "f1": 0.0, "roc_auc": 0.5, "average_precision": 0.5}
    figures = lines_of(tmp_path / "all")["split-pu", 0]["estimates"]["figures"]
    assert figures["roc_auc"]["low"] <= figures["roc_auc"]["value"] <= figures["roc_auc"]["high"]
    assert {name.partition("@")[0] for name in figures} >= {"average_precision", "precision", "lift", "enrichment"}


def test_estimates_that_are_not_to_be_believed_are_marked(tmp_path: Path, capsys: Capture) -> None:
    """Where labelled rows were recorded otherwise than the others, a model that knows no more looks perfect."""
    labels = (np.arange(200) % 5 == 0).astype(int)
    rows = np.random.default_rng(0).normal(size=(200, 30)).astype(np.float32) + labels[:, None]
    data = write_npz(tmp_path / "pu.npz", X=rows, s=labels, X_test=None, y_test=None, truth=None, names=None)
    words = ["compare", data, "--method", "nnpu,naive", "--seeds", "0,1", "--out", tmp_path / "all", *ASKED]
    code, out, err = run_cli(capsys, *words)
    assert code == 0 and "naive (!)" in out and "do not believe the figures of" in out
    assert err.count("(!) naive, seeds 0, 1; of the first of them: the model ranks labelled positives above") == 1
    line = lines_of(tmp_path / "all")["naive", 0]
    found = json.loads(run_cli(capsys, "evaluate", tmp_path / "all/naive/seed0", "--json")[1])["degenerate"]
    assert line["degenerate"] == found and "memorised positives" in [one["kind"] for one in found]
    answer = json.loads(run_cli(capsys, *words, "--json")[1])
    assert answer["methods"][1]["degenerate"][0] == {"seed": 0, **found[0]} and "naive" in answer["notes"]["doubtful"]
    older = {
        key: {name: value for name, value in one.items() if name != "degenerate"}
        for key, one in lines_of(tmp_path / "all").items()
    }
    (tmp_path / "all" / "runs.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in older.values()))
    assert "(!)" not in run_cli(capsys, *words)[1]  # written before it was kept


def test_without_truth_and_prior_there_is_nothing_to_compare_by(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "pu.npz", X_test=None, y_test=None, truth=None)
    words = ["compare", data, "--method", "naive,vpu", "--seeds", "0", "--prior", "none", "--out", tmp_path / "new/all"]
    code, _, err = run_cli(capsys, *words)
    assert code == 2 and "without test rows, figures are estimates" in err and not (tmp_path / "new").exists()


def test_tables_are_compared_as_well(tmp_path: Path, capsys: Capture) -> None:
    arrays = tiny_arrays()
    for name, rows, labels in (("train", arrays["X"], arrays["s"]), ("test", arrays["X_test"], arrays["y_test"])):
        table = np.column_stack([rows, labels])
        np.savetxt(tmp_path / f"{name}.csv", table, "%.4f", ",", header="a,b,c,d,ill", comments="")
    words = [tmp_path / "train.csv", "--label", "ill", "--test", tmp_path / "test.csv", "--method", "naive"]
    code, out, _ = run_cli(capsys, "compare", *words, "--seeds", "2", "--out", tmp_path / "all", *ASKED)
    assert code == 0 and "on 40 test rows" in out and lines_of(tmp_path / "all")["naive", 2]["test"]["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "nnpu,vpi"], "there is no method 'vpi'; did you mean 'vpu'?"),
        (["--method", "nnpu,nnpu"], "names a method twice"),
        (["--method", ","], "names nothing"),
        (["--method", "nnpu,supervised"], "learns from the true label of every training row"),
        (["--seeds", "0,0"], "names a seed twice"),
        (["--backbone", "cnn13"], "needs images"),
        (["--calibration", "platt", "--method", "nnpu,dist-pu"], "'dist-pu' does not use held-out rows"),
        (["--prior", "0.1"], "leaves none to find"),
        (["--prior", "none"], "method 'split-pu' needs the prior"),
    ],
)
def test_what_cannot_be_compared(tmp_path: Path, words: list[str], sentence: str, capsys: Capture) -> None:
    data = write_npz(tmp_path / "rows.npz", truth=None)
    given = ["--quiet", *TINY] if "--prior" in words else ASKED
    code, _, err = run_cli(capsys, "compare", data, *given, "--out", tmp_path / "all", *words)
    assert code == 2 and sentence in err and len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_the_help_names_the_default_methods(capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, "compare", "--help")
    assert code == 0 and "split-pu,nnpu,dist-pu,naive" in out
    assert comparing.parse_methods("split-pu,nnpu,dist-pu,naive")


def test_methods_and_seeds_can_be_added(compared: Path, compared_rows: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(compared, tmp_path / "all")
    before = (tmp_path / "all/nnpu/seed0/result.json").stat().st_mtime_ns
    words = ["compare", compared_rows, "--method", "naive,upu", "--seeds", "0,4", "--out", tmp_path / "all", *ASKED]
    code, out, _ = run_cli(capsys, *words, "--json")
    assert code == 0 and [one["method"] for one in json.loads(out)["methods"]] == ["naive", "upu"]
    assert {("naive", 4), ("upu", 0), ("upu", 4), ("nnpu", 0)} <= set(lines_of(tmp_path / "all"))
    assert (tmp_path / "all/nnpu/seed0/result.json").stat().st_mtime_ns == before


def test_lines_that_a_kill_left_unwritten_are_written_from_the_runs(
    compared: Path, compared_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(compared, tmp_path / "all")
    before = lines_of(compared)
    (tmp_path / "all/runs.jsonl").write_text(json.dumps(before["nnpu", 0]) + "\n")
    monkeypatch.setattr(fitting, "train", no_training)
    assert (
        main(["compare", str(compared_rows), *METHODS, "--seeds", "0,3", "--out", str(tmp_path / "all"), *ASKED]) == 0
    )
    assert lines_of(tmp_path / "all") == before


def test_two_processes_do_not_work_on_one_comparison(compared: Path, compared_rows: Path, capsys: Capture) -> None:
    with RunFolder(compared).locked():
        code, _, err = run_cli(capsys, "compare", compared_rows, *METHODS, "--seeds", "0", "--out", compared, *ASKED)
    assert code == 2 and "another process is working on" in err


def test_of_two_commands_started_together_one_writes_nothing(
    compared_rows: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "all"
    out.mkdir()
    words = ["compare", compared_rows, "--method", "naive", "--seeds", "0", "--out", out, *ASKED]
    with RunFolder(out).locked():  # the other one has begun and not written anything yet
        code, _, err = run_cli(capsys, *words)
        assert code == 2 and "another process is working on" in err
        assert [path.name for path in out.iterdir()] == [".lock"]
    (out / ".lock").write_text("")  # as one leaves it that is killed at once
    assert run_cli(capsys, *words)[0] == 0 and not list(out.glob(".*"))


def test_a_comparison_is_read_when_nobody_else_can_write_it(
    compared_rows: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list[bool]()

    def read_shared(folder: ComparisonFolder) -> None:
        with pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
            pass
        held.append(True)
        usual(folder)

    usual = ComparisonFolder._read_shared
    monkeypatch.setattr(ComparisonFolder, "_read_shared", read_shared)
    for seeds in ("0", "0,1"):
        words = ["compare", compared_rows, "--method", "naive", "--seeds", seeds, "--out", tmp_path / "all", *ASKED]
        assert run_cli(capsys, *words)[0] == 0
    assert held == [True]


def test_other_settings_or_rows_are_not_mixed_in(
    compared: Path, compared_rows: Path, tmp_path: Path, capsys: Capture
) -> None:
    words = [*METHODS, "--seeds", "0,3", "--out", compared]
    code, _, err = run_cli(capsys, "compare", compared_rows, *words, *ASKED, "--set", "base.epochs=3")
    assert code == 2 and "with another set of settings" in err
    code, _, err = run_cli(capsys, "compare", compared_rows, *words, "--prior", "0.6", *ASKED[2:])
    assert code == 2 and "with another prior" in err
    with np.load(compared_rows) as arrays:
        np.savez(tmp_path / "rows.npz", **{**arrays, "y_test": 1 - arrays["y_test"]})
    code, _, err = run_cli(capsys, "compare", tmp_path / "rows.npz", *words, *ASKED)
    assert code == 2 and "with another content of the test rows" in err
    for command in (["evaluate", compared], ["resume", compared]):
        code, _, err = run_cli(capsys, *command)
        assert code == 2 and "holds a comparison: name one of its runs" in err


LONG = ["--method", "vpu,nnpu", "--seeds", "0", *ASKED, "--set", "vpu.epochs=2", "--set", "base.epochs=150"]
LONG += ["--set", "engine.checkpoint_every=25"]


@pytest.fixture(scope="module")
def uninterrupted(compared_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "all"
    assert main(["compare", str(compared_rows), *LONG, "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_comparison_goes_on_where_it_was(
    how: signal.Signals, compared_rows: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # without --out the same command finds its folder by itself
    process = start("compare", compared_rows, *LONG)

    def inside_the_second_run(place: Path) -> bool:
        return any(file.read_text().count("\n") >= 3 for file in place.glob("runs/*/nnpu/seed0/metrics.jsonl"))

    assert wait_for(inside_the_second_run, tmp_path, process)
    process.send_signal(how)
    _, err = process.communicate(timeout=PATIENCE)
    if how == signal.SIGINT:
        assert process.returncode == 130 and "the same command to continue with what is in runs/compare-rows-" in err
    (folder,) = (tmp_path / "runs").iterdir()
    (first,) = lines_of(folder).values()
    assert first["method"] == "vpu" and not (folder / "nnpu/seed0/result.json").exists()
    assert main(["compare", str(compared_rows), *LONG]) == 0
    assert list((tmp_path / "runs").iterdir()) == [folder] and not list(folder.glob(".*"))
    assert len(lines_of(folder)) == 2 and lines_of(folder)["vpu", 0] == first
    for run in ("vpu/seed0", "nnpu/seed0"):
        found, whole = (place / run / "model.safetensors" for place in (folder, uninterrupted))
        assert found.read_bytes() == whole.read_bytes()


def test_a_run_that_fails_is_named_and_the_others_are_kept(
    compared_rows: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = fitting.train

    def train(data: PUData, spec: TrainSpec, runtime: Runtime) -> Training:
        if spec.config.method == "naive":
            raise RuntimeError("no luck today")
        return usual(data, spec, runtime)

    monkeypatch.setattr(fitting, "train", train)
    words = ["compare", compared_rows, "--method", "nnpu,naive", "--seeds", "0", "--out", tmp_path / "all", *ASKED]
    code, _, err = run_cli(capsys, *words)
    assert code == 2 and "naive, seed 0 failed (no luck today); finished: nnpu, seed 0; run the same command" in err
    assert list(lines_of(tmp_path / "all")) == [("nnpu", 0)]
    monkeypatch.setattr(fitting, "train", usual)
    must_do(*words)
    assert len(lines_of(tmp_path / "all")) == 2
