"""How the commands that train name the run that is there when they are cut short, or cannot say what came of it."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splitpu.cli.full_disk import output_refused
from splitpu.cli.stopped import RunStopped
from splitpu.errors import DiskError
from splitpu.runs.folder import RunFolder
from splitpu.runs.several import SeedsFolder


@contextmanager
def named_if_interrupted(run: Path) -> Iterator[None]:
    """Ctrl-C inside the block, where it is no polite request (yet), is told with the run if that is there by then."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        if not (RunFolder(run).request_file.exists() or SeedsFolder(run).list_file.exists()):
            raise
        raise RunStopped(run, 128 + signal.SIGINT) from stopped


@contextmanager
def named_if_unheard(run: Path, shown_by: str) -> Iterator[None]:
    """What a finished run came to is printed inside the block: if it cannot be, the same command would be refused."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        advice = f"{run} is finished nevertheless; show it again with: {shown_by}"
        if error.filename is not None or not (refused := output_refused(advice)):
            raise
        raise DiskError(refused) from error
