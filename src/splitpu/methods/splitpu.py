"""Split-PU: base model, then rounds of split and student, each student the next round's teacher."""

from dataclasses import dataclass

from splitpu.engine.stage import EpochRecord
from splitpu.methods.base import train_base
from splitpu.methods.context import Context, Teacher
from splitpu.methods.split import SplitResult, split_unlabelled
from splitpu.methods.student import train_student


@dataclass(frozen=True)
class Round:
    """One round: the split its teacher's labels led to, and the student trained on it."""

    number: int
    split: SplitResult
    student: Teacher


@dataclass(frozen=True)
class SplitPUResult:
    """Everything a run found."""

    base: Teacher
    rounds: tuple[Round, ...]
    history: tuple[EpochRecord, ...]

    @property
    def final(self) -> Teacher:
        """The model to use: the last student, or the base model when there were no rounds."""
        return self.rounds[-1].student if self.rounds else self.base


def run_split_pu(context: Context) -> SplitPUResult:
    """Run the whole method."""
    base = teacher = train_base(context)
    rounds = []
    for number in range(1, context.config.rounds + 1):
        split = split_unlabelled(context, teacher, number)
        teacher = train_student(context, teacher, split, number)
        rounds.append(Round(number, split, teacher))
    return SplitPUResult(base, tuple(rounds), tuple(context.engine.history))
