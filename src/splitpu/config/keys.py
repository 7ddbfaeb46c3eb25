"""The dotted keys of the configuration (`student.optimiser.rate`), taken from the dataclasses, and help with others."""

import dataclasses
import difflib
from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints

from splitpu.config.schema import Config
from splitpu.errors import InputError


def _is_section(annotation: Any) -> bool:
    return dataclasses.is_dataclass(annotation)


def _walk(section: type[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield every key below `section` with its annotation, sections before what they hold."""
    for name, annotation in get_type_hints(section).items():
        key = f"{prefix}{name}"
        yield key, annotation
        if _is_section(annotation):
            yield from _walk(annotation, f"{key}.")


_ANNOTATIONS: dict[str, Any] = dict(_walk(Config, ""))

# Keys that hold other keys, such as `student` and `student.optimiser`.
SECTIONS = frozenset(key for key, annotation in _ANNOTATIONS.items() if _is_section(annotation))

# Keys that hold one value, with the type that value must have.
VALUE_TYPES: dict[str, Any] = {key: annotation for key, annotation in _ANNOTATIONS.items() if key not in SECTIONS}


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Find the choice that was probably meant, so that an error can offer it; None when nothing is close.

    >>> nearest("NNPU", ["nnpu", "upu"])
    'nnpu'
    >>> nearest("banana", ["nnpu", "upu"]) is None
    True
    """
    by_lower_case = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), by_lower_case, n=1)
    return by_lower_case[close[0]] if close else None


def quoted_list(words: Iterable[str]) -> str:
    """Write words the way an error message lists them.

    >>> quoted_list(["nnpu", "upu"])
    "'nnpu', 'upu'"
    """
    return ", ".join(f"'{word}'" for word in words)


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """Say that there is no such thing of that name, and which one was probably meant or which ones there are.

    >>> str(unknown_name("method", "nnpuu", ["nnpu", "vpu"]))
    "there is no method 'nnpuu'; did you mean 'nnpu'?"
    """
    names = list(known)
    meant = nearest(name, names)
    advice = f"did you mean '{meant}'?" if meant else f"choose one of {quoted_list(names)}"
    return InputError(f"there is no {what} '{name}'; {advice}")


def unknown_key_error(key: str) -> InputError:
    """Say that `key` does not exist, and which key was probably meant or which ones there are."""
    meant = _nearest_keys(key)
    if meant:
        offer = f"'{meant[0]}'" if len(meant) == 1 else f"one of {quoted_list(meant)}"
        return InputError(f"unknown key '{key}'; did you mean {offer}?")
    section = _innermost_section(key)
    place = f"the keys of '{section}'" if section else "the top-level keys"
    return InputError(f"unknown key '{key}'; {place} are {quoted_list(keys_of_section(section))}")


def keys_of_section(section: str) -> list[str]:
    """List the names directly inside a section ('' for the top level), in the order of the dataclass."""
    prefix = f"{section}." if section else ""
    inside = (key.removeprefix(prefix) for key in _ANNOTATIONS if key.startswith(prefix))
    return [name for name in inside if "." not in name]


def _nearest_keys(key: str) -> list[str]:
    """What was probably meant: one key, or those of a name that several sections have (`epochs`)."""
    section = _innermost_section(key)
    last_name = key.rpartition(".")[2].lower().replace("-", "_")
    inside = [known for known in _ANNOTATIONS if section and known.startswith(f"{section}.")]
    # The right name in the wrong place (`tau` for `split.tau`) is likelier than a misspelling that looks alike, and
    # part of a name in the right section (`split.epochs` for `split.max_epochs`) likelier than another section.
    same_name_inside = [known for known in inside if known.rpartition(".")[2] == last_name]
    part_inside = [known for known in inside if last_name in known.rpartition(".")[2].split("_")]
    same_name = [known for known in _ANNOTATIONS if known.rpartition(".")[2] == last_name]
    if "." not in key and len(same_name) > 1:
        return same_name
    for found in (same_name_inside, part_inside, same_name):
        if found:
            return [max(found, key=lambda known: difflib.SequenceMatcher(None, key, known).ratio())]
    meant = nearest(key, _ANNOTATIONS)
    return [] if meant is None else [meant]


def _innermost_section(key: str) -> str:
    while key:
        key = key.rpartition(".")[0]
        if key in SECTIONS:
            return key
    return ""
