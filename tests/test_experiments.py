"""The harness: what is declared, what is run and what is skipped, and the pages that are written from the lines."""

import contextlib
import fcntl
import io
import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiment_tools import made_up, units_of
from torch.nn import functional

from splitpu.cli import main
from splitpu.config import config_from_dict
from splitpu.data import PUData
from splitpu.errors import InputError, Interrupted
from splitpu.experiments import __main__ as plain
from splitpu.experiments import harness
from splitpu.experiments.declared import chosen_experiments, experiments, recipes
from splitpu.experiments.harness import Clock, run_units
from splitpu.experiments.noise_detection import (
    coherence,
    first_convolution_gradients,
    penalised_regression_suspicion,
)
from splitpu.experiments.rendering import render
from splitpu.experiments.running import Workplace
from splitpu.experiments.store import ResultStore
from splitpu.experiments.summary import cells
from splitpu.experiments.units import Unit, planned_units, smoke_units
from splitpu.methods.registry import METHODS
from splitpu.networks import build_network
from splitpu.selection import hold_out, nnpu_value, pu_criterion

NAMES = [
    *("main", "medical", "medical-labels", "early-stop", "easy-loss", "hard-loss", "rounds", "consistency-scope"),
    *("rho", "alpha", "beta", "tau", "base-upu"),
    *("noise-by-tau", "learning-of-noise", "spr", "cgh", "gallery"),
    *("competitors", "competitors-mnist", "competitors-breastmnist", "competitors-digits"),
    *("teachers", "teachers-digits", "recipe-choice", "record-choice", "competitor-choice"),
]
QUIET: list[str] = []


def told(lines: list[str]) -> Any:
    return lines.append


# ------------------------------------------------------------------------------------------------------------- declared


def test_everything_the_paper_has_is_declared() -> None:
    assert list(experiments()) == NAMES
    assert set(recipes()) == {"paper", "default", "record"}


def test_the_papers_figures() -> None:
    rows = {name: {row.label: row for row in one.rows} for name, one in experiments().items()}
    assert rows["main"]["Split-PU"].paper == {500: 89.18, 1000: 90.51, 3000: 92.51}
    assert rows["main"]["Split-PU"].paper_sd == {500: 0.12, 1000: 0.10, 3000: 0.10}
    assert rows["rounds"]["4"].paper[3000] == 92.93
    assert rows["hard-loss"]["nnPU"].paper == {500: 87.91, 1000: 89.43, 3000: 90.66}
    assert rows["alpha"]["0.5"].paper[3000] == 92.55
    assert rows["beta"]["0.8"].paper[1000] == 89.14
    assert rows["base-upu"]["Split-PU on uPU"].paper[1000] == 90.57
    sizes = {name: len(one.rows) for name, one in experiments().items()}
    assert sizes["rho"] == 7 and sizes["alpha"] == sizes["beta"] == sizes["tau"] == 9 and sizes["easy-loss"] == 4


def test_every_declared_setting_is_a_setting() -> None:
    for unit in planned_units(experiments().values(), seeds=[0]):
        assert config_from_dict(unit.setting) is not None
        assert unit.config.engine.checkpoint_every == 10


def test_names_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="did you mean 'main'"):
        chosen_experiments("mian")
    with pytest.raises(InputError, match="did you mean 'default'"):
        units_of("main", recipe="defualt")


# ---------------------------------------------------------------------------------------------------------------- units


def test_keys_are_the_same_on_every_machine() -> None:
    (unit,) = [u for u in units_of("rho", recipe="paper", positives=[500], seeds=[3]) if "0.4" in str(u)]
    assert unit.key == (
        '{"experiment": "rho", "method": "split-pu", "positives": 500, "recipe": "paper", "seed": 3, '
        '"setting": {"rounds": 1, "student.rho": 0.4}}'
    )


def test_rows_that_repeat_the_recipe_are_one_run() -> None:
    chosen = units_of("main,rho,early-stop,alpha", recipe="paper", positives=[1000], seeds=[0])
    own = [unit for unit in chosen if unit.setting in ({}, {"rounds": 1})]
    assert [unit.experiment.name for unit in own] == ["main", "rho"]  # alpha 0.3 and "with" are rho 0.7 as well
    assert len(chosen) == 1 + 2 + 6 + 8


def test_one_run_gives_all_rounds() -> None:
    (unit,) = units_of("rounds", recipe="paper", positives=[1000], seeds=[0])
    assert unit.config.rounds == 4 and unit.setting == {"rounds": 4}


def test_seeds_come_one_after_the_other() -> None:
    seeds = [unit.seed for unit in units_of("main,tau", recipe="default", positives=[1000], seeds=[1, 0])]
    assert seeds == sorted(seeds)


# ---------------------------------------------------------------------------------------------------------------- store


def test_lines_of_several_machines_merge(tmp_path: Path) -> None:
    first, second = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1])
    ResultStore(tmp_path / "one").add(first, made_up(first, 90.0))
    other = ResultStore(tmp_path / "two")
    other.add(first, made_up(first, 70.0))
    other.add(second, made_up(second, 91.0))
    merged = ResultStore(tmp_path)
    found = merged.find(first)
    assert found is not None and found["accuracy"] == 90.0  # of two the first one counts
    assert merged.find(second) is not None and merged.unreadable == 0


def test_a_line_that_was_cut_short_is_left_out_and_swallows_nothing(tmp_path: Path) -> None:
    first, second = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1])
    store = ResultStore(tmp_path)
    store.add(first, made_up(first, 90.0))
    path = tmp_path / "main.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    store = ResultStore(tmp_path)
    assert store.find(first) is None and store.unreadable == 1
    store.add(second, made_up(second, 91.0))
    assert ResultStore(tmp_path).find(second) is not None


def test_results_of_other_settings_are_not_found(tmp_path: Path) -> None:
    (unit,) = units_of("main", recipe="paper", positives=[1000], seeds=[0])
    line = made_up(unit, 90.0)
    line["config"]["student"]["epochs"] = 7  # as a recipe that was changed since
    ResultStore(tmp_path).add(unit, line)
    assert ResultStore(tmp_path).find(unit) is None


def test_results_outlive_settings_that_were_added_later(tmp_path: Path) -> None:
    (unit,) = units_of("main", recipe="paper", positives=[1000], seeds=[0])
    line = made_up(unit, 90.0)
    del line["config"]["views"]["cutout"]  # as if it had not existed, at a default that does what was done before
    ResultStore(tmp_path).add(unit, line)
    assert ResultStore(tmp_path).find(unit) is not None


def test_a_warm_up_that_does_not_happen_decides_nothing(tmp_path: Path) -> None:
    (unit,) = units_of("main", recipe="default", positives=[1000], seeds=[0])
    line = made_up(unit, 90.0)
    assert "warmup" not in line["config"]  # as in lines that are older than the warm-up
    ResultStore(tmp_path).add(unit, line)
    assert ResultStore(tmp_path).find(unit) is not None
    line["config"]["warmup"] = {"name": "none", "epochs": 7}
    ResultStore(tmp_path / "told").add(unit, line)
    assert ResultStore(tmp_path / "told").find(unit) is not None
    (warmed,) = units_of("main", recipe="record", positives=[1000], seeds=[0])
    assert warmed.config.warmup.name == "simclr"
    line = made_up(warmed, 96.0)
    line["config"]["warmup"] = {"name": "none", "epochs": 7}
    ResultStore(tmp_path / "warmed").add(warmed, line)
    assert ResultStore(tmp_path / "warmed").find(warmed) is None


# -------------------------------------------------------------------------------------------------------------- harness


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path / "stages", "cpu")


def test_done_units_are_skipped_and_failing_ones_stop_nobody(
    tmp_path: Path, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1, 2])
    store, asked, said = ResultStore(tmp_path), [], list[str]()
    store.add(units[0], made_up(units[0], 90.0))

    def run(unit: Unit, *_: object) -> dict[str, Any]:
        asked.append(unit.seed)
        if unit.seed == 1:
            raise RuntimeError("out of luck")
        return made_up(unit, 91.0)

    monkeypatch.setattr(harness, "_run", run)
    session = run_units(units, store, workplace, tell=told(said))
    assert asked == [1, 2] and [len(session.skipped), len(session.done), len(session.failed)] == [1, 1, 1]
    assert any("out of luck" in text for text in said)
    session = run_units(units, ResultStore(tmp_path), workplace, tell=told(said))
    assert asked == [1, 2, 1] and len(session.skipped) == 2


def test_a_unit_that_would_not_fit_is_not_started(
    tmp_path: Path, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = units_of("main", recipe="paper", positives=[1000], seeds=range(5))
    now = [0.0]

    def run(unit: Unit, *_: object) -> dict[str, Any]:
        now[0] += 100.0
        return made_up(unit, 90.0)

    monkeypatch.setattr(harness, "_run", run)
    monkeypatch.setattr(harness.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(harness, "Clock", lambda minutes: Clock(minutes, lambda: now[0]))
    session = run_units(units, ResultStore(tmp_path), workplace, minutes=5, tell=told(QUIET))
    assert [u.seed for u in session.done] == [0, 1] and [u.seed for u in session.left] == [2, 3, 4]
    assert "goes on" in session.summary()


def test_units_that_share_a_base_are_judged_by_their_like() -> None:
    now = [0.0]
    clock = Clock(5, lambda: now[0])
    one, two, *_ = units_of("rho", recipe="paper", positives=[1000], seeds=[0])
    (fresh, *_) = units_of("rho", recipe="paper", positives=[1000], seeds=[1])
    clock.took(one, 200.0)  # base and all
    clock.took(two, 50.0)
    now[0] = 200.0
    assert clock.fits(two) and not clock.fits(fresh)
    now[0] = 296.0
    assert not clock.fits(two)


def test_an_interrupted_unit_goes_on_where_it_was(tmp_path: Path, workplace: Workplace, smoked: "Smoke") -> None:
    unit = next(u for u in smoke_units(experiments().values()) if u.experiment.name == "main")
    said: list[str] = []
    stops_in_the_student = lambda: any("round1.split" in text for text in said)  # noqa: E731
    session = run_units([unit], ResultStore(tmp_path), workplace, stop=stops_in_the_student, tell=told(said))
    assert session.left == [unit] and not list(tmp_path.glob("*.jsonl"))
    again: list[str] = []
    session = run_units([unit], ResultStore(tmp_path), workplace, tell=told(again))
    assert session.done == [unit]
    assert {"    base: from the cache", "    round1.split: from the cache"} <= set(again)
    found = ResultStore(tmp_path).find(unit)
    assert found is not None and found["metrics"] == smoked.line("main")["metrics"]


def test_interruption_is_no_failure(tmp_path: Path, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> dict[str, Any]:
        raise Interrupted("stopped during base")

    monkeypatch.setattr(harness, "_run", run)
    units = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1])
    session = run_units(units, ResultStore(tmp_path), workplace, tell=told(QUIET))
    assert session.left == units and not session.failed


# ---------------------------------------------------------------------------------------------------------------- smoke


@dataclass
class Smoke:
    """What `splitpu reproduce main --smoke` left behind."""

    folder: Path
    said: str
    code: int

    def line(self, name: str) -> dict[str, Any]:
        (text,) = (self.folder / "results" / f"{name}.jsonl").read_text().splitlines()
        line: dict[str, Any] = json.loads(text)
        return line

    def stages(self, name: str) -> list[str]:
        """What was said about the stages of an experiment's unit."""
        part = self.said.split(f"] {name} /")[1].split("\n[")[0]
        return re.findall(r"^    (\S+: (?:from the cache|\d+ epochs))", part, re.MULTILINE)


@pytest.fixture(scope="session")
def smoked(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Smoke:
    """Run once, even where several processes share the tests between them."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if hasattr(request.config, "workerinput") else shared) / "smoke"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "said").exists():
            code, said = smoke_into(folder)
            (folder / "said").write_text(f"{code}\n{said}")
    code, _, said = (folder / "said").read_text().partition("\n")
    return Smoke(folder, said, int(code))


def smoke_into(folder: Path) -> tuple[int, str]:
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stderr(said):
        kept = contextlib.nullcontext(str(folder))
        patched.setattr("splitpu.experiments.command.tempfile.TemporaryDirectory", lambda **_: kept)
        code = main(["reproduce", "main", "--smoke"])
    return code, said.getvalue()


def test_smoke_runs_every_experiment(smoked: Smoke) -> None:
    assert smoked.code == 0, smoked.said
    assert {path.stem for path in (smoked.folder / "results").iterdir()} == set(NAMES)
    line = smoked.line("main")
    wanted = "experiment recipe method positives setting seed accuracy base_accuracy metrics rounds config_hash commit"
    assert set(f"{wanted} device seconds stage_seconds versions date".split()) <= set(line)
    assert 0 <= line["accuracy"] <= 100 and line["accuracy"] == line["rounds"][-1]["accuracy"]
    assert set(line["rounds"][0]) >= {"accuracy", "easy", "hard", "noise", "split_epoch", "reached"}


def test_smoke_runs_every_method(smoked: Smoke) -> None:
    texts = [text for path in (smoked.folder / "results").iterdir() for text in path.read_text().splitlines()]
    assert {json.loads(text)["method"] for text in texts} == set(METHODS)
    (every,) = [one for one in smoke_units([experiments()["competitors"]]) if one.method == "dist-pu"]
    assert every.config.dist_pu.epochs == every.config.dist_pu.warmup_epochs == 2  # all its parts are tiny


def test_what_is_shared_is_trained_once(smoked: Smoke) -> None:
    said = {name: smoked.stages(name) for name in NAMES}
    assert said["main"] == ["base: 2 epochs", "round1.split: 2 epochs", "round1.student: 2 epochs"]
    only_the_student = ["base: from the cache", "round1.split: from the cache", "round1.student: 2 epochs"]
    for name in ("easy-loss", "hard-loss", "consistency-scope", "rho", "alpha", "beta", "learning-of-noise", "spr"):
        assert said[name] == only_the_student, name
    assert said["early-stop"] == ["base: from the cache", "round1.student: 2 epochs"]
    assert said["tau"] == ["base: from the cache", "round1.split: 2 epochs", "round1.student: 2 epochs"]
    for name in ("cgh", "gallery"):
        assert all("from the cache" in stage for stage in said[name])
    assert said["rounds"][:3] == [stage.replace("2 epochs", "from the cache") for stage in said["main"]]
    assert "base: 2 epochs" in said["base-upu"] and "base: 2 epochs" in said["recipe-choice"]
    assert said["record-choice"] == ["warmup: 2 epochs", *said["main"]]


def test_four_rounds_in_one_line(smoked: Smoke) -> None:
    rounds = smoked.line("rounds")["rounds"]
    assert [r["round"] for r in rounds] == [1, 2, 3, 4]
    assert rounds[0]["accuracy"] == smoked.line("main")["accuracy"]


def test_watching_changes_nothing(smoked: Smoke) -> None:
    for name in ("learning-of-noise", "spr"):
        assert smoked.line(name)["metrics"] == smoked.line("main")["metrics"]


def test_series_of_the_figures(smoked: Smoke) -> None:
    tau = smoked.line("noise-by-tau")["series"]
    unlabelled = {easy + hard for easy, hard in zip(tau["easy"], tau["hard"], strict=True)}
    noisy = {easy + hard for easy, hard in zip(tau["noisy_easy"], tau["noisy_hard"], strict=True)}
    assert tau["epoch"] == [1, 2] and len(unlabelled) == len(noisy) == 1
    assert noisy.pop() / unlabelled.pop() == pytest.approx(tau["noise_all"])
    learned = smoked.line("learning-of-noise")["series"]
    noise = smoked.line("learning-of-noise")["rounds"][0]["noise"]["easy"]
    assert learned["noisy_size"] / (learned["noisy_size"] + learned["clean_size"]) == pytest.approx(noise)
    assert smoked.line("spr")["series"]["epoch"] == [2]
    cgh = smoked.line("cgh")["series"]
    assert sum(cgh["clean_share"]) == pytest.approx(1) and cgh["statistics"]["clean"]["count"] > 0
    gallery = smoked.line("gallery")["series"]
    assert len(gallery) == 4 and all(s["png"].startswith("data:image/png") for g in gallery.values() for s in g)
    choice = smoked.line("recipe-choice")
    assert set(choice["selection"]) == {"pu_accuracy", "nnpu_value"} and choice["held_out_positives"] == 10


def test_smoke_is_rendered(smoked: Smoke) -> None:
    text, html = ((smoked.folder / "docs" / name).read_text() for name in ("RESULTS.md", "results.html"))
    assert f"{smoked.line('main')['accuracy']:.2f} (n = 1)" in text and f"{smoked.line('main')['accuracy']:.2f}" in html
    assert html.count("<img") == sum(len(group) for group in smoked.line("gallery")["series"].values())
    assert "nan" not in text.lower().split() and "None" not in text


# ------------------------------------------------------------------------------------------------------------ rendering


def test_nothing_run_yet(tmp_path: Path) -> None:
    render(ResultStore(tmp_path / "none"), tmp_path)
    text, html = ((tmp_path / name).read_text() for name in ("RESULTS.md", "results.html"))
    assert "ours: not run" in text and "89.18 ± 0.12" in text and "not run" in html
    assert all(f"(`{name}`)" in text and f'id="{name}"' in html for name in NAMES)
    assert "http://" not in html and "https://" not in html and "src=" not in html


def test_partial_results_are_rendered(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    for unit in units_of("main", recipe="paper", positives=[1000], seeds=[0, 1]):
        ranked = {"metrics": {"roc_auc": 0.95}, "base_metrics": {"roc_auc": 0.9}, "matched_accuracy": 91.0}
        store.add(unit, made_up(unit, 90.0 + unit.seed, base=88.0) | ranked)
    of_rho = units_of("rho", recipe="paper", positives=[1000], seeds=[0])
    (half,) = [unit for unit in of_rho if unit.setting == {"rounds": 1, "student.rho": 0.5}]
    store.add(half, made_up(half, 89.0))
    of_alpha = units_of("alpha", recipe="paper", positives=[1000], seeds=[0])
    (usual,) = [unit for unit in of_alpha if unit.setting == {"rounds": 1}]
    store.add(usual, made_up(usual, 90.25))
    store = ResultStore(tmp_path / "results")
    render(store, tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    ours = "90.50 ± 0.71 (n = 2) | -0.01 | 91.00 ± 0.00 | 95.00 ± 0.00 | 100 s | a fine card |"
    assert f"| Split-PU | 1000 | 90.51 ± 0.10 | {ours}" in text
    base = "88.00 ± 0.00 (n = 2) | -1.02 | \N{EN DASH} | 90.00 ± 0.00 |"
    assert f"| base model (nnPU) | 1000 | 89.02 ± 0.39 | {base}" in text
    assert "| student over its own base | 1000 | \N{EN DASH} | +2.50 ± 0.71 (n = 2) |" in text
    assert "| 0.5 | 1000 | 90.02 | 89.00 (n = 1) | -1.02 |" in text
    assert "| 0.7 | 1000 | 90.51 | 90.25 (n = 1) |" in text  # the run of another table's row serves this one, too
    assert "| 0.6 | 1000 | 90.24 | not run |" in text
    assert "4 results are shown." in text
    html = (tmp_path / "results.html").read_text()
    assert 'data-name="ours, paper"' in html and 'data-name="paper"' in html


def test_outdated_results_are_counted_but_not_shown(tmp_path: Path) -> None:
    (unit,) = units_of("main", recipe="paper", positives=[1000], seeds=[0])
    line = made_up(unit, 99.0)
    line["config"]["student"]["epochs"] = 7
    ResultStore(tmp_path / "results").add(unit, line)
    render(ResultStore(tmp_path / "results"), tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "99.00" not in text and "1 more were made with earlier settings" in text


def test_rows_of_rounds_are_read_from_one_run(tmp_path: Path) -> None:
    (unit,) = units_of("rounds", recipe="paper", positives=[1000], seeds=[0])
    store = ResultStore(tmp_path)
    store.add(unit, made_up(unit, 90.0, rounds=[{"accuracy": 90.0 + number} for number in range(4)]))
    found = [cell.mean for cell in cells(experiments()["rounds"], "paper", store) if cell.positives == 1000]
    assert found == [90.0, 91.0, 92.0, 93.0]


def test_runs_that_shared_the_device_count_with_their_share_of_the_time(tmp_path: Path) -> None:
    units = units_of("main", recipe="default", positives=[1000], seeds=[0, 1])
    store = ResultStore(tmp_path)
    for unit, more in zip(units, ({"seconds": 50.0}, {"seconds": 90.0, "side_by_side": 3}), strict=True):
        store.add(unit, made_up(unit, 92.0, **more))
    times = {cell.time for cell in cells(experiments()["main"], "default", store) if cell.positives == 1000}
    assert times == {"40 s (shared)"}


def test_a_choice_shows_what_chose(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    units = units_of("recipe-choice", positives=[1000], seeds=[0])
    for number, unit in enumerate(units[:2]):
        selection = {"pu_accuracy": 90.0 + number, "nnpu_value": 0.1}
        store.add(unit, made_up(unit, 99.0 - number, rounds=[], selection=selection))
    render(store, tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    (chosen,) = [line for line in text.splitlines() if "| chosen |" in line]
    assert "base: rate 1e-4" in chosen and "91.00 | +1.00 | 1 |" in chosen  # the better test accuracy was the other's
    assert "what `recipe-choice` picks: base: 'rate 1e-4' of 2 compared candidates (+1.00 points" in text


# ------------------------------------------------------------------------------------------------------------- commands


def test_the_plain_entry_needs_no_command_line_library(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cyclopts'] = None\n"
        "import splitpu.experiments.__main__ as plain\n"
        "import splitpu.experiments.running\n"
        f"sys.exit(plain.main(['--render', '--results', {str(tmp_path)!r}, '--docs', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results.html").exists()


def test_rendering_needs_no_torch() -> None:
    code = "import sys, splitpu.experiments.command, splitpu.experiments.rendering; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize("run", [main, plain.main])
def test_both_commands(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rho", "--recipe", "paper", "--positives", "1000", "--seeds", "0,1", "--results", str(tmp_path)]
    units = [*run_words(run, capsys, *words[:1], "--list", *words[1:])[1].splitlines()]
    assert len(units) == 14 and all(line.startswith("open") for line in units)
    prefix = ["reproduce"] if run is main else []
    assert run([*prefix, "rho", "--seeds", "one"]) == 2
    assert "whole numbers" in capsys.readouterr().err
    assert run([*prefix]) == 2
    assert "name an experiment" in capsys.readouterr().err


def run_words(run: Any, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run([*(["reproduce"] if run is main else []), *words])
    return code, capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------ noise detection


def test_penalised_regression_finds_planted_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(600) % 2 == 0
    features = torch.randn(600, 20, generator=generator)
    features[:, 0] += 4 * truth.float()
    noisy = torch.zeros(600, dtype=torch.bool)
    noisy[torch.randperm(600, generator=generator)[:60]] = True
    suspicion = penalised_regression_suspicion(features, truth ^ noisy)
    suspected = suspicion.argsort(descending=True)[:60]
    assert noisy[suspected].float().mean() > 0.85
    again = penalised_regression_suspicion(features, truth ^ noisy)
    assert torch.equal(suspicion, again)


def test_gradients_of_single_samples() -> None:
    torch.manual_seed(0)
    network = build_network("cnn-small", (8, 8, 1)).eval()
    inputs, targets = torch.randn(3, 1, 8, 8), torch.tensor([True, False, True])
    found = first_convolution_gradients(network, inputs, targets)
    weight = network.first[0].weight
    for number in range(3):
        logit = network(inputs[number : number + 1]).logit
        loss = functional.binary_cross_entropy_with_logits(logit, targets[number : number + 1].float())
        (alone,) = torch.autograd.grad(loss, weight)
        torch.testing.assert_close(found[number], alone, rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="no plain convolution"):
        first_convolution_gradients(build_network("mlp", (4,)), torch.zeros(2, 4), targets[:2])


def test_coherence_is_low_for_the_one_that_disagrees() -> None:
    gradients = torch.ones(10, 1, 1, 2, 2)
    gradients[3] *= -1
    assert coherence(gradients).argmin() == 3


# ------------------------------------------------------------------------------------------------------------ selection


def test_the_criterion_is_the_accuracy_where_both_samples_are_complete() -> None:
    draw = np.random.default_rng(0)
    truth = draw.random(1000) < 0.4
    decision = np.where(truth, 1.0, -1.0) + draw.normal(size=1000)
    accuracy = float(((decision > 0) == truth).mean())
    assert pu_criterion(decision[truth], decision, float(truth.mean())) == pytest.approx(accuracy)
    good, bad = (nnpu_value(sign * decision[truth], sign * decision, 0.4) for sign in (1, -1))
    assert good < bad


def test_holding_out_keeps_the_shares() -> None:
    labelled = np.arange(100) < 20
    data = PUData.from_arrays(np.arange(100.0)[:, None], labelled, truth=labelled, names=[str(i) for i in range(100)])
    left, positives, population = hold_out(data, 0.25, seed=1)
    assert len(left) == 75 and len(left.positives) == 15 and len(positives) == 5 and len(population) == 25
    assert not set(population.tolist()) & set(left.features[:, 0].astype(int).tolist())
    assert set(positives.tolist()) <= set(population.tolist()) and left.names is not None and left.truth is not None
    assert [int(name) for name in left.names] == left.features[:, 0].astype(int).tolist()
    apart = replace(data, scenario="case-control")
    _, positives, population = hold_out(apart, 0.25, seed=1)
    assert len(population) == 20 and not set(positives.tolist()) & set(population.tolist())
    with pytest.raises(InputError, match="too few"):
        hold_out(data, 0.95, seed=0)
    with pytest.raises(InputError, match="between 0 and 1"):
        hold_out(data, 1.5, seed=0)
    with pytest.raises(InputError, match="flat array"):
        pu_criterion([], [1.0], 0.5)
