"""`python -m splitpu.reproduce`: `splitpu reproduce` on machines that have torch but not the command-line library.

The options are the fields of the dataclasses in `command`, so that they are listed once; `splitpu reproduce run --help`
says what they mean.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from splitpu.cli import reader_has_gone
from splitpu.errors import SplitPUError
from splitpu.reproduce import command
from splitpu.reproduce.command import DOCS, RESULTS, DataPlaces, Session, UnitChoice

# What each command is given after the names of experiments, where it takes these, and before folders.
_COMMANDS: dict[str, tuple[Callable[..., int], tuple[type, ...]]] = {
    "run": (command.run_politely, (UnitChoice, DataPlaces, Session)),
    "plan": (command.plan, (UnitChoice, DataPlaces)),
    "list": (command.list_units, (UnitChoice,)),
    "choose": (command.choose, ()),
    "smoke": (command.smoke, ()),
    "render": (command.render, ()),
}
_NAMED = ("run", "plan", "list", "choose")
_READ: dict[Any, Callable[[str], Any]] = {int: int, float | None: float, Path | None: Path}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the words ask for; what a user did wrong is one sentence and code 2."""
    given = vars(_parser().parse_args(argv))
    carry_out, kinds = _COMMANDS[given.pop("command")]
    try:
        names = [",".join(given.pop("names"))] if "names" in given else []
        options = [kind(**{f.name: given.pop(f.name) for f in fields(kind) if f.name in given}) for kind in kinds]
        code = carry_out(*names, *options, **given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_has_gone()
    except SplitPUError as error:
        print(f"splitpu: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m splitpu.reproduce", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, kinds) in _COMMANDS.items():
        words = commands.add_parser(name, argument_default=argparse.SUPPRESS)
        if name in _NAMED:
            words.add_argument("names", nargs="*", metavar="NAME", default=[])
        for field in (field for kind in kinds for field in fields(kind)):
            flag: dict[str, Any] = {"type": _READ.get(field.type, str)}
            words.add_argument(_spelled(field.name), **({"action": "store_true"} if field.type is bool else flag))
        for folder, usual in (("results", RESULTS), ("docs", DOCS)):
            if name != "smoke" and (folder == "results" or name == "render"):
                words.add_argument(_spelled(folder), type=Path, default=usual)
    return parser


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


if __name__ == "__main__":
    sys.exit(main())
