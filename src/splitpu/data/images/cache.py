"""Decoded images on disk, so that a second run starts at once and memory stays free; many files at a time.

Sets lie under the checksum of contents and form, without names; a list of paths, sizes and times recalls them quickly.
Those of files that have changed stay, as a run under way may still read them."""

import hashlib
import math
import multiprocessing
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from splitpu.data.images.decode import BadImage, Headers, ImageSpec, Remark, Remarks, Size
from splitpu.data.images.scan import ImageReader, RowFile
from splitpu.data.public.download import cache_errors_in_words, cache_folder, working_folder
from splitpu.data.volumes.reader import VolumeReader
from splitpu.data.volumes.spec import VolumeSpec
from splitpu.errors import InputError
from splitpu.types import Array, Watch
from splitpu.utils.arrays import row_slices
from splitpu.utils.files import move_into_place
from splitpu.utils.reading import ROW_CHECKSUM, Guarded, read_marked, row_checksum, write_marked, write_sealed

MOST_PROCESSES = 16

Reader = ImageReader | VolumeReader  # its repr names everything that its rows depend on
RowSpec = ImageSpec | VolumeSpec  # the one form that all rows of a set are brought into
Outcome = tuple[bytes, tuple[Remark, ...]]  # of a file that was decoded: checksum of its pixels, what there is to say
Result = TypeVar("Result")
FORMAT = 5  # raise it whenever decoding changes
PIXELS, CHECKSUMS, DESCRIPTION = "pixels.raw", "checksums.raw", "description.json"


def read_headers(reader: Reader, sources: Sequence[Any], watch: Watch | None = None) -> Headers:
    """The header of each source, or the reason why it has none."""
    found = _in_parallel(reader, reader.header, sources, f"looking at {reader.store}", watch)
    return Headers.collect(found, len(sources))


def decode_all(
    reader: Reader, sources: Sequence[Any], spec: RowSpec, pixels: Path, watch: Watch | None = None
) -> Generator[Outcome | str, None, None]:
    """Decode every source into its row of the file `pixels`; outcomes come in order, once their row is written."""
    work = partial(_decode_row, reader=reader, spec=spec, pixels=str(pixels))
    return _in_parallel(reader, work, list(enumerate(sources)), "decoding", watch)


def process_count(files: int, fewest: int) -> int:
    """One process a core, as far as there is work for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if files < fewest else min(cores, MOST_PROCESSES)


def _decode_row(numbered: tuple[int, Any], *, reader: Reader, spec: Any, pixels: str) -> Outcome:
    row, source = numbered
    decoded, remarks = reader.decode(source, spec)
    content = decoded.tobytes()
    with open(pixels, "rb+") as file:
        file.seek(row * len(content))
        file.write(content)
    return row_checksum(content), tuple(remarks)


def _worked(some: Sequence[Any], *, work: Callable[[Any], Result]) -> list[Result | str]:
    """What became of each source, or the reason why it is bad."""
    found: list[Result | str] = []
    for source in some:
        try:
            found.append(work(source))
        except BadImage as error:
            found.append(str(error))
    return found


def _in_parallel(
    reader: Reader, work: Callable[[Any], Result], sources: Sequence[Any], what: str, watch: Watch | None
) -> Generator[Result | str, None, None]:
    step = reader.files_a_task
    tasks = [sources[start : start + step] for start in range(0, len(sources), step)]
    processes = process_count(len(sources), reader.fewest_for_processes)
    done = 0
    for results in _mapped(partial(_worked, work=work), tasks, processes):
        yield from results
        done += len(results)
        if watch is not None:
            watch(what, done, len(sources))


def _mapped(work: Callable[[Any], list[Result]], tasks: Sequence[Any], processes: int) -> Iterator[list[Result]]:
    if processes == 1:
        yield from map(work, tasks)
        return
    # Fresh processes, because a copy of one in which torch runs threads may hang.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=begin_process)
    begun = False
    try:
        for results in pool.map(work, tasks):
            begun = True
            yield results
    except BrokenProcessPool as error:
        if not begun:  # none could be started, as where Python reads its program from a pipe
            yield from map(work, tasks)
            return
        advice = "perhaps as memory ran out: free some or remove the largest files"
        raise InputError(f"a process that reads images was killed, {advice}.") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def begin_process() -> None:
    """Be silent, and end with the command: one that is killed cannot end its processes, which would wait forever."""
    # The C libraries behind pillow write to standard error about files that we report on ourselves.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    parent = parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Memory-mapped pixels of the files that could be read, and what became of each file."""

    pixels: Array  # (rows, H, W, C), or (rows, S, H, W, C)
    spec: RowSpec
    checksums: Array  # of the pixels of each row: equal pictures have equal ones
    reasons: dict[int, str]  # position of each file that gave no image -> why
    sides: tuple[tuple[int, int], tuple[int, int]]  # smallest and largest height and width in the files
    remarks: dict[int, tuple[Remark, ...]]  # position -> what there is to say


def decoded_images(
    reader: Reader, files: Sequence[RowFile], spec: RowSpec | None, size: Size | None, strict: bool, watch: Watch | None
) -> DecodedImages:
    """All images in one form, from the cache where it has them. Without `spec` the form is chosen from the images."""
    store = cache_folder() / reader.store
    stamps = hashlib.sha256(f"{FORMAT} {reader} {spec} {size}\n".encode())
    for file in files:
        stamps.update(file.stamp.encode(errors="surrogateescape"))
    glance = store / "glances" / stamps.hexdigest()
    seen = read_marked(glance)
    known = None if seen is None else _loaded(reader, store / seen.decode())
    if known is None:
        reader.require()
        headers = read_headers(reader, [file.source for file in files], watch)
        form = spec or reader.choose(headers, size)
        content = hashlib.sha256(f"{FORMAT} {reader} {form} {sorted(headers.reasons.items())}\n".encode())
        content.update(headers.facts["checksum"].tobytes())
        folder = store / content.hexdigest()
        if _loaded(reader, folder) is None:
            _decode_into(folder, reader, files, headers, form, strict, watch)
        with cache_errors_in_words(store):
            write_marked(glance, folder.name.encode())
        known = _loaded(reader, folder)
    if known is None:
        raise InputError(f"what was written to {store} cannot be read back: check the disk or set SPLITPU_CACHE.")
    if strict and known.reasons:
        _refuse(reader, files, known.remarks, known.reasons)
    return known


def _decode_into(
    to: Path, reader: Reader, files: Sequence[RowFile], heads: Headers, spec: RowSpec, strict: bool, watch: Watch | None
) -> None:
    reasons, remarks, wanted = dict(heads.reasons), dict(heads.remarks), heads.good().tolist()
    first_bad = min(reasons, default=len(files))
    with working_folder(to.parent) as work, cache_errors_in_words(to.parent):
        ready = work / "ready"
        ready.mkdir()
        _reserve(ready / PIXELS, _bytes(len(wanted), spec))
        checksums = np.zeros((len(wanted), ROW_CHECKSUM), np.uint8)
        with closing(decode_all(reader, [files[at].source for at in wanted], spec, ready / PIXELS, watch)) as outcomes:
            for row, (position, outcome) in enumerate(zip(wanted, outcomes, strict=True)):
                if isinstance(outcome, str):
                    reasons[position] = outcome
                    first_bad = min(first_bad, position)
                else:
                    checksums[row] = np.frombuffer(outcome[0], np.uint8)
                    if outcome[1]:
                        remarks[position] = (*remarks.get(position, ()), *outcome[1])
                if strict and first_bad <= position:
                    break
        if strict and reasons:
            _refuse(reader, files, remarks, reasons)
        good = np.flatnonzero([position not in reasons for position in wanted])
        _keep_rows(ready / PIXELS, good, _bytes(1, spec))
        checksums[good].tofile(ready / CHECKSUMS)
        sides = heads.sides() if len(wanted) else np.zeros((1, 2), int)
        extremes = [sides.min(axis=0).tolist(), sides.max(axis=0).tolist()]
        described = {"format": FORMAT, "spec": asdict(spec), "rows": len(good), "sides": extremes}
        write_sealed(ready / DESCRIPTION, {**described, "reasons": reasons, "remarks": remarks})
        move_into_place(ready, to, lambda: _loaded(reader, to) is not None)


def _loaded(reader: Reader, folder: Path) -> DecodedImages | None:
    """The set in a folder of the cache, or None if it is not there whole."""
    try:
        stored = Guarded(folder / DESCRIPTION).sealed()
        spec = reader.stored_spec(**stored["spec"])
        smallest, largest = (tuple(sides) for sides in stored["sides"])
        reasons = {int(position): str(why) for position, why in stored["reasons"].items()}
        remarks = {int(position): tuple(Remark(*one) for one in some) for position, some in stored["remarks"].items()}
        shape = (int(stored["rows"]), *spec.shape)
        sums = Guarded(folder / CHECKSUMS).raw()
        checksums = np.frombuffer(sums, f"S{ROW_CHECKSUM}")
        if len(checksums) != shape[0] or (folder / PIXELS).stat().st_size != _bytes(shape[0], spec):
            return None
        # Read-only: pages of the file that were read can then be given back, and rows be read past the map.
        mapped = partial(np.memmap, folder / PIXELS, mode="r") if shape[0] else np.empty
        pixels: Array = mapped(dtype=spec.dtype, shape=shape)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    found = (row_checksum(pixels[row].tobytes()) for rows in row_slices(pixels) for row in range(rows.start, rows.stop))
    if sums != b"".join(found):  # overwritten or damaged: the files are decoded again
        return None
    return DecodedImages(pixels, spec, checksums, reasons, (smallest, largest), remarks)


def _bytes(rows: int, spec: RowSpec) -> int:
    return rows * math.prod(spec.shape) * spec.dtype.itemsize


def _reserve(path: Path, needed: int) -> None:
    """Take the room on the disk at once: a disk that fills up under a memory map would kill the process."""
    with path.open("wb") as file:
        if needed and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, needed)
        file.truncate(needed)


def _keep_rows(path: Path, kept: Array, row_bytes: int) -> None:
    """Close the gaps that bad files left, and cut the file behind the last row."""
    with path.open("rb+") as file:
        for target, source in enumerate(kept.tolist()):
            if source != target:
                file.seek(source * row_bytes)
                row = file.read(row_bytes)
                file.seek(target * row_bytes)
                file.write(row)
        file.truncate(len(kept) * row_bytes)
        os.fsync(file.fileno())


def _refuse(reader: Reader, files: Sequence[RowFile], remarks: Remarks, reasons: dict[int, str]) -> NoReturn:
    first = min(reasons)
    name = reader.account(files, remarks, reasons).files[first].name
    raise InputError(f"{name} {reasons[first]}; remove or repair it, or leave out --strict to skip such files.")
