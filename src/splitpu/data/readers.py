"""What the cache of decoded rows needs to know of a kind of input: how to find, describe and decode it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.image_headers import Headers
from splitpu.data.images import Header, Remark
from splitpu.data.scanning import Skipped

Watch = Callable[[str, int, int], None]  # what is being done, how many are done, of how many


class RowSpec(Protocol):
    """The one form that all rows of a set are brought into."""

    @property
    def kind(self) -> Literal["images", "volumes"]:
        """What the rows are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""

    @property
    def height(self) -> int:
        """Of an image or a slice."""

    @property
    def width(self) -> int:
        """Of an image or a slice."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""


class RowFile(Protocol):
    """What one row is made from: a file, or the files of a patient."""

    @property
    def name(self) -> str:
        """As it is called in everything that is written."""

    @property
    def given_name(self) -> str:
        """As it is called on the disk, by which a list of labels may know it."""

    @property
    def path(self) -> str:
        """Where it lies: a file, or a patient's folder."""

    @property
    def folder(self) -> int:
        """Which of the given folders it lies in."""

    @property
    def source(self) -> Any:
        """What the reader is given; it may travel to another process."""

    @property
    def stamp(self) -> str:
        """What tells quickly whether it changed."""


class FoundRows(NamedTuple):
    """All that lies in some folders."""

    files: Sequence[RowFile]
    skipped: Sequence[Skipped]


class Accounted(NamedTuple):
    """The rows under the names they may be called by, and what there is to say about what they were made from."""

    files: Sequence[RowFile]
    skipped: Sequence[Skipped] = ()
    warnings: Sequence[str] = ()
    parts: int = 0  # how many files the rows were made from, if more than one makes a row


class Reader(Protocol):
    """One kind of input. Its repr names everything that its rows depend on; it may travel to another process."""

    @property
    def store(self) -> str:
        """The folder in the cache."""

    @property
    def noun(self) -> str:
        """What its files are called in messages."""

    @property
    def looked_for(self) -> str:
        """The same, with the kinds of files that are read."""

    @property
    def files_a_task(self) -> int:
        """How many files are worth handing to a process at a time."""

    @property
    def fewest_for_processes(self) -> int:
        """The number of files below which starting processes takes longer than they save."""

    def require(self) -> None:
        """Say which extra to install, before anything is begun that needs it."""

    def find(self, folders: Sequence[str | Path]) -> FoundRows:
        """Everything of this kind in the folders."""

    def header(self, source: Any) -> Header:
        """What can be known without decoding; raises BadImage for what cannot give a row."""

    def choose(self, headers: Headers, size: tuple[int, int] | None) -> RowSpec:
        """The form for a set."""

    def stored_spec(self, stored: Mapping[str, Any]) -> RowSpec:
        """What `to_dict` of a form made, read back."""

    def decode(self, source: Any, spec: Any) -> tuple[Array, Sequence[Remark]]:
        """The values in the form asked for; raises BadImage where there are none."""

    def account(
        self, files: Sequence[RowFile], remarks: Mapping[int, Sequence[Remark]], reasons: Mapping[int, str]
    ) -> Accounted:
        """Turn what was remarked on into words; `files` are all that were found, those with a reason give no row."""
