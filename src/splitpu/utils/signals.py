"""Ctrl-C and SIGTERM as a polite request: work stops after the step it is in and can be continued. Also how many
processes were started for one run, as the environment tells; known before torch is loaded."""

import os
import signal
import threading
from types import FrameType
from typing import Any

from splitpu.errors import InputError


class StopRequest:
    """Listens inside its block; the first signal asks the run to stop, a second one does not wait for it."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python refuses to set handlers
            self._before = {number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wanted(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended because of this signal."""
        return 128 + (self.signal or signal.SIGINT)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


def started_together() -> int:
    """How many processes `torchrun` started, this one included; 1 without it."""
    told = os.environ.get("WORLD_SIZE") or "1"
    try:
        return int(told)
    except ValueError:
        advice = "unset it, or start several processes with torchrun"
        raise InputError(f"the environment variable WORLD_SIZE is {told!r}, which is not a number: {advice}.") from None
