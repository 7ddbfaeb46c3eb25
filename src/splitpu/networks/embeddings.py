"""Embeddings of a few views per image, computed once and kept on disk, a file a chunk of pictures.

View number k moves every picture in the same way, by a seed of its own: a picture's embedding is the same alone and
among others, today and when a saved model is asked, and averages over views compare like with like."""

import hashlib
import json
import math
import multiprocessing
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splitpu.config.schema import ViewsConfig
from splitpu.data.images.cache import begin_process
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.public.download import cache_errors_in_words, cache_folder
from splitpu.data.volumes.spec import evenly_chosen
from splitpu.errors import InputError
from splitpu.networks.encoders import Encoder
from splitpu.types import Bytes, Vectors
from splitpu.utils.reading import read_marked, write_marked
from splitpu.views import Views

FORMAT = 1  # raise it whenever embeddings of the same picture change
STORE = "embeddings"
CHUNK = 32  # pictures a file
_SLICES_AT_ONCE = 32  # of volumes, and views of images, that go through the encoder together
_AHEAD = 2  # chunks a process may wait with
_CHUNKS_A_PROCESS = 4  # at least, or to start it takes longer than its work
_REMEMBERED = 8_192  # pictures whose embeddings stay in memory: 100 MB of the usual ones

# Small motions for weak views; parts, light, blur and a blank square for strong ones. No hue: scans have none.
GENTLE = ViewsConfig(
    flip=True, crop_padding=0.06, rotation=10.0, zoom=0.1, resized_crop=0.4,
    brightness=0.3, contrast=0.3, saturation=0.3, hue=0.0, blur=0.3, cutout=0.25,
)  # fmt: skip


@dataclass(frozen=True)
class ViewPlan:
    """Which views of every picture are embedded: the plain one, its mirror image, and so many drawn ones."""

    weak: int = 3
    strong: int = 0
    mirrored: bool = True
    seed: int = 0
    how: ViewsConfig = GENTLE
    slices: int = 0  # of a volume, at most, evenly chosen among those that show anything; 0 = all

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the second axis of the embeddings."""
        drawn = [f"{kind}-{k}" for kind in ("weak", "strong") for k in range(getattr(self, kind))]
        return ("plain", *(["mirrored"] if self.mirrored else []), *drawn)


def embed(
    images: Bytes | Iterable[Bytes],
    encoder: Encoder,
    plan: ViewPlan | None = None,
    *,
    folder: str | Path | None = None,
    processes: int = 1,
    watch: Callable[[int], None] | None = None,
) -> Vectors:
    """Embeddings (n, views, width) of images (n, H, W, C) or volumes (n, S, H, W, C) of bytes, from the cache if there.

    An iterable gives them one by one, (H, W, C) or (S, H, W, C), of any sizes; no more than a few chunks of them are
    in memory. A volume's embedding is the mean over its slices that show anything. `folder` is where they are kept,
    below the package's cache unless said otherwise."""
    plan = plan or ViewPlan()
    asked = _asked(encoder, plan)
    if processes < 1:
        raise InputError(f"processes={processes} leaves nobody to work: give 1 or more.")
    store = Path(folder) if folder is not None else cache_folder() / STORE
    found = [np.empty((0, len(plan.names), encoder.width), np.float32)]
    for chunk, part in _all_chunks(images, encoder, plan, store, processes):
        found.append(part)
        _remember((_picture_key(asked, picture), one) for picture, one in zip(chunk, part, strict=True))
        if watch is not None:
            watch(sum(map(len, found)))
    return np.concatenate(found)


def embed_chunk(pictures: Sequence[Bytes], encoder: Encoder, plan: ViewPlan) -> Vectors:
    """Embeddings of some pictures, computed here and now unless remembered: (len(pictures), views, width)."""
    asked, pictures = _asked(encoder, plan), [_shown(picture) for picture in pictures]
    keys = [_picture_key(asked, picture) for picture in pictures]
    found = []
    with torch.inference_mode():
        for key, picture in zip(keys, pictures, strict=True):
            known = _remembered.get(key)
            found.append(_embedded(picture, encoder, plan) if known is None else known)
    _remember(zip(keys, found, strict=True))
    return np.stack(found)


_remembered: OrderedDict[bytes, Vectors] = OrderedDict()  # of pictures that were asked for last


def _remember(found: Iterable[tuple[bytes, Vectors]]) -> None:
    """A run asks for its pictures several times: for the prior, the model, its figures and its report."""
    _remembered.update(found)
    while len(_remembered) > _REMEMBERED:
        _remembered.popitem(last=False)


def _asked(encoder: Encoder, plan: ViewPlan) -> bytes:
    """Everything that an embedding depends on beside the picture."""
    views = {name: value for name, value in asdict(plan).items() if name != "slices" or value}
    return f"{FORMAT} {encoder.fingerprint} {json.dumps(views, sort_keys=True)}".encode()


def _picture_key(asked: bytes, picture: Bytes) -> bytes:
    digest = hashlib.sha256(asked + str(picture.shape).encode())
    digest.update(np.ascontiguousarray(picture).data)
    return digest.digest()


def sensible_processes(pictures: int) -> int:
    """As many processes as torch may have threads, where there is work for them.

    >>> sensible_processes(100)
    1
    """
    return max(1, min(torch.get_num_threads(), pictures // (CHUNK * _CHUNKS_A_PROCESS)))


def volume_slices(volume: Bytes, most: int = 0) -> Bytes:
    """Slices of a volume (S, H, W, C) that show anything, at `most` so many; one empty slice where none does."""
    there = np.flatnonzero(volume.reshape(len(volume), -1).any(axis=1))
    if not len(there):
        return volume[:1]
    return volume[there[evenly_chosen(len(there), most)] if 0 < most < len(there) else there]


def _all_chunks(
    images: Bytes | Iterable[Bytes], encoder: Encoder, plan: ViewPlan, store: Path, processes: int
) -> Iterator[tuple[list[Bytes], Vectors]]:
    """Pictures and their embeddings chunk by chunk, in order; those that are known are read."""
    asked = _asked(encoder, plan)
    with cache_errors_in_words(store):
        store.mkdir(parents=True, exist_ok=True)

    def places() -> Iterator[tuple[list[Bytes], Path, Vectors | None]]:
        pictures = map(_contiguous, enumerate(images))
        while chunk := list(islice(pictures, CHUNK)):
            digest = hashlib.sha256(asked)
            for picture in chunk:
                digest.update(str(picture.shape).encode())
                digest.update(picture.data)
            path, shape = store / f"{digest.hexdigest()}.npy", (len(chunk), len(plan.names), encoder.width)
            known = read_marked(path)  # None if nothing is known of the chunk, or the file is damaged
            fits = known is not None and len(known) == 4 * math.prod(shape)
            yield chunk, path, np.frombuffer(known or b"", np.float32).reshape(shape).copy() if fits else None

    if processes == 1:
        for chunk, path, known in places():
            yield chunk, known if known is not None else _computed(chunk, path, encoder, plan)
        return
    # Spawned, because a forked copy of a process with torch's threads may wait for ever.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _become_worker, (encoder, plan)) as pool:
        # Pictures, and what gives their embeddings once they are asked for.
        under_way: deque[tuple[list[Bytes], Callable[[], Vectors]]] = deque()
        try:
            for chunk, path, known in places():
                there = partial(np.asarray, known)
                under_way.append((chunk, pool.submit(_worked, chunk, path).result if known is None else there))
                if len(under_way) > processes * _AHEAD:
                    first, found = under_way.popleft()
                    yield first, found()
            for first, found in under_way:
                yield first, found()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _contiguous(numbered: tuple[int, Bytes]) -> Bytes:
    number, picture = numbered
    if picture.dtype != np.uint8 or picture.ndim not in (3, 4) or picture.shape[-1] not in (1, 3):
        wanted = "give bytes of shape (H, W, C) or (S, H, W, C) with one channel or three"
        raise InputError(f"picture {number} is of shape {picture.shape} and type {picture.dtype}: {wanted}.")
    return np.ascontiguousarray(_shown(picture))


def _shown(picture: Bytes) -> Bytes:
    """Masks of noughts and ones as black and white: an encoder would see nothing in them."""
    return picture * np.uint8(255) if picture.max(initial=0) == 1 else picture


def _computed(chunk: Sequence[Bytes], path: Path, encoder: Encoder, plan: ViewPlan) -> Vectors:
    found = embed_chunk(chunk, encoder, plan)
    with cache_errors_in_words(path.parent):
        write_marked(path, np.ascontiguousarray(found, np.float32).tobytes())
    return found


_worker: tuple[Encoder, ViewPlan] | None = None  # what a process of the pool works with


def _become_worker(encoder: Encoder, plan: ViewPlan) -> None:
    global _worker
    begin_process()
    torch.set_num_threads(1)  # the processes are the threads
    _worker = encoder, plan


def _worked(chunk: Sequence[Bytes], path: Path) -> Vectors:
    assert _worker is not None  # as `_become_worker` was called first
    return _computed(chunk, path, *_worker)


def _embedded(picture: Bytes, encoder: Encoder, plan: ViewPlan) -> Vectors:
    """All views of one image or volume: (views, width)."""
    slices = volume_slices(picture, plan.slices) if picture.ndim == 4 else picture[None]
    if slices.shape[-1] == 1:
        slices = np.repeat(slices, 3, axis=-1)
    slices = np.require(slices, requirements="W")  # a row of a file that is mapped for reading cannot be a tensor
    # Slices of one volume must share their draws, so they are what Views calls a volume of its own.
    as_volume = torch.from_numpy(slices[None])
    settings = Preprocessing("volumes", as_volume.shape[1:], 0.0, 1 / 255, encoder.mean, encoder.std)
    views = Views(settings, plan.how, "cpu")
    # (1, S, C + 1, H, W) -> (S, C, H, W): the plane that says which slices are there is not for encoders.
    together = torch.cat([_view(name, views, as_volume, plan.seed)[0, :, :-1] for name in plan.names])
    starts = range(0, len(together), _SLICES_AT_ONCE)
    found = [encoder.vectors(together[start : start + _SLICES_AT_ONCE]) for start in starts]
    by_slice = torch.cat(found).reshape(len(plan.names), len(slices), encoder.width)
    return np.asarray(by_slice.mean(dim=1).numpy(), np.float32)


def _view(name: str, views: Views, raw: Tensor, seed: int) -> Tensor:
    kind, _, number = name.partition("-")
    if kind in ("plain", "mirrored"):
        return views.plain(raw.flip(3) if kind == "mirrored" else raw)
    # Far apart, so that neighbouring seeds of the user's do not share views.
    generator = torch.Generator().manual_seed(seed * 10_000 + int(number) * 2 + (kind == "strong"))
    return views.weak(raw, generator) if kind == "weak" else views.strong(raw, generator)
