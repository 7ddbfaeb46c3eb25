"""Ends of a process in the middle of its work: a kill before any file operation, and the loss of all power.

An audit hook hears of every file that Python opens, moves, makes or removes. `os.fsync` is heard of by wrapping it.
"""

import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from forked import Ended, command

Moment = Callable[[str, str], bool]
_EVENTS = {
    "open": "open",
    "os.rename": "rename",
    "os.remove": "remove",
    "os.mkdir": "mkdir",
    "os.rmdir": "rmdir",
    "os.chmod": "chmod",
    "os.truncate": "truncate",
}


def hear_of(place: Path, heard: Callable[[str, str], object]) -> None:
    """Call `heard` with the kind and the path before every file operation below a place; for forked copies only."""
    below = str(place)
    busy: list[bool] = []

    def tell(kind: str, path: str) -> None:
        if not busy and path.startswith(below):
            busy.append(True)
            try:
                heard(kind, path)
            finally:
                busy.clear()

    def audit(event: str, words: tuple[object, ...]) -> None:
        if (kind := _EVENTS.get(event)) is None or busy:
            return
        path = words[0]
        if isinstance(path, int):
            return
        if event == "open" and isinstance(words[2], int) and not words[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return  # reading changes nothing
        tell(kind, os.path.abspath(os.fsdecode(path)))  # type: ignore[arg-type]
        if event == "os.rename" and not busy:
            pass

    flush = os.fsync

    def fsync(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}")
        tell("fsync", path)
        flush(file)
        tell("fsynced", path)

    sys.addaudithook(audit)
    os.fsync = fsync


def operations(place: Path, words: Sequence[object]) -> tuple[Ended, list[tuple[str, str]]]:
    """What a command does to files, one after the other."""
    log = place / "operations.log"

    def lay() -> None:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        hear_of(place, lambda kind, path: kind == "fsynced" or os.write(handle, f"{kind} {path}\n".encode()))

    ended = command(*words, before=lay)
    found = [line.split(" ", 1) for line in log.read_text().splitlines()]
    log.unlink()
    return ended, [(kind, path) for kind, path in found]


def killed_at(place: Path, words: Sequence[object], moment: Moment) -> Ended:
    """A command that is killed before the first file operation of which the moment says so."""

    def lay() -> None:
        def heard(kind: str, path: str) -> None:
            if kind != "fsynced" and moment(kind, path):
                os.kill(os.getpid(), signal.SIGKILL)

        hear_of(place, heard)

    return command(*words, before=lay)


def killed_before(place: Path, words: Sequence[object], number: int) -> Ended:
    """The same, before the operation of that number, counted from 0."""
    left = [number]

    def moment(kind: str, path: str) -> bool:
        left[0] -= 1
        return left[0] < 0

    return killed_at(place, words, moment)


# --------------------------------------------------------------------------------------------------------- power loss


class Disk:
    """What would be left below a place if the power failed: names of folders that were written through, and contents.

    A file that was not is empty, half, or what it is: nobody knows. A folder that was not has any of its old and new
    names.
    """

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self._rng = place, random.Random(seed)
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # the name of a folder or of a file
        for folder, _, files in os.walk(place):
            self._sync_folder(Path(folder))
            for name in files:
                self._sync_file(Path(folder) / name)

    def fsynced(self, path: str) -> None:
        """Something was written through."""
        found = Path(path)
        if found.is_dir():
            self._sync_folder(found)
        elif found.exists():
            self._sync_file(found)

    def lose_power(self, onto: Path) -> None:
        """Lay what is left into another folder."""
        onto.mkdir(parents=True)
        self._lay(self.place, os.stat(self.place).st_ino, onto)

    def _sync_folder(self, folder: Path) -> None:
        self._names[os.stat(folder).st_ino] = _entries(folder)

    def _sync_file(self, path: Path) -> None:
        self._contents[os.stat(path).st_ino] = path.read_bytes()

    def _lay(self, now: Path | None, inode: int, onto: Path) -> None:
        lasting = self._names.get(inode, {})
        present = _entries(now) if now is not None and now.is_dir() else {}
        strict = self._rng.random() < 0.5
        for name in {**lasting, **present}:
            before, after = lasting.get(name), present.get(name)
            if before == after or strict or self._rng.random() < 0.5:
                chosen, place = before, now / name if now and before == after else self._where(before)
            else:
                chosen, place = after, now / name if now else None
            if chosen is None:
                continue
            inode_of, is_folder = chosen
            if is_folder:
                (onto / name).mkdir()
                self._lay(place, inode_of, onto / name)
            else:
                (onto / name).write_bytes(self._content(inode_of, place))

    def _content(self, inode: int, place: Path | None) -> bytes:
        written = self._contents.get(inode)
        current = place.read_bytes() if place is not None and place.is_file() else b""
        if written == current:
            return current
        return self._rng.choice([b"" if written is None else written, current, current[: len(current) // 2], b""])

    def _where(self, entry: tuple[int, bool] | None) -> Path | None:
        """Where something that was moved lies now."""
        for folder, folders, files in os.walk(self.place):
            for name in (*folders, *files):
                path = Path(folder) / name
                if (path.lstat().st_ino, path.is_dir()) == entry:
                    return path
        return None


def _entries(folder: Path) -> dict[str, tuple[int, bool]]:
    return {one.name: (one.inode(), one.is_dir(follow_symlinks=False)) for one in os.scandir(folder)}


def without_power(place: Path, words: Sequence[object], number: int, onto: Path, seed: int) -> Ended:
    """A command during which the power fails before the operation of that number, or right after its end."""
    disks: list[Disk] = []
    left = [number]

    def lay() -> None:
        disk = Disk(place, seed)
        disks.append(disk)

        def heard(kind: str, path: str) -> None:
            if kind == "fsynced":
                disk.fsynced(path)
                return
            left[0] -= 1
            if left[0] < 0:
                disk.lose_power(onto)
                os.kill(os.getpid(), signal.SIGKILL)

        hear_of(place, heard)

    from forked import forked

    from splitpu.cli import main

    def work() -> int:
        code = main([str(word) for word in words])
        disks[0].lose_power(onto)
        return code

    return forked(work, lay)
