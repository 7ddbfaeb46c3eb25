"""Rows that stay on disk: the same model as from memory, in memory that does not grow with the file."""

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.config.schema import EngineConfig, ViewsConfig
from splitpu.data import array_files
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.engine import inference
from splitpu.engine.hardware import Hardware
from splitpu.engine.rows import RowStore, joined, picked_by_words
from splitpu.errors import InputError
from splitpu.networks.backbones import Outputs
from splitpu.networks.build import build_network
from splitpu.training import Runtime, TrainSpec, profile_of, train
from splitpu.views import Views

CPU = torch.device("cpu")
SHORT = ["rounds=1", "base.epochs=2", "split.max_epochs=1", "student.epochs=2", "engine.threads=1"]

MEASURE = """
import sys
import numpy as np
from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.data.pudata import PUData
from splitpu.training import Runtime, TrainSpec, profile_of, train

def most_memory_so_far():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

rows = np.load(sys.argv[1], mmap_mode="r")
data = PUData.from_arrays(rows, np.arange(len(rows)) % 50 == 0)
config = apply_overrides(preset("default", profile_of(data)), sys.argv[2:])
spec = TrainSpec(prior=0.5, config=config, backbone="mlp")
assert train(data, spec, Runtime(device="cpu")).engine.endswith("streamed")
print(most_memory_so_far())
"""


def rows_on_disk(path: Path, rows: int, features: int) -> Path:
    """Two clouds of points, written piece by piece."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, features))
    random = np.random.default_rng(0)
    part = random.normal(size=(4096, features)).astype(np.float32)
    part[::2] += 1
    for start in range(0, rows, 4096):
        array[start : start + 4096] = part[: rows - start] + start / rows  # drawing them all would take a while
    array.flush()
    return path


def test_streamed_and_resident_rows_give_the_same_model(tmp_path: Path) -> None:
    rows = np.load(rows_on_disk(tmp_path / "rows.npy", 301, 6), mmap_mode="r")
    data = PUData.from_arrays(rows, np.arange(301) % 6 == 0)
    models = []
    for residence in ("host", "device"):
        settings = [*SHORT, "base.batch_size=64", "student.batch_size=64", f"engine.residence={residence}"]
        config = apply_overrides(preset("default", profile_of(data)), settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether the split reached tau is not the question
            models.append(train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")))
    streamed, resident = models
    assert streamed.engine.endswith("streamed") and resident.engine.endswith("resident")
    first, second = (training.model.final.network.state_dict() for training in models)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    small, large = (rows_on_disk(tmp_path / f"{rows}.npy", rows, 1024) for rows in (6_000, 54_000))
    settings = ["rounds=0", "base.epochs=1", "base.batch_size=1000", "engine.threads=1"]
    peaks = []
    for path in (small, large):  # each in a process of its own: a peak never falls
        command = [sys.executable, "-c", MEASURE, str(path), *settings]
        peaks.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    more = (large.stat().st_size - small.stat().st_size) / 2**20
    grown = peaks[1] - peaks[0]
    assert more > 180 and grown < 0.25 * more, f"{grown:.0f} MB more for {more:.0f} MB more on disk"


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_every_step_gets_its_rows(steps: int) -> None:
    rows = np.arange(40, dtype=np.float32).reshape(20, 2)
    store = RowStore(rows, CPU, "host")
    plan = {"one": torch.randint(20, (steps, 3)), "other": torch.randint(20, (steps, 5))}
    seen = 0
    for step, batch in enumerate(store.stream(plan)):  # each is valid until the next one comes
        time.sleep(0.005)  # the reader runs ahead meanwhile, and must leave these rows alone
        for name, numbers in plan.items():
            assert np.array_equal(batch[name].numpy(), rows[numbers[step].numpy()])
        seen += 1
    assert seen == steps


def test_rows_are_scored_in_order_wherever_they_live(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).normal(size=(57, 4)).astype(np.float32)
    views = Views(Preprocessing.fit(features), ViewsConfig(), CPU)
    hardware = Hardware.choose("cpu", EngineConfig(threads=1))
    network = build_network("mlp", (4,)).eval()
    with torch.no_grad():
        expected = network(views.plain(torch.from_numpy(features))).logit
    monkeypatch.setitem(inference._BATCH_VALUES, "cpu", 40)  # ten rows a chunk, so seven at the end
    for residence in ("host", "device"):
        found = inference.training_logits(network, RowStore(features, CPU, residence), views, hardware)
        assert torch.allclose(found, expected, atol=1e-5)


def test_scores_in_double_precision_keep_every_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    class InDouble(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> Outputs:
            fine = batch.double() / 3
            return Outputs(fine, fine, fine[:, 0])

    features = np.random.default_rng(0).normal(size=(57, 4)).astype(np.float32)
    views = Views(Preprocessing.fit(features), ViewsConfig(), CPU)
    monkeypatch.setitem(inference._BATCH_VALUES, "cpu", 40)
    hardware = Hardware.choose("cpu", EngineConfig(threads=1))
    found = inference.training_logits(InDouble(), RowStore(features, CPU, "host"), views, hardware)
    assert torch.equal(found, views.plain(torch.from_numpy(features)).double()[:, 0] / 3)


def test_any_part_of_a_file_is_found_in_it(tmp_path: Path) -> None:
    whole = np.load(rows_on_disk(tmp_path / "rows.npy", 5000, 3), mmap_mode="r")
    order = torch.from_numpy(np.random.default_rng(0).permutation(100))
    cases = (whole, whole[3000:4000], whole[100:300].reshape(-1, 2, 3), whole[::2], whole[:, :2], whole[50:][:200])
    for rows in cases:
        store = RowStore(rows, CPU, "host")
        for numbers in (order, torch.arange(50, 90), torch.tensor([3, 4, 4, 5, 1]), order[:0]):
            assert np.array_equal(store.gather(numbers).numpy(), rows[numbers.numpy()])


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(8, 8, 3), (5, 3), (7,), (2,)])
def test_rows_picked_by_words_are_the_rows(shape: tuple[int, ...], kind: torch.dtype) -> None:
    features = torch.randint(0, 256, (20, *shape)).to(kind)
    rows = torch.tensor([3, 19, 0, 3])
    picked = picked_by_words(features, rows)
    assert picked.dtype == kind and picked.is_contiguous() and torch.equal(picked, features[rows])


def test_joined_rows_are_copied_only_where_they_lie_apart() -> None:
    whole = torch.arange(60).view(10, 2, 3)
    first, second, third = whole.split([2, 5, 3])
    assert joined([first, second, third]).data_ptr() == whole.data_ptr()
    assert joined([second, third]).data_ptr() == second.data_ptr()
    elsewhere = whole.clone()
    for parts in ([first, third], [second, first], [first, elsewhere[2:4]], [first[:, :1], second[:, :1]], [first] * 2):
        assert torch.equal(joined(parts), torch.cat(parts))


def test_an_epoch_may_be_left_early() -> None:
    features = np.arange(40, dtype=np.float32).reshape(20, 2)
    numbers = torch.arange(300).view(100, 3) % 20
    stream = RowStore(features, CPU, "host").stream({"rows": numbers})
    assert torch.equal(next(stream)["rows"], torch.from_numpy(features[:3]))
    assert any(thread.name.startswith("rows") for thread in threading.enumerate())
    stream.close()
    assert not any(thread.name.startswith("rows") for thread in threading.enumerate())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("no room"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_too_little_memory_names_what_to_lower(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise error

    monkeypatch.setattr("splitpu.methods.base_model.BaseTask.step", no_room)
    data = PUData.from_arrays(np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 6 == 0)
    config = apply_overrides(preset("default", profile_of(data)), ["base.batch_size=32", "engine.threads=1"])
    with pytest.raises(InputError, match=r"ran out of memory in stage base with .*32 population.*base\.batch_size"):
        train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu"))


def test_read_only_rows_bring_no_warning(tmp_path: Path) -> None:
    rows = np.load(rows_on_disk(tmp_path / "rows.npy", 20, 2), mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = RowStore(rows, CPU, "device")
    assert torch.equal(store.gather(torch.arange(20)), torch.tensor(np.array(rows)))


LIMITED = """
import resource
import sys
import splitpu.cli
import splitpu.training
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) for line in file if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 2**28, used + 2**28))
sys.exit(splitpu.cli.main(sys.argv[1:]))
"""


def fit_in_256_megabytes(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that may take no more than that beyond what importing took."""
    short = [word for setting in SHORT for word in ("--set", setting)]
    command = [sys.executable, "-c", LIMITED, "fit", *words, "--prior", "0.5", "--quiet", "--device", "cpu", *short]
    command += ["--method", "nnpu"]
    here = {**os.environ, "SPLITPU_CACHE": str(folder / "cache")}
    return subprocess.run([*command, "--out", str(folder / "run")], capture_output=True, text=True, env=here)


@pytest.mark.skipif(sys.platform != "linux", reason="memory can be limited")
def test_arrays_that_memory_does_not_hold_are_joined_on_the_disk(tmp_path: Path) -> None:
    sizes = (("known.npy", 100), ("others.npy", 100_000))
    known, others = (rows_on_disk(tmp_path / name, rows, 800) for name, rows in sizes)
    ended = fit_in_256_megabytes(tmp_path, "--positives", str(known), "--unlabelled", str(others))
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["engine"].endswith("streamed")
    (joined,) = (tmp_path / "cache" / "arrays").glob("*.npy")
    assert np.array_equal(np.load(joined, mmap_mode="r")[100:], np.load(others, mmap_mode="r"))


@pytest.mark.skipif(sys.platform != "linux", reason="memory can be limited")
def test_an_archive_that_memory_does_not_hold_is_refused_in_a_sentence(tmp_path: Path) -> None:
    archive = tmp_path / "all.npz"
    np.savez_compressed(archive, X=np.zeros((4000, 20_000), np.float32), s=np.arange(4000) < 100)
    ended = fit_in_256_megabytes(tmp_path, str(archive))
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
    assert "all.npz cannot be held in memory" in ended.stderr and "--unlabelled" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_joined_arrays_are_written_once_and_anew_when_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(array_files, "MOST_IN_MEMORY", 10)
    files = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    images = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    for path in files:
        np.save(path, images)
    first, lengths = array_files.join_arrays(files)
    assert isinstance(first, np.memmap) and lengths == [2, 2]
    assert np.array_equal(first[..., 0], np.concatenate([images, images]))
    assert array_files.join_arrays(files)[0].filename == first.filename
    np.save(files[1], images[:1] + 1)
    again, lengths = array_files.join_arrays(files)
    assert lengths == [2, 1] and np.array_equal(again[2, ..., 0], images[0] + 1)


def test_files_of_numbers_that_float32_cannot_tell_apart_are_joined_as_they_are(tmp_path: Path) -> None:
    spread, one_moment = 1.7e9 + np.arange(40.0).reshape(20, 2), np.full((3, 2), 1.7e9 + 5)
    files = [str(tmp_path / "spread.npy"), str(tmp_path / "moment.npy")]
    for path, rows in zip(files, (spread, one_moment), strict=True):
        np.save(path, rows)
    joined, _ = array_files.join_arrays(files)
    assert joined.dtype == np.float64 and np.array_equal(joined, np.concatenate([spread, one_moment]))
