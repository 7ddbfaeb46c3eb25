"""Commands in forked copies of this process, watched: how they end, what they say, how long and how much they take.

Everything is imported once, before the first fork, so that a command costs milliseconds. Nothing here may start a
thread before a fork: a copy of a process whose threads hold locks may hang.
"""

import contextlib
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS, MEGABYTES = int(os.environ.get("FAULTS_SECONDS", "20")), 2000  # none may take longer, or more
PATIENCE = 600  # seconds for what is only prepared
REFUSED = 2


@dataclass(frozen=True)
class Ended:
    """How a command came to its end."""

    code: int  # below 0: by that signal
    out: str
    err: str
    seconds: float
    megabytes: float

    def fault(self, codes: Sequence[int] = (0, REFUSED)) -> str | None:
        """What must never be, whatever was done to the files."""
        if self.seconds > SECONDS or self.code == -signal.SIGALRM:
            return f"took longer than {SECONDS} s"
        if self.megabytes > MEGABYTES:
            return f"took {self.megabytes:.0f} MB"
        if "Traceback (most recent call last)" in self.err + self.out:
            return "ended in a traceback: " + " | ".join(self.err.strip().splitlines()[-6:])
        if self.code not in codes:
            return f"ended with {self.code}: {self.err[-200:]}"
        if self.code == REFUSED and not self.err.strip():
            return "was refused without a word"
        if any(letter < " " and letter not in "\n\t" for letter in self.err):
            return f"sent control characters to the terminal: {self.err[-100:]!r}"
        return None


def warm_up() -> None:
    """Import whatever a command may need, and do nothing with it."""
    import torch

    import splitpu.cli.entry_point
    import splitpu.cli.evaluate
    import splitpu.cli.inspect
    import splitpu.cli.predict
    import splitpu.cli.several_runs
    import splitpu.cli.train
    import splitpu.data.sources

    splitpu.data.sources.kinds()
    torch.set_num_threads(1)


def import_as_for(*words: object) -> None:
    """Import what a command imports only once it is at work: a copy that has little memory could not."""
    from splitpu.cli import main

    def work() -> int:
        code = main([*map(str, words)])
        print("\n", *sys.modules, sep="\n")
        return code

    ended = forked(work, most=PATIENCE)
    assert ended.code == 0, ended
    for name in ended.out.splitlines():
        if name and name not in sys.modules:
            with contextlib.suppress(Exception):  # lines of what the command said are no modules
                importlib.import_module(name)


def command(*words: object, before: Callable[[], object] | None = None, most: int = SECONDS) -> Ended:
    """A splitpu command in a forked copy; `before` is done there first, such as laying hooks."""
    from splitpu.cli import main

    return forked(lambda: main([str(word) for word in words]), before, most=most)


def forked(
    work: Callable[[], int], before: Callable[[], object] | None = None, room: int = 6000, most: int = SECONDS
) -> Ended:
    """Do something in a forked copy of this process, which may have so many megabytes of addresses more than now."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _in_child(work, before, (out.fileno(), err.fileno()), room, most)
        status, used = _waited_for(child, most)
        seconds = time.monotonic() - started
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode("utf-8", "replace"))
    return Ended(os.waitstatus_to_exitcode(status), said[0], said[1], seconds, used / 1024)


def _waited_for(child: int, most: int) -> tuple[int, int]:
    deadline = time.monotonic() + most + 5  # where even the alarm is not heard
    while time.monotonic() < deadline:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            return status, used.ru_maxrss
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return status, used.ru_maxrss


def _in_child(
    work: Callable[[], int], before: Callable[[], object] | None, streams: tuple[int, int], room: int, most: int
) -> None:
    code = 1
    try:
        for target, number in enumerate(streams, start=1):
            os.dup2(number, target)
        sys.stdin = open(os.devnull)  # noqa: SIM115
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(most)
        if room:
            resource.setrlimit(resource.RLIMIT_AS, (_addresses() + (room << 20),) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if before is not None:
            before()
        code = work()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if 0 <= code < 256 else 1)


def _addresses() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder, however deep, and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
