"""What is said where Ctrl-C or SIGTERM stopped a command: how to go on."""

from pathlib import Path

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
        self.args = (f"stopped; run the same command to continue with what is in {folder}",)


class PriorStopped(RunStopped):
    """Before there was a run: the prior was being estimated, and what there is of it is kept."""

    def __init__(self, code: int) -> None:
        super().__init__(Path(), code)
        self.args = ("stopped while the prior was being estimated; run the same command to continue from there",)
