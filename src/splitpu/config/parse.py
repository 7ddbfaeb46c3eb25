"""The configuration as dict, as TOML and as `section.key=value`: everything that comes in is checked, and what goes out
comes back the same. Its dotted keys (`student.optimiser.rate`) are taken from the dataclasses."""

import dataclasses
import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from numbers import Integral, Real
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from splitpu.config.schema import LATER_KEYS, LEARNER_METHODS, METHOD_NAMES, Config, Range
from splitpu.errors import InputError
from splitpu.utils.reading import Guarded, toml_loads


def _walk(section: type[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield every key below `section` with its annotation, sections before what they hold."""
    for name, annotation in get_type_hints(section, include_extras=True).items():
        key = f"{prefix}{name}"
        yield key, annotation
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            yield from _walk(annotation, f"{key}.")


_ANNOTATIONS: dict[str, Any] = dict(_walk(Config, ""))
# Keys that hold other keys, such as `student` and `student.optimiser`.
SECTIONS = frozenset(key for key, annotation in _ANNOTATIONS.items() if dataclasses.is_dataclass(annotation))
# Keys of numbers, with the range that makes sense for each; a key's type is checked before its range.
RANGES: dict[str, Range] = {
    key: annotation.__metadata__[0] for key, annotation in _ANNOTATIONS.items() if get_origin(annotation) is Annotated
}
# Keys that hold one value, with the type that value must have.
VALUE_TYPES: dict[str, Any] = {
    key: annotation.__origin__ if key in RANGES else annotation
    for key, annotation in _ANNOTATIONS.items()
    if key not in SECTIONS
}
# Who says how networks are trained wants them trained.
_OF_SPLIT = ("split.max_epochs", "split.batch_size", "split.optimiser")
_OF_NETWORKS = ("members", "base", "student", "warmup", "views", *_OF_SPLIT)
Section = TypeVar("Section")


def nearest(word: str, choices: Iterable[str], alike: float = 0.6) -> str | None:
    """Find the choice that was probably meant, so that an error can offer it; None when nothing is close."""
    by_lower_case = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), by_lower_case, n=1, cutoff=alike)
    return by_lower_case[close[0]] if close else None


def quoted_list(words: Iterable[str]) -> str:
    """Write words the way an error message lists them."""
    return ", ".join(f"'{word}'" for word in words)


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """Say that there is no such thing of that name, and which one was probably meant or which ones there are."""
    names = list(known)
    meant = nearest(name, names)
    advice = f"did you mean '{meant}'?" if meant else f"choose one of {quoted_list(names)}"
    return InputError(f"there is no {what} '{name}'; {advice}")


def unknown_key_error(key: str) -> InputError:
    """Say that `key` does not exist, and which key was probably meant or which ones there are."""
    section = key
    while section and section not in SECTIONS:
        section = section.rpartition(".")[0]
    meant = _nearest_keys(key, section)
    if meant:
        offer = f"'{meant[0]}'" if len(meant) == 1 else f"one of {quoted_list(meant)}"
        return InputError(f"unknown key '{key}'; did you mean {offer}?")
    place = f"the keys of '{section}'" if section else "the top-level keys"
    return InputError(f"unknown key '{key}'; {place} are {quoted_list(keys_of_section(section))}")


def keys_of_section(section: str) -> list[str]:
    """List the names directly inside a section ('' for the top level), in the order of the dataclass."""
    prefix = f"{section}." if section else ""
    inside = (key.removeprefix(prefix) for key in _ANNOTATIONS if key.startswith(prefix))
    return [name for name in inside if "." not in name]


def _nearest_keys(key: str, section: str) -> list[str]:
    """What was probably meant: one key, or those of a name that several sections have (`epochs`)."""
    last_name = key.rpartition(".")[2].lower().replace("-", "_")
    names = {known: known.rpartition(".")[2] for known in _ANNOTATIONS}
    same_name = [known for known, name in names.items() if name == last_name]
    if "." not in key and len(same_name) > 1:
        return same_name
    # The right name in the wrong place (`tau` for `split.tau`) is likelier than a misspelling that looks alike, and
    # part of a name in the right section (`split.epochs` for `split.max_epochs`) likelier than another section.
    inside = {known: name for known, name in names.items() if section and known.startswith(f"{section}.")}
    same_name_inside = [known for known, name in inside.items() if name == last_name]
    part_inside = [known for known, name in inside.items() if last_name in name.split("_")]
    for found in (same_name_inside, part_inside, same_name):
        if found:
            return [max(found, key=lambda known: difflib.SequenceMatcher(None, key, known).ratio())]
    meant = nearest(key, _ANNOTATIONS)
    return [] if meant is None else [meant]


def config_from_dict(settings: Mapping[str, Any], base: Config | None = None) -> Config:
    """Lay settings over `base` (the defaults if not given), refusing what is misspelt, mistyped or out of range.

    Keys may be nested, dotted or both, so that what `config_differences` gives can be read back.

    >>> config_from_dict({"rounds": 1, "student": {"epochs": 20}, "base.optimiser.rate": 1e-4}).student.epochs
    20
    """
    values: dict[str, Any] = {}
    for key, value in flattened(settings):
        if key in values:
            raise InputError(f"key '{key}' is given twice; keep one of {values[key]!r} and {value!r}")
        values[key] = _checked(key, value)
    start = base if base is not None else Config()
    if start.learner == "auto" and any(f"{key}.".startswith(f"{name}.") for key in values for name in _OF_NETWORKS):
        values.setdefault("learner", "network")
    made = _replaced(start, "", values)
    learned = made.method in LEARNER_METHODS or (made.method == "split-pu" and made.learner != "network")
    if made.threshold == "f1" and "threshold" not in values and not learned:
        return dataclasses.replace(made, threshold="prior")  # the cut of tables goes with their learners
    return made


def config_to_dict(config: Config) -> dict[str, Any]:
    """Give the configuration as nested plain dicts, for JSON and for model files."""
    return dataclasses.asdict(config)


def settings_in_names(config: Config) -> dict[str, Any]:
    """The configuration as results and stages are named by it: without later keys that stand at their default."""
    settings = config_to_dict(config)
    for key, default in LATER_KEYS.items():
        section, _, name = key.rpartition(".")
        place = settings[section] if section else settings
        if place[name] == default:
            del place[name]
    return settings


def validate_config(config: Config) -> Config:
    """Check a configuration that was built in Python, where the dataclasses themselves check nothing."""
    return config_from_dict(config_to_dict(config))


def flattened(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every value in nested settings; every key yielded exists."""
    for name, value in settings.items():
        key = f"{prefix}{name}"
        if key in SECTIONS:
            if not isinstance(value, Mapping):
                instead = f"set one of its keys instead, such as '{key}.{keys_of_section(key)[0]}'"
                raise InputError(f"'{key}' is a section, not a single value (got {value!r}); {instead}")
            yield from flattened(value, f"{key}.")
        elif key not in VALUE_TYPES:
            raise unknown_key_error(key)
        else:
            yield key, value


def _replaced(section: Section, prefix: str, values: Mapping[str, Any]) -> Section:
    """Copy a section with the values of its keys, and of the sections inside it, replaced."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(section):  # type: ignore[arg-type]  # every section is a dataclass
        key = f"{prefix}{field.name}"
        if key in SECTIONS:
            changes[field.name] = _replaced(getattr(section, field.name), f"{key}.", values)
        elif key in values:
            changes[field.name] = values[key]
    return dataclasses.replace(section, **changes)  # type: ignore[type-var]


def _checked(key: str, value: Any) -> Any:
    """Return the value as exactly the type its key is declared with, or say what the key takes."""
    kind = VALUE_TYPES[key]
    if key == "labelled_by":  # names of the user's; a number is one, too
        return str(value)
    if kind is str or get_origin(kind) is Literal:
        choices = METHOD_NAMES if kind is str else get_args(kind)
        # The type is compared, too: a numpy string or an enum that equals a choice would not survive the way to TOML.
        if type(value) is str and value in choices:
            return value
        meant = nearest(str(value), choices)
        advice = f"did you mean '{meant}'?" if meant else "choose one of these"
        raise InputError(f"{key} = {value!r} is not one of {quoted_list(choices)}; {advice}")
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise InputError(f"{key} = {value!r} cannot be used; give true or false, unquoted and in lower case in TOML")
    number = _number(value, whole=kind is int)
    if number is None or number not in RANGES[key]:
        what = "a whole number" if kind is int else "a number"
        raise InputError(f"{key} = {value!r} cannot be used; give {what} that is {RANGES[key]}")
    return number


def _number(value: Any, *, whole: bool) -> float | int | None:
    """The finite number that a value is, if it is one; `epochs = true` is one in Python, and always a mistake."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if whole and isinstance(value, Integral):
        return int(value)
    try:
        number = float(value)
    except OverflowError:  # an integer too large for a float
        return None
    if not math.isfinite(number) or (whole and not number.is_integer()):
        return None
    return int(number) if whole else number


def read_config(path: str | Path, base: Config | None = None) -> Config:
    """Read a TOML file of settings and lay them over `base`; every error names the file."""
    try:
        settings = Guarded(Path(path), "correct it there").toml()
    except FileNotFoundError:
        raise InputError(f"configuration file '{path}' does not exist; check the path") from None
    except InputError as error:
        raise InputError(f"configuration file {error}") from None
    try:
        return config_from_dict(settings, base)
    except InputError as error:
        raise InputError(f"configuration file '{path}': {error}") from None


def config_to_toml(config: Config, *sections: str) -> str:
    """Write every setting, or those of some top-level keys, as TOML that `read_config` turns back into the same."""
    settings = config_to_dict(validate_config(config))
    chosen = {key: value for key, value in settings.items() if not sections or key in sections}
    return "\n\n".join(_toml_tables(chosen, "")) + "\n"


def _toml_tables(section: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the table of a section, then the tables of the sections inside it."""
    lines = [f"[{name}]"] if name else []
    # JSON writes numbers, words and truth values the way TOML does.
    lines += [f"{key} = {json.dumps(value)}" for key, value in section.items() if not isinstance(value, Mapping)]
    yield "\n".join(lines)
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _toml_tables(value, f"{name}.{key}" if name else key)


def apply_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """Apply command-line settings in order, the last one winning; words need no quotes.

    >>> changed = apply_overrides(Config(), ["student.epochs=20", "base.risk=upu", "views.flip=false"])
    >>> changed.student.epochs, changed.base.risk, changed.views.flip
    (20, 'upu', False)
    """
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not (key and equals and text):
            raise InputError(f"setting '{override}' is not of the form key=value; write for example student.epochs=20")
        # A TOML value, else a number that TOML is too strict for (`.5`), else a bare word.
        value: Any = text
        with suppress(ValueError):
            value = float(text)
        with suppress(ValueError, RecursionError):
            parsed = toml_loads(f"value = {text}")
            # A line break in the text could have smuggled in other keys.
            value = parsed["value"] if list(parsed) == ["value"] else value
        config = config_from_dict({key: value}, config)
    return config


def config_differences(a: Config, b: Config) -> dict[str, object]:
    """Give the dotted keys whose value in `b` is not the one in `a`, with the value in `b`."""
    before = dict(flattened(config_to_dict(a)))
    after = dict(flattened(config_to_dict(b)))
    return {key: value for key, value in after.items() if value != before[key]}


def config_hash(config: Config, *sections: str) -> str:
    """Name the content of some sections or keys (of all if none is given), to recognise work that is done."""
    settings = settings_in_names(validate_config(config))  # validated, so that 1 and 1.0 for a float are the same
    chosen = {}
    for key in sections or keys_of_section(""):
        if key not in _ANNOTATIONS:
            raise unknown_key_error(key)
        section, _, name = key.rpartition(".")
        place = reduce(getitem, section.split("."), settings) if section else settings
        if name in place:  # a later key at its default is in no name
            chosen[key] = place[name]
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()
