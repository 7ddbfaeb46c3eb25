"""What was once found to go wrong in silence, to leave litter, or to change the caller's state."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_tools import TINY, run_cli, tiny_arrays, write_npz
from crashes import killed_at  # noqa: F401  (imported here, so that a broken campaign is seen at once)
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from stopping import StopAt

import splitpu
from splitpu.config.parse import config_from_dict
from splitpu.data.public.download import cache_folder
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.errors import Interrupted
from splitpu.runs.folder import RunFolder
from splitpu.training import Runtime, TrainSpec, train
from splitpu.utils.files import replacing

Capture = pytest.CaptureFixture[str]
QUICK = {"base.epochs": 3, "split.max_epochs": 2, "student.epochs": 2, "rounds": 1, "split.tau": 0.01}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cli_tools import fit_tiny

    return fit_tiny(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, its checkpoints gone."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


# ------------------------------------------------------------------------------------------------------------- silent


def data_of(rows: int = 80) -> PUData:
    found = tiny_arrays(rows)
    return PUData.from_arrays(found["X"], found["s"])


def stopped_at(folder: Path, epoch: int = 2) -> TrainSpec:
    spec = TrainSpec(prior=0.5, config=config_from_dict(QUICK))
    with pytest.raises(Interrupted):
        train(data_of(), spec, Runtime(checkpoints=folder, observer=StopAt(epoch)))
    return spec


def weights(training: Any) -> torch.Tensor:
    return torch.cat([one.double().flatten() for one in training.model.final.network.state_dict().values()])


def test_a_flipped_bit_in_a_checkpoint_is_never_trained_on(tmp_path: Path) -> None:
    spec = stopped_at(tmp_path)
    whole = weights(train(data_of(), spec))
    (path,) = tmp_path.glob("base-*.safetensors")
    content = path.read_bytes()
    for place in (len(content) - 3, len(content) // 2, 300):
        flipped = bytearray(content)
        flipped[place] ^= 4
        path.write_bytes(bytes(flipped))
        assert torch.equal(weights(train(data_of(), spec, Runtime(checkpoints=tmp_path))), whole)
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        path.write_bytes(content)


def test_a_checkpoint_of_another_stage_or_without_a_tensor_is_not_taken(tmp_path: Path) -> None:
    spec = stopped_at(tmp_path)
    whole = weights(train(data_of(), spec))
    (path,) = tmp_path.glob("base-*.safetensors")
    with safe_open(path, framework="pt") as file:
        told = file.metadata()
    tensors = load_file(path)
    tensors.popitem()
    save_file(tensors, path, metadata=told)
    assert torch.equal(weights(train(data_of(), spec, Runtime(checkpoints=tmp_path))), whole)


def test_the_configuration_of_a_run_cannot_be_emptied_or_changed(run: Path, capsys: Capture) -> None:
    (run / "result.json").unlink()
    for text in ("", (run / "config.toml").read_text().replace("epochs = 2", "epochs = 3", 1)):
        (run / "config.toml").write_text(text)
        code, _, err = run_cli(capsys, "resume", run, "--quiet")
        assert code == 2 and "config.toml cannot be read (it is not what the run in" in err


def test_the_configuration_of_another_run_on_the_same_data_is_noticed(run: Path, capsys: Capture) -> None:
    from splitpu.config.parse import config_to_toml

    folder = RunFolder(run)
    (run / "config.toml").write_text(config_to_toml(config_from_dict({"method": "nnpu"}, folder.config())))
    code, _, err = run_cli(capsys, "info", run)
    assert code == 2 and "config.toml cannot be read (it is not what the run in" in err


def test_the_request_of_another_seed_with_the_same_settings_is_noticed(run: Path, capsys: Capture) -> None:
    from splitpu.utils.reading import Guarded, write_sealed

    (run / "result.json").unlink()
    write_sealed(run / "request.json", Guarded(run / "request.json").sealed() | {"seed": 5})
    code, _, err = run_cli(capsys, "resume", run, "--quiet")
    assert code == 2 and "config.toml cannot be read (it is not what the run in" in err


def test_a_log_of_something_else_than_epochs_is_refused(run: Path, capsys: Capture) -> None:
    from splitpu.utils.reading import sealed

    (run / "result.json").unlink()
    (run / "metrics.jsonl").write_text(json.dumps(sealed({"method": "nnpu", "seed": 0})) + "\n")
    code, _, err = run_cli(capsys, "info", run)
    assert code == 2 and "metrics.jsonl cannot be read (it has no entry 'stage')" in err


def test_a_log_that_is_a_circle_of_links_is_written_anew(run: Path, capsys: Capture) -> None:
    (run / "result.json").unlink()
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("metrics.jsonl")
    code, _, err = run_cli(capsys, "resume", run, "--quiet")
    assert code == 0, err
    assert RunFolder(run).read_metrics()


def test_a_result_that_is_a_circle_of_links_does_not_make_a_run_unfinished(run: Path, capsys: Capture) -> None:
    (run / "result.json").unlink()
    (run / "result.json").symlink_to("result.json")
    code, _, err = run_cli(capsys, "info", run)
    assert code == 2
    assert "result.json" in err


def test_weights_that_are_no_numbers_are_not_predicted_with(run: Path, capsys: Capture) -> None:
    from hashlib import sha256

    from fault_tools import forge

    found = load_file(run / "model.safetensors")
    tensors = {name: one * torch.nan if one.is_floating_point() else one for name, one in found.items()}
    save_file(tensors, run / "model.safetensors")
    forge(run / "model.json", {"weights": sha256((run / "model.safetensors").read_bytes()).hexdigest()})
    code, out, err = run_cli(capsys, "predict", run, write_npz(run.parent / "new.npz"))
    assert code == 2 and out == "" and "not a finite number" in err


def test_overwritten_pixels_of_the_cache_are_decoded_again(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for side, count in (("p", 4), ("u", 12)):
        (tmp_path / side).mkdir()
        for number in range(count):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / side / f"{number}.png")
    words = ["fit", "--positives", tmp_path / "p", "--unlabelled", tmp_path / "u", "--prior", 0.5, "--quiet", *TINY]
    assert run_cli(capsys, *words, "--features", "trained", "--out", tmp_path / "one")[0] == 0
    for pixels in (tmp_path / "cache").rglob("pixels.raw"):
        pixels.write_bytes(bytes(pixels.stat().st_size))
    assert run_cli(capsys, *words, "--features", "trained", "--out", tmp_path / "two")[0] == 0
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_a_renamed_column_before_a_resume_is_refused(tmp_path: Path, capsys: Capture) -> None:
    found = tiny_arrays()
    rows = [",".join([*(f"{x:.3f}" for x in values), str(s)]) for values, s in zip(found["X"], found["s"], strict=True)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["a,b,c,d,label", *rows]))
    words = ["fit", table, "--label", "label", "--prior", 0.5, "--method", "nnpu", "--out", tmp_path / "run", "--quiet"]
    assert run_cli(capsys, *words, *TINY)[0] == 0
    (tmp_path / "run" / "result.json").unlink()
    table.write_text("\n".join(["a,b,c,other,label", *rows]))
    code, _, err = run_cli(capsys, "resume", tmp_path / "run", "--quiet")
    assert code == 2 and "columns, classes or test rows of the data" in err


def test_names_with_line_ends_and_formulas_come_back_from_the_files_of_a_run(tmp_path: Path, capsys: Capture) -> None:
    names = [f"row {row}" for row in range(80)]
    names[1:5] = ["a\rb", "=1+1", "@x", "-1+2"]
    data = write_npz(tmp_path / "tiny.npz", names=np.array(names))
    assert run_cli(capsys, "fit", data, "--prior", 0.5, "--out", tmp_path / "run", "--quiet", *TINY)[0] == 0
    for name in ("split.csv", "scores.csv"):
        lines = (tmp_path / "run" / name).read_text().splitlines()
        assert not any(cell[:1] in "=@" or cell == "-1+2" for line in lines for cell in line.split(",") if cell)
    code, out, err = run_cli(capsys, "hard", tmp_path / "run", "--json")
    assert code == 0, err
    found = {sample["name"] for sample in json.loads(out)["samples"]}
    assert found <= {*names, "a\\rb"}


def test_no_flipped_bit_of_a_model_gives_other_scores(run: Path, capsys: Capture) -> None:
    new = write_npz(run.parent / "new.npz")
    _, whole, _ = run_cli(capsys, "predict", run, new)
    rng = random.Random(0)
    (run / "result.json").unlink()  # which knows the checksum; a model that was passed on alone has none beside it
    (run / "request.json").unlink()
    content = (run / "model.json").read_bytes()
    decisive = content.index(b".", content.index(b'"std"')) + 1  # of a number by which the first column is divided
    for place in (decisive, *(rng.randrange(len(content)) for _ in range(30))):
        flipped = bytearray(content)
        flipped[place] ^= 1 if place == decisive else 1 << rng.randrange(8)
        (run / "model.json").write_bytes(bytes(flipped))
        code, out, err = run_cli(capsys, "predict", run, new)
        assert (code == 2 and err.count("\n") == 1) or out == whole


def test_files_of_another_run_are_not_taken_for_those_of_this_one(run: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    words = ["fit", data, "--prior", 0.5, "--seed", 1, "--out", tmp_path / "other", "--quiet", *TINY]
    assert run_cli(capsys, *words)[0] == 0
    for name in ("model.json", "model.safetensors"):
        shutil.copy(tmp_path / "other" / name, run)
    code, _, err = run_cli(capsys, "predict", run, data)
    assert code == 2 and "model.json cannot be read (it is not what the run wrote" in err


# ------------------------------------------------------------------------------------------------------------- litter


def test_what_a_killed_process_left_of_a_file_is_swept_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from splitpu.utils.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as draft:\n    draft.write_text('half'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "said.csv")], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".said.csv.")
    with replacing(tmp_path / "said.csv") as draft, replacing(tmp_path / "said.csv") as other:
        draft.write_text("whole")
        other.write_text("whole")
        assert draft.exists() and other.exists() and not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["said.csv"]


def test_a_run_that_was_killed_at_its_very_end_is_tidied_by_the_next_command(run: Path, capsys: Capture) -> None:
    before = {path.name for path in run.iterdir()}
    lay_litter(run)
    assert run_cli(capsys, "resume", run, "--quiet")[0] == 0
    assert {path.name for path in run.iterdir()} == before


def lay_litter(run: Path) -> None:
    (run / ".lock").touch()
    (run / ".result.json.0123456789ab-01234567.tmp").touch()
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "base-1.safetensors").touch()


def test_so_are_runs_of_several_seeds(tmp_path: Path, capsys: Capture) -> None:
    words = ["fit", write_npz(tmp_path / "tiny.npz"), "--method", "nnpu", "--prior", 0.5, "--quiet", *TINY]
    assert run_cli(capsys, *words, "--seeds", "0,1", "--out", tmp_path / "run")[0] == 0
    before = set((tmp_path / "run").rglob("*"))
    lay_litter(tmp_path / "run" / "seed0")
    (tmp_path / "run" / ".summary.json.0123456789ab-01234567.tmp").touch()
    assert run_cli(capsys, "resume", tmp_path / "run", "--quiet")[0] == 0
    assert set((tmp_path / "run").rglob("*")) == before


def test_a_folder_that_is_removed_under_a_run_is_said(tmp_path: Path) -> None:
    from splitpu.data.sources import SourceWords, parse_source
    from splitpu.engine.stage import Observer
    from splitpu.errors import InputError
    from splitpu.prior.estimate import ResolvedPrior
    from splitpu.runs.folder import Request
    from splitpu.runs.run import begin_run, carry_out

    class Removes(Observer):
        def stage_done(self, stage: Any, outcome: Any) -> None:
            if "student" in stage.name:  # the last
                shutil.rmtree(tmp_path / "run", ignore_errors=True)

    source = parse_source(SourceWords(data=str(write_npz(tmp_path / "tiny.npz"))))
    loaded = source.load()
    prior = ResolvedPrior(0.5, None, "given")
    begin_run(tmp_path / "run", Request(source=source), config_from_dict(QUICK), prior, loaded)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises((InputError, OSError)):
        carry_out(folder, folder.request(), loaded, runtime=Runtime(observer=Removes()), note=lambda _: None)
    assert not (tmp_path / "run" / "result.json").exists()


def test_control_characters_never_reach_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    code, _, err = run_cli(capsys, "info", tmp_path / "a\x1b[31m\x07")
    assert code == 2 and "\x1b" not in err and "\\x1b[31m\\x07" in err


def test_an_empty_home_is_not_the_root_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPLITPU_CACHE", raising=False)
    monkeypatch.setenv("HOME", "")
    assert cache_folder() != Path("/.cache/splitpu") and cache_folder().is_absolute()


def test_a_folder_is_written_through_after_a_file_was_moved_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    sync, move = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: heard.append(os.readlink(f"/proc/self/fd/{file}")) or sync(file))
    monkeypatch.setattr(Path, "replace", lambda path, target: heard.append("move") or move(path, target))
    with replacing(tmp_path / "new" / "file") as draft:
        draft.write_text("x")
    assert heard[-2:] == ["move", str(tmp_path / "new")] and str(tmp_path) in heard


# -------------------------------------------------------------------------------------------------- the caller's state


def fitted_decisions() -> Any:
    found = tiny_arrays()
    model = splitpu.SplitPUClassifier(prior=0.5, config=QUICK, random_state=0).fit(found["X"], found["s"])
    return model.decision_function(found["X"])


def test_autocast_and_the_number_of_threads_around_a_fit_change_nothing() -> None:
    usual, threads = fitted_decisions(), torch.get_num_threads()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(fitted_decisions(), usual)
        assert torch.is_autocast_enabled("cpu")
    torch.set_num_threads(threads + 1)
    try:
        assert np.array_equal(fitted_decisions(), usual)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


IN_A_NEW_PROCESS = """
import random, sys
import numpy as np
from splitpu import PUData, estimate_prior
rng = np.random.default_rng(0)
truth = np.arange(200) % 2 == 0
data = PUData.from_arrays(rng.normal(size=(200, 3)) + 2 * truth[:, None], truth & (np.arange(200) % 6 == 0))
before = random.getstate()
estimate_prior(data)
sys.exit(before != random.getstate())
"""

AFTER_THREADS = """
import os, signal
import numpy as np, torch
from splitpu import SplitPUClassifier
rng = np.random.default_rng(0)
truth = np.arange(200) % 2 == 0
X, s = rng.normal(size=(200, 3)) + 2 * truth[:, None], (truth & (np.arange(200) % 6 == 0)).astype(int)
quick = {"base.epochs": 1, "rounds": 0, "engine.threads": 2}
def fit():
    return SplitPUClassifier(prior=0.5, config=quick, random_state=0).fit(X, s).decision_function(X)
fit()
torch.set_num_threads(2)
torch.randn(1500, 1500) @ torch.randn(1500, 1500)
child = os.fork()
if child == 0:
    signal.alarm(60)
    fit()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("code", [IN_A_NEW_PROCESS, AFTER_THREADS], ids=["random", "fork"])
def test_the_first_prior_draws_nothing_and_a_fork_after_threads_goes_on(code: str) -> None:
    words = [sys.executable, "-W", "ignore", "-c", code]
    assert subprocess.run(words, timeout=200, check=False).returncode == 0


def test_threads_are_those_of_the_environment_not_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    engine, before = config_from_dict({}).engine, torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert Hardware.choose("cpu", engine, whatever_else_runs=True).threads == 1
    finally:
        torch.set_num_threads(before)


WITHOUT_PANDAS = """
import sys

class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Without())
from splitpu.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["timestamp", "duration"])
def test_nanoseconds_that_only_pandas_can_say_are_refused_without_it(tmp_path: Path, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    when = pyarrow.array([1_600_000_000_000_000_001 + row for row in range(40)], getattr(pyarrow, kind)("ns"))
    rows = {"a": [float(row % 7) for row in range(40)], "when": when, "label": [int(row % 4 == 0) for row in range(40)]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    words = ["fit", "t.parquet", "--label", "label", "--prior", "0.4", "--out", "run", "--quiet", *TINY]
    command = [sys.executable, "-c", WITHOUT_PANDAS, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "column 'when'" in done.stderr and not (tmp_path / "run").exists()
