"""Decoded images on disk, so that a second run over the same files starts at once and memory stays free.

A set is kept under the checksum of its files' contents and the form they were brought into; neither names nor paths are
written. A second, small entry remembers under which contents a list of paths, sizes and times was last found, so that
files which have not been touched need not be read again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.data.cache import cache_folder, remove_stale, working_folder
from splitpu.data.chunks import Array
from splitpu.data.image_work import decode_all, read_headers
from splitpu.data.images import Header, ImageSpec, require_pillow
from splitpu.data.scanning import ImageFile
from splitpu.errors import InputError
from splitpu.files import disk_errors_in_words, write_text

FORMAT = 1  # raise it whenever decoding changes
RUNGS = (32, 64, 96, 128, 224)  # sides that images of mixed sizes are brought to
PIXELS, DESCRIPTION = "pixels.raw", "description.json"

Watch = Callable[[str, int, int], None]  # what is being done, how many are done, of how many


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Memory-mapped pixels of the files that could be read, and what became of each file."""

    pixels: Array  # (rows, H, W, C)
    spec: ImageSpec
    checksums: tuple[str, ...]  # of the pixels of each row: equal pictures have equal ones
    reasons: dict[int, str]  # position of each file that gave no image -> why

    def rows_of(self, files: Sequence[ImageFile]) -> list[ImageFile]:
        """The file of each row."""
        return [file for position, file in enumerate(files) if position not in self.reasons]


def decoded_images(
    files: Sequence[ImageFile],
    *,
    spec: ImageSpec | None = None,
    size: tuple[int, int] | None = None,
    strict: bool = False,
    watch: Watch | None = None,
) -> DecodedImages:
    """All images in one form, from the cache where it has them. Without `spec` the form is chosen from the images.

    `strict` stops at the first file, in the order given, that gives no image.
    """
    require_pillow()
    store = cache_folder() / "images"
    glance = _glance_key(files, spec, size)
    known = _recalled(store, glance)
    if known is None:
        headers = read_headers([file.path for file in files], watch)
        form = spec or choose_spec([header for header in headers if isinstance(header, Header)], size)
        key = _content_key(headers, form)
        if _loaded(store, key) is None:
            _decode_into_store(store, key, files, headers, form, strict, watch)
        write_text(store / "glances" / glance, key)
        known = _loaded(store, key)
    if known is None:
        raise InputError(f"what was written to {store} cannot be read back: check the disk or set SPLITPU_CACHE.")
    if strict and known.reasons:
        _refuse(files, min(known.reasons), known.reasons[min(known.reasons)])
    return known


def choose_spec(headers: Sequence[Header], size: tuple[int, int] | None = None) -> ImageSpec:
    """The form for a set: its own size where all images share one of at most 224 pixels, else a smaller or common one.

    Images of one size beyond 224 keep their proportions, with 224 for the longer side. Mixed sizes become squares: the
    largest of 32, 64, 96, 128 and 224 that the median shorter side reaches. Grey only if all images are; 16 bits if any
    image has them.

    >>> photo = Header("", 480, 640, False, 8)
    >>> choose_spec([photo]).shape, choose_spec([photo, Header("", 100, 90, True, 8)]).shape
    ((168, 224, 3), (224, 224, 3))
    """
    channels = 1 if headers and all(header.grey for header in headers) else 3
    depth = max((header.depth for header in headers), default=8)
    height, width = size or _usual_size(headers)
    return ImageSpec(height, width, channels, depth)


def _usual_size(headers: Sequence[Header]) -> tuple[int, int]:
    sizes = {(header.height, header.width) for header in headers}
    if len(sizes) == 1:
        height, width = sizes.pop()
        shrink = min(1.0, RUNGS[-1] / max(height, width))
        return max(1, round(height * shrink)), max(1, round(width * shrink))
    shorter = float(np.median([min(header.height, header.width) for header in headers])) if headers else 0
    side = max((rung for rung in RUNGS if rung <= shorter), default=RUNGS[0])
    return side, side


def _decode_into_store(
    store: Path,
    key: str,
    files: Sequence[ImageFile],
    headers: Sequence[Header | str],
    spec: ImageSpec,
    strict: bool,
    watch: Watch | None,
) -> None:
    reasons = {position: header for position, header in enumerate(headers) if isinstance(header, str)}
    wanted = [position for position in range(len(files)) if position not in reasons]
    remove_stale(store)
    with working_folder(store) as work, disk_errors_in_words(store):
        ready = work / "ready"
        ready.mkdir()
        room = _reserve(ready / PIXELS, len(wanted), spec)
        kept = 0
        checksums: list[str] = []
        with closing(decode_all([files[at].path for at in wanted], spec, ready / PIXELS, watch)) as outcomes:
            for row, (position, outcome) in enumerate(zip(wanted, outcomes, strict=True)):
                if strict and min(reasons, default=position) < position:
                    break
                if outcome.reason is not None:
                    reasons[position] = outcome.reason
                    continue
                if kept != row:  # close the gaps that bad files left
                    room[kept] = room[row]
                checksums.append(outcome.checksum)
                kept += 1
        if strict and reasons:
            _refuse(files, min(reasons), reasons[min(reasons)])
        _cut(ready / PIXELS, kept, spec)
        description = {"format": FORMAT, "spec": spec.to_dict(), "checksums": checksums, "reasons": reasons}
        (ready / DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
        target = store / key
        if target.exists() and _loaded(store, key) is None:
            os.replace(target, work / "damaged")
        if not target.exists():  # else another process finished the same set meanwhile
            os.replace(ready, target)


def _loaded(store: Path, key: str) -> DecodedImages | None:
    """The set under that key, or None if it is not there whole."""
    folder = store / key
    try:
        stored: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        spec = ImageSpec(**stored["spec"])
        checksums = tuple(stored["checksums"])
        reasons = {int(position): str(why) for position, why in stored["reasons"].items()}
        shape = (len(checksums), *spec.shape)
        if (folder / PIXELS).stat().st_size != _bytes(len(checksums), spec):
            return None
        pixels: Array = (
            np.memmap(folder / PIXELS, spec.dtype, mode="c", shape=shape) if checksums else np.empty(shape, spec.dtype)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return DecodedImages(pixels, spec, checksums, reasons)


def _recalled(store: Path, glance: str) -> DecodedImages | None:
    try:
        return _loaded(store, (store / "glances" / glance).read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return None


def _glance_key(files: Sequence[ImageFile], spec: ImageSpec | None, size: tuple[int, int] | None) -> str:
    digest = hashlib.sha256(f"{FORMAT} {spec} {size}\n".encode())
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.modified}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _content_key(headers: Sequence[Header | str], spec: ImageSpec) -> str:
    digest = hashlib.sha256(f"{FORMAT} {spec}\n".encode())
    for header in headers:
        digest.update(f"{header.checksum if isinstance(header, Header) else header}\n".encode())
    return digest.hexdigest()


def _bytes(rows: int, spec: ImageSpec) -> int:
    return rows * spec.height * spec.width * spec.channels * spec.dtype.itemsize


def _reserve(path: Path, rows: int, spec: ImageSpec) -> Array:
    """Take the room on the disk at once: a disk that fills up under a memory map would kill the process."""
    needed = _bytes(rows, spec)
    with path.open("wb") as file:
        if needed and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, needed)
        file.truncate(needed)
    return np.memmap(path, spec.dtype, mode="r+", shape=(rows, *spec.shape)) if rows else np.empty(0)


def _cut(path: Path, rows: int, spec: ImageSpec) -> None:
    with path.open("rb+") as file:
        file.truncate(_bytes(rows, spec))
        os.fsync(file.fileno())


def _refuse(files: Sequence[ImageFile], position: int, why: str) -> None:
    raise InputError(f"{files[position].name} {why}; remove or repair it, or leave out --strict to skip such files.")
