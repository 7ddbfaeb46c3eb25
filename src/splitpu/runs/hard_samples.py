"""The hard samples of a finished run, read back from its folder: which they are, and which to look at first."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.errors import InputError
from splitpu.evaluation.metrics import most_doubtful
from splitpu.runs.folder import RunFolder

Lines = list[dict[str, str]]


@dataclass(frozen=True)
class HardSample:
    """A sample on which a fresh network did not follow the model that taught the last round, or not surely enough."""

    index: int
    name: str
    probability: float  # of being positive, as the final model has it
    decision: int | str  # as `splitpu predict` has it
    teacher_probability: float  # on the scale of the final model: calibrated by the same map, if that is
    rounds: str  # in which it was hard, such as "1 2"
    why: str


def hard_samples(folder: RunFolder, result: Mapping[str, Any]) -> list[HardSample]:
    """The hard samples of the last round, those that give most reason to doubt first, as in the report."""
    if result["method"] != "split-pu":
        raise InputError(
            f"{folder.path} was trained with method '{result['method']}', which does not tell hard samples from easy "
            "ones; only split-pu does."
        )
    if not result["rounds"]:
        raise InputError(f"{folder.path} has no rounds, so no sample was found hard: train with --rounds 1 or more.")
    last = result["rounds"][-1]
    every = _read(folder.split)
    _must_have_all(folder.split, every, result["rounds"])
    lines = [line for line in every if line["set"] == "hard"]
    hard_in: dict[str, list[str]] = {}
    for line in lines:
        hard_in.setdefault(line["index"], []).append(line["round"])
    of_last = [line for line in lines if line["round"] == str(last["round"])]
    by_index = {line["index"]: line for line in _read(folder.scores)}
    try:
        scores = [by_index[line["index"]] for line in of_last]
        # The final model's, be it the last student or, where that was not taken, its teacher.
        said = np.array([float(score["probability"]) for score in scores])
        teacher = np.array([float(line["teacher_probability"]) for line in of_last])
        order = most_doubtful(teacher, said, np.ones(len(of_last), dtype=np.bool_), len(of_last))
        return [_sample(of_last[at], float(teacher[at]), scores[at], hard_in) for at in order.tolist()]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{folder.scores} does not fit {folder.split} ({error}); copy the run folder again."
        ) from error


def _sample(
    line: Mapping[str, str], teacher: float, score: Mapping[str, str], hard_in: Mapping[str, list[str]]
) -> HardSample:
    said = float(score["probability"])
    return HardSample(
        index=int(line["index"]),
        name=line["name"],
        probability=said,
        decision=int(score["decision"]) if score["decision"].removeprefix("-").isdigit() else score["decision"],
        teacher_probability=teacher,
        rounds=" ".join(hard_in[line["index"]]),
        why=_why(line["taught"] == "positive", line["learned"] == "positive", said > 0.5),
    )


def _why(taught: bool, learned: bool, said: bool) -> str:
    """What a fresh network was taught and what it made of that; and what the final model says, if not what was taught.

    >>> _why(True, False, True), _why(True, False, False)
    ('taught positive, learned negative', 'taught positive, learned negative; now negative')
    >>> _why(True, True, True)
    'taught positive, learned positive, but less surely than others'
    """
    words = {True: "positive", False: "negative"}
    outcome = words[learned] + (", but less surely than others" if learned == taught else "")
    changed = "" if taught == said else f"; now {words[said]}"
    return f"taught {words[taught]}, learned {outcome}{changed}"


def _must_have_all(path: Path, lines: Lines, rounds: Sequence[Mapping[str, Any]]) -> None:
    """A file that was cut short while it was copied reads like one of fewer samples."""
    there = Counter((line.get("round"), line.get("set")) for line in lines if _is_whole(line))
    for expected in rounds:
        number, wanted = str(expected["round"]), expected["easy"] + expected["hard"]
        found = [there[number, kind] for kind in ("easy", "hard")]
        if found != [expected["easy"], expected["hard"]]:
            raise InputError(
                f"{path} does not have all its lines or has other ones ({sum(found):,} of {wanted:,} in round "
                f"{number}): it may be cut short; copy the run folder again."
            )


def _is_whole(line: Mapping[str, str]) -> bool:
    return line.get("learned") in ("positive", "negative")


def _read(path: Path) -> Lines:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}); copy the run folder again.") from error
