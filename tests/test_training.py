"""Several runs in turn or in threads of the caller: the same as one by one, sharing rows, none disturbing another.

A run whose students learn nothing: it ends with the base model, and says so wherever somebody may look.
"""

import csv
import json
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_tools import run_cli, write_npz
from safetensors.torch import load_file
from splitpu_tools import QUICK, mixture
from torch import Tensor, nn

from splitpu import SplitPUClassifier, SplitPUWarning, load_named, make_pu, preset, train
from splitpu.cli import main
from splitpu.cli.display import show_result
from splitpu.config.parse import apply_overrides
from splitpu.config.schema import EngineConfig
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.engine.rows import SharedRows
from splitpu.engine.stage import Observer
from splitpu.methods import split_pu as student
from splitpu.reproduce.declared import experiments
from splitpu.reproduce.runner import run_units
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.summary import reading
from splitpu.reproduce.unit_runs import Workplace, run_unit
from splitpu.reproduce.units import smoke_units
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid_folders import mean_rows, seed_rows, summary_of
from splitpu.training import Runtime, Training, TrainSpec
from splitpu.utils.torch_state import StageDraws, seeded
from splitpu.utils.warnings import collected_warnings

SEEDS = (0, 1, 2)
PRIOR = 0.49
CPU = torch.device("cpu")
TINY = apply_overrides(
    preset("default"),
    [
        *("base.epochs=2", "split.max_epochs=1", "split.tau=0.01", "student.epochs=1", "rounds=1"),
        *("student.optimiser.average=0.9", "engine.threads=1"),
    ],
)


class Dropping(nn.Module):
    """A network that draws from torch's own generator while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(64, 16), nn.Dropout(0.5)
        self.second, self.head = nn.Linear(16, 8), nn.Linear(8, 1)

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low = torch.relu(self.first(batch.flatten(1)))
        high = torch.relu(self.second(self.drop(low)))
        return low, high, self.head(high)


@pytest.fixture(scope="module")
def draws() -> list[PUData]:
    digits = load_named("digits")
    return [make_pu(digits, 50, seed)[0] for seed in SEEDS]


def model_bytes(training: Training, folder: Path) -> bytes:
    training.model.save(folder)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("backbone", ["cnn-small", Dropping], ids=["cnn-small", "dropout"])
def test_at_once_is_bitwise_one_by_one(draws: list[PUData], tmp_path: Path, backbone: Any) -> None:
    alone = [
        train(data, TrainSpec(prior=PRIOR, config=TINY, seed=seed, backbone=backbone), Runtime(device="cpu"))
        for data, seed in zip(draws, SEEDS, strict=True)
    ]
    expected = [model_bytes(one, tmp_path / f"alone{n}") for n, one in enumerate(alone)]
    assert len(set(expected)) == len(SEEDS)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    for at_once in (1, 3):
        rows = Runtime(device="cpu", shared=SharedRows())
        specs = [TrainSpec(prior=PRIOR, config=TINY, seed=seed, backbone=backbone) for seed in SEEDS]
        with ThreadPoolExecutor(at_once) as threads:
            together = list(threads.map(train, draws, specs, [rows] * len(SEEDS)))
        found = [model_bytes(one, tmp_path / f"{at_once}-{n}") for n, one in enumerate(together)]
        assert found == expected, f"{at_once} at once"
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_are_shared(draws: list[PUData]) -> None:
    shared = SharedRows()
    stores = [shared.of(data.features, CPU, "auto")[0] for data in draws]
    assert stores[0] is stores[1] is stores[2]
    other = shared.of(draws[0].features.copy(), CPU, "auto")[0]
    assert other is not stores[0]


# -------------------------------------------------------------------------------------------------- what torch has once


def at_the_same_time(*jobs: Any) -> list[Any]:
    with ThreadPoolExecutor(len(jobs)) as threads:
        return [future.result() for future in [threads.submit(job) for job in jobs]]


def test_initial_weights_do_not_mix() -> None:
    def drawn(seed: int) -> list[Tensor]:
        found = []
        for place in range(50):
            with seeded(seed, place):
                found.append(torch.cat([torch.rand(1000) for _ in range(5)]))
        return found

    together = at_the_same_time(*(lambda seed=seed: drawn(seed) for seed in range(4)))
    for seed, found in enumerate(together):
        assert all(torch.equal(a, b) for a, b in zip(found, drawn(seed), strict=True))


def test_a_stage_draws_from_streams_of_its_own() -> None:
    def drawn(seed: int) -> Tensor:
        draws = StageDraws(CPU)
        draws.seed(seed)
        found = []
        for _ in range(50):
            with draws.lent():
                first = nn.functional.dropout(torch.ones(250))
                with draws.lent():
                    found.append(torch.cat([first, nn.functional.dropout(torch.ones(250))]))
        return torch.stack(found)

    together = at_the_same_time(*(lambda seed=seed: drawn(seed) for seed in range(4)))
    torch.manual_seed(3)
    pairs = [[nn.functional.dropout(torch.ones(250)) for _ in range(2)] for _ in range(50)]
    expected = torch.stack([torch.cat(pair) for pair in pairs])
    assert torch.equal(together[3], expected)


def test_every_thread_hears_its_own_warnings() -> None:
    barrier = threading.Barrier(3)

    def warned(name: str) -> list[str]:
        with collected_warnings(lambda _: None) as given:
            for _ in range(20):
                barrier.wait()
                warnings.warn(name, SplitPUWarning, stacklevel=1)
        return given

    usual = warnings.showwarning
    heard = at_the_same_time(*(lambda name=name: warned(name) for name in "abc"))
    assert heard == [["a"] * 20, ["b"] * 20, ["c"] * 20]
    assert warnings.showwarning is usual
    with pytest.warns(SplitPUWarning, match="afterwards"):
        warnings.warn("afterwards", SplitPUWarning, stacklevel=1)


def test_thread_limits_that_overlap_leave_the_number_as_it_was() -> None:
    before = torch.get_num_threads()
    one, two = (Hardware.choose("cpu", EngineConfig(threads=n)).thread_limit() for n in (before + 1, before + 2))
    one.__enter__()
    two.__enter__()
    assert torch.get_num_threads() == before + 2
    one.__exit__(None, None, None)
    assert torch.get_num_threads() == before + 2
    two.__exit__(None, None, None)
    assert torch.get_num_threads() == before


# -------------------------------------------------------------------------------------------------------------- harness


def test_units_in_a_row_share_their_stages(tmp_path: Path) -> None:
    names = {"main", "rho"}  # of the same base
    units = [unit for unit in smoke_units(experiments().values()) if unit.experiment.name in names]
    said: list[str] = []
    store = ResultStore(tmp_path / "results")
    session = run_units(units, store, Workplace(tmp_path / "stages", "cpu"), tell=said.append)
    assert len(session.done) == len(units) and not session.failed
    assert sum("base: 2 epochs" in text for text in said) == 1  # the others found it
    lines = list(store.lines.values())
    assert len(lines) == len(units) and np.isfinite([line["accuracy"] for line in lines]).all()
    assert all(line["seconds"] > 0 and not {"side_by_side", "device_seconds"} & line.keys() for line in lines)


ALL_POSITIVE = ("student.optimiser.rate=0.1", "student.positive_weight=100", "student.positives_per_batch=16")
NOT_TAKEN = ["round 1 student, not taken", "round 2 student, not taken"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("not-taken")
    rows, truth = mixture()
    test = {"X_test": rows.features[::3], "y_test": truth[::3].astype(int)}
    data = write_npz(place / "rows.npz", X=rows.features, s=rows.labelled.astype(int), truth=truth, names=None, **test)
    settings = [word for setting in (*QUICK, *ALL_POSITIVE) for word in ("--set", setting)]
    assert main(["fit", str(data), "--prior", "0.5", "--quiet", "--out", str(place / "run"), *settings]) == 0
    return place / "run"


def test_the_result_lists_all_models_and_names_the_final_one(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert [model["model"] for model in result["models"]] == ["base", *NOT_TAKEN]
    assert result["final"] == "base" and [one["taken"] for one in result["rounds"]] == [False, False]
    assert all(model["test"]["accuracy"] is not None for model in result["models"])
    weights = load_file(run / "model.safetensors")
    bases = {name.removeprefix("base/"): tensor for name, tensor in weights.items() if name.startswith("base/")}
    assert bases and all(weights[f"final/{name}"].equal(tensor) for name, tensor in bases.items())


def test_a_comparison_judges_the_model_that_was_kept(tmp_path: Path) -> None:
    rows, truth = mixture()
    parts = {"X": rows.features, "s": rows.labelled.astype(int), "truth": truth, "names": None}
    test = {"X_test": rows.features[::3], "y_test": truth[::3].astype(int)}
    data = write_npz(tmp_path / "rows.npz", **parts, **test)
    settings = [word for setting in (*QUICK, *ALL_POSITIVE) for word in ("--set", setting)]
    asked = ["compare", str(data), "--method", "split-pu,nnpu", "--seeds", "0", "--prior", "0.5"]
    assert main([*asked, "--out", str(tmp_path / "both"), *settings]) == 0
    lines = [json.loads(line) for line in (tmp_path / "both" / "runs.jsonl").read_text().splitlines()]
    assert [line["method"] for line in lines] == ["split-pu", "nnpu"]
    assert lines[0]["test"] == lines[1]["test"]  # its students were not taken, and its base is nnPU's


def test_scores_are_those_of_the_base(run: Path) -> None:
    with (run / "scores.csv").open() as file:
        scores = [float(line["probability"]) for line in csv.DictReader(file)]
    with (run / "split.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["round"] == "2"]
    taught = {int(line["index"]): float(line["teacher_probability"]) for line in lines}
    assert taught and [scores[row] for row in taught] == pytest.approx(list(taught.values()), rel=1e-4)


def test_the_command_line_says_which_model_it_is_and_why(run: Path, capsys: Capture) -> None:
    code, out, err = run_cli(capsys, "info", run)
    assert code == 0 and all(name in out for name in NOT_TAKEN)
    assert "base, as no student after it was taken" in " ".join(out.split())
    notes = err.splitlines()
    assert [note.split(":")[1] for note in notes] == [" round1.student", " round2.student"]
    assert all("the model that taught it stays" in note and "lower student." in note for note in notes)


def test_the_report_says_so_and_shows_what_the_base_doubts(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "No student was taken, as none learned anything: the base model calls" in page
    assert page.count("The student of this round was not taken") == 2
    assert "both times as the final model sees them" in page and "on the test set is <strong>" in page


def test_the_estimator_says_which_students_were_taken() -> None:
    data, _ = mixture()
    quick = dict(setting.split("=") for setting in (*QUICK, *ALL_POSITIVE))
    config = {key: float(value) if "." in value else int(value) for key, value in quick.items()}
    with pytest.warns(SplitPUWarning, match="so it is not taken"):
        fitted = SplitPUClassifier(prior=0.5, config=config, random_state=0).fit(data.features, data.labelled)
    assert [found.taken for found in fitted.rounds_] == [False, False]
    assert np.array_equal(fitted.predict_proba(data.features), fitted.base_.predict_proba(data.features))


def test_tables_and_choices_take_the_model_that_stayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = next(u for u in smoke_units(experiments().values()) if u.experiment.name == "main")
    monkeypatch.setattr(student, "_learned", lambda *_: False)
    line = run_unit(unit, Workplace(tmp_path, "cpu", side_by_side=3), Observer(), lambda _: None)
    assert line["side_by_side"] == 3  # its times are those of three that shared the device
    assert line["rounds"][0]["taken"] is False and line["rounds"][0]["accuracy"] is not None
    assert line["accuracy"] == line["base_accuracy"] == reading(line, "rounds.1")
    assert line["metrics"] == line["base_metrics"]


def test_seeds_that_end_with_different_models_are_summed_up_by_their_final_ones() -> None:
    def model(name: str, rate: float) -> dict[str, object]:
        return {"model": name, "positive_rate_unlabelled": rate, "test": None}

    taken = {"models": [model("base", 0.1), model("round 1 student", 0.2)], "final": "round 1 student"}
    not_taken = {"models": [model("base", 0.4), model("round 1 student, not taken", 1.0)], "final": "base"}
    summary = summary_of({0: taken | {"seconds_total": 1.0}, 1: not_taken | {"seconds_total": 1.0}})
    assert [row["model"] for row in mean_rows(summary)] == [
        *("base", "round 1 student", "round 1 student, not taken", "final"),
    ]
    assert [row["positive_rate_unlabelled"] for row in seed_rows(summary)] == [0.2, 0.4]
    alike = summary_of({seed: taken | {"seconds_total": 1.0} for seed in (0, 1)})
    assert [row["model"] for row in mean_rows(alike)] == ["base", "round 1 student"]


def test_a_model_not_to_be_relied_on_is_named_at_the_end(run: Path, capsys: Capture) -> None:
    folder = RunFolder(run)
    result = folder.read_result()
    not_taken = student._not_taken("round1.student", of_several=False)
    show_result(folder, {**result, "warnings": ["column 'a' is empty.", not_taken]}, json=False)
    out, err = capsys.readouterr()
    assert "notes   2, all in the report" in out
    assert err.startswith("note: round1.student: after 3 attempts") and err.count("\n") == 1
