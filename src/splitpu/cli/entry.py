"""From the words of the command line to an exit code: what a user did wrong is one sentence and code 2."""

import os
import sys
from collections.abc import Sequence

from cyclopts import CycloptsError

from splitpu.cli.quick_start import claim_process
from splitpu.cli.signals import RunStopped
from splitpu.errors import SplitPUError

WRONG_INPUT = 2
INTERRUPTED = 130  # what a shell gives for Ctrl-C
BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; anything unexpected is a bug and keeps its traceback."""
    from splitpu.cli.app import app

    if argv is None:
        claim_process()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        return _complain(str(error))
    except RunStopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.code
    except SplitPUError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; Python must not complain about it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except OSError as error:
        if error.filename is None:
            raise
        return _complain(f"{error.filename} cannot be used: {error.strerror}")
    return code if isinstance(code, int) else 0


def _complain(sentence: str) -> int:
    print(f"splitpu: {' '.join(sentence.split())}", file=sys.stderr)
    return WRONG_INPUT
