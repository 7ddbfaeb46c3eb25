"""The campaign: `python tests/faults/campaign.py --seed 1` runs all of it, `make faults` the same with seed 0.

Every part gives the faults that it found, each in one line with what is needed to have it again.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "helpers"), str(_HERE.parents[1] / "src")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hostile  # noqa: E402
from crashes import killed_before, operations, without_power  # noqa: E402
from forked import Ended, command, contents, forked, import_as_for, warm_up  # noqa: E402
from mutations import mutate  # noqa: E402
from subjects import (  # noqa: E402
    QUICK,
    SAME_MODEL,
    Outcome,
    Subject,
    build,
    carried_out,
    copy_of,
    fit_words,
    images_words,
    seeds_words,
    table_words,
    with_cache,
    write_data,
)


@dataclass
class Found:
    """What a part of the campaign came to."""

    what: str
    tried: int = 0
    refused: int = 0
    harmless: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0  # the longest command
    megabytes: float = 0.0  # the largest

    def count(self, ended: Ended) -> None:
        self.seconds, self.megabytes = max(self.seconds, ended.seconds), max(self.megabytes, ended.megabytes)

    def add(self, other: "Found") -> None:
        self.tried, self.refused = self.tried + other.tried, self.refused + other.refused
        self.harmless, self.faults = self.harmless + other.harmless, self.faults + other.faults
        self.seconds, self.megabytes = max(self.seconds, other.seconds), max(self.megabytes, other.megabytes)

    def line(self) -> str:
        return (
            f"{self.what}: {self.tried:,} tried, {self.refused:,} refused, {self.harmless:,} the same as untouched, "
            f"{len(self.faults)} faults; longest {self.seconds:.1f} s, largest {self.megabytes:.0f} MB"
        )


# ---------------------------------------------------------------------------------------------------------- mutations


def mutations(place: Path, subjects: list[Subject], numbers: Iterator[int], seed: int) -> Found:
    """Damage one file of one run, and use the run: it is refused in words, or gives what it gave before."""
    found, scratch = Found("mutations"), place / f"scratch{os.getpid()}"
    untouched: dict[tuple[str, int], Outcome] = {}
    others = [path for one in subjects for path in one.files(place / one.name)]
    for number in numbers:
        rng = random.Random(f"{seed} {number}")
        subject = rng.choices(subjects, [one.weight for one in subjects])[0]
        at = rng.randrange(len(subject.commands))
        copy_of(place / subject.name, scratch / subject.name)
        with _files_beside(place, scratch):
            folder = scratch / subject.name
            if (subject.name, at) not in untouched:
                ended, untouched[subject.name, at] = carried_out(subject, subject.commands[at], folder)
                assert ended.code == 0, ended
                copy_of(place / subject.name, folder)
            path = rng.choice(subject.files(folder))
            how = mutate(path, rng, others)
            ended, outcome = carried_out(subject, subject.commands[at], folder)
        found.tried += 1
        found.count(ended)
        fault = ended.fault()
        if fault is None and ended.code == 0:
            fault = _difference(untouched[subject.name, at], outcome)
            if how == "removed" and path.name == "result.json" and "unfinished" in outcome.printed:
                fault = None  # without it, a run is one that was killed at its end, and is said to be
            if path.name == "metrics.jsonl" and subject.commands[at][0] == "info":
                # It is a log that nothing but `info` reads: cut short, it says how far the run was when it was written.
                before, after = (
                    "".join(line for line in one.printed.splitlines() if not line.startswith("reached"))
                    for one in (untouched[subject.name, at], outcome)
                )
                fault = fault if before != after else None
            found.harmless += fault is None
        found.refused += ended.code == 2
        if fault is not None:
            words = " ".join(subject.commands[at][:1])
            found.faults.append(f"mutation {number} ({path.relative_to(scratch)}: {how}; {words}) {fault}")
    shutil.rmtree(scratch, ignore_errors=True)
    return found


@contextmanager
def _files_beside(place: Path, scratch: Path) -> Iterator[None]:
    """New rows lie beside the folder that is damaged, and stay as they are."""
    for path in place.iterdir():
        if path.is_file() or path.name == "pictures":
            link = scratch / path.name
            if not link.is_symlink():
                link.symlink_to(path)
    yield


def _difference(before: Outcome, after: Outcome) -> str | None:
    if before.printed != after.printed:
        at = next((i for i, (a, b) in enumerate(zip(before.printed, after.printed, strict=False)) if a != b), 0)
        shown = [text[max(0, at - 30) : at + 50] for text in (before.printed, after.printed)]
        return f"silently printed something else: {shown[0]!r} became {shown[1]!r}"
    others = [name for name in before.files if before.files[name] != after.files.get(name)]
    return f"silently left another {others[0]}" if others else None


# -------------------------------------------------------------------------------------------------------------- kills


def scenarios(place: Path, folder: Path) -> dict[str, list[object]]:
    """Commands that write, small enough to be killed at every file operation."""
    keep = [*fit_words(place, folder / "run"), "--keep-checkpoints"]
    compared = ["compare", place / "tiny.npz", "--method", "naive,nnpu", "--seeds", "0", "--prior", "0.5"]
    return {
        "fit": fit_words(place, folder / "run"),
        "fit --keep-checkpoints": keep,
        "fit --seeds": seeds_words(place, folder / "run"),
        "fit images": images_words(place, folder / "run"),
        "fit table": table_words(place, folder / "run"),
        "compare": [*compared, "--out", folder / "run", *QUICK],
        "predict": ["predict", place / "network" / "run", place / "new.npz", "--out", folder / "said.csv"],
    }


def recovered(words: list[object], folder: Path) -> Ended:
    """What a user does after a crash: go on with the run if there is one, else give the same command again."""
    run = folder / "run"
    if words[0] == "fit" and ((run / "request.json").exists() or (run / "seeds.json").exists()):
        return command("resume", run, "--quiet")
    return command(*words)


def outcome_of(folder: Path) -> dict[str, bytes]:
    """What has to be the same whatever happened on the way: the models and what they say, and which files there are."""
    there = contents(folder)
    lasting = (*SAME_MODEL, "config.toml", "said.csv", "out_of_fold.npy")
    return {
        name: content if Path(name).name in lasting else b""
        for name, content in there.items()
        if not name.startswith("cache") and "checkpoints/" not in name
    }


def _compared(folder: Path, wanted: dict[str, bytes], ended: Ended) -> str | None:
    fault = ended.fault((0,))
    if fault is not None:
        return fault
    found = outcome_of(folder)
    if set(found) != set(wanted):
        return f"left {sorted(set(found) - set(wanted))} and lacks {sorted(set(wanted) - set(found))}"
    others = [name for name in wanted if wanted[name] != found[name]]
    return f"ended with another {others[0]}" if others else None


def kills(place: Path, numbers: list[int], seed: int) -> Found:
    """Kill a command before one of its file operations, and go on: all ends as if nothing had happened."""
    found, folder = Found("kills"), place / f"killed{os.getpid()}"
    whole: dict[str, tuple[int, dict[str, bytes]]] = {}
    for number in numbers:
        commands = scenarios(place, folder)
        name = list(commands)[number % len(commands)] if number % 2 else "fit"
        words = commands[name]
        if name not in whole:
            _anew(folder)
            ended, heard = operations(folder, words)
            assert ended.code == 0, (name, ended)
            whole[name] = len(heard), outcome_of(folder)
        count, wanted = whole[name]
        # Every operation of the first scenario in turn, those of the others by chance.
        at = (number // 2 + seed) % count if name == "fit" else random.Random(f"{seed} {number}").randrange(count)
        _anew(folder)
        killed = killed_before(folder, words, at)
        ended = recovered(words, folder) if killed.code != 0 else killed
        found.tried += 1
        found.count(ended)
        fault = _compared(folder, wanted, ended)
        found.harmless += fault is None
        if fault is not None:
            found.faults.append(f"kill {number} ({name} before operation {at} of {count}) {fault}")
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _anew(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with_cache(folder)


# --------------------------------------------------------------------------------------------------------- power loss


def power_losses(place: Path, numbers: list[int], seed: int) -> Found:
    """Cut the power before an operation or after the end: what was reported as saved is there, the rest made anew."""
    found, folder = Found("power losses"), place / f"dark{os.getpid()}"
    whole: dict[str, tuple[int, dict[str, bytes]]] = {}
    for number in numbers:
        rng = random.Random(f"{seed} power {number}")
        commands = scenarios(place, folder)
        name = rng.choice(list(commands))
        words = commands[name]
        if name not in whole:
            _anew(folder)
            ended, heard = operations(folder, words)
            assert ended.code == 0, (name, ended)
            whole[name] = len(heard), outcome_of(folder)
        count, wanted = whole[name]
        at = count + 10_000 if rng.random() < 0.2 else rng.randrange(count)
        _anew(folder)
        left = folder.with_name(f"left{os.getpid()}")
        shutil.rmtree(left, ignore_errors=True)
        ended = without_power(folder, words, at, left, seed + number)
        was_reported = ended.code == 0
        shutil.rmtree(folder)
        left.rename(folder)
        if was_reported:  # it is all there, without anybody doing anything
            fault = _compared(folder, wanted, ended)
        else:
            ended = recovered(words, folder)
            fault = _compared(folder, wanted, ended)
        found.tried += 1
        found.count(ended)
        found.harmless += fault is None
        if fault is not None:
            found.faults.append(f"power loss {number} ({name}, operation {at} of {count}) {fault}")
    shutil.rmtree(folder, ignore_errors=True)
    return found


# ----------------------------------------------------------------------------------------------------- hostile inputs


CHOSEN: list[str] = []  # names of cases, where not all are wanted
_STRIDE = 37  # so that a few of them are of every kind


def hostile_inputs(place: Path, numbers: list[int], seed: int) -> Found:
    """Give a command a file that was made to do harm: refused in words, within seconds and memory."""
    found, folder = Found("hostile inputs"), place / f"hostile{os.getpid()}"
    cases = [case for case in hostile.cases() if not CHOSEN or case.name in CHOSEN]
    for number in numbers:
        case = cases[(number * _STRIDE + seed) % len(cases)]
        _anew(folder)
        words = case.make(place, folder, random.Random(f"{seed} {number}"))
        ended = command(*words)
        found.tried += 1
        found.count(ended)
        found.refused += ended.code == 2
        found.harmless += ended.code == 0
        fault = ended.fault() or case.judged(ended, folder)
        if fault is not None:
            found.faults.append(f"hostile {number} ({case.name}) {fault}")
    shutil.rmtree(folder, ignore_errors=True)
    return found


# -------------------------------------------------------------------------------------------------------------- memory


def full_memory(place: Path, numbers: list[int], seed: int) -> Found:
    """Give a command so little memory that an allocation fails somewhere: it says so, and the run goes on later."""
    from splitpu.cli import main

    found, folder = Found("full memory"), place / f"full{os.getpid()}"
    wanted: dict[str, bytes] = {}
    for number in numbers:
        rng = random.Random(f"{seed} memory {number}")
        words = [str(word) for word in fit_words(place, folder / "run")]
        if not wanted:
            _anew(folder)
            assert command(*words).code == 0
            wanted = outcome_of(folder)
        _anew(folder)
        room = rng.choice((8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 80, 100))
        ended = forked(lambda words=words: main(words), room=room)
        aborted = ended.code == -signal.SIGABRT and "memory allocation of" in ended.err  # as Rust's libraries do
        fault = None if aborted else ended.fault()
        if fault is None and ended.code != 0:
            ended = recovered(words, folder)
            found.refused += 1
        found.tried += 1
        found.count(ended)
        fault = fault or _compared(folder, wanted, ended)
        found.harmless += fault is None
        if fault is not None:
            found.faults.append(f"memory {number} ({room} MB) {fault}")
    shutil.rmtree(folder, ignore_errors=True)
    return found


# ------------------------------------------------------------------------------------------------------- two at a time


def two_at_once(place: Path, numbers: list[int], seed: int) -> Found:
    """Two processes on one folder: one of them works, the other says so or finds all done; no file is half of each."""
    found, folder = Found("two at once"), place / f"two{os.getpid()}"
    for number in numbers:
        rng = random.Random(f"{seed} two {number}")
        _anew(folder)
        words = fit_words(place, folder / "run")
        assert command(*words).code == 0
        wanted = outcome_of(folder)
        _anew(folder)
        if number % 2:  # both go on with the same run
            killed_before(folder, words, 40 + rng.randrange(30))
            words = ["resume", folder / "run", "--quiet"]
        pause = rng.random() * 0.5
        second = os.fork()
        if second == 0:
            time.sleep(pause)
            ended = command(*words)
            (place / f"second{os.getppid()}").write_text(json.dumps(vars(ended)))
            os._exit(0)
        first = command(*words)
        os.waitpid(second, 0)
        note = place / f"second{os.getpid()}"
        other = Ended(**json.loads(note.read_text()))
        note.unlink()
        fault = first.fault() or other.fault()
        if fault is None and 0 not in (first.code, other.code):
            fault = f"both were refused: {first.err[-100:]} {other.err[-100:]}"
        fault = fault or _compared(folder, wanted, first if first.code == 0 else other)
        found.tried += 1
        found.count(first)
        found.refused += (first.code == 2) + (other.code == 2)
        found.harmless += fault is None
        if fault is not None:
            found.faults.append(f"two at once {number}: {fault}")
    shutil.rmtree(folder, ignore_errors=True)
    return found


# ---------------------------------------------------------------------------------------------------------------- all

PARTS: dict[str, Callable[..., Found]] = {
    "kills": kills,
    "mutations": mutations,
    "hostile": hostile_inputs,
    "power": power_losses,
    "memory": full_memory,
    "two": two_at_once,
}
LONG = {"kills": 500, "mutations": 10_000, "hostile": 300, "power": 200, "memory": 60, "two": 20}


def in_hands(part: str, place: Path, subjects: list[Subject], count: int, seed: int, hands: int, only: Any) -> Found:
    """Share the numbers of a part among forked processes, and put together what they found."""
    wanted = [only] if only is not None else list(range(count))
    results = multiprocessing.SimpleQueue()
    children = []
    for hand in range(hands):
        numbers = wanted[hand::hands]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                given = (place, subjects, numbers, seed) if part == "mutations" else (place, numbers, seed)
                results.put(PARTS[part](*given))
                code = 0
            finally:
                if code:
                    import traceback

                    traceback.print_exc()
                    results.put(Found(part, faults=["the campaign itself broke: see above"]))
                os._exit(code)
        children.append(child)
    total = results.get()
    for _ in range(hands - 1):
        total.add(results.get())
    for child in children:
        os.waitpid(child, 0)
    return total


def run(counts: dict[str, int], seed: int, hands: int, place: Path, only: int | None = None) -> list[Found]:
    """The whole campaign in a folder of its own."""
    warm_up()
    write_data(place)
    for words in (fit_words(place, place / "first"), ["predict", place / "first", place / "new.npz"]):
        import_as_for(*words)
    subjects = build(place, () if counts.get("mutations") else ("network", "table", "images"))
    found = []
    for part, count in counts.items():
        started = time.monotonic()
        one = in_hands(part, place, subjects, count, seed, hands, only)
        print(f"{one.line()}; {time.monotonic() - started:.0f} s", flush=True)
        kinds = Counter(fault[:60] for fault in one.faults)
        for fault in one.faults[:40]:
            print(f"    {fault}", flush=True)
        if len(kinds) > 40:
            print(f"    ... {len(one.faults) - 40} more")
        found.append(one)
    return found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--hands", type=int, default=os.cpu_count() or 2)
    asked.add_argument("--only", type=int, help="one number of the part, to have a fault again")
    asked.add_argument("--case", action="append", default=[], help="a hostile input by its name; may be given again")
    for part, count in LONG.items():
        asked.add_argument(f"--{part}", type=int, default=None, help=f"how many (usually {count})")
    words = asked.parse_args()
    CHOSEN.extend(words.case)
    if CHOSEN:
        words.hostile = words.hostile or len(CHOSEN)
    given = {part: getattr(words, part) for part in LONG if getattr(words, part) is not None}
    with tempfile.TemporaryDirectory(prefix="faults") as place:
        found = run(given or LONG, words.seed, words.hands, Path(place), words.only)
    faults = sum(len(one.faults) for one in found)
    print(f"{faults} faults in all")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
