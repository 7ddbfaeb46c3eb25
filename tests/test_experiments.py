"""Experiments as they are declared, the units they come to, and the two commands that start them."""

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_tools import run_cli
from experiment_tools import NAMES, units_of

from splitpu.cli import main
from splitpu.cli.app import reproduce
from splitpu.config.parse import config_from_dict
from splitpu.errors import InputError
from splitpu.reproduce import __main__ as plain
from splitpu.reproduce import command
from splitpu.reproduce.declared import chosen_experiments, experiments, recipes
from splitpu.reproduce.units import planned_units

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


# ------------------------------------------------------------------------------------------------------------- commands


def test_the_plain_entry_needs_no_command_line_library(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cyclopts'] = None\n"
        "import splitpu.reproduce.__main__ as plain\n"
        "import splitpu.reproduce.unit_runs\n"
        f"sys.exit(plain.main(['--render', '--results', {str(tmp_path)!r}, '--docs', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results.html").exists()


def test_rendering_needs_no_torch() -> None:
    code = "import sys, splitpu.reproduce.command, splitpu.reproduce.pages; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_list_that_is_not_read_to_its_end_is_no_bug() -> None:
    # Nobody reads it at all: `head` might take in a short list before it goes.
    code = "import sys, splitpu.reproduce.__main__ as plain; sys.exit(plain.main(['--list']))"
    listing = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert listing.stdout is not None and listing.stderr is not None
    listing.stdout.close()
    assert listing.stderr.read() == ""
    assert listing.wait(timeout=60) == 141


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


def test_both_commands_have_the_same_options() -> None:
    other_names = {"--only-list": "--list"}
    here = {f"--{name.replace('_', '-')}" for name in inspect.signature(reproduce).parameters} - {"--name"}
    there = {action.option_strings[-1] for action in plain._parser()._actions if action.option_strings} - {"--help"}
    assert {other_names.get(option, option) for option in here} == there


@pytest.mark.parametrize("words", [["reproduce"], []])
def test_both_commands_stop_politely(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[command.Order]()

    def carry_out(order: command.Order, stop: Callable[[], bool]) -> int:
        asked.append(order)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        return 0

    monkeypatch.setattr(command, "carry_out", carry_out)
    run = main if words else plain.main
    rest = ["main", "--seeds", "0,1", "--method", "vpu", "--minutes", "2.5", "--side-by-side", "2", "--commit", "abc"]
    assert run([*words, *rest, "--data-dir", "files", "--fill"]) == 143
    expected = {"names": "main", "seeds": (0, 1), "methods": ("vpu",), "minutes": 2.5, "commit": "abc", "fill": True}
    assert asked == [command.Order(**expected, side_by_side=2, data_dir=Path("files"))]


def run_words(run: Any, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run([*(["reproduce"] if run is main else []), *words])
    return code, capsys.readouterr().out


def test_experiments_are_listed_without_a_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run_cli(capsys, "reproduce", "--list", "--results", tmp_path)
    assert code == 0 and "main " in out and "of   6 units done  Number of rounds" in out
    assert "--list alone" in run_cli(capsys, "reproduce", "--dry-run")[2]
