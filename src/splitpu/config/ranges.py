"""Which numbers make sense for each numeric key; a key's type is checked before its range."""

import math
from dataclasses import dataclass

from splitpu.config.schema import METHOD_SECTIONS


@dataclass(frozen=True, kw_only=True)
class Range:
    """An interval that can say in words what it allows, so that check and error message never disagree."""

    low: float
    high: float = math.inf
    low_included: bool = True
    high_included: bool = True

    def __contains__(self, value: float) -> bool:
        above = self.low <= value if self.low_included else self.low < value
        below = value <= self.high if self.high_included else value < self.high
        return above and below

    def __str__(self) -> str:
        low = f"{'at least' if self.low_included else 'above'} {self.low:g}"
        if self.high == math.inf:
            return low
        return f"{low} and {'at most' if self.high_included else 'below'} {self.high:g}"


_COUNT = Range(low=1)
_COUNT_OR_NONE = Range(low=0)
_BATCH = Range(low=2)  # batch normalisation needs two rows
_WEIGHT = Range(low=0)
_SHARE = Range(low=0, high=1)
_DECAY = Range(low=0, high=1, high_included=False)
_HALF_AT_MOST = Range(low=0, high=0.5)

_OPTIMISER = {
    "rate": Range(low=0, low_included=False),
    "weight_decay": _WEIGHT,
    "momentum": _DECAY,
    "beta1": _DECAY,
    "beta2": _DECAY,
    "halvings": _WEIGHT,
    "warmup": _SHARE,
    "average": _DECAY,
}

_POSITIVE = Range(low=0, low_included=False)
_INSIDE = Range(low=0, high=1, low_included=False, high_included=False)

_PASSES = {"epochs": _COUNT, "batch_size": _BATCH, "positives_per_batch": _COUNT_OR_NONE}
_STAGES = ("warmup", "base", "split", "student", *METHOD_SECTIONS)
_OPTIMISERS = (*(f"{stage}.optimiser" for stage in _STAGES), "dist_pu.warmup_optimiser")

_VIEWS = {
    "crop_padding": _HALF_AT_MOST,
    "rotation": Range(low=0, high=180),
    "zoom": _DECAY,
    "resized_crop": Range(low=0, high=1, low_included=False),
    "brightness": _SHARE,  # factors are drawn from [1 - x, 1 + x] and must not turn negative
    "contrast": _SHARE,
    "saturation": _SHARE,
    "hue": _HALF_AT_MOST,  # half the colour circle either way is all of it
    "jitter": _SHARE,
    "grey": _SHARE,
    "blur": _SHARE,
    "cutout": _SHARE,
    "noise": _WEIGHT,
    "dropout": _DECAY,
}

_METHOD_RANGES = {
    "vpu.held_out": _HALF_AT_MOST,
    "vpu.mix_weight": _WEIGHT,
    "vpu.mix_concentration": _POSITIVE,
    "dan.anchor": _WEIGHT,
    "dan.anchor_level": Range(low=0.5, high=1, low_included=False),
    "pubn.score_epochs": _COUNT,
    "pubn.certain_share": _INSIDE,
    "self_pu.trust_from": _SHARE,
    "self_pu.trust_until": _SHARE,
    "self_pu.trust_every": Range(low=0, high=1, low_included=False),
    "self_pu.trust_share": _DECAY,  # below 1: some rows have to stay under the risk
    "self_pu.teacher_from": _SHARE,
    "self_pu.teacher_average": _DECAY,
    "self_pu.teacher_weight": _WEIGHT,
    "self_pu.teacher_ramp": _SHARE,
    "self_pu.agreement_limit": _WEIGHT,
    "p3mix.warmup": _SHARE,
    "p3mix.pool": _COUNT,
    "p3mix.confident": Range(low=0.5, high=1),
    "p3mix.taken_back": _SHARE,
    "p3mix.teacher_average": _DECAY,
    "p3mix.mix_concentration": _POSITIVE,
    "p3mix.entropy_weight": _WEIGHT,
    "puupl.rounds": _COUNT,
    "puupl.members": Range(low=2),  # one network alone is never at odds with itself
    "puupl.per_round": Range(low=2),
    "puupl.certain": _WEIGHT,
    "puupl.doubtful": _WEIGHT,
    "puupl.risk_weight": _SHARE,
    "dist_pu.warmup_epochs": _COUNT,
    "dist_pu.warmup_entropy": _WEIGHT,
    "dist_pu.entropy_weight": _WEIGHT,
    "dist_pu.mix_weight": _WEIGHT,
    "dist_pu.mix_entropy": _WEIGHT,
    "dist_pu.mix_concentration": _POSITIVE,
}

RANGES: dict[str, Range] = {
    "rounds": _COUNT_OR_NONE,  # 0 = the base model alone
    "members": _COUNT,
    "warmup.epochs": _COUNT,
    "warmup.batch_size": _BATCH,
    "warmup.temperature": _POSITIVE,
    "warmup.projection": _COUNT,
    "base.epochs": _COUNT,
    "base.batch_size": _BATCH,
    "base.positives_per_batch": _COUNT_OR_NONE,
    "base.nn_beta": _WEIGHT,
    "base.nn_gamma": _WEIGHT,
    "split.tau": Range(low=0, high=1, low_included=False),
    "split.max_epochs": _COUNT,
    "split.batch_size": _BATCH,
    "split.surest_positives": _SHARE,
    "split.surest_negatives": _SHARE,
    "split.tails": _HALF_AT_MOST,  # taken from each end, so half is everything
    "student.epochs": _COUNT,
    "student.batch_size": _BATCH,
    "student.positives_per_batch": _COUNT_OR_NONE,
    "student.rho": Range(low=0.01, high=0.99),  # beyond, float32 has no digits left for the divergence
    "student.alpha": _WEIGHT,
    "student.beta": _WEIGHT,
    "student.low_weight": _WEIGHT,
    "student.positive_weight": _WEIGHT,
    "student.confidence": _SHARE,
    "selection.held_out": _HALF_AT_MOST,
    "selection.patience": _COUNT_OR_NONE,
    "engine.threads": _COUNT_OR_NONE,
    "engine.pieces": _COUNT_OR_NONE,
    "engine.checkpoint_every": _COUNT,
    **_METHOD_RANGES,
    **{f"{section}.{name}": r for section in ("views", "warmup.views") for name, r in _VIEWS.items()},
    **{f"{method}.{name}": r for method in METHOD_SECTIONS for name, r in _PASSES.items()},
    **{f"{stage}.{name}": r for stage in _OPTIMISERS for name, r in _OPTIMISER.items()},
}
