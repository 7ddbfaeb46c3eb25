"""The errors a user can cause, each one sentence long: what was given, what is wrong with it, what to do."""

import importlib
from typing import Any

NO_MEMORY = "there is not enough memory for this: free some, or give fewer or smaller rows; a run that was begun stays."


class SplitPUError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(SplitPUError, ValueError):
    """Something the user gave (data, labels, option, file) cannot be used as it is."""


class ModelFileError(InputError):
    """A model file is cut short, of another version, or not a model file at all."""


class DataGone(InputError):
    """The files that a run was begun with are no longer where it found them."""


class DiskError(InputError):
    """The disk is full or a place may not be written; what is there already stays, to be gone on with."""


class DiskFull(DiskError):
    """There is no room left: what could not be written, and what to do about it."""

    def __init__(self, wrong: str, advice: str = "free some space and run the command again.") -> None:
        super().__init__(wrong, advice)
        self.wrong, self.advice = wrong, advice

    def __str__(self) -> str:
        return f"the disk is full: {self.wrong}; {self.advice}"


class MissingExtraError(SplitPUError, ImportError):
    """An optional dependency is needed for this input; the message says which extra to install."""


def from_extra(package: str, extra: str, what_for: str) -> Any:
    """A package that not everybody has, or a sentence on what it is needed for and which extra brings it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(f"{what_for}: pip install 'splitpu[{extra}]'.") from error


class Interrupted(SplitPUError):
    """The run was asked to stop and has saved its state."""


class RankLost(SplitPUError):
    """Another process of a run in several processes has ended, so that this one cannot go on."""


class SomeRunsFailed(SplitPUError):
    """Of several runs some failed, each for the reason in `failed`; the others are in `finished`.

    Both are by the number of the run, counted from 0 in the order they were given."""

    def __init__(self, sentence: str, failed: dict[int, Exception], finished: dict[int, Any]) -> None:
        super().__init__(sentence)
        self.failed, self.finished = failed, finished


def about_memory(error: BaseException) -> bool:
    """Whether memory ran out. A GPU's has an error of its own; that of a CPU is known by its words."""
    known = ("DefaultCPUAllocator", "can't start new thread", "std::bad_alloc", "Unable to allocate", "map segment")
    return type(error).__name__ in ("MemoryError", "OutOfMemoryError") or any(word in str(error) for word in known)


class SplitPUWarning(UserWarning):
    """Base of every warning this package gives."""
