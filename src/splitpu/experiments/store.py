"""Results on disk: one JSON line a unit, in any number of files below one folder, merged by copying files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitpu.config import config_from_dict
from splitpu.errors import InputError
from splitpu.experiments.units import Unit, computed_hash, work_key
from splitpu.files import disk_errors_in_words

Line = Mapping[str, Any]
# What was done before there was a setting for it, where the setting's default does something else.
_BEFORE = {"vpu": {"held_out": 0.0}}


class ResultStore:
    """All result lines below a folder; of several with the same key the first one counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[str, Line] = {}
        self.unreadable = 0  # lines cut short by a kill, or of settings that no longer exist
        self.used: set[str] = set()
        for path in sorted(folder.rglob("*.jsonl")) if folder.is_dir() else ():
            self._read(path)

    def find(self, unit: Unit) -> Line | None:
        """The unit's result, whichever experiment it was made for, if its settings are still what they were."""
        key = unit.work_key
        if key not in self.lines:
            return None
        self.used.add(key)
        return self.lines[key]

    def add(self, unit: Unit, line: Line) -> None:
        """Append a line in one write and have it on disk before going on."""
        path = self.folder / f"{unit.experiment.name}.jsonl"
        with disk_errors_in_words(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                # A line that a kill cut short must not swallow this one.
                if file.tell() and not _ends_with_newline(path):
                    file.write(b"\n")
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        self.lines.setdefault(unit.work_key, line)

    def _read(self, path: Path) -> None:
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                # Hashed anew: a setting that was added since, at a default that changes nothing, must not make a
                # result out of date.
                config = config_from_dict({**_as_run(line["config"]), "method": line["method"]})
                name = computed_hash(config)
                self.lines.setdefault(work_key(line, name), line)
            except (json.JSONDecodeError, KeyError, TypeError, InputError):
                self.unreadable += 1


def device_seconds(line: Line) -> float:
    """How long a run had the device to itself; of several at once, its share of the time.

    >>> device_seconds({"seconds": 90.0, "side_by_side": 3, "device_seconds": 32.5})
    32.5

    Older lines do not know how many there were at each epoch, only at the end:

    >>> device_seconds({"seconds": 90.0, "side_by_side": 3})
    30.0
    """
    known = line.get("device_seconds")
    return float(line["seconds"]) / int(line.get("side_by_side", 1)) if known is None else float(known)


def _as_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """A line's settings, with those that it is older than as they would have been then."""
    older = {section: {**then, **config[section]} for section, then in _BEFORE.items() if section in config}
    return {**config, **older}


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
