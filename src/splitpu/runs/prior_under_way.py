"""An estimate of the prior that takes minutes: what it has is kept, so that the same command goes on with it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path

from splitpu.data.pudata import PUData
from splitpu.errors import DiskError, InputError
from splitpu.prior.scores import needs_networks
from splitpu.runs.folder import RunFolder, remove_if_empty

Removal = Callable[[], None]
_TOGETHER: ContextVar[list[Removal] | None] = ContextVar("removed together", default=None)


@contextmanager
def kept_until_all_are_known() -> Iterator[None]:
    """Inside the block estimates are kept that are known already: of several, one after the other, all are needed.

    Whoever is stopped at the third would else begin with the first again.
    """
    known: list[Removal] = []
    outside = _TOGETHER.set(known)
    try:
        with _removed_when_settled(lambda: [remove() for remove in reversed(known)]):
            yield
    finally:
        _TOGETHER.reset(outside)


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
        remove, together = partial(_remove, folder, above_is_new), _TOGETHER.get()
        with _removed_when_settled(remove if together is None else partial(together.append, remove)):
            yield folder.checkpoints


@contextmanager
def _removed_when_settled(remove: Callable[[], object]) -> Iterator[None]:
    """Call it where the block came to its end, or found that it cannot."""
    try:
        yield
    except DiskError:  # the estimate is possible and waits for room
        raise
    except InputError:
        remove()
        raise
    remove()


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
