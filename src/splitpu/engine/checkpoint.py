"""Stages on disk: one safetensors file a stage, replaced whole every so many epochs."""

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from splitpu.engine.optimiser import FusedOptimiser, WeightAverage
from splitpu.engine.stage import EpochRecord, Stage
from splitpu.utils.files import replacing
from splitpu.utils.reading import open_regular


@dataclass
class StageState:
    """Where a stage stands: what it takes to go on, or its final weights when finished."""

    epoch: int
    finished: bool
    history: list[EpochRecord]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def section(self, name: str) -> dict[str, Tensor]:
        return {key.removeprefix(f"{name}/"): t for key, t in self.tensors.items() if key.startswith(f"{name}/")}


class CheckpointStore:
    """Keeps stages in a folder under the key of what they depend on, so a changed setting never finds an old result."""

    def __init__(self, folder: Path | None, *, writes: bool = True) -> None:
        self.folder = folder
        self._writes = writes  # of several processes only one does; all of them read
        # Writing to disk takes longer than many an epoch on a GPU, so it happens beside the training.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def load(self, stage: Stage) -> StageState | None:
        """The stage as it was left; None, so that it is trained again, if there is no file or it cannot be read."""
        path = self._path(stage)
        if path is None:
            return None
        try:
            open_regular(path).close()
            with safe_open(path, framework="pt") as file:
                told = file.metadata()
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            if told["sha256"] != _checksum(tensors, told["splitpu"]):
                return None
            meta = json.loads(told["splitpu"])
            for line in meta["history"]:
                line.pop("side_by_side", None)  # how many runs shared the device, which epochs no longer tell
            history = [EpochRecord(**line) for line in meta["history"]]
            whole = meta["key"] == stage.key and meta["epoch"] == len(history)
            return StageState(meta["epoch"], meta["finished"], history, tensors) if whole else None
        except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
            return None

    def save(self, stage: Stage, state: StageState) -> None:
        """Write the stage's file beside the training; whoever reads finds the old one or the new one, both whole."""
        path = self._path(stage)
        if path is None or not self._writes:
            return
        meta = {
            "key": stage.key,
            "epoch": state.epoch,
            "finished": state.finished,
            "history": [record.to_dict() for record in state.history],
            "identity": dict(stage.identity),
        }
        # Copies in host memory that later steps do not change.
        tensors = {key: t.detach().to("cpu", copy=True).contiguous() for key, t in state.tensors.items()}
        stored = json.dumps(meta, default=str)

        def write() -> None:
            with replacing(path) as temporary:
                save_file(tensors, temporary, metadata={"splitpu": stored, "sha256": _checksum(tensors, stored)})

        self.flush()
        self._pending = self._writer.submit(write)
        if state.finished:
            self.flush()

    def flush(self) -> None:
        """Wait for the file being written, and hear of it if that failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _path(self, stage: Stage) -> Path | None:
        return None if self.folder is None else self.folder / f"{stage.name}-{stage.key}.safetensors"


def _checksum(tensors: Mapping[str, Tensor], meta: str) -> str:
    """Of all that a file says: one flipped bit would else be trained on, and nobody would know."""
    digest = hashlib.sha256(meta.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, named as in a `StageState`."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def training_tensors(module: nn.Module, optimiser: FusedOptimiser, average: WeightAverage | None) -> dict[str, Tensor]:
    """Everything that a step changes."""
    tensors = under("module", module.state_dict())
    for number, entries in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{number}/{key}": t for key, t in entries.items() if isinstance(t, Tensor)}
    if average is not None:
        tensors |= under("average", dict(zip(average.names, average.values, strict=True)))
    return tensors


@torch.no_grad()
def restore_in_place(live: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy values into the live tensors without moving them: a captured step keeps their addresses."""
    # A weight that no loss has reached yet has no optimiser state to be saved; its live state is zero already.
    for name, tensor in live.items():
        if name in saved or not name.startswith("optimiser/"):
            tensor.copy_(saved[name])


def copied(tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """A snapshot that later steps do not change."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
