"""Answers of reviewers: a journal to which every answer is added and from which nothing is ever taken away.

A line is on disk before its answer counts. Undoing is a line, too, so two tabs or two reviewers never overwrite each
other: each answers for themselves, and what counts is read from the whole journal. `answers.csv` is made from it."""

import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from splitpu.data.tables.read import write_csv
from splitpu.errors import InputError
from splitpu.utils.files import disk_errors_in_words, replacing, sync_folder
from splitpu.utils.reading import MOST_LINE, Guarded, checked, json_loads, sealed
from splitpu.utils.text import printable

Answer = Literal["positive", "negative", "skip", "undo"]
Verdict = Literal["positive", "negative", "disagreement"]
JOURNAL, TABLE = "answers.jsonl", "answers.csv"
SIGN = {"positive": 1, "negative": -1}
LONGEST_NAME = 60  # letters of a reviewer's name
_ADVICE = "take the line out by hand, or restore the file"


@dataclass(frozen=True)
class Entry:
    """One line of the journal."""

    index: int  # of the training row
    name: str
    answer: Answer
    reviewer: str
    order: str = ""  # in which order samples were shown
    why: str = ""  # this one was asked
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))

    def __post_init__(self) -> None:
        if self.answer not in get_args(Answer):
            raise InputError(f"{self.answer!r:.40} is no answer: one of {', '.join(get_args(Answer))}")
        if not self.reviewer or self.reviewer != printable(self.reviewer).strip() or len(self.reviewer) > LONGEST_NAME:
            raise InputError(
                f"{self.reviewer!r:.80} is no name for a reviewer: give up to {LONGEST_NAME} letters (--as NAME)"
            )


@dataclass(frozen=True)
class Said:
    """What is known of one sample: what each reviewer said last, in the order in which they said it."""

    index: int
    name: str
    by: Mapping[str, Entry]  # reviewer -> their answer that counts

    @property
    def verdict(self) -> Verdict | None:
        """What all of them say; None where nobody decided."""
        words: set[Verdict] = {"positive", "negative"} & {entry.answer for entry in self.by.values()}  # type: ignore[assignment]
        return "disagreement" if len(words) > 1 else next(iter(words), None)


class Journal:
    """The answers about one run. Several processes may add to one journal; each reads what the others wrote."""

    def __init__(self, folder: Path, rows: int | None = None) -> None:
        self.path, self.table, self.rows = folder / JOURNAL, folder / TABLE, rows
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._read = 0  # bytes of it

    def add(self, entry: Entry) -> None:
        """Write one answer down; it is on disk when this returns."""
        if self.rows is not None and not 0 <= entry.index < self.rows:
            raise InputError(f"there is no training row {entry.index}: the run has {self.rows:,}")
        line = json.dumps(sealed(asdict(entry)), ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
        with self._lock, disk_errors_in_words(self.path, advice="make room or make it writable, and answer again."):
            is_new = not self.path.exists()
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                size = os.fstat(handle).st_size
                # What a killed process left unfinished was never confirmed to anybody; it keeps a line of its own.
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                os.write(handle, b"\n" + line if torn else line)  # one write at the end: nothing comes between
                os.fsync(handle)
            finally:
                os.close(handle)
            if is_new:
                sync_folder(self.path.parent)

    def undo(self, reviewer: str, order: str = "") -> Entry | None:
        """Take the last answer of a reviewer back; gives what it was, or None where there is none."""
        last = self.last(reviewer)
        if last is not None:
            self.add(Entry(last.index, last.name, "undo", reviewer, order))
        return last

    def last(self, reviewer: str) -> Entry | None:
        """The reviewer's last answer that was not taken back."""
        stack = [entry for entry in _standing(self.entries()) if entry.reviewer == reviewer]
        return stack[-1] if stack else None

    def entries(self) -> list[Entry]:
        """Every line, in the order in which they were written; only what is new is read."""
        with self._lock:
            guarded = Guarded(self.path, _ADVICE)
            try:
                with guarded.opened(MOST_LINE) as file:
                    size = os.fstat(file.fileno()).st_size
                    if size < self._read:
                        guarded.refuse("it became shorter while it was in use")
                    file.seek(self._read)
                    text = file.read()
            except FileNotFoundError:
                return list(self._entries)
            whole = text.rfind(b"\n") + 1
            for line in text[:whole].split(b"\n"):
                if line.strip():
                    self._entries += _entry_of(line, guarded)
            self._read += whole
            return list(self._entries)

    def said(self) -> dict[int, Said]:
        """What is known of every sample that was asked about, by its row."""
        found: dict[int, dict[str, Entry]] = {}
        for entry in _standing(self.entries()):
            found.setdefault(entry.index, {})[entry.reviewer] = entry
        return {row: Said(row, next(iter(by.values())).name, by) for row, by in found.items()}

    def labels(self) -> tuple[tuple[int, int], ...]:
        """Rows with the label that all reviewers gave them, 1 or -1, in the order of the rows."""
        verdicts = ((row, said.verdict) for row, said in self.said().items())
        return tuple(sorted((row, SIGN[verdict]) for row, verdict in verdicts if verdict in SIGN))

    def write_table(self) -> None:
        """Make `answers.csv` of the journal."""
        heading, lines = ["index", "name", "answer", "reviewers", "said", "order", "time"], []
        for row, said in sorted(self.said().items()):
            words, last = " ".join(one.answer for one in said.by.values()), list(said.by.values())[-1]
            lines.append((row, said.name, said.verdict or "skip", ", ".join(said.by), words, last.order, last.time))
        with replacing(self.table) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            write_csv(file, heading, lines)


def _standing(entries: Sequence[Entry]) -> Iterable[Entry]:
    """The entries that were not taken back: an undo takes the last one of its reviewer about that sample."""
    stack: list[Entry | None] = []
    places: dict[tuple[str, int], list[int]] = {}
    for entry in entries:
        mine = places.setdefault((entry.reviewer, entry.index), [])
        if entry.answer == "undo":
            if mine:
                stack[mine.pop()] = None
            continue
        mine.append(len(stack))
        stack.append(entry)
    return [entry for entry in stack if entry is not None]


def _entry_of(line: bytes, guarded: Guarded) -> list[Entry]:
    """The entry of a line; none of one that was never finished."""
    try:
        found: Any = json_loads(line)
    except (ValueError, RecursionError):
        if line.rstrip().endswith(b"}"):
            guarded.refuse(f"a line is damaged: {line[:60]!r}")
        return []
    content = guarded.unsealed(found)
    with guarded.understood():
        kinds = {"index": int, **dict.fromkeys(("name", "answer", "reviewer", "order", "why", "time"), str)}
        checked(content, kinds)
        return [Entry(**content)]
