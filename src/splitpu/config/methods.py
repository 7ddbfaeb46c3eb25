"""The sections of the methods beside Split-PU.

Settings are the published ones but for what is said beside a line.
`upu`, `nnpu`, `naive` and `supervised` have none of their own: they are trained as `base` says.
"""

from dataclasses import dataclass, field
from typing import Literal

from splitpu.config.optimiser import OptimiserConfig

MethodName = Literal[
    "split-pu",
    "upu",
    "nnpu",
    "vpu",
    "dan",
    "pubn",
    "self-pu",
    "p3mix",
    "puupl",
    "dist-pu",
    "supervised",
    "naive",
]
# What can be the first teacher of Split-PU; "risk" is the nnPU or uPU risk that `base.risk` names.
TeacherName = Literal["risk", "vpu", "dan", "pubn", "self-pu", "p3mix", "puupl", "dist-pu", "supervised", "naive"]


@dataclass(frozen=True, kw_only=True)
class PassesConfig:
    """What any training has: so many passes over batches of so many rows."""

    epochs: int = 100
    batch_size: int = 512  # population rows a step, at most as many as there are
    positives_per_batch: int = 64  # labelled rows a step, at most as many as there are; 0 = in proportion
    augment: bool = True  # weak views instead of plain ones
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)


@dataclass(frozen=True, kw_only=True)
class VPUConfig(PassesConfig):
    """VPU: a variational bound with a mixing penalty."""

    epochs: int = 50
    batch_size: int = 500
    positives_per_batch: int = 0  # in proportion; published: 500, which are soon known by heart
    # Share of P and of U that are not trained on: the epoch with the lowest loss on them is the model, as published;
    # 0 = the last epoch. What `selection` says of a stage's epochs comes before it.
    held_out: float = 0.2
    mix_weight: float = 0.03
    mix_concentration: float = 0.3  # of the Beta distribution of mixing weights
    optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(rate=3e-5, beta1=0.5, beta2=0.99, schedule="halving")
    )


@dataclass(frozen=True, kw_only=True)
class DANConfig(PassesConfig):
    """DAN: a discriminator against an adversary, two networks in one training."""

    epochs: int = 80
    positives_per_batch: int = 0  # in proportion: many a step are soon known by heart, and others then called negative
    anchor: float = 1.0  # weight of the cross-entropy on labelled positives, which fixes the scale of the predictions
    anchor_level: float = (
        1.0  # the probability it asks of them: at 1 nothing but the game brings predictions down again
    )
    optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(rate=1e-4, weight_decay=5e-3, beta1=0.5, average=0.999)
    )


@dataclass(frozen=True, kw_only=True)
class PUbNConfig(PassesConfig):
    r"""PUbN\N: one network finds where negatives are certain, a second one learns with that."""

    score_epochs: int = 60  # of the first network; `epochs` are those of the second
    epochs: int = 60
    batch_size: int = 500  # published: 100 beside 10 positives, of a fifth as many rows; this is the same ratio
    positives_per_batch: int = 50
    certain_share: float = 0.9  # of the expected negatives (tau in the paper)
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(weight_decay=5e-3, average=0.999))


@dataclass(frozen=True, kw_only=True)
class SelfPUConfig(PassesConfig):
    """Self-PU: two students with a teacher each, a growing set of trusted rows. Moments are shares of the epochs."""

    epochs: int = 200
    batch_size: int = 256
    trust_from: float = 0.05  # first time that rows become trusted
    trust_until: float = 0.25  # last time
    trust_every: float = 0.05
    trust_share: float = 0.4  # of the unlabelled rows, reached at the last time
    teacher_from: float = 0.25  # from here on the teachers average and their students follow them
    teacher_average: float = 0.999  # decay of the teachers' averages per step
    teacher_weight: float = 0.3
    teacher_ramp: float = 0.25  # share of the epochs in which that weight rises from nearly nothing
    agreement_limit: float = 0.1  # the students are held together while that costs less than this share of the loss
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(rate=5e-4, weight_decay=5e-3))


@dataclass(frozen=True, kw_only=True)
class P3MixConfig(PassesConfig):
    """P3MIX-C: mixing with positives near the border, and correction of labels."""

    positives_per_batch: int = 0  # in proportion: many a step are soon known by heart, and others then called negative
    warmup: float = 0.1  # share of the epochs before labels are corrected and partners chosen
    pool: int = 96  # labelled positives nearest to the border
    confident: float = 0.8  # above: becomes positive; between this and one minus this: mixed with the pool
    taken_back: float = 0.5  # below: is no longer positive; 0 = it stays so for good
    teacher_average: float = 0.999  # decay, per step, of the averaged weights that look at the rows and are the model
    mix_concentration: float = 1.0
    entropy_weight: float = 0.1
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(weight_decay=5e-3))


@dataclass(frozen=True, kw_only=True)
class PUUPLConfig(PassesConfig):
    """PUUPL: an ensemble trained anew every round, with labels where it was certain."""

    epochs: int = 50  # a round
    rounds: int = 4  # the first without labels of its own
    members: int = 2
    per_round: int = 1000  # most rows labelled in one round, half of them of each class
    certain: float = 0.05  # mutual information (nats) below which a row may get a label
    doubtful: float = 0.35  # and above which it loses it
    risk_weight: float = 0.9  # of the nnPU risk; the rest is that of the cross-entropy with its own labels
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(weight_decay=5e-3, average=0.999))


@dataclass(frozen=True, kw_only=True)
class DistPUConfig(PassesConfig):
    """Dist-PU: predictions that match the prior, then mixing at a smaller rate."""

    epochs: int = 60  # with mixing
    warmup_epochs: int = 60  # without
    batch_size: int = 256
    positives_per_batch: int = 0  # in proportion, as published: many a step are soon known by heart
    warmup_entropy: float = 0.002  # weight of the entropy of predictions, without mixing
    entropy_weight: float = 0.004  # with mixing: reached at the end, from nothing
    mix_weight: float = 5.0
    mix_entropy: float = 0.04  # weight of the entropy of predictions on mixed rows
    mix_concentration: float = 6.0
    optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(rate=5e-5, weight_decay=1e-3, average=0.999)
    )
    warmup_optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(rate=5e-4, weight_decay=5e-3, average=0.999)
    )
