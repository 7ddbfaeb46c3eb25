"""Folders that are either whole or not there."""

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from splitpu.errors import InputError
from splitpu.locks import in_use


def check_free(folder: Path, option: str) -> None:
    """Refuse, before anything long is begun, a place that no draft can be moved to: only an empty folder gives way."""
    if not folder.exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise InputError(f"{folder} exists and is not an empty folder; choose another {option}.")
    is_here, is_disk = folder.samefile(Path.cwd()), os.path.ismount(folder.resolve())
    if is_here or is_disk:
        what = "the folder that this command is run in" if is_here else "where a disk begins"
        raise InputError(
            f"{folder} is {what}, which a new folder cannot take the place of; give {option} a name inside it, such as "
            f"{folder.absolute() / 'new'}"
        )


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """Fill a hidden neighbour inside the block. At its end that becomes the folder, in one move.

    After an error it is removed. A killed process leaves its draft behind, and the next one for the same folder clears
    it away.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with drafted(Path(place) / "done") as draft:
    ...         (draft / "part").touch()
    ...     os.listdir(place), os.listdir(Path(place) / "done")
    (['done'], ['part'])
    """
    folder = folder.resolve() if folder.is_symlink() else folder  # what a link points to is meant, not the link
    _clear_away_drafts_of(folder)
    with ExitStack() as held:
        draft = _new_draft_of(folder, held)
        try:
            yield draft
            if folder.is_dir():
                folder.rmdir()  # an empty one; Windows moves nothing onto it
            os.rename(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _new_draft_of(folder: Path, held: ExitStack) -> Path:
    while True:
        draft = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.tmp"
        draft.mkdir(parents=True)
        # Who clears drafts away may come between these two lines, and takes it for one that was left behind.
        if held.enter_context(in_use(draft)) is not False and draft.exists():
            return draft


def _clear_away_drafts_of(folder: Path) -> None:
    for draft in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}.tmp"):
        if draft.is_dir() and not draft.is_symlink():
            with in_use(draft) as alone:
                if alone:
                    shutil.rmtree(draft, ignore_errors=True)
