"""What the commands say where a disk is full: how a run goes on, and that the answer could not be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splitpu.cli import let_go_of_output
from splitpu.errors import DiskFull
from splitpu.files import in_a_command, means_no_room


@contextmanager
def resumable(run: Path) -> Iterator[None]:
    """Inside the block there is a run that can be gone on with: the same command would be told that it is there."""
    try:
        yield
    except DiskFull as full:
        advice = f"free some space and continue with: splitpu fit --resume {in_a_command(run)}"
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
