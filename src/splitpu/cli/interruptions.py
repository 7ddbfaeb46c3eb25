"""What the commands say where they are cut short: how to go on after a signal or on a full disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splitpu.cli import let_go_of_output
from splitpu.errors import DiskFull, Interrupted
from splitpu.utils.files import in_a_command, means_no_room


class RunStopped(Interrupted):
    """A signal, or the death of another process, ended the command; the message says how to go on."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def continue_with(run: Path) -> str:
    """How a run goes on."""
    return f"continue with: splitpu resume {in_a_command(run)}"


@contextmanager
def resumable(run: Path) -> Iterator[None]:
    """Inside the block there is a run that can be gone on with: the same command would be told that it is there."""
    try:
        yield
    except DiskFull as full:
        raise DiskFull(full.wrong, f"free some space and {continue_with(run)}") from full


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
