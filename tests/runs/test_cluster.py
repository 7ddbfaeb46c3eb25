"""Runs over a real Ray cluster of two nodes on this machine: the same files as in turn, whoever dies on the way."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import must_do, write_npz
from compare_tools import write_overlapping
from process_tools import start

from splitpu.engine.stage import Observer
from splitpu.errors import InputError
from splitpu.reproduce.declared import chosen_experiments
from splitpu.reproduce.runner import run_units
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import smoke_units
from splitpu.runs.cluster import RayCluster
from splitpu.runs.grid import Grid, Progress
from splitpu.utils.warnings import Note

ray = pytest.importorskip("ray", reason="no Ray here: `make cluster` installs it in an environment of its own")

PATIENCE = 400  # seconds; two nodes and their workers have to be started on a machine that may be busy
QUICK = ["--set", "base.epochs=5", "--set", "engine.threads=1"]
# Enough that a worker can be killed in the middle, and that one node does not end all before the other has started.
SLOW = ["--set", "base.epochs=800", "--set", "engine.threads=1"]
ASKED = ["--method", "nnpu,naive", "--seeds", "0,3", "--prior", "0.5", *SLOW]
SAME = ("model.safetensors", "config.toml", "scores.csv")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the units below, which no worker can import
    started = Cluster(initialize_head=True, head_node_args=node)
    del node["include_dashboard"]
    started.add_node(**node)
    started.wait_for_nodes()
    yield started
    started.shutdown()


def workers(cluster: Any, at: str = "_carried_out") -> dict[int, int]:
    """The processes of the cluster that are at a unit, each with the raylet that is its node."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and f"ray::{at}" in (place / "cmdline").read_text():
                found[int(place.name)] = parent
        except OSError:  # it has ended meanwhile
            continue
    return found


def begun(out: Path) -> int:
    """How many runs have a checkpoint. Ray names a worker after its unit before it has imported us: one that is killed
    in these seconds has not begun anything, and nobody can tell that it was lost."""
    try:
        return len({path.parent for path in out.glob("**/checkpoints/*")})
    except FileNotFoundError:  # a run has ended meanwhile
        return 0


def kill_one(cluster: Any) -> None:
    """Kill a worker in the middle of a unit; it is stopped first, for it might end the unit between look and kill."""
    for worker in workers(cluster):
        os.kill(worker, signal.SIGSTOP)
        if worker in workers(cluster):
            return os.kill(worker, signal.SIGKILL)
        os.kill(worker, signal.SIGCONT)
    raise AssertionError("no worker was at a unit")


def wait_until(question: Any, process: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not question():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in-turn")
    must_do("compare", write_overlapping(folder / "rows.npz"), *ASKED, "--out", folder / "compared", "--quiet")
    return folder


def test_compare_over_two_nodes_is_the_one_in_turn_though_a_worker_is_killed(
    cluster: Any, in_turn: Path, tmp_path: Path
) -> None:
    out = tmp_path / "compared"
    process = start("compare", in_turn / "rows.npz", *ASKED, "--out", out, "--ray", cluster.address)
    wait_until(lambda: len(set(workers(cluster).values())) == 2 and begun(out) >= 2, process)
    assert len(workers(cluster)) == 2  # as many as there are CPUs, though units wait for the post now and then
    kill_one(cluster)
    said, noted = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, noted
    assert "its worker was lost; it goes on from its last checkpoint" in noted, noted
    every = sorted((method, seed) for method in ("naive", "nnpu") for seed in (0, 3))
    told = re.findall(r"(\w+), seed (\d)  \w+: 800 epochs", noted)
    assert sorted({(method, int(seed)) for method, seed in told}) == every, noted
    assert "nnpu" in said and "accuracy" in said and "raylet" not in said
    lines = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    assert sorted((line["method"], line["seed"]) for line in lines) == every
    for method, seed in every:
        here, there = (folder / method / f"seed{seed}" for folder in (out, in_turn / "compared"))
        for name in SAME:
            assert (here / name).read_bytes() == (there / name).read_bytes(), (method, seed, name)
        results = [json.loads((folder / "result.json").read_text()) for folder in (here, there)]
        assert results[0]["warnings"] == results[1]["warnings"] and results[0]["models"] == results[1]["models"]


def test_seeds_stop_at_ctrl_c_and_resume(cluster: Any, tmp_path: Path) -> None:
    data, out = write_npz(tmp_path / "rows.npz"), tmp_path / "seeds"
    words = ["--method", "nnpu", "--set", "base.epochs=2000", "--set", "engine.threads=1"]
    process = start("fit", data, "--seeds", "0,1,2", "--out", out, "--prior", 0.5, *words, "--ray", cluster.address)
    wait_until(lambda: len(workers(cluster)) == 2 and begun(out) >= 2, process)
    process.send_signal(signal.SIGINT)
    _, noted = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and "splitpu resume" in noted, noted
    deadline = time.monotonic() + 10
    while workers(cluster) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not workers(cluster)
    assert not any((out / f"seed{seed}" / "result.json").exists() for seed in (0, 1, 2))


def test_seeds_over_ray_end_as_here(cluster: Any, tmp_path: Path) -> None:
    data = write_npz(tmp_path / "rows.npz")
    words = ["fit", data, "--seeds", "0,1", "--method", "nnpu", "--prior", 0.5, *QUICK, "--quiet"]
    must_do(*words, "--out", tmp_path / "here")
    process = start(*words, "--out", tmp_path / "there", "--ray", cluster.address)
    _, noted = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, noted
    for seed in (0, 1):
        for name in SAME:
            places = [tmp_path / place / f"seed{seed}" / name for place in ("here", "there")]
            assert places[0].read_bytes() == places[1].read_bytes(), name


def test_sensitivity_refits_over_the_cluster(cluster: Any, tmp_path: Path) -> None:
    data, run = write_npz(tmp_path / "rows.npz"), tmp_path / "run"
    must_do("fit", data, "--method", "nnpu", "--prior", 0.5, "--out", run, *QUICK, "--quiet")
    refit = ["sensitivity", run, "--refit", "--steps", 3, "--json"]
    found = []
    for more in ([], ["--ray", cluster.address]):
        process = start(*refit, *more)
        said, noted = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, noted
        found.append(json.loads(said)["rows"])
    assert found[0] == found[1] and len(found[0]) == 3


def test_units_of_the_tables_are_run_over_the_cluster(cluster: Any, tmp_path: Path) -> None:
    units, lines = [replace(smoke_units(chosen_experiments("main"))[0], seed=seed) for seed in (0, 1)], []
    for place, executor in (("here", None), ("there", RayCluster(cluster.address, shared=tmp_path / "there"))):
        (tmp_path / place).mkdir()
        store, said = ResultStore(tmp_path / place / "results", smoke=True), list[str]()
        session = run_units(units, store, Workplace(tmp_path / place, "cpu"), tell=said.append, executor=executor)
        assert len(session.done) == 2, said
        lines.append([store.find(unit) for unit in units])
    for here, there in zip(*lines, strict=True):
        assert here["metrics"] == there["metrics"] and here["base_metrics"] == there["base_metrics"]


def test_scores_over_the_cluster_have_one_row_an_input_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    data, run, parts = write_npz(tmp_path / "rows.npz"), tmp_path / "run", tmp_path / "parts"
    must_do("fit", data, "--method", "nnpu", "--prior", 0.5, "--out", run, *QUICK, "--quiet")
    np.save(tmp_path / "new.npy", np.random.default_rng(0).normal(size=(60_000, 4)))
    process = start("predict", run, tmp_path / "new.npy", "--out", parts, "--ray", cluster.address)
    wait_until(lambda: bool(workers(cluster)), process)
    kill_one(cluster)
    _, noted = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "all parts are there" in noted, noted
    must_do("merge", parts, tmp_path / "merged.csv")
    must_do("predict", run, tmp_path / "new.npy", "--out", tmp_path / "whole.csv")
    merged, whole = ((tmp_path / name).read_text().splitlines() for name in ("merged.csv", "whole.csv"))
    assert len(merged) == len(whole) == 60_001
    assert [line.split(",")[0] for line in merged] == [line.split(",")[0] for line in whole]
    assert [line.split(",")[3] for line in merged] == [line.split(",")[3] for line in whole]


@dataclass(frozen=True)
class Dies:
    """Dies with its worker the first time, or every time."""

    name: str
    place: Path
    always: bool = False

    def run(self, observer: Observer, note: Note) -> int:
        tries = self.place / f"{self.name}.tries"
        with tries.open("a") as file:
            file.write("x")
        if self.always or len(tries.read_text()) == 1:
            observer.delivered()  # type: ignore[attr-defined]  # or nobody knows that it had begun
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()


@dataclass(frozen=True)
class Breaks:
    name: str
    error: type[Exception]

    def run(self, observer: Observer, note: Note) -> int:
        note("about to break")
        raise self.error("it broke")


class Heard(Progress[Any]):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, unit: Any, text: str) -> None:
        self.notes.append(f"{unit.name}: {text}")


def test_one_unit_that_kills_its_workers_or_breaks_costs_no_other_its_result(cluster: Any, tmp_path: Path) -> None:
    heard = Heard()
    dying = [Dies("once", tmp_path), Dies("always", tmp_path, True)]
    units = [*dying, Breaks("wrong", InputError), Breaks("bug", KeyError)]
    session = Grid(units, progress=heard).run(RayCluster(cluster.address))
    assert list(session.done) == [0] and sorted(session.failed) == [1, 2, 3]
    assert "was lost 5 times" in str(session.failed[1]) and len((tmp_path / "always.tries").read_text()) == 5
    assert isinstance(session.failed[2], InputError) and str(session.failed[2]) == "it broke"
    assert "Traceback" in session.failed[3].__notes__[0]
    assert "wrong: about to break" in heard.notes and any("once: its worker was lost" in note for note in heard.notes)


def test_what_fits_nowhere_is_said_at_once(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no machine of the Ray cluster has as many"):
        Grid([Dies("large", tmp_path)]).run(RayCluster(cluster.address, cpus=64))


def test_a_folder_that_a_machine_does_not_see_is_named(cluster: Any, tmp_path: Path) -> None:
    session = Grid([Dies("blind", tmp_path)]).run(RayCluster(cluster.address, shared=tmp_path / "elsewhere"))
    assert "shared file system" in str(session.failed[0])


def test_an_address_without_a_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no Ray cluster at nowhere.*RAY_AUTH_MODE=token"):
        Grid([Dies("lost", tmp_path)]).run(RayCluster("nowhere"))
