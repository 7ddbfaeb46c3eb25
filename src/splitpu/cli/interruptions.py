"""What the commands say where a disk is full: how a run goes on, and that the answer could not be written.

What is said where Ctrl-C or SIGTERM stopped a command: how to go on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splitpu.cli import let_go_of_output
from splitpu.errors import DiskFull, Interrupted
from splitpu.utils.files import in_a_command, means_no_room


@contextmanager
def resumable(run: Path) -> Iterator[None]:
    """Inside the block there is a run that can be gone on with: the same command would be told that it is there."""
    try:
        yield
    except DiskFull as full:
        advice = f"free some space and continue with: splitpu resume {in_a_command(run)}"
        raise DiskFull(full.wrong, advice) from full


def output_refused(advice: str = "") -> str:
    """Why nothing can be written to standard output; nothing if it can. What it still holds is then let go.

    The `advice` is needed where it is not enough to run the command again.
    """
    try:
        print(flush=True)  # a large answer is not kept after it was refused, so that to flush alone proves nothing
    except OSError as error:
        let_go_of_output()
        wrong = "standard output could not be written"
        if means_no_room(error):
            return str(DiskFull(wrong, advice) if advice else DiskFull(wrong))
        return f"{wrong}: {error.strerror}{'; ' if advice else '.'}{advice}"
    return ""


class RunStopped(Interrupted):
    """A run was stopped by a signal; the message says how to go on."""

    def __init__(self, run: Path, code: int) -> None:
        super().__init__(f"stopped; continue with: splitpu resume {in_a_command(run)}")
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
    """Where there is no run that could be named: the prior was being estimated, and what there is of it is kept."""

    def __init__(self, code: int) -> None:
        super().__init__(Path(), code)
        self.args = ("stopped while the prior was being estimated; run the same command to continue from there",)
