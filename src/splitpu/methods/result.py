"""What any method hands back."""

from dataclasses import dataclass

from splitpu.engine.stage import EpochRecord
from splitpu.methods.context import Student, Teacher
from splitpu.methods.split import SplitResult


@dataclass(frozen=True)
class Round:
    """One round of Split-PU: its teacher, the split that the teacher's labels led to, and the student trained on it."""

    number: int
    teacher: Teacher
    split: SplitResult
    student: Student

    @property
    def taken(self) -> bool:
        """Whether the student took its teacher's place; one that learned nothing does not."""
        return self.student.sound


@dataclass(frozen=True)
class MethodResult:
    """Everything a run found. Only Split-PU has rounds; for any other method the base is the one model there is."""

    base: Teacher
    rounds: tuple[Round, ...]
    history: tuple[EpochRecord, ...]

    @property
    def last_taken(self) -> Round | None:
        """The last round whose student was taken, if there is one."""
        return next((found for found in reversed(self.rounds) if found.taken), None)

    @property
    def final(self) -> Teacher:
        """The model to use: the last student that was taken, or the base model when there is none."""
        return self.base if self.last_taken is None else self.last_taken.student
