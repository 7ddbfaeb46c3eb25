"""Everything that is read back goes through here: a file is believed only once it has been looked at.

Only regular files are opened (a pipe would wait for ever, a device never end), none larger than what may be in it, and
none is taken for text that is not. What is wrong is one sentence with the file, the place in it and what to do.

Files that only this package writes carry a seal, a checksum of what they say: one flipped bit is refused."""

import csv
import hashlib
import json
import math
import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TextIO, TypeVar, Union, get_args, get_origin

from splitpu.errors import InputError, SplitPUError
from splitpu.utils.files import replacing, write_text

SEAL = "sha256"  # the last entry of a sealed file
MOST_TEXT = 1 << 25  # bytes of a JSON or TOML file; as Python objects they take twenty times as many
MOST_LINE = 1 << 26  # bytes of a line of a table
DEEPEST = 50  # lists and tables inside one another, or parts of a dotted key
LARGEST = 2**1000  # beyond, a number cannot be computed with
UNPACKED = 1 << 29  # bytes that any compressed file may grow to
TIMES_PACKED = 16  # a larger one may grow to as many times its size
LIMIT = "SPLITPU_UNPACK_GB"  # the environment variable that raises the limit
COPY_AGAIN = "copy the run folder again, or train a new run"
ROW_CHECKSUM = 16  # bytes

Content = TypeVar("Content")
_MARK = 32  # bytes of a checksum behind what it is of
_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "nothing"}


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file to read; whatever else may lie there is never waited for. Raises OSError as `open` does."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is not a regular file, but a folder, a pipe or a device", str(path))
    return os.fdopen(handle, "rb")


class Guarded:
    """One file to be read back. What is wrong with it is said as `error`, with the advice; `missing`, if it is."""

    def __init__(
        self, path: Path, advice: str = COPY_AGAIN, error: type[InputError] = InputError, *, missing: str = ""
    ) -> None:
        self.path, self.advice, self._error, self._missing = path, advice, error, missing

    def refuse(self, why: object) -> NoReturn:
        reason = " ".join(str(why).split())[:300]
        raise self._error(f"{self.path} cannot be read ({reason}); {self.advice}.") from None

    @contextmanager
    def understood(self) -> Iterator[None]:
        """What goes wrong inside the block while the content is being taken apart is the file's fault."""
        try:
            yield
        except InputError as error:
            if isinstance(error, self._error) and str(self.path) in str(error):
                raise
            self.refuse(error)
        except (OSError, MemoryError, SplitPUError):
            raise
        except Exception as error:  # a damaged file may make whoever reads it raise anything
            self.refuse(f"it has no entry {error}" if isinstance(error, KeyError) else error)

    @contextmanager
    def opened(self, most: int | None = None) -> Iterator[BufferedReader]:
        """The file, open; refused where it is none or too large, and without words for it FileNotFoundError."""
        try:
            file = open_regular(self.path)
        except (OSError, ValueError) as error:
            is_missing = isinstance(error, FileNotFoundError)
            if is_missing and not self._missing:
                raise
            self.refuse(self._missing if is_missing else getattr(error, "strerror", None) or error)
        with file:
            if most is not None and os.fstat(file.fileno()).st_size > most:
                self.refuse(f"it is larger than the {most >> 20} MB that such a file may have")
            yield file

    def raw(self, most: int | None = None) -> bytes:
        with self.opened(most) as file:
            try:
                return file.read()
            except (OSError, MemoryError) as error:
                self.refuse(error)

    def text(self, most: int = MOST_TEXT) -> str:
        """All of it, which must be UTF-8; some editors put a byte-order mark first."""
        content = self.raw(most)
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            self.refuse(f"line {line} is not text in UTF-8")

    def checksum(self) -> str:
        with self.opened() as file:
            try:
                return hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                self.refuse(error)

    def json(self, most: int = MOST_TEXT) -> Any:
        """The content of a JSON file, no deeper and with no larger numbers than can be dealt with."""
        return self._parsed(self.text(most), json_loads)

    def sealed_lines(self, *, cut_short: bool = False) -> Iterator[dict[str, Any]]:
        """The content of a file with a sealed JSON value a line; a killed process may have `cut_short` the last."""
        *lines, last = self.text(MOST_LINE).split("\n")
        for number, line in enumerate(lines if cut_short else [*lines, last], start=1):
            if line.strip():
                yield self.unsealed(self._parsed(line, json_loads, f"line {number}: "), f"line {number}: ")

    def toml(self) -> dict[str, Any]:
        return self._parsed(self.text(), toml_loads)

    def sealed(self) -> dict[str, Any]:
        """The content of a file that `write_sealed` wrote; refused if one letter of it is another."""
        return self.unsealed(self.json())

    def unsealed(self, found: Any, place: str = "") -> dict[str, Any]:
        """What lies under the seal of a content that was read already."""
        if not isinstance(found, dict) or not isinstance(found.get(SEAL), str):
            self.refuse(f"{place}its checksum is missing: it is damaged, or of another version of splitpu")
        content = {name: value for name, value in found.items() if name != SEAL}
        if found[SEAL] != digest_of(content):
            self.refuse(f"{place}it is not what was written: its checksum does not fit, so it is damaged or changed")
        return content

    def rows(self) -> list[dict[str, str]]:
        """The lines of a CSV file by the names of its columns."""
        with self.opened() as file, self.understood(), as_text(file) as text:
            try:
                return list(csv.DictReader(short_lines(text), strict=True))
            except csv.Error as error:
                self.refuse(error)

    def _parsed(self, text: str, parse: Callable[[str], Content], place: str = "") -> Content:
        try:
            return parse(text)
        except ValueError as error:
            self.refuse(f"{place}{error}")


def json_loads(text: str | bytes) -> Any:
    """As `json.loads`, for text that nobody vouches for: raises ValueError for all that is wrong with it."""
    return _parsed(lambda: json.loads(text))


def toml_loads(text: str) -> dict[str, Any]:
    """As `tomllib.loads`, for text that nobody vouches for: raises ValueError for all that is wrong with it."""
    for line in text.splitlines():
        key = line.partition("=")[0]
        if key.count(".") > DEEPEST and not key.lstrip().startswith("#"):  # tomllib takes minutes over thousands
            raise ValueError(f"a key has more than {DEEPEST} parts: {key.strip()[:40]}...")
    return _parsed(lambda: tomllib.loads(text))


def _parsed(parse: Callable[[], Content]) -> Content:
    """What was read, once it is known to be neither too deep nor to hold a number that nothing can be done with."""
    try:
        found = parse()
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} deep") from None
    except MemoryError:
        raise ValueError("it needs more memory than there is") from None
    except ValueError as error:
        raise ValueError("a number has too many digits" if "string conversion" in str(error) else error) from None
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
            elif isinstance(one, float) and not math.isfinite(one):
                raise ValueError(f"it holds the number {one}, which cannot be computed with")
            elif isinstance(one, int) and abs(one) > LARGEST:
                raise ValueError("it holds a number that is too large to compute with")
        if not below:
            return found
        level = below
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def digest_of(content: Any) -> str:
    """A checksum of what JSON can hold, the same before it is written and after it is read."""
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def row_checksum(content: bytes) -> bytes:
    """A short checksum, by which equal rows and files are found among many."""
    return hashlib.blake2b(content, digest_size=ROW_CHECKSUM).digest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The same with its seal, in the form in which it will be read back."""
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return {**plain, SEAL: digest_of(plain)}


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file that `Guarded.sealed` reads, whole or not at all."""
    write_text(path, json.dumps(sealed(content), indent=2))


def write_marked(path: Path, content: bytes) -> None:
    """Write bytes with their checksum behind them, by which they are known to be whole and to be those of this name."""
    with replacing(path) as temporary:
        temporary.write_bytes(content + _mark(path, content))


def read_marked(path: Path) -> bytes | None:
    """What `write_marked` wrote; None where it is not there whole."""
    with suppress(OSError, InputError):
        found = Guarded(path).raw()
        return found[:-_MARK] if found[-_MARK:] == _mark(path, found[:-_MARK]) else None
    return None


def _mark(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + content).digest()


def checked(value: Any, kind: Any, place: str = "it") -> Any:
    """The value, if it is what the annotation says, as JSON has it; else a ValueError that names the place.

    A table of annotations is for a table that has to have these entries; a list of one for a list of such tables."""
    trouble = _misfit(value, kind, place)
    if trouble is not None:
        raise ValueError(trouble)
    return value


def _misfit(value: Any, kind: Any, place: str) -> str | None:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return None
    if isinstance(kind, dict):  # what some entries of a table have to be
        lacking = [name for name in kind if not isinstance(value, Mapping) or name not in value]
        found = [_misfit(value[name], one, f"{place}[{name!r}]") for name, one in kind.items() if not lacking]
        return f"{place} has no entry {lacking[0]!r}" if lacking else next(filter(None, found), None)
    if isinstance(kind, list):
        origin, inner = list, tuple(kind)
    if origin in (Union, UnionType):
        found = [_misfit(value, one, place) for one in inner]
        return None if None in found else found[0]
    if origin is Literal:
        return None if value in inner else f"{place} is {_short(value)}, not one of {inner}"
    if origin in (list, tuple, Sequence):
        if not isinstance(value, list | tuple):
            return f"{place} is {_short(value)}, not a list"
        if origin is tuple and inner[-1] is not Ellipsis and len(inner) != len(value):
            return f"{place} has {len(value)} entries, not {len(inner)}"
        kinds = inner[:1] * len(value) if origin is not tuple or inner[-1] is Ellipsis else inner
        parts: Iterator[tuple[object, Any, Any]] = zip(range(len(value)), value, kinds, strict=True)
    elif origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            return f"{place} is {_short(value)}, not a table"
        parts = ((repr(name), one, inner[1]) for name, one in value.items())
    else:
        fits = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
        return None if fits else f"{place} is {_short(value)}, not {_IN_WORDS[kind]}"
    wrong = (_misfit(one, own, f"{place}[{name}]") for name, one, own in parts)
    return next((trouble for trouble in wrong if trouble is not None), None)


def _short(value: Any) -> str:
    with suppress(Exception):
        words = repr(value)
        return words if len(words) < 40 else f"{words[:40]}..."
    return f"a {type(value).__name__}"


def most_unpacked(packed: int, times: int = TIMES_PACKED) -> int:
    """How many bytes a compressed file of so many may grow to before it is taken for one that is meant to do harm."""
    told = os.environ.get(LIMIT) or "0"
    try:
        raised = int(min(float(told), 1e6) * 2**30)
    except ValueError:
        raise InputError(f"the environment variable {LIMIT} is {told!r}: give a number of gigabytes.") from None
    return max(UNPACKED, times * packed, raised)


def too_much_unpacked(size: int) -> str:
    """What is wrong with a file that would grow so much."""
    advice = f"if it is meant to, set the environment variable {LIMIT}={math.ceil(size / 2**30)}"
    return f"unpacks to {size / 2**30:.1f} GB, far more than such a file usually does: {advice}"


def as_text(file: BufferedReader) -> TextIO:
    """Bytes as text in UTF-8, lines as they are."""
    return TextIOWrapper(file, encoding="utf-8-sig", newline="")


class TooLong(ValueError):
    """A line that no table has."""


def short_lines(text: TextIO) -> Iterator[str]:
    """Line by line; one of a gigabyte is refused before it is in memory."""
    for number, line in enumerate(iter(lambda: text.readline(MOST_LINE), ""), start=1):
        if len(line) == MOST_LINE:
            raise TooLong(f"line {number} is longer than {MOST_LINE >> 20} MB")
        yield line
