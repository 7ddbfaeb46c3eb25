"""The command line; imports torch only when a command needs it."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, given as words or taken from the command line, and give its exit code.

    Nothing is imported before this is called, so that Ctrl-C is met by a word and not by a traceback from then on.
    """
    try:
        from splitpu.cli.entry import main as run_command
    except BaseException as error:
        if not by_control_c(error):
            raise
        print("splitpu: interrupted before there was anything to keep", file=sys.stderr)
        return 130
    return run_command(argv)


def by_control_c(error: BaseException | None) -> bool:
    """Whether this is Ctrl-C, or what became of it: Python 3.11 wraps it where it met a class being made.

    >>> by_control_c(KeyboardInterrupt()), by_control_c(RuntimeError("a mistake"))
    (True, False)
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None
