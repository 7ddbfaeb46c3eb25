"""`python -m splitpu.reproduce`: `splitpu reproduce` on machines that have torch but not the command-line library.

Its options are the parts of an `Order`, so that they are listed once; `splitpu reproduce --help` says what they mean.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from splitpu.cli import reader_has_gone
from splitpu.errors import SplitPUError
from splitpu.reproduce.command import Order, carry_out_politely
from splitpu.utils.text import parse_numbers, parse_words

_SPELLING = {"methods": "--method", "only_list": "--list"}
_READ: dict[Any, Callable[[str], Any]] = {int: int, float | None: float, Path: Path, Path | None: Path}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the words ask for; what a user did wrong is one sentence and code 2."""
    given = vars(_parser().parse_args(argv))
    try:
        if "methods" in given:
            given["methods"] = parse_words(given["methods"], _spelled("methods"), "vpu or vpu,dan")
        for name in {"positives", "seeds"} & given.keys():
            given[name] = parse_numbers(given[name], _spelled(name))
        code = carry_out_politely(Order(**given))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_has_gone()
    except SplitPUError as error:
        print(f"splitpu: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m splitpu.reproduce", description=__doc__, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("names", nargs="?", metavar="NAME")
    for part in fields(Order):
        if part.type is bool:
            parser.add_argument(_spelled(part.name), dest=part.name, action="store_true")
        elif part.name != "names":
            parser.add_argument(_spelled(part.name), dest=part.name, type=_READ.get(part.type, str))
    return parser


def _spelled(name: str) -> str:
    return _SPELLING.get(name, f"--{name.replace('_', '-')}")


if __name__ == "__main__":
    sys.exit(main())
