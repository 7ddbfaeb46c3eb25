"""Medical sets that are read from files the user has; `busi` and `adrenal` stand in for the two unpublished sets of the
Split-PU paper: as many samples in each part, of another organ, drawn with one fixed seed."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from splitpu.data.array_files import read_arrays
from splitpu.data.public.download import Arrays, cache_folder, data_folders
from splitpu.data.public.named_set import SETS, NamedSet
from splitpu.errors import InputError
from splitpu.types import Array, Mask, Rows

_DRAW_SEED = 20221010

# Benign 433 and malignant 145 of BUSI are the same picture, so one of the two labels is wrong.
_SAME_PICTURE = ("benign (433).png", "malignant (145).png")
_BUSI_SIZES = {"train": (231, 164), "validation": (31, 22), "test": (65, 47)}  # positive, negative: 395, 53, 112
# The official split goes by patients, so training and test samples are drawn from its two parts.
_ADRENAL_SIZES = {"train": (145, 114), "test": (35, 65)}
_EVERY_SLICE = 2  # neighbouring slices of 64 differ little
_HALF = 2  # 224 pixels become 112: what 395 images can teach does not need more


LOCAL_SETS = {name: about for name, about in SETS.items() if "file" in about}  # each is one file below a data folder
Parts = tuple[tuple[Array, Mask], tuple[Array, Mask]]  # features and truth of the training and of the test rows


def local_file(name: str, folder: str | Path | None = None, cache: str | Path | None = None) -> Path | None:
    """The set's file in the folder given, else in $SPLITPU_DATA or the cache; None if it is nowhere."""
    places = data_folders(cache_folder(cache))[::-1] if folder is None else [Path(folder).expanduser()]
    file = LOCAL_SETS[name]["file"]
    candidates = (place / path for place in places for path in (file, Path(file).name))
    return next((path for path in candidates if path.is_file()), None)


def why_missing(name: str, folder: str | Path | None = None, cache: str | Path | None = None) -> str | None:
    """One sentence if a set that is read from a file is not here; None if it is, or needs no file."""
    if name not in LOCAL_SETS or local_file(name, folder, cache) is not None:
        return None
    file = LOCAL_SETS[name]["file"]
    where = f"in {folder}" if folder is not None else "in $SPLITPU_DATA or the cache"
    return f"the set '{name}' needs the file {file}, which is not {where}; give its folder with --data-dir"


def local_set(name: str, folder: str | Path | None = None, cache: str | Path | None = None) -> NamedSet:
    """Read one of `LOCAL_SETS` from its file."""
    path = local_file(name, folder, cache)
    if path is None:
        raise InputError(str(why_missing(name, folder, cache)))
    about = LOCAL_SETS[name]
    arrays = read_arrays(path, tuple(about["arrays"]))
    try:
        train, test = _READ[name](arrays)
    except (IndexError, ValueError) as error:
        raise InputError(f"{path} is not the file that the set '{name}' is read from ({error}); get it again") from None
    return NamedSet(name, about["description"], about["positive"], *train, *test)


def _breastmnist(arrays: Arrays) -> Parts:
    """Malignant against normal or benign breast ultrasound images, official split; the validation part is not used."""
    pixels, labels = ([arrays[f"{part}_{of}"] for part in ("train", "test")] for of in ("images", "labels"))
    return (pixels[0][..., None], labels[0][:, 0] == 0), (pixels[1][..., None], labels[1][:, 0] == 0)


def _busi(arrays: Arrays) -> Parts:
    """Benign against other breast ultrasound images, in the numbers of the paper's Myometrium set."""
    allowed = ~np.isin(arrays["name"], _SAME_PICTURE)
    benign = arrays["group"] == "benign"
    parts = drawn_parts(np.flatnonzero(allowed & benign), np.flatnonzero(allowed & ~benign), _BUSI_SIZES)
    train, test = ((_halved(arrays["images"][parts[part]]), benign[parts[part]]) for part in ("train", "test"))
    return train, test


def _adrenal(arrays: Arrays) -> Parts:
    """Hyperplasia against normal adrenal glands as series of slices, in the numbers of the paper's Liver set."""
    found = []
    for part, sizes in _ADRENAL_SIZES.items():
        sick = arrays[f"{part}_labels"][:, 0] == 1
        rows = drawn_parts(np.flatnonzero(sick), np.flatnonzero(~sick), {part: sizes})[part]
        slices = arrays[f"{part}_images"][rows][:, ::_EVERY_SLICE, ..., None]
        found.append((np.ascontiguousarray(slices), sick[rows]))
    train, test = found
    return train, test


def drawn_parts(positives: Rows, negatives: Rows, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Rows]:
    """Rows of each part, so many of either class, drawn without putting back; the same whenever they are drawn."""
    draw = np.random.default_rng(_DRAW_SEED)
    shuffled = [draw.permutation(rows) for rows in (positives, negatives)]
    parts: dict[str, Rows] = {}
    used = [0, 0]
    for name, counts in sizes.items():
        taken = [rows[start : start + n] for rows, start, n in zip(shuffled, used, counts, strict=True)]
        if [len(rows) for rows in taken] != list(counts):
            raise ValueError(f"too few samples for its {name} part")
        parts[name] = np.sort(np.concatenate(taken))
        used = [start + n for start, n in zip(used, counts, strict=True)]
    return parts


def _halved(images: Array) -> Array:
    """Every pixel the mean of two by two, as (n, H, W, 1) bytes."""
    count, height, width = images.shape
    blocks = images.reshape(count, height // _HALF, _HALF, width // _HALF, _HALF)
    halved: Array = np.rint(blocks.mean(axis=(2, 4), dtype=np.float32)).astype(np.uint8)[..., None]
    return halved


_READ: dict[str, Callable[[Arrays], Parts]] = {"breastmnist": _breastmnist, "busi": _busi, "adrenal": _adrenal}
