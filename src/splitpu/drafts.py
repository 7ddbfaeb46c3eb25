"""Folders that are either whole or not there."""

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splitpu.locks import in_use, is_in_use


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
    _clear_away_drafts_of(folder)
    draft = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.tmp"
    try:
        draft.mkdir(parents=True)
        with in_use(draft):
            yield draft
            os.rename(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _clear_away_drafts_of(folder: Path) -> None:
    for draft in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}.tmp"):
        if draft.is_dir() and not draft.is_symlink() and not is_in_use(draft):
            shutil.rmtree(draft, ignore_errors=True)
