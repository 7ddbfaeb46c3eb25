"""What the benchmarks count and measure is what they say: arithmetic, kernel groups, and a tiny run of the GPU one.

The runner of unattended benchmarks: nothing is done twice, nothing finished is lost, and time is kept.
"""

import ast
import importlib
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.parametrize("module", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_what_it_takes_from_the_package_is_there(module: str) -> None:
    """A benchmark is rarely run, so what was renamed or moved under it would be found out late."""
    if not module.endswith("_peers"):  # those are for other interpreters, which have packages of others
        importlib.import_module(module)
    missing = _missing_names((BENCHMARKS / f"{module}.py").read_text(encoding="utf-8"))
    assert not missing, f"{module}.py asks for {', '.join(missing)}"


def test_missing_names_are_found_wherever_they_are() -> None:
    renamed = "from splitpu.engine.step import Step, Leap\nStep.run, Step.jump"
    assert _missing_names(renamed) == ["splitpu.engine.step.Leap", "splitpu.engine.step.Step.jump"]
    assert _missing_names(f"def later():\n    import splitpu.nowhere\nCODE = {renamed!r}") == [
        *("splitpu.nowhere", "splitpu.engine.step.Leap", "splitpu.engine.step.Step.jump")
    ]


def _missing_names(code: str) -> list[str]:
    """Names of the package that are not there, in imports anywhere, as attributes, and in code for other processes."""
    missing: list[str] = []
    taken: dict[str, tuple[str, Any]] = {}
    nodes = list(ast.walk(ast.parse(code)))
    for node in nodes:
        if isinstance(node, ast.Import):
            missing += [one.name for one in node.names if _is_ours(one.name) and not _importable_module(one.name)]
        elif isinstance(node, ast.ImportFrom) and _is_ours(node.module or ""):
            for one in node.names:
                name, found = f"{node.module}.{one.name}", _found(node.module or "", one.name)
                if found is None:
                    missing.append(name)
                else:
                    taken[one.asname or one.name] = name, found
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in taken:
            name, owner = taken[node.value.id]
            if isinstance(owner, type | ModuleType) and not hasattr(owner, node.attr):
                missing.append(f"{name}.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value:
            with suppress(SyntaxError):  # a sentence
                missing += _missing_names(textwrap.dedent(node.value))
    return missing


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "splitpu"


def _importable_module(name: str) -> bool:
    try:
        return importlib.import_module(name) is not None
    except ModuleNotFoundError:
        return False


def _found(module: str, name: str) -> Any:
    if not _importable_module(module):
        return None
    if _importable_module(f"{module}.{name}"):
        return importlib.import_module(f"{module}.{name}")
    return getattr(importlib.import_module(module), name, None)


def test_operations_of_the_papers_network() -> None:
    from arithmetic import Arithmetic

    counted = Arithmetic("cnn13", (32, 32, 3))
    by_hand = 2 * (
        32 * 32 * 9 * 96 * (3 + 96)
        + 16 * 16 * 9 * (96 * 96 + 96 * 192 + 192 * 192)
        + 8 * 8 * (9 * 192 * 192 * 2 + 192 * 192 + 192 * 10)
        + 640 * 1000
        + 1000 * 1000
        + 1000
    )
    assert counted.forward == by_hand
    assert counted.training == 3 * by_hand - 2 * 32 * 32 * 9 * 96 * 3
    assert counted.step("base", {"positives": 10, "population": 512}) == 522 * counted.training
    twice_seen = counted.step("round1.student", {"easy": 4, "consistent": 3})
    assert twice_seen == 10 * counted.training + 6 * (counted.predictor + counted.low)
    assert counted.step("round1.student.member2.again1", {"easy": 4, "consistent": 3}) == twice_seen


def test_kernels_by_group() -> None:
    from kernels import group_of

    names = {
        "void at::native::batch_norm_backward_elemt_channels_last_kernel": "batch-norm",
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_nhwc": "convolution",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_TNT": "matrix product",
        "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>": "optimiser",
        "void at::native::vectorized_elementwise_kernel<4, MulFunctor>": "element-wise",
        "void at::native::indexSelectLargeIndex": "gather, views' draws",
        "_add_up_gradients": "batch-norm",
        "_view": "our views",
        "_label_terms": "our losses",
        "_patch_values": "convolution",
        "Memcpy DtoD": "copies",
        "something new": "other",
    }
    assert {name: group_of(name) for name in names} == names


def test_figures_are_written_as_they_come_and_not_measured_again(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    words = ["--smoke", "--out", str(out), "--plain-epochs", "1", "--workers", "0", "--parts", "plain"]
    command = [sys.executable, str(BENCHMARKS / "engine_gpu.py"), *words]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(out.read_text())
    (plain,) = found["plain"].values()
    assert plain["ratio"] > 0 and found["machine"]["torch"]
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "... ours" in first.stderr and "..." not in again.stderr and again.stdout == first.stdout


def test_step_times_of_every_stage(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "step_times.py"), "--smoke", "--out", str(tmp_path / "steps.json")]
    subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads((tmp_path / "steps.json").read_text())
    assert set(found["first"]["stages"]) == {"base", "round1.split", "round1.student"}
    assert found["again"]["stages"]["base"]["ms_a_step"] > 0
    student = found["profile"]["round1.student"]
    assert student["kernels_a_step"] > 10 and len(student["largest"]) == 40


def test_sets_that_cannot_serve_a_kind_of_simulation_are_named() -> None:
    words = [sys.executable, str(BENCHMARKS / "pu_metrics.py"), "--only-show", "--sets", "gaussians,digits,mnist"]
    shown = subprocess.run([*words, "--kinds", "cross-fitted"], capture_output=True, text=True, check=True).stdout
    assert "cross-fitted: digits is left out, as it has too few rows" in shown
    assert "cross-fitted: gaussians is left out" in shown
    assert "mnist is left out" not in shown
    wrong = subprocess.run([*words, "--kinds", "crossfitted"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "no kind named crossfitted" in wrong.stderr


def test_figures_without_negatives_are_simulated() -> None:
    case = {"kind": "given", "set": "gaussians", "scenario": "single-training-set", "labelled": 200, "prior": 0.4}
    found = importlib.import_module("pu_metrics").simulated({**case, "simulations": 3})["figures"]
    assert 0.6 < found["accuracy"]["truth"] < 1
    assert all(figure["error"] < 0.2 and figure["width"] > 0 for figure in found.values())


def test_a_classifier_is_judged_at_its_own_cut_and_at_the_prior() -> None:
    from classifiers import judged
    from drawn_sets import Drawn

    truth = np.array([True, True, False, False])
    rows = Drawn(None, 0.5, truth, truth)  # type: ignore[arg-type]
    found = judged(rows, {"scores": [4.0, 3.0, 2.0, 1.0], "called": [True, True, True, False], "seconds": 1.0})
    assert found == {"accuracy": 75.0, "at_prior": 100.0, "roc_auc": 100.0, "seconds": 1.0}
    tied = judged(rows, {"scores": [0.0] * 4, "called": [False] * 4, "seconds": 1.0})
    assert tied["accuracy"] == 50.0 and tied["roc_auc"] == 50.0
    assert judged(rows, {"failed": "no"}) == {"failed": "no"}


SCRIPT = """
import argparse, os, sys, time
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
from case_runner import add_options, run_cases

def work(case):
    with open({log!r}, "a") as file:
        file.write(f"{{case['number']}}\\n")
    Path({log!r} + ".pid").write_text(str(os.getpid()))
    if case["number"] == 7:
        raise ValueError("seven is broken")
    time.sleep(60 if case["number"] == 9 else 0)
    return {{"square": case["number"] ** 2}}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers")
    add_options(parser)
    options = parser.parse_args()
    cases = [{{"number": int(number)}} for number in options.numbers.split(",")]
    print([line["square"] for line in run_cases(cases, work, options, on_gpu=lambda case: case["number"] < 2)])
"""


def command(folder: Path, *words: str) -> list[str]:
    script = folder / "squares.py"
    script.write_text(SCRIPT.format(benchmarks=str(BENCHMARKS), log=str(folder / "log")))
    return [sys.executable, str(script), *words, "--out", str(folder / "done.jsonl")]


def run(folder: Path, *words: str) -> tuple[str, str]:
    done = subprocess.run(command(folder, *words), capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def worked_on(folder: Path) -> list[int]:
    return sorted(int(line) for line in (folder / "log").read_text().split())


def test_cases_are_done_once_and_broken_ones_again(tmp_path: Path):
    printed, told = run(tmp_path, "1,2,3,7", "--jobs", "2")
    assert printed == "[1, 4, 9]" and "seven is broken" in told and worked_on(tmp_path) == [1, 2, 3, 7]
    with (tmp_path / "done.jsonl").open("a") as file:
        file.write('{"case": {"number": 4}, "squ')  # a process was killed while writing
    printed, told = run(tmp_path, "1,2,3,4,7")
    assert printed == "[1, 4, 9, 16]" and "3 of 5 cases are done already" in told
    assert worked_on(tmp_path) == [1, 2, 3, 4, 7, 7]
    assert run(tmp_path, "1,4,8", "--only-show")[0] == "[1, 16]"


def test_when_time_is_up_the_rest_is_left(tmp_path: Path):
    started = time.monotonic()
    printed, told = run(tmp_path, "3,9", "--jobs", "2", "--minutes", "0.1")
    assert printed == "[9]" and "1 cases are left" in told and time.monotonic() - started < 50
    assert [json.loads(line)["case"] for line in (tmp_path / "done.jsonl").read_text().splitlines()] == [{"number": 3}]


def test_a_killed_benchmark_leaves_nobody_behind(tmp_path: Path):
    note = tmp_path / "log.pid"
    with subprocess.Popen(command(tmp_path, "9"), stderr=subprocess.DEVNULL) as benchmark:
        assert soon(lambda: note.exists() and note.read_text() != "")
        benchmark.kill()
    worker = int(note.read_text())
    assert soon(lambda: not alive(worker))


def soon(happened: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and nobody has asked how
