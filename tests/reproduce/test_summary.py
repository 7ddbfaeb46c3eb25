"""The lines that runs leave, which of them count, and the pages that are written from them.

Noise among the labels: found by penalised regression, and by gradients that disagree with the others.
"""

import json
from pathlib import Path

import pytest
import torch
from experiment_tools import NAMES, made_up, units_of
from torch.nn import functional

from splitpu.cli import main
from splitpu.config.schema import Config
from splitpu.errors import InputError
from splitpu.methods.registry import whole_run_seconds
from splitpu.networks.build import build_network
from splitpu.reproduce.declared import Recipe, experiments, recipes
from splitpu.reproduce.figures import coherence, first_convolution_gradients, penalised_regression_suspicion
from splitpu.reproduce.pages import _mean_over_seeds, render, sweep_charts
from splitpu.reproduce.runner import run_units
from splitpu.reproduce.store import ResultStore, device_seconds
from splitpu.reproduce.summary import _after_round, cells, estimate, signed, with_deviation
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import Unit, rows_for

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
    assert merged.find(second) is not None and not merged.unreadable


def test_of_contradicting_lines_the_newest_counts_wherever_it_lies(tmp_path: Path) -> None:
    (unit,) = units_of("main", recipe="paper", positives=[1000], seeds=[0])
    for name, accuracy, date in (("a", 90.0, "2026-01-02"), ("b", 91.0, "2026-01-03"), ("c", 92.0, "2026-01-01")):
        ResultStore(tmp_path / name).add(unit, made_up(unit, accuracy, date=date))
    store = ResultStore(tmp_path)
    found = store.find(unit)
    assert found is not None and found["accuracy"] == 91.0
    assert store.remarks() == ["1 units have several lines with different figures; the newest counts"]
    render(store, tmp_path)
    assert "several lines with different figures" in (tmp_path / "RESULTS.md").read_text()


def test_lines_that_cannot_be_used_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    units = units_of("main", recipe="paper", positives=[1000], seeds=range(6))
    lines = [made_up(unit, 90.0) for unit in units]
    lines[1]["accuracy"] = None
    del lines[2]["device"]
    lines[3]["config"]["student"]["of_a_later_version"] = 1
    lines[4]["recipe"] = "lost"
    # A mark of an editor at the beginning, ends of lines of another system.
    text = "\r\n".join([*map(json.dumps, lines), "[1]"])
    (tmp_path / "main.jsonl").write_text(f"\ufeff{text}", encoding="utf-8")
    store = ResultStore(tmp_path)
    assert [store.find(unit) is not None for unit in units] == [True, False, False, False, False, True]
    reasons = [
        "its accuracy is None",
        "it has no 'device'",
        "of_a_later_version",
        "recipe 'lost' is",
        "it is no result",
    ]
    for number, (said, reason) in enumerate(zip(store.unreadable, reasons, strict=True), start=2):
        assert said.startswith(f"main.jsonl, line {number if number < 6 else 7}: ") and reason in said
    render(store, tmp_path)
    assert main(["reproduce", "plan", "main", "--results", str(tmp_path)]) == 0
    assert "5 lines cannot be used: main.jsonl, line 2: its accuracy is None" in capsys.readouterr().err


def test_lines_without_what_their_page_shows_are_named(tmp_path: Path) -> None:
    (table,) = units_of("main", recipe="paper", positives=[1000], seeds=[0])
    (figure,) = units_of("spr", recipe="paper", positives=[1000], seeds=[0])
    choice = units_of("recipe-final", positives=[1000], seeds=[1])[0]
    lines = [made_up(unit, 90.0) for unit in (table, figure, choice)]
    del lines[0]["base_accuracy"]
    (tmp_path / "main.jsonl").write_text("\n".join(map(json.dumps, lines)))
    store = ResultStore(tmp_path)
    missing = ("base_accuracy", "series", "selection")
    assert store.unreadable == [f"main.jsonl, line {i}: it has no '{key}'" for i, key in enumerate(missing, start=1)]
    render(store, tmp_path)


def test_a_line_that_was_cut_short_is_left_out_and_swallows_nothing(tmp_path: Path) -> None:
    first, second = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1])
    store = ResultStore(tmp_path)
    store.add(first, made_up(first, 90.0))
    path = tmp_path / "main.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    store = ResultStore(tmp_path)
    assert store.find(first) is None and store.unreadable == ["main.jsonl, line 1: it is no JSON, cut short perhaps"]
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


# ------------------------------------------------------------------------------------------------------------ rendering


def test_nothing_run_yet(tmp_path: Path) -> None:
    render(ResultStore(tmp_path / "none"), tmp_path)
    text, html = ((tmp_path / name).read_text() for name in ("RESULTS.md", "results.html"))
    assert "ours: not run" in text and "89.18 ± 0.12" in text and "not run" in html
    assert all(f"(`{name}`)" in text and f'id="{name}"' in html for name in NAMES)
    assert text.count("88.57") == 1  # once what the paper says, however many recipes there are
    assert "Not run yet: `splitpu reproduce run early-stop --recipe paper` runs it." in text
    assert "<code>splitpu reproduce run early-stop --recipe paper</code>" in html
    assert "http://" not in html and "https://" not in html and "src=" not in html


def test_rows_are_compared_with_the_recipe_seed_by_seed(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    accuracies = {"without": [90.0, 91.0, 92.0], "with": [91.0, 93.0, 95.0, 99.0]}  # the last has nothing beside it
    for seed in range(4):
        for unit in units_of("early-stop", recipe="default", positives=[1000], seeds=[seed]):
            found = accuracies[unit.row.label]
            if seed < len(found):
                store.add(unit, made_up(unit, found[seed]))
    (alone,) = [
        u for u in units_of("early-stop", recipe="default", positives=[200], seeds=[0]) if u.row.label == "without"
    ]
    store.add(alone, made_up(alone, 85.0))
    render(store, tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| difference | over 'with', same seeds |" in text
    assert "| without | 200 | \N{EN DASH} | 85.00 (n = 1) | \N{EN DASH} | \N{EN DASH} |" in text
    assert "| without | 1000 | 89.86 | 91.00 ± 1.00 (n = 3) | +1.14 | -2.00 ± 0.58 |" in text
    assert "| with | 1000 | 90.51 | 94.50 ± 3.42 (n = 4) | +3.99 | \N{EN DASH} |" in text


@pytest.mark.parametrize("name", [name for name in NAMES if experiments()[name].reference])
def test_the_row_that_others_are_compared_with_is_the_recipe_itself(name: str) -> None:
    experiment = experiments()[name]
    (row,) = [row for row in experiment.rows if row.label == experiment.reference]
    for recipe in experiment.recipes:
        unit = Unit(experiment, recipe, row, 1000, 0)
        treated = experiment.sets[experiment.data].setting if experiment.data in experiment.sets else {}
        assert {**unit.setting, **treated} == {**treated, **experiment.common, **recipes()[recipe].as_run_for(name)}
        assert row.value in ("accuracy", "rounds.2")  # both recipes have two rounds


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
    assert "99.00" not in text and "1 more, of earlier settings" in text


def test_rows_of_rounds_are_read_from_one_run(tmp_path: Path) -> None:
    (unit,) = units_of("rounds", recipe="paper", positives=[1000], seeds=[0])
    store = ResultStore(tmp_path)
    store.add(unit, made_up(unit, 90.0, rounds=[{"accuracy": 90.0 + number} for number in range(4)]))
    found = [cell.mean for cell in cells(experiments()["rounds"], "paper", store) if cell.positives == 1000]
    assert found == [90.0, 91.0, 92.0, 93.0]


def test_runs_that_shared_the_device_count_with_their_share_of_the_time(tmp_path: Path) -> None:
    units = units_of("main", recipe="default", positives=[1000], seeds=[0, 1, 2])
    known = (
        {"seconds": 50.0},
        {"seconds": 90.0, "side_by_side": 3},
        {"seconds": 200.0, "device_seconds": 40.0},  # interrupted among others, ended alone
    )

    def time_of(seeds: slice) -> set[str]:
        store = ResultStore(tmp_path / str(seeds))
        for unit, more in zip(units[seeds], known[seeds], strict=True):
            store.add(unit, made_up(unit, 92.0, **more))
        return {cell.time for cell in cells(experiments()["main"], "default", store) if cell.positives == 1000}

    assert time_of(slice(0, 1)) == {"50 s"}
    assert time_of(slice(2, 3)) == {"40 s (shared)"}
    assert time_of(slice(0, 3)) == {"40 s (shared)"}


def test_times_on_several_devices_are_not_mixed(tmp_path: Path) -> None:
    units = units_of("main", recipe="default", positives=[1000], seeds=[0, 1, 2])
    store = ResultStore(tmp_path)
    for unit, device, seconds in zip(units, ("GPU", "CPU, 1 thread", "GPU"), (10.0, 900.0, 20.0), strict=True):
        store.add(unit, made_up(unit, 92.0, device=device, seconds=seconds))
    found = {(c.device, c.time) for c in cells(experiments()["main"], "default", store) if c.positives == 1000}
    assert found == {("CPU, 1 thread; GPU", "900 s; 15 s")}


def test_a_method_that_was_run_besides_has_cells_only_where_it_was_run(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    (unit,) = units_of("main", recipe="record", positives=[1000], seeds=[0], methods=["supervised"])
    store.add(unit, made_up(unit, 99.0))

    def supervised(recipe: str) -> list[tuple[int, str]]:
        found = cells(experiments()["main"], recipe, store)
        return [(cell.positives, cell.ours) for cell in found if cell.row.method == "supervised"]

    assert supervised("record") == [(1000, "99.00 (n = 1)")] and not supervised("default")
    assert [cell.ours for cell in cells(experiments()["main"], "default", store)] == ["not run"] * 9


def test_a_size_that_was_run_besides_has_cells_only_where_it_was_run(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    (unit,) = units_of("main", recipe="default", positives=[777], seeds=[0])
    store.add(unit, made_up(unit, 90.0))
    sizes = {
        recipe: {cell.positives for cell in cells(experiments()["main"], recipe, store)}
        for recipe in ("default", "paper")
    }
    assert sizes == {"default": {500, 777, 1000, 3000}, "paper": {500, 1000, 3000}}


def test_a_sweep_draws_points_of_the_same_seeds(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    units = {(unit.row.label, unit.seed): unit for unit in units_of("tau", recipe="default", seeds=[0, 1])}
    for label, seed, accuracy in (
        ("0.80", 0, 93.0),
        ("0.80", 1, 91.0),
        ("0.90", 0, 93.5),
        ("0.92", 0, 93),
        ("0.92", 1, 91),
    ):
        store.add(units[label, seed], made_up(units[label, seed], accuracy))
    ((_, drawing),) = sweep_charts(experiments()["tau"], store).drawings
    assert "93.5" not in drawing  # of the best seed alone: it would stand out for its seed, not for its tau


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
    assert "What `recipe-choice` picks: base: 'rate 1e-4' of 2 compared candidates (+1.00 points" in text


def test_a_table_of_runs_from_before_the_recipe_changed_says_so(tmp_path: Path) -> None:
    unit = units_of("teachers", recipe="default", positives=[1000], seeds=[0])[0]
    store = ResultStore(tmp_path)
    store.add(unit, made_up(unit, 91.5))
    section = _section_of("teachers", store, tmp_path)
    assert "of the recipe as it was before: base.epochs = 50" in section and "91.50 (n = 1)" in section
    assert "as it was before" not in _section_of("early-stop", store, tmp_path)


def test_a_figure_that_draws_runs_of_an_earlier_recipe_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recipe, "as_run_for", lambda _, name: {"base.epochs": 50} if name == "tau" else {})
    (watched,) = units_of("noise-by-tau", recipe="default", positives=[1000], seeds=[0])
    swept = units_of("tau", recipe="default", positives=[1000], seeds=[0])[0]
    keys = ("epoch", "agreement", "easy", "hard", "noisy_easy", "noisy_hard")
    series = {**{key: [1.0] for key in keys}, "noise_all": 0.1}
    store = ResultStore(tmp_path)
    store.add(watched, made_up(watched, 90.0, series=series))
    assert "Accuracy, from" not in _section_of("noise-by-tau", store, tmp_path)  # nothing to draw yet
    store.add(swept, made_up(swept, 92.0))
    section = _section_of("noise-by-tau", store, tmp_path)
    assert "Accuracy, from the runs of `tau`." in section and "as it was before: base.epochs = 50" in section


def test_seeds_with_gradients_of_other_sizes_are_drawn_apart(tmp_path: Path) -> None:
    spread = {"count": 2, "mean": 0.0, "sd": 1.0, "quarter": -1.0, "median": 0.0, "three_quarters": 1.0}
    figures = {"statistics": {"clean": spread, "noisy": spread}, "coherence": {"clean": spread, "noisy": spread}}
    found = {"selected": 2, "selected_noisy": 1, "auc": 0.5, "noise_easy": 0.1, "samples": 20}
    shares = {"clean_share": [0.25, 0.75], "noisy_share": [0.5, 0.5]}
    store = ResultStore(tmp_path)
    for unit in units_of("cgh", recipe="default", positives=[1000], seeds=[0, 1]):
        middle = [-8.0, 8.0] if unit.seed else [-0.5, 0.5]
        store.add(unit, made_up(unit, 90.0, series={**figures, **found, **shares, "middle": middle}))
    gradient = "gradient of the first convolution's first weight"
    assert f"{gradient}, seed 0; {gradient}, seed 1." in _section_of("cgh", store, tmp_path)


def _section_of(name: str, store: ResultStore, folder: Path) -> str:
    render(store, folder)
    return (folder / "RESULTS.md").read_text().split(f"(`{name}`)")[1].split("\n## ")[0]


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


def test_whole_run_seconds_in_short() -> None:
    assert round(whole_run_seconds(Config(method="nnpu"), 50_000, 1000, 2.0)) == 100


def test_rows_for_in_short() -> None:
    assert [row.label for row in rows_for(experiments()["rho"], ("vpu",))] == ["VPU"]


def test_estimate_in_short() -> None:
    assert estimate({"rounds": [{"pu_accuracy": 91.0}], "selection": {"pu_accuracy": 92.0}}, "rounds.1") == 91.0


def test_after_round_in_short() -> None:
    line = {"rounds": [{"accuracy": 91.0}, {"accuracy": 50.0, "taken": False}]}
    assert _after_round(line, "rounds.2", "accuracy", 90.0) == 91.0


def test_with_deviation_in_short() -> None:
    assert (with_deviation(90.513, 0.1), with_deviation(89.28, None)) == ("90.51 ± 0.10", "89.28")


def test_signed_in_short() -> None:
    assert (signed(0.5, None), signed(-0.5, 0.25)) == ("+0.50", "-0.50 ± 0.25")


def test_a_session_in_short(tmp_path: Path) -> None:
    said: list[str] = []
    run_units([], ResultStore(tmp_path), Workplace(tmp_path), tell=said.append)
    assert said == ["0 units run, 0 were done before, 0 failed, 0 are left."]


def test_mean_over_seeds_in_short() -> None:
    assert _mean_over_seeds([{"epoch": [1.0, 2.0], "auc": None}, {"epoch": [1.0, 4.0], "auc": 0.5}]) == {
        "epoch": [1.0, 3.0],
        "auc": 0.5,
    }


def test_as_run_for_in_short() -> None:
    assert recipes()["default"].as_run_for("main") == {}


def test_device_seconds_in_short() -> None:
    assert device_seconds({"seconds": 90.0, "side_by_side": 3, "device_seconds": 32.5}) == 32.5
    assert device_seconds({"seconds": 90.0, "side_by_side": 3}) == 30.0
