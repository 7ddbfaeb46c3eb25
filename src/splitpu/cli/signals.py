"""Ctrl-C and SIGTERM as a polite request: the run stops after the step it is in and can be continued."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from splitpu.errors import Interrupted
from splitpu.files import in_a_command


class RunStopped(Interrupted):
    """A run was stopped by a signal; the message says how to go on."""

    def __init__(self, run: Path, code: int) -> None:
        super().__init__(f"stopped; continue with: splitpu fit --resume {in_a_command(run)}")
        self.code = code


class RunLost(RunStopped):
    """One of the processes of a run has died; the others cannot go on without it, but the run can."""

    def __init__(self, run: Path) -> None:
        super().__init__(run, 1)
        self.args = (f"another process of this run has died; {self}".replace("stopped; ", ""),)


class ComparisonStopped(RunStopped):
    """A comparison was stopped by a signal; what is finished stays finished."""

    def __init__(self, folder: Path, code: int) -> None:
        super().__init__(folder, code)
        self.args = (f"stopped; the same command goes on with what is in {folder}",)


class PriorStopped(RunStopped):
    """Before there was a run: the prior was being estimated, and what there is of it is kept."""

    def __init__(self, code: int) -> None:
        super().__init__(Path(), code)
        self.args = ("stopped while the prior was being estimated; the same command goes on from there",)


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
        """Whether a signal came."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended because of this signal."""
        return 128 + (self.signal or signal.SIGINT)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
