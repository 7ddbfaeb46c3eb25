"""Experiments as they are declared, the units they come to, and the command that starts them.

Tables of any method: what is run in which order, what is found again, what the pages say, which candidate wins.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import run_cli
from experiment_tools import NAMES, made_up, units_of
from method_tools import LEARNERS, METHODS

from splitpu.cli import main
from splitpu.config.parse import apply_overrides, config_from_dict
from splitpu.config.schema import Config
from splitpu.errors import InputError
from splitpu.methods.registry import STUDENT, works_of
from splitpu.reproduce import runner
from splitpu.reproduce.declared import chosen_experiments, experiments, recipes
from splitpu.reproduce.pages import render
from splitpu.reproduce.store import ResultStore, plan_lines
from splitpu.reproduce.summary import candidates
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import Unit, planned_units
from splitpu.runs.grid import Grid

# ------------------------------------------------------------------------------------------------------------- declared


def test_everything_the_paper_has_is_declared() -> None:
    assert list(experiments()) == NAMES
    assert set(recipes()) == {"paper", "default", "fast", "record"}


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


def test_tables_from_before_a_recipe_changed_keep_what_they_were_run_with() -> None:
    changed = recipes()["default"]
    assert changed.earlier and set(changed.earlier_in) <= set(NAMES)
    for name in changed.earlier_in:
        settings = [unit.setting for unit in units_of(name, recipe="default", seeds=[0])]
        assert any(changed.earlier.items() <= setting.items() for setting in settings), name
    (today,) = units_of("main", recipe="default", positives=[1000], seeds=[0])
    assert today.setting == {}
    assert "base.epochs" not in units_of("rho", recipe="record", seeds=[0])[0].setting  # no other recipe has changed


def test_names_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="did you mean 'main'"):
        chosen_experiments("mian")
    with pytest.raises(InputError, match="did you mean 'default'"):
        units_of("main", recipe="defualt")


# ---------------------------------------------------------------------------------------------------------------- units


def test_a_unit_is_written_as_what_it_is() -> None:
    (unit,) = [u for u in units_of("rho", recipe="paper", positives=[500], seeds=[3]) if "0.4" in str(u)]
    assert unit.identity == {
        "experiment": "rho",
        "recipe": "paper",
        "method": "split-pu",
        "positives": 500,
        "setting": {"rounds": 1, "student.rho": 0.4},
        "seed": 3,
    }


def test_rows_that_repeat_the_recipe_are_one_run() -> None:
    chosen = units_of("main,rho,early-stop,alpha", recipe="default", positives=[1000], seeds=[0])
    own = [unit for unit in chosen if unit.setting in ({}, {"rounds": 1})]
    assert [unit.experiment.name for unit in own] == ["main", "rho"]  # alpha 0.3 and "with" are rho 0.7 as well
    assert len(chosen) == 1 + 2 + 6 + 8


def test_one_run_gives_all_rounds() -> None:
    (unit,) = units_of("rounds", recipe="paper", positives=[1000], seeds=[0])
    assert unit.config.rounds == 4 and unit.setting == {"rounds": 4}


def test_seeds_come_one_after_the_other() -> None:
    seeds = [unit.seed for unit in units_of("main,tau", recipe="default", positives=[1000], seeds=[1, 0])]
    assert seeds == sorted(seeds)


# ------------------------------------------------------------------------------------------------------------- commands


def test_rendering_needs_no_torch() -> None:
    code = "import sys, splitpu.cli.app, splitpu.reproduce.pages; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_list_that_is_not_read_to_its_end_is_no_bug() -> None:
    # Nobody reads it at all: `head` might take in a short list before it goes.
    code = "import sys, splitpu.cli; sys.exit(splitpu.cli.main(['reproduce', 'list']))"
    listing = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert listing.stdout is not None and listing.stderr is not None
    listing.stdout.close()
    assert listing.stderr.read() == ""
    assert listing.wait(timeout=60) == 141


def test_units_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "reproduce",
        "list",
        "rho",
        "tau",
        "--recipe",
        "paper",
        "--labelled",
        "1000",
        "--seeds",
        "0",
        "--results",
        str(tmp_path),
    ]
    assert main(words) == 0
    units = capsys.readouterr().out.splitlines()
    assert len(units) == 15 and all(line.startswith("open") for line in units)
    assert main([*words[:2], "rho,tau", *words[4:]]) == 0
    assert capsys.readouterr().out.splitlines() == units
    assert main(["reproduce", "run", "rho", "--seeds", "one"]) == 2
    assert "whole numbers" in capsys.readouterr().err
    for command_without_names in ("run", "plan", "choose"):
        assert main(["reproduce", command_without_names]) == 2
        assert "name an experiment" in capsys.readouterr().err


def test_the_command_stops_politely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dict[str, Any]()

    def run_units(units: list[Unit], store: ResultStore, workplace: Workplace, *, stop: Any, **how: Any) -> Grid[Any]:
        asked.update(how, units=units, store=store, workplace=workplace)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        return Grid([])

    monkeypatch.setattr(runner, "run_units", run_units)
    chosen = ["--seeds", "0,1", "--method", "vpu", "--minutes", "2.5", "--commit", "abc", "--side-by-side", "4"]
    places = ["--data-dir", "files", "--results", str(tmp_path)]
    assert main(["reproduce", "run", "main", *chosen, *places, "--fill"]) == 143
    assert {(unit.seed, unit.method, unit.experiment.name) for unit in asked["units"]} == {
        (seed, "vpu", "main") for seed in (0, 1)
    }
    assert asked["store"].folder == tmp_path and asked["fill"] and 2 < asked["minutes"] < 2.5
    workplace = asked["workplace"]
    assert (workplace.commit, workplace.data_dir, workplace.side_by_side) == ("abc", Path("files"), 4)
    assert main(["reproduce", "run", "main", "--side-by-side", "0"]) == 2


def test_experiments_are_listed_without_a_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run_cli(capsys, "reproduce", "list", "--results", tmp_path)
    assert code == 0 and "main " in out and "of   9 units done  Number of rounds" in out
    assert "did you mean splitpu reproduce list?" in run_cli(capsys, "reproduce", "--list")[2]
    assert "splitpu reproduce run main" in run_cli(capsys, "reproduce", "main")[2]


Capture = pytest.CaptureFixture[str]
TABLES = ("competitors", "competitors-mnist", "competitors-breastmnist", "competitors-digits")


# ---------------------------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize("name", TABLES)
def test_every_method_has_its_row(name: str) -> None:
    assert sorted(row.method for row in experiments()[name].rows) == sorted(set(METHODS) - set(LEARNERS))
    for unit in units_of(name, seeds=[0]):
        assert unit.config.method == unit.method and unit.identity["method"] == unit.method


def test_published_figures() -> None:
    rows = {row.method: row for row in experiments()["competitors"].rows}
    assert rows["self-pu"].paper == {1000: 89.68, 3000: 90.77} and rows["dist-pu"].paper == {1000: 91.88}
    assert rows["vpu"].paper_sd == {1000: 0.55, 3000: 1.05}
    assert all(row.note for row in rows.values())


def test_a_competitors_cut_is_its_own_and_split_pu_is_the_main_tables_run() -> None:
    units = {unit.method: unit for unit in units_of("competitors", positives=[1000], seeds=[0])}
    assert all(unit.config.threshold == "half" for name, unit in units.items() if name != "split-pu")
    (own,) = units_of("main", recipe="default", positives=[1000], seeds=[0])
    assert units["split-pu"].work_key == own.work_key


def test_a_line_is_found_by_its_method_and_by_that_methods_settings_alone(tmp_path: Path) -> None:
    vpu, dan = (units_of("competitors", positives=[1000], seeds=[0], methods=[name])[0] for name in ("vpu", "dan"))
    store = ResultStore(tmp_path)
    store.add(vpu, made_up(vpu, 85.0))
    store = ResultStore(tmp_path)
    assert store.find(vpu) is not None and store.find(dan) is None and not store.unreadable
    assert set(made_up(vpu, 85.0)["config"]) == {
        "threshold",
        "vpu",
        "selection",
        "views",
    }  # so no other section can outdate it
    line = made_up(vpu, 85.0)
    line["config"]["vpu"]["epochs"] = 7
    ResultStore(tmp_path / "changed").add(vpu, line)
    assert ResultStore(tmp_path / "changed").find(vpu) is None


def test_a_teachers_settings_belong_to_its_students_result() -> None:
    (unit,) = [u for u in units_of("teachers", seeds=[0]) if u.config.base.method == "dist-pu"]
    assert "dist_pu" in made_up(unit, 90.0)["config"] and "vpu" not in made_up(unit, 90.0)["config"]
    changed = replace(unit, row=replace(unit.row, setting={**unit.row.setting, "dist_pu.epochs": 7}))
    assert changed.work_key != unit.work_key


def test_cheapest_rows_first_and_each_with_all_its_seeds() -> None:
    units = units_of("competitors")
    rows = [(unit.method, unit.positives) for unit in units]
    assert len(units) == 72 and [rows.index(row) for row in dict.fromkeys(rows)] == list(range(0, 72, 3))
    # What can be held against a published figure comes first.
    compared = [unit.positives in unit.row.paper for unit in units]
    assert compared == sorted(compared, reverse=True) and 0 < sum(compared) < 72
    for comparable in (True, False):
        guesses = [unit.guessed_seconds for unit, one in zip(units, compared, strict=True) if one is comparable]
        assert guesses == sorted(guesses)
    unquoted = [unit.guessed_seconds for unit in units_of("competitors-mnist")]
    assert unquoted == sorted(unquoted)


def test_published_figures_come_first_among_several_tables() -> None:
    units = planned_units([experiments()[name] for name in ("teachers", "competitors-mnist", "competitors")])
    compared = [unit.positives in unit.row.paper for unit in units]
    assert compared == sorted(compared, reverse=True) and sum(compared) > 40
    # What a table has no published figure for, though it has them for others, can wait longest.
    assert units[-1].experiment.name == "competitors" and units[sum(compared)].experiment.name != "competitors"


def test_teachers_are_trained_as_the_competitors_are() -> None:
    alone = {unit.method: unit.config for unit in units_of("competitors", positives=[1000], seeds=[0])}
    # Alone it says by `selection` what only its own section can say of one stage of several.
    chooses = replace(alone["vpu"].vpu, held_out=alone["vpu"].selection.held_out)
    alone["vpu"] = replace(alone["vpu"], vpu=chooses, selection=Config().selection)
    for unit in units_of("teachers", seeds=[0]):
        teacher = unit.config.base.risk if unit.config.base.method == "risk" else unit.config.base.method
        for section in METHODS[teacher].sections:
            ours, theirs = (getattr(config, section) for config in (unit.config, alone[teacher]))
            if section == "base":  # which names the teacher, too
                ours, theirs = (replace(one, method="risk", risk="nnpu") for one in (ours, theirs))
            assert section == "threshold" or ours == theirs, (teacher, section)


def test_a_method_named_for_a_table_of_teachers_is_the_teacher() -> None:
    named = units_of("teachers", methods=["dan", "upu"], seeds=[0])
    assert {unit.method for unit in named} == {"split-pu"}
    assert {(unit.config.base.method, unit.config.base.risk) for unit in named} == {("dan", "nnpu"), ("risk", "upu")}


def test_lines_from_before_a_setting_are_of_what_was_done_then(tmp_path: Path) -> None:
    """VPU took its last epoch before `vpu.held_out` was there, whose default is another."""
    with_it, without = (
        next(unit for unit in units_of(name, methods=["vpu"], seeds=[0]) if unit.config.vpu.held_out == share)
        for name, share in (("competitors-mnist", 0.2), ("competitor-choice", 0.0))
    )
    for unit in (with_it, without):
        line = made_up(unit, 60.0) | {"selection": {"pu_accuracy": 60.0}}
        del line["config"]["vpu"]["held_out"]
        ResultStore(tmp_path).add(unit, line)
    store = ResultStore(tmp_path)
    assert store.find(without) is not None and store.find(with_it) is None


def test_a_method_can_be_asked_for(capsys: Capture) -> None:
    assert {unit.method for unit in units_of("competitors", methods=["vpu", "dan"])} == {"vpu", "dan"}
    (extra,) = units_of("main", recipe="default", positives=[500], seeds=[0], methods=["vpu"])
    assert extra.method == "vpu" and extra.setting == {}
    with pytest.raises(InputError, match="did you mean 'vpu'"):
        units_of("main", methods=["vpuu"])
    with pytest.raises(InputError, match="'spr' looks into Split-PU"):
        units_of("spr", methods=["vpu"])
    words = ["list", "competitors", "--method", "vpu,dan", "--seeds", "0", "--labelled", "1000"]
    assert main(["reproduce", *words]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 2 and "/ vpu /" in listed[0]


# ---------------------------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize("method", [name for name in METHODS if name not in LEARNERS])
def test_a_guess_grows_with_the_epochs(method: str) -> None:
    config = apply_overrides(Config(), [f"method={method}"])
    section = [one for one in METHODS[method].sections if hasattr(getattr(config, one), "epochs")][-1]
    more = apply_overrides(config, [f"{section}.epochs={2 * getattr(config, section).epochs}"])
    short, long = (sum(work.seconds("cnn13") for work in works_of(c, 50_000, 1000)) for c in (config, more))
    assert 0 < short < long <= 2 * short


def test_the_guess_is_near_what_one_run_took() -> None:
    (unit,) = units_of("main", recipe="paper", positives=[1000], seeds=[0])
    assert unit.guessed_seconds == pytest.approx(103.3, rel=0.15)  # benchmarks/results/engine_gpu-h200.json


def test_a_plan_says_what_it_takes(tmp_path: Path, capsys: Capture) -> None:
    words = ["plan", "competitors", "--method", "nnpu,self-pu", "--labelled", "1000", "--results", str(tmp_path)]
    first, *_ = units_of("competitors", positives=[1000], methods=["nnpu"])
    ResultStore(tmp_path).add(first, made_up(first, 90.0, seconds=99.0, side_by_side=3))
    assert main(["reproduce", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 3 + 1 and "6 units" not in lines[-1] and lines[-1].startswith("5 units, about")
    assert all("33 s measured" in line for line in lines[:2])  # of the seed that is done
    assert all("guessed" in line and line.endswith("long") for line in lines[2:5])


def test_seconds_on_a_cpu_plan_nothing(tmp_path: Path) -> None:
    first, second = units_of("competitors", positives=[1000], methods=["nnpu"], seeds=[0, 1])
    store = ResultStore(tmp_path)
    store.add(first, made_up(first, 90.0, seconds=9999.0, device="x86_64 CPU, 1 thread"))
    assert "guessed" in next(iter(plan_lines([second], store)))


def test_seconds_of_a_line_from_before_a_setting_was_added_still_plan(tmp_path: Path) -> None:
    first, second = units_of("competitors", positives=[1000], methods=["nnpu"], seeds=[0, 1])
    ResultStore(tmp_path).add(first, made_up(first, 90.0, seconds=77.0, config_hash="as it was called then"))
    assert "77 s measured" in next(iter(plan_lines([second], ResultStore(tmp_path))))


def planned_seconds(units: list[Unit], store: ResultStore) -> list[float]:
    return [float(line.split(" min ")[1].split(" s ")[0]) for line in list(plan_lines(units, store))[:-1]]


def test_a_plan_counts_stages_that_units_share_once(tmp_path: Path) -> None:
    one, other = units_of("rho", recipe="paper", positives=[1000], seeds=[0])[:2]
    another_seed = replace(other, seed=1)
    units, store = [one, other, another_seed], ResultStore(tmp_path)
    whole, student = one.guessed_seconds, one.guessed_by_stage[STUDENT]
    assert student < 0.8 * whole and other.guessed_seconds == whole
    assert planned_seconds(units, store) == [round(whole), round(student), round(whole)]
    total = list(plan_lines(units, store))[-1]
    assert total.startswith(f"3 units, about {(2 * whole + student) / 60:.0f} minutes") and "count once" in total


def test_measured_stages_that_units_share_count_once(tmp_path: Path) -> None:
    units = units_of("rho", recipe="paper", positives=[1000], seeds=[0, 1])
    (one, other), stages = units[:2], {"base": 60.0, "round1.split": 30.0, "round1.student": 90.0}
    store = ResultStore(tmp_path)
    for unit in (replace(one, seed=5), replace(other, seed=5)):  # three at once: a third of the time is their share
        store.add(unit, made_up(unit, 90.0, seconds=180.0, side_by_side=3, stage_seconds=stages))
    assert planned_seconds([one, other], store) == [60.0, 30.0]
    assert planned_seconds([other, one], store) == [60.0, 30.0]  # whichever comes first
    assert planned_seconds([one, replace(other, seed=1)], store) == [60.0, 60.0]


def test_without_its_files_a_table_is_not_run(tmp_path: Path, capsys: Capture) -> None:
    words = ["run", "competitors-breastmnist", "--data-dir", str(tmp_path), "--results", str(tmp_path / "results")]
    assert main(["reproduce", *words, "--cache", str(tmp_path / "stages")]) == 0
    said = capsys.readouterr().err
    assert (
        "units are not run: the set 'breastmnist' needs the file medmnist/breastmnist.npz" in said
        and "0 units run" in said
    )
    assert not list(tmp_path.rglob("*.jsonl"))


# ------------------------------------------------------------------------------------------------------------ rendering


def test_a_table_of_methods_is_rendered(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    for unit in units_of("competitors", positives=[1000], seeds=[0, 1], methods=["vpu"]):
        metrics = {"roc_auc": 0.94}
        store.add(unit, made_up(unit, 85.0 + unit.seed, matched_accuracy=88.0, metrics=metrics))
    (extra,) = units_of("main", recipe="default", positives=[500], seeds=[0], methods=["dan"])
    store.add(extra, made_up(extra, 83.0))
    render(ResultStore(tmp_path / "results"), tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| VPU | 1000 | 85.06 ± 0.55 | 85.50 ± 0.71 (n = 2) | +0.44 | 88.00 ± 0.00 | 94.00 ± 0.00 | 100 s |" in text
    assert "| VPU | 3000 | 87.50 ± 1.05 | not run |" in text
    assert "| VPU | published with 4 convolutions" in text
    assert "| DAN | 500 | \N{EN DASH} | 83.00 (n = 1) |" in text  # asked for with --method: a row of its own in `main`
    assert "3 results are shown." in text


# -------------------------------------------------------------------------------------------------------------- choices


def judged(units: list[Any], estimates: dict[str, list[float]], store: ResultStore) -> None:
    """Lines for candidates by label, one estimate a seed; test accuracies say the opposite."""
    for unit in units:
        found = estimates.get(unit.row.label, [])
        if unit.seed < len(found):
            estimate = {"pu_accuracy": found[unit.seed], "nnpu_value": 0.1}
            store.add(unit, made_up(unit, 100 - found[unit.seed], rounds=[], selection=estimate))


def base_candidates() -> list[Any]:
    return [unit for unit in units_of("recipe-choice", positives=[1000], seeds=[0, 1, 2]) if unit.row.group == "base"]


def test_the_criterion_picks(tmp_path: Path, capsys: Capture) -> None:
    base, store = base_candidates(), ResultStore(tmp_path)
    # The third was run once only, where it looks best: it cannot be compared, so it cannot win.
    runs = {"as it was": [90, 91, 92], "rate 1e-4": [91, 92.5, 93], "a constant rate": [99]}
    judged([unit for unit in base if unit.seed < 2], runs, store)
    found = {one.row.label: one for one in candidates(experiments()["recipe-choice"], "default", store)["base"]}
    assert [label for label, one in found.items() if one.chosen] == ["rate 1e-4"]
    assert found["rate 1e-4"].gain == pytest.approx(1.25) and found["rate 1e-4"].gain_error is None  # of two: a guess
    assert not found["a constant rate"].complete and found["weight decay 5e-4"].mean is None
    judged([unit for unit in base if unit.seed == 2], runs, store)
    assert main(["reproduce", "choose", "recipe-choice", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "base: 'rate 1e-4' of 2 compared candidates (+1.17 ± 0.17 points over 'as it was', 3 runs each)" in said
    assert main(["reproduce", "choose", "competitor-choice", "main", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "competitor-choice / default: not run" in said and "main: nothing is chosen there" in said


def test_of_equals_the_recipe_stays_as_it_is(tmp_path: Path) -> None:
    base, store = base_candidates(), ResultStore(tmp_path)
    judged(base, {"as it was": [90, 91], "rate 1e-4": [91, 90]}, store)
    (winner,) = [o for o in candidates(experiments()["recipe-choice"], "default", store)["base"] if o.chosen]
    assert winner.row.label == "as it was"


def second_look(estimates: dict[str, list[float]], store: ResultStore) -> list[str]:
    """What is chosen of bases that are looked at again, one estimate a seed from 0 on."""
    units = units_of("recipe-final", positives=[1000], seeds=[0, 1, 2, 3])
    judged([unit for unit in units if unit.row.group == "base"], estimates, store)
    group = candidates(experiments()["recipe-final"], "default", store)["base"]
    return [one.row.label for one in group if one.chosen]


def test_a_second_look_changes_a_recipe_only_for_a_lead_beyond_chance(tmp_path: Path) -> None:
    longer = {"as it was": [80, 90, 91, 92], "100 epochs": [99, 91, 92.5, 92.2]}
    assert second_look(longer, ResultStore(tmp_path / "clear")) == ["100 epochs"]
    # Ahead by 0.4 points on average, with a standard error of 0.8; seed 0, which made it a candidate, does not count.
    longer["100 epochs"] = [99, 92, 91, 91.2]
    assert second_look(longer, ResultStore(tmp_path / "chance")) == ["as it was"]


def test_seeds_of_a_second_look_do_not_change_what_the_first_one_chose(tmp_path: Path) -> None:
    base, store = base_candidates(), ResultStore(tmp_path)
    judged([unit for unit in base if unit.seed == 0], {"as it was": [90], "rate 1e-4": [91], "100 epochs": [90]}, store)
    second_look({"as it was": [90, 90, 90, 90], "100 epochs": [90, 99, 99, 99]}, store)
    group = candidates(experiments()["recipe-choice"], "default", store)["base"]
    assert [one.row.label for one in group if one.chosen] == ["rate 1e-4"]
    assert {len(one.gains) for one in group if one.complete} == {1}


def test_one_alone_is_not_chosen(tmp_path: Path) -> None:
    base, store = base_candidates(), ResultStore(tmp_path)
    judged(base, {"as it was": [90, 91], "rate 1e-4": [91]}, store)
    assert not any(one.chosen for one in candidates(experiments()["recipe-choice"], "default", store)["base"])


def test_rounds_are_candidates_of_one_run(tmp_path: Path) -> None:
    (unit,) = [u for u in units_of("recipe-choice", positives=[1000], seeds=[0]) if u.row.group == "rounds"]
    rounds = [{"accuracy": 90.0, "pu_accuracy": estimate} for estimate in (91.0, 92.0, 91.5)]
    store = ResultStore(tmp_path)
    store.add(unit, made_up(unit, 90.0, rounds=rounds, selection={"pu_accuracy": 91.5, "nnpu_value": 0.1}))
    group = candidates(experiments()["recipe-choice"], "default", store)["rounds"]
    assert {one.row.label: one.mean for one in group} == {"1": 91.0, "2": 92.0, "3": 91.5}
    assert [one.row.label for one in group if one.chosen] == ["2"]
