"""Where the training rows live and how a batch of them reaches the compute device."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_RESERVE = 0.5  # share of free device memory that data may take; the rest is for activations


class RowStore:
    """The training features, on the device when they fit there, otherwise gathered on the host batch by batch."""

    def __init__(
        self,
        features: npt.NDArray[Any],
        device: torch.device,
        residence: Literal["auto", "device", "host"] = "auto",
    ) -> None:
        self.device = device
        self._host = features
        self.resident = residence == "device" or (residence == "auto" and _fits(features, device))
        self._tensor = torch.from_numpy(np.ascontiguousarray(features)).to(device) if self.resident else None

    def __len__(self) -> int:
        return len(self._host)

    def gather(self, rows: Tensor) -> Tensor:
        """Fetch the rows as stored. Inside a captured step this must be the resident kind: no host is involved."""
        if self._tensor is not None:
            return self._tensor.index_select(0, rows)
        picked = torch.from_numpy(self._host[rows.cpu().numpy()])
        return picked.to(self.device, non_blocking=True)


def _fits(features: npt.NDArray[Any], device: torch.device) -> bool:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return features.nbytes < _RESERVE * free
    # On the CPU "resident" means no copy at all for an array in memory; a memory-mapped file stays on disk.
    return not isinstance(features, np.memmap)
