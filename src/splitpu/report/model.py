"""What a report is made of: plain values, so that the page can be drawn without torch and without the run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Sample:
    """One row of the data as a gallery shows it: what it is, and what teacher and student made of it."""

    name: str
    teacher_probability: float
    student_probability: float
    pixels: npt.NDArray[np.uint8] | None = None  # (H, W, C)
    values: tuple[tuple[str, float], ...] | None = None  # (feature name, value)


@dataclass(frozen=True)
class RoundReport:
    """How one round told easy samples from hard ones."""

    number: int
    tau: float
    agreement: tuple[float, ...]  # with the teacher, after each epoch of the temporary network
    stopped_epoch: int
    reached: bool  # False: tau was never reached and the best epoch had to do
    easy: int
    hard: int
    noise: Mapping[str, float] | None = None  # share of wrong teacher labels in "easy", "hard", "all"; needs the truth
    taken: bool = True  # False: the student learned nothing, and its teacher stayed
    unsure: int = 0  # hard samples that were learned, but less surely than others


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything the page shows."""

    title: str
    asked: Mapping[str, str]  # in the order to be shown
    figures: Sequence[Mapping[str, Any]]  # one row a model, the base first, the last student last
    rounds: tuple[RoundReport, ...]
    history: Sequence[Mapping[str, Any]]  # the lines of metrics.jsonl
    probabilities: npt.NDArray[np.floating[Any]]  # of the final model, on the unlabelled rows
    prior: float
    expected_positive_share: float  # what the prior makes of the unlabelled rows
    threshold: float
    easiest: tuple[Sample, ...]
    hardest: tuple[Sample, ...]
    warnings: tuple[str, ...]
    config_text: str  # TOML
    environment: Mapping[str, str]
    method: str = "Split-PU"
    prior_table: Sequence[Mapping[str, Any]] = ()  # name, value, low, high of every estimator, the used one first
    reliability: Sequence[Mapping[str, float]] = ()  # low, high, share, promised, estimated of every bin
    reliability_rows: str = ""  # the sentence that says which rows these are
    final: str = ""  # the name among the figures of the model that predicts; the last one if not given
    calibrated: bool = False  # all probabilities, the teacher's too, by the map of the final model

    @property
    def last_taken(self) -> int | None:
        """The number of the last round whose student was taken."""
        return max((one.number for one in self.rounds if one.taken), default=None)
