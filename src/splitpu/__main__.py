"""`python -m splitpu`: the same command line as the `splitpu` script, for when the script is not on the path."""

import os
import sys

from splitpu.cli import main

if __name__ == "__main__":
    code = main()
    if os.environ.get("WORLD_SIZE") not in (None, "", "1"):
        # One of several processes that torchrun started. While the interpreter takes itself apart, threads of the
        # connection to the others may still run, and now and then that aborts a process whose work is done.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
