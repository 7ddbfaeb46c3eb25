"""What is said about files that are not used, and about pictures that should not be there twice."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from splitpu.data.images import IN_WORDS
from splitpu.data.scanning import Skipped

MOST_NAMES_SHOWN = 5


def skipped_in_words(skipped: Sequence[Skipped], which: str) -> list[str]:
    """A sentence about bad files and one about files of other kinds, as far as there are any.

    >>> skipped_in_words([Skipped("a.png", "is empty")], "test")
    ['1 test file was skipped: a.png is empty.']
    """
    bad = [f"{entry.name} {entry.why}" for entry in skipped if entry.bad]
    others = [entry for entry in skipped if not entry.bad]
    said = []
    if bad:
        were = "files were" if len(bad) > 1 else "file was"
        said.append(f"{len(bad):,} {which} {were} skipped: {listed(bad, '; ')}.")
    if others:
        said.append(f"{which} files of other kinds than {IN_WORDS} are not used: {kinds_of(others)}.")
    return said


def kinds_of(entries: Sequence[Skipped]) -> str:
    """Endings of file names, the most frequent first, each with its number.

    >>> kinds_of([Skipped("a.bmp", ""), Skipped("notes", ""), Skipped("b.BMP", "")])
    '2 .bmp, 1 without ending'
    """
    counted = Counter(Path(entry.name).suffix.lower() or "without ending" for entry in entries)
    return listed([f"{count:,} {ending}" for ending, count in counted.most_common()])


def leak_in_words(pairs: Sequence[tuple[str, str]], where: str, advice: str) -> list[str]:
    """A sentence about equal pictures, if there are any."""
    if not pairs:
        return []
    pictures = "pictures are" if len(pairs) > 1 else "picture is"
    shown = [f"{first} = {second}" for first, second in pairs]
    return [f"{len(pairs):,} {pictures} {where} ({listed(shown)}): {advice}."]


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """The first few of them."""
    shown = separator.join(names[:MOST_NAMES_SHOWN])
    return f"{shown}{separator}..." if len(names) > MOST_NAMES_SHOWN else shown
