"""Where the training rows live and how a batch of them reaches the compute device.

Of several processes each reads its own share of every batch; what was read is exchanged as bytes."""

import itertools
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from splitpu.data.preprocessing import Preprocessing
from splitpu.data.sparse_rows import is_sparse
from splitpu.engine.distributed import World
from splitpu.errors import InputError
from splitpu.types import Array, Rows
from splitpu.utils.warnings import without_warning

Residence = Literal["auto", "device", "host"]
_RESERVE = 0.5  # share of free device memory that data may take; the rest is for activations
_KEPT = 2  # sets of rows that `SharedRows` remembers; those in use live on without it
_STEPS_AHEAD = 2  # one being copied to the device, one being read


class FileRows:
    """The rows of a memory-mapped array, read from their place in the file.

    Through the map, the system may read much of a file for one row, and all of it counts as this process's memory."""

    def __init__(self, path: str, first_byte: int, row_bytes: int) -> None:
        self._path, self._first_byte, self._row_bytes = path, first_byte, row_bytes
        self._file = os.open(path, os.O_RDONLY)

    @classmethod
    def of(cls, features: Array) -> "FileRows | None":
        """Find the array in its file; None if it is not one piece of a file as it is on disk."""
        if not isinstance(features, np.memmap) or not hasattr(os, "preadv"):
            return None
        mapped: Any = getattr(features, "_mmap", None)
        on_disk = mapped is not None and features.filename is not None and features.mode in ("r", "r+")
        if not on_disk or not features.flags.c_contiguous:
            return None
        # The array may be a part of the one that was mapped, and a map begins where a page does.
        into_map = features.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
        map_begins = features.offset - features.offset % mmap.ALLOCATIONGRANULARITY
        return cls(str(features.filename), map_begins + into_map, features[:1].nbytes)

    def read(self, rows: Rows, out: Array) -> None:
        """Fill `out` with the rows; neighbours in the file that are asked for one after the other are read at once."""
        if not len(rows):
            return
        room = out.reshape(-1).view(np.uint8).data
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            part = room[start * self._row_bytes : end * self._row_bytes]
            place = self._first_byte + int(rows[start]) * self._row_bytes
            while len(part):
                count = os.preadv(self._file, [part], place)
                if count == 0:
                    raise InputError(f"{self._path} has become shorter while it was read; restore it and resume.")
                part, place = part[count:], place + count

    def __del__(self) -> None:
        os.close(self._file)


class RowStore:
    """The training features, on the device when they fit there, otherwise streamed from the host batch by batch."""

    def __init__(self, features: Array, device: torch.device, residence: Residence = "auto") -> None:
        self.device, self._host = device, features
        self.sparse = features if is_sparse(features) else None
        # On the CPU "resident" means no copy at all for an array in memory; a memory-mapped file stays on disk.
        fits = not isinstance(features, np.memmap)
        if device.type == "cuda":
            fits = features.nbytes < _RESERVE * torch.cuda.mem_get_info(device)[0]
        self.resident = self.sparse is None and (residence == "device" or (residence == "auto" and fits))
        self._file = None if self.resident else FileRows.of(features)
        self._tensor: Tensor | None = None
        if self.resident:
            try:
                self._tensor = shared_tensor(np.ascontiguousarray(features)).to(device)
            except torch.OutOfMemoryError as error:
                size = f"{features.nbytes / 2**30:.1f} GiB"
                raise InputError(f"{size} of rows do not fit on {device}: set engine.residence=host.") from error

    def __len__(self) -> int:
        return len(self._host)

    @property
    def row_values(self) -> int:
        return int(np.prod(self._host.shape[1:]))

    def gather(self, rows: Tensor) -> Tensor:
        """Fetch the rows as stored. Inside a captured step this must be the resident kind: no host is involved."""
        if self._tensor is not None:
            on_gpu = self.device.type == "cuda"
            return picked_by_words(self._tensor, rows) if on_gpu else self._tensor.index_select(0, rows)
        picked = self._room_for(len(rows))
        self._fetch_into(picked, rows.cpu())
        return picked.to(self.device, non_blocking=True)

    def stream(self, plan: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """The rows of one step after the other, read ahead by a thread; `plan` is in host memory.

        Resident rows need none of this: they give nothing here, and the step gathers them on the device. On the CPU
        what is given is valid until the next is asked for: it is read into a few buffers, again and again, so that
        memory depends neither on the number of steps nor on what an allocator keeps for itself."""
        steps = len(next(iter(plan.values())))
        if self.resident:
            yield from ({} for _ in range(steps))
            return

        def filled(slot: _Slot, step: int) -> _Slot:
            # A GPU copies when it comes to it: nothing may be written before. On the CPU the order is enough.
            if slot.copied is not None:
                slot.copied.synchronize()
            for name, rows in plan.items():
                self._fetch_into(slot.buffers[name], rows[step])
            return slot

        rooms = [{name: self._room_for(rows.shape[1]) for name, rows in plan.items()} for _ in range(_STEPS_AHEAD + 2)]
        slots = itertools.cycle([_Slot(room, self.device) for room in rooms])
        waiting: deque[Future[_Slot]] = deque()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rows") as reader:
            try:
                for step, slot in zip(range(steps), slots, strict=False):
                    waiting.append(reader.submit(filled, slot, step))
                    if len(waiting) > _STEPS_AHEAD:
                        yield waiting.popleft().result().on_device()
                while waiting:
                    yield waiting.popleft().result().on_device()
            finally:
                for future in waiting:  # the epoch was left early
                    future.cancel()

    def _room_for(self, count: int) -> Tensor:
        """Memory for some rows, from which a GPU can take them by itself."""
        kind = torch.from_numpy(np.empty(0, self._host.dtype)).dtype
        return torch.empty((count, *self._host.shape[1:]), dtype=kind, pin_memory=self.device.type == "cuda")

    def _fetch_into(self, picked: Tensor, rows: Tensor) -> None:
        if self.sparse is not None:
            picked.numpy()[...] = self.sparse.dense(rows.numpy())
        elif self._file is not None:
            self._file.read(rows.numpy(), picked.numpy())
        else:
            # "clip", because numpy else goes through a copy; the numbers come from our own plans and are all valid.
            np.take(self._host, rows.numpy(), axis=0, out=picked.numpy(), mode="clip")


class SharedRows:
    """Rows that several runs use: one copy on the device, and read through once for what preprocessing remembers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[object, ...], tuple[RowStore, Preprocessing]] = {}

    def __reduce__(self) -> tuple[type["SharedRows"], tuple[()]]:
        return SharedRows, ()  # another process has a memory of its own

    def of(self, features: Array, device: torch.device, residence: Residence) -> tuple[RowStore, Preprocessing]:
        """The rows of these features, the same for everybody who asks with the same memory."""
        place: tuple[object, ...]
        if is_sparse(features):
            place = features.tocsr().data.ctypes.data, features.tocsr().indptr.ctypes.data
        else:
            place = features.ctypes.data, features.strides
        key = (*place, features.shape, features.dtype.str, str(device), residence)
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                found = RowStore(features, device, residence), Preprocessing.fit(features)
            self._kept[key] = found  # the last one used is the last one dropped
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
            return found


class _Slot:
    """Host memory for the rows of one step, used for many steps in turn."""

    def __init__(self, buffers: dict[str, Tensor], device: torch.device) -> None:
        self.buffers, self._device = buffers, device
        self.copied: torch.cuda.Event | None = None

    def on_device(self) -> dict[str, Tensor]:
        rows = {name: buffer.to(self._device, non_blocking=True) for name, buffer in self.buffers.items()}
        if self._device.type == "cuda":
            self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.copied.record(torch.cuda.current_stream(self._device))
        return rows


def picked_by_words(features: Tensor, rows: Tensor) -> Tensor:
    """Some of the rows, eight bytes at a time: a GPU computes the place of every element that it copies by itself."""
    flat = features.flatten(1)
    if flat.shape[1] * flat.element_size() % 8 == 0:
        flat = flat.view(torch.int64)
    return flat.index_select(0, rows).view(features.dtype).view(len(rows), *features.shape[1:])


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all parts, in order. Not copied where they lie one behind the other, as a step gathers its groups."""
    first = parts[0]
    one_behind_the_other = all(
        one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        and one.storage_offset() + one.numel() == other.storage_offset()
        and (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:])
        and one.is_contiguous()
        and other.is_contiguous()
        for one, other in itertools.pairwise(parts)
    )
    if one_behind_the_other:
        return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
    return torch.cat(list(parts))


def shared_tensor(array: Array) -> Tensor:
    """The array as a tensor over the same memory. It may be read-only: nobody here ever writes to features."""
    with without_warning("The given NumPy array is not writable"):
        return torch.from_numpy(array)


def read_batches(rows: RowStore, plan: Mapping[str, Tensor], world: World) -> Iterator[dict[str, Tensor]]:
    """The rows of one step after the other, whole in every process; nothing where they are resident."""
    # All processes call this at once, and all of them stream: see `all_stream`.
    own = {name: numbers[:, slice(*world.share(numbers.shape[1]))] for name, numbers in plan.items()}
    for parts in rows.stream(own):
        for name, part in parts.items() if world.size > 1 else ():
            whole = world.gather(part.flatten(1).view(torch.uint8), plan[name].shape[1])  # not every number can travel
            parts[name] = whole.view(part.dtype).view(len(whole), *part.shape[1:])
        yield parts


def all_stream(rows: RowStore, world: World) -> bool:
    """Whether every process has to read its rows; one whose GPU holds them all has nothing to exchange."""
    return not world.any(rows.resident)
