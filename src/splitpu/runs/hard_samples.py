"""The hard samples of a finished run, read back from its folder: which they are, and which to look at first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitpu.errors import InputError
from splitpu.evaluation.metrics import most_doubtful
from splitpu.runs.folder import RunFolder
from splitpu.utils.reading import Guarded
from splitpu.utils.text import from_cell


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
        wrong = f"{folder.path} was trained with method '{result['method']}'"
        raise InputError(f"{wrong}, which does not tell hard samples from easy ones; only split-pu does.")
    if not result["rounds"]:
        raise InputError(f"{folder.path} has no rounds, so no sample was found hard: train with --rounds 1 or more.")
    folder.check_files(folder.split.name, folder.scores.name)
    with Guarded(folder.split).understood():
        last, hard_in = list[dict[str, str]](), dict[str, list[str]]()
        for line in (line for line in Guarded(folder.split).rows() if line["set"] == "hard"):
            hard_in.setdefault(line["index"], []).append(line["round"])
            if line["round"] == str(result["rounds"][-1]["round"]):
                last.append(line)
        by_index = {line["index"]: line for line in Guarded(folder.scores).rows()}
        scores = [by_index[line["index"]] for line in last]
        # The final model's, be it the last student or, where that was not taken, its teacher.
        said = np.array([float(score["probability"]) for score in scores])
        teacher = np.array([float(line["teacher_probability"]) for line in last])
        order = most_doubtful(teacher, said, np.ones(len(last), dtype=np.bool_), len(last)).tolist()
        decisions = [score["decision"] for score in scores]
        return [
            HardSample(
                index=int(last[at]["index"]),
                name=from_cell(last[at]["name"]),
                probability=float(said[at]),
                decision=int(decisions[at]) if decisions[at].removeprefix("-").isdigit() else decisions[at],
                teacher_probability=float(teacher[at]),
                rounds=" ".join(hard_in[last[at]["index"]]),
                why=_why(last[at]["taught"] == "positive", last[at]["learned"] == "positive", bool(said[at] > 0.5)),
            )
            for at in order
        ]
    raise AssertionError  # what goes wrong in the block is raised


def _why(taught: bool, learned: bool, said: bool) -> str:
    """What a fresh network was taught and made of that; and what the final model says, if not what was taught."""
    words = {True: "positive", False: "negative"}
    outcome = words[learned] + (", but less surely than others" if learned == taught else "")
    changed = "" if taught == said else f"; now {words[said]}"
    return f"taught {words[taught]}, learned {outcome}{changed}"
