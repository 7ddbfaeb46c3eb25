"""An estimate of the prior that takes minutes: what it has is kept, so that the same command goes on with it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from splitpu.data.pudata import PUData
from splitpu.errors import DiskError, InputError
from splitpu.prior.scores import needs_networks
from splitpu.runs.folder import RunFolder, remove_if_empty


@contextmanager
def kept_until_known(data: PUData, seed: int, beside: Path) -> Iterator[Path | None]:
    """A folder for checkpoints that is there until there is an estimate, or a reason why there can be none.

    Whoever is stopped or killed in between leaves it behind, and finds it again by the rows and the seed. None where
    no networks are trained; where nothing can be written, which is no reason to give up; and where another process is
    at the same estimate, as the first to end would remove what the other needs.
    """
    if not needs_networks(data):
        yield None
        return
    folder = RunFolder(beside / f".prior-{data.fingerprint()[:12]}-seed{seed}")
    above_is_new = not beside.exists()
    with ExitStack() as held:
        if not _taken(folder, held):
            yield None
            return
        folder.sweep()
        try:
            yield folder.checkpoints
        except DiskError:  # the estimate is possible and waits for room
            raise
        except InputError:
            _remove(folder, above_is_new)
            raise
        _remove(folder, above_is_new)


def _taken(folder: RunFolder, held: ExitStack) -> bool:
    """Make the folder and hold it alone, if that can be had."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        held.enter_context(folder.locked())
    except (OSError, InputError):
        return False
    return True


def _remove(folder: RunFolder, above_is_new: bool) -> None:
    folder.discard()
    if above_is_new:
        remove_if_empty(folder.path.parent)
