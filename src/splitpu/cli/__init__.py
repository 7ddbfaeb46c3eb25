"""The command line; imports torch only when a command needs it."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, given as words or taken from the command line, and give its exit code.

    Nothing is imported before this is called, so that Ctrl-C is met by a word and not by a traceback from then on.
    Libraries swallow it while they are being imported, and fail later for lack of parts, so it is noted here."""
    heard = []

    def note(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        signal.default_int_handler(number, frame)

    # Whoever handles it in another way has it so, and outside the main thread Python refuses handlers.
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    noted = usual and threading.current_thread() is threading.main_thread()
    if noted:
        signal.signal(signal.SIGINT, note)
    try:
        from splitpu.cli.entry_point import main as run_command

        return run_command(argv)
    except BaseException as error:
        if not (heard or by_control_c(error)):
            raise
        print("splitpu: interrupted before there was anything to keep", file=sys.stderr)
        return 130
    finally:
        if noted:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def by_control_c(error: BaseException | None) -> bool:
    """Whether this is Ctrl-C, or what became of it: Python 3.11 wraps it where it met a class being made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def let_go_of_output() -> None:
    """Standard output takes nothing more, which Python must not complain of at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
