"""`python -m splitpu`: the same command line as the `splitpu` script, for when the script is not on the path."""

import sys

from splitpu.cli import main

if __name__ == "__main__":
    sys.exit(main())
