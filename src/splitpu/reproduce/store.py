"""Results on disk, one JSON line a unit in any number of files, merged by copying; and the plan of what is open."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from splitpu.config.parse import config_from_dict
from splitpu.errors import InputError
from splitpu.methods.registry import LATER
from splitpu.reproduce.declared import recipes
from splitpu.reproduce.units import Unit, computed_hash, place_of, shareable_stages, work_key
from splitpu.utils.files import check_place, disk_errors_in_words
from splitpu.utils.reading import Guarded

Line = Mapping[str, Any]
LONG = 100.0  # seconds from which a plan points a unit out
# What was done before there was a setting for it, where the setting's default does something else.
_BEFORE = {"vpu": {"held_out": 0.0}}
# What every page reads, whatever the line is about; lines are copied, edited and made by other versions.
_NEEDED: Mapping[str, type | tuple[type, ...]] = {
    **{"experiment": str, "recipe": str, "method": str, "device": str, "config": dict, "rounds": list},
    **{"positives": int, "seed": int, "accuracy": (int, float), "base_accuracy": (int, float)},
    **{"seconds": (int, float), "work": str},
}
# And what pages read of a line that is not about a training alone, by the first word of its work.
_NEEDED_BY_WORK: Mapping[str, Mapping[str, type]] = {"figure": {"series": dict}, "choice": {"selection": dict}}


class ResultStore:
    """All result lines below a folder, of tiny units if `smoke`; of several runs of one unit the newest counts."""

    def __init__(self, folder: Path, *, smoke: bool = False) -> None:
        self.folder, self.smoke = folder, smoke
        self.lines: dict[str, Line] = {}
        self.used: set[str] = set()
        self.contradicted: set[str] = set()  # keys of which there are several lines with different accuracies
        self._unreadable: dict[Path, list[str]] = {}
        self._read_as: dict[Path, tuple[int, int]] = {}  # size and time of change of what has been read
        self.refresh()

    @property
    def unreadable(self) -> list[str]:
        """Where lines lie that cannot be used (cut short by a kill, of settings that no longer exist), and why."""
        return [where for lines in self._unreadable.values() for where in lines]

    def refresh(self) -> None:
        """Read what other processes have written since, or what was copied here."""
        for path in sorted(self.folder.rglob("*.jsonl")) if self.folder.is_dir() else ():
            found = path.stat()
            state = found.st_size, found.st_mtime_ns
            if self._read_as.get(path) != state:
                self._read_as[path] = state
                self._unreadable[path] = list(self._read(path))

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
                if file.tell():  # a line that a kill cut short must not swallow this one
                    file.seek(-1, os.SEEK_END)
                    file.write(b"" if file.read(1) == b"\n" else b"\n")
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        self._keep(unit.work_key, line)

    def check_place(self) -> None:
        """Find out before anything is trained that its result could not be kept."""
        try:
            with disk_errors_in_words(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            wrong = f"results cannot be kept in {self.folder} ({error.strerror})"
            raise InputError(f"{wrong}; give another folder") from None
        check_place(self.folder / "lines")

    def remarks(self) -> list[str]:
        """What a reader of the results should know about the lines themselves."""
        found = []
        if self.contradicted:
            found.append(f"{len(self.contradicted)} units have several lines with different figures; the newest counts")
        if self.unreadable:
            found.append(f"{len(self.unreadable)} lines cannot be used: {'; '.join(self.unreadable[:3])}")
        return found

    def _read(self, path: Path) -> Iterator[str]:
        """Take in a file's lines; yields where one cannot be used, and why."""
        # Some editors put a mark before the first line.
        for number, text in enumerate(Guarded(path).raw().decode("utf-8-sig", "replace").splitlines(), start=1):
            if not text.strip():
                continue
            try:
                line = _checked(json.loads(text))
                settings = line["config"]
                older = {name: {**then, **settings[name]} for name, then in _BEFORE.items() if name in settings}
                # Hashed anew: a setting that was added since, at a default that changes nothing, must not make a
                # result out of date.
                config = config_from_dict({**settings, **older, "method": line["method"]})
                self._keep(work_key(line, computed_hash(config)), line)
            except (KeyError, TypeError, InputError) as error:
                reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                yield f"{path.name}, line {number}: {reason}"
            except (ValueError, RecursionError):
                yield f"{path.name}, line {number}: it is no JSON, cut short perhaps"

    def _keep(self, key: str, line: Line) -> None:
        known = self.lines.get(key)
        if known is not None and known["accuracy"] != line["accuracy"]:
            self.contradicted.add(key)
        if known is None or line.get("date", "") > known.get("date", ""):
            self.lines[key] = line


def device_seconds(line: Line) -> float:
    """How long a run had the device to itself; of several at once, its share of the time."""
    known = line.get("device_seconds")  # the oldest do not know how many there were at each epoch, only at the end
    return float(line["seconds"]) / int(line.get("side_by_side", 1)) if known is None else float(known)


def _checked(line: Any) -> Line:
    """The line, if it holds what pages read of it."""
    if not isinstance(line, dict):
        raise InputError("it is no result")
    of_its_work = _NEEDED_BY_WORK.get(str(line.get("work")).partition(":")[0], {})
    for key, kind in (*_NEEDED.items(), *of_its_work.items()):
        if not isinstance(line[key], kind):
            raise InputError(f"its {key} is {line[key]!r}")
    if line["recipe"] not in recipes():
        raise InputError(f"its recipe {line['recipe']!r} is not known here")
    return line


def plan_lines(units: Sequence[Unit], store: ResultStore) -> Iterator[str]:
    """One line a unit, with the minutes up to its end, and the sum; a stage counts in the first unit that needs it."""
    total, longer = 0.0, 0
    made: set[str] = set()
    for unit in units:
        measured, stages = _measured_by_stage(unit, store), shareable_stages(unit)
        whole = unit.guessed_by_stage if measured is None else measured
        seconds = sum(spent for place, spent in whole.items() if stages.get(place) not in made)
        made.update(stages.values())
        total += seconds
        longer += seconds > LONG
        source = "guessed" if measured is None else "measured"
        mark = "  long" if seconds > LONG else ""
        yield f"{total / 60:7.1f} min  {seconds:6.0f} s {source:8}  {unit}{mark}"
    counted = f"{len(units)} units, about {total / 60:.0f} minutes; {longer} of them over {LONG:.0f} s each"
    yield f"{counted}. Stages that units share count once."


def _measured_by_stage(unit: Unit, store: ResultStore) -> dict[int, float] | None:
    """What each stage of the same training took on a GPU with another seed, if one is there."""
    seeds = {line["seed"] for line in store.lines.values()}
    found = (store.lines.get(replace(unit, seed=seed).work_key) for seed in sorted(seeds))
    line = next((line for line in found if line and " CPU" not in line["device"]), None)
    if line is None:
        return None
    spent: dict[int, float] = {}
    for stage, seconds in line.get("stage_seconds", {}).items():
        spent[place_of(stage)] = spent.get(place_of(stage), 0.0) + seconds
    # Stages say how long they took; of a shared device only the whole run says what its share was.
    whole, share = sum(spent.values()), device_seconds(line)
    return {place: seconds * share / whole for place, seconds in spent.items()} if whole else {LATER: share}
