"""When files that cannot be used are too many to be skipped, and what is said then."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from splitpu.data.scanning import Skipped
from splitpu.errors import InputError
from splitpu.listing import listed

MOST_SKIPPED = 0.1  # share of bad files that is skipped; more of them hint at a mistake
_OF_OTHER_SERIES = re.compile(r"has no series whose description contains (?P<wanted>.+) \(there are: (?P<there>.+)\)")
_DESCRIPTION = re.compile(r"('.*?'|\".*?\") with \d+ slices")


@dataclass(frozen=True)
class Side:
    """The files of some of the folders: those of positives, say."""

    where: str  # the folders, for messages
    files: int
    bad: Sequence[Skipped]


def bad_ones(entries: Sequence[Skipped]) -> list[Skipped]:
    """Those that were meant to be images."""
    return [entry for entry in entries if entry.bad]


def refuse_first(bad: Sequence[Skipped]) -> NoReturn:
    """What `--strict` does."""
    raise InputError(f"{bad[0].name} {bad[0].why}; remove it, or leave out --strict to skip such files.")


def refuse_too_many(side: Side, noun: str) -> None:
    """Stop where more than a tenth of the files of a side are bad; `noun` is what they are called."""
    if len(side.bad) <= MOST_SKIPPED * side.files:
        return
    shown = f"{_shown(side.bad)}: repair or remove them."
    if len(side.bad) < side.files:
        raise InputError(
            f"{len(side.bad):,} of {side.files:,} {noun} in {side.where} cannot be used, more than the "
            f"{MOST_SKIPPED:.0%} that are skipped {shown}"
        )
    _refuse_other_series(side)
    all_of_them = noun if side.files == 1 else f"{side.files:,} {noun}"
    raise InputError(f"none of the {all_of_them} in {side.where} can be used {shown}")


def _shown(bad: Sequence[Skipped]) -> str:
    shown = "; ".join(f"{entry.name} {entry.why}" for entry in bad[:3])
    return f"({shown}{'; ...' if len(bad) > 3 else ''})"


def _refuse_other_series(side: Side) -> None:
    """Where no patient has a series of the description asked for, it is the description that is wrong."""
    found = [_OF_OTHER_SERIES.match(entry.why) for entry in side.bad]
    wanted = {one["wanted"] for one in found if one is not None}
    if None in found or len(wanted) != 1:
        return
    there = sorted({text for one in found if one is not None for text in _DESCRIPTION.findall(one["there"])})
    raise InputError(
        f"no series in {side.where} has a description that contains {wanted.pop()} (there are: {listed(there)}): "
        "give patients who have it, or train with --series and a part of one of these."
    )
