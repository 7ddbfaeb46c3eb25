"""What any method hands back."""

from dataclasses import dataclass

from splitpu.engine.stage import EpochRecord
from splitpu.methods.context import Teacher
from splitpu.methods.split import SplitResult


@dataclass(frozen=True)
class Round:
    """One round of Split-PU: the split its teacher's labels led to, and the student trained on it."""

    number: int
    split: SplitResult
    student: Teacher


@dataclass(frozen=True)
class MethodResult:
    """Everything a run found. Only Split-PU has rounds; for any other method the base is the one model there is."""

    base: Teacher
    rounds: tuple[Round, ...]
    history: tuple[EpochRecord, ...]

    @property
    def final(self) -> Teacher:
        """The model to use: the last student, or the base model when there were no rounds."""
        return self.rounds[-1].student if self.rounds else self.base
