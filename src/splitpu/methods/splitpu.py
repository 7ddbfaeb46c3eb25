"""Split-PU: base model, then rounds of split and student, each sound student the next round's teacher."""

from splitpu.methods.base import train_base
from splitpu.methods.context import Context
from splitpu.methods.result import MethodResult as MethodResult
from splitpu.methods.result import Round as Round
from splitpu.methods.split import split_unlabelled
from splitpu.methods.student import train_student


def run_split_pu(context: Context) -> MethodResult:
    """Run the whole method."""
    base = train_base(context)
    if context.config.base.method == "risk":  # with other methods a logit of 0 does not mean 1/2
        context = context.with_own_share(base.logits)
    teacher, rounds = base, []
    for number in range(1, context.config.rounds + 1):
        split = split_unlabelled(context, teacher, number)
        student = train_student(context, teacher, split, number)
        rounds.append(Round(number, teacher, split, student))
        if student.sound:
            teacher = student
    return MethodResult(base, tuple(rounds), tuple(context.engine.history))
