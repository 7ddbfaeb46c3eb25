"""What is said about files that are not used, and about pictures that should not be there twice."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from splitpu.data.images import IN_WORDS
from splitpu.data.scanning import Skipped
from splitpu.listing import listed


def skipped_in_words(
    skipped: Sequence[Skipped], which: str, rows: Literal["images", "volumes"] = "images"
) -> list[str]:
    """A sentence about bad files and one about files that are fine but no part of a row, as far as there are any.

    >>> skipped_in_words([Skipped("a.png", "is empty")], "test")
    ['1 test file was skipped: a.png is empty.']
    """
    bad = [f"{entry.name} {entry.why}" for entry in skipped if entry.bad]
    others = [entry for entry in skipped if not entry.bad]
    said = []
    if bad:
        were = "files were" if len(bad) > 1 else "file was"
        said.append(f"{len(bad):,} {which} {were} skipped: {listed(bad, separator='; ')}.")
    if others:
        unused = f"of other kinds than {IN_WORDS} are not used: {kinds_of(others)}"
        if rows == "volumes":  # where endings of names say little
            unused = f"that are not part of a volume: {_reasons_of(others)}"
        said.append(f"{which} files {unused}.")
    return said


def kinds_of(entries: Sequence[Skipped]) -> str:
    """Endings of file names, the most frequent first, each with its number.

    >>> kinds_of([Skipped("a.bmp", ""), Skipped("notes", ""), Skipped("b.BMP", "")])
    '2 .bmp, 1 without ending'
    """
    counted = Counter(Path(entry.name).suffix.lower() or "without ending" for entry in entries)
    return listed([f"{count:,} {ending}" for ending, count in counted.most_common()])


def _reasons_of(entries: Sequence[Skipped]) -> str:
    """Why they are not used, the most frequent reason first, each with its number."""
    return listed([f"{count:,} ({why})" for why, count in Counter(entry.why for entry in entries).most_common()])


def leak_in_words(pairs: Sequence[tuple[str, str]], what: str, where: str, advice: str) -> list[str]:
    """A sentence about equal pictures or patients, which `what` says in the singular, if there are any."""
    if not pairs:
        return []
    pictures = f"{what}s are" if len(pairs) > 1 else f"{what} is"
    shown = [f"{first} = {second}" for first, second in pairs]
    return [f"{len(pairs):,} {pictures} {where} ({listed(shown)}): {advice}."]
