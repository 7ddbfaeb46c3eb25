"""Every choice a run can make, as typed dataclasses: the same object in Python, in TOML and on the command line.

And which numbers make sense for each numeric key. Settings of methods are the published ones but for what is said.
"""

import math
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """How one stage's weights move."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    rate: float = 1e-3
    weight_decay: float = 0.0  # coupled L2 for adam and sgd, decoupled for adamw
    momentum: float = 0.0  # sgd only
    beta1: float = 0.9  # adam and adamw: memory of the gradient
    beta2: float = 0.999  # adam and adamw: memory of its square
    schedule: Literal["constant", "cosine", "halving"] = "cosine"
    halvings: float = 2.5  # schedule "halving": how many halvings' distance the stage lasts, 2.5 = at 40 % and 80 %
    warmup: float = 0.0  # share of the steps over which the rate rises linearly from zero
    average: float = 0.0  # decay of the weight average per step; 0 = keep the last weights


# Of methods; `splitpu.methods.registry.register` adds to them.
METHOD_NAMES = [
    *("split-pu", "upu", "nnpu", "vpu", "dan", "pubn", "self-pu", "p3mix", "puupl", "dist-pu", "supervised", "naive"),
    *("logistic", "forest", "boosting", "bagging", "elkan-noto"),
]
# What can be the first teacher of Split-PU; "risk" is the nnPU or uPU risk that `base.risk` names.
TeacherName = Literal["risk", "vpu", "dan", "pubn", "self-pu", "p3mix", "puupl", "dist-pu", "supervised", "naive"]


LearnerName = Literal["network", "auto", "logistic", "kernel", "forest", "bagging", "boosting"]


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


Scenario = Literal["single-training-set", "case-control"]


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """The base model, first teacher: a PU risk on all data, unless another method is to be the teacher."""

    method: TeacherName = "risk"  # "risk": as this section says; another method is trained as its own section says
    risk: Literal["nnpu", "upu"] = "nnpu"
    epochs: int = 50
    batch_size: int = 512  # population rows a step
    positives_per_batch: int = 0  # labelled rows a step; 0 = in proportion to their number
    # Which rows stand for the population in the risk: what the sampling scenario says, U alone, or P and U together.
    population: Literal["scenario", "unlabelled", "all"] = "scenario"
    augment: bool = True  # views of the rows instead of plain ones
    views: Literal["weak", "strong"] = "weak"  # which, if so
    nn_beta: float = 0.0  # the nnPU tolerance: how far the negative risk may fall below zero
    nn_gamma: float = 1.0  # the nnPU correction: size of the step back
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """The temporary network that is stopped early to tell easy from hard samples."""

    enabled: bool = True  # False: every unlabelled sample counts as easy (the paper's "w/o early stop")
    tau: float = 0.92  # agreement with the teacher at which the temporary network stops
    max_epochs: int = 60
    batch_size: int = 512
    labels: Literal["soft", "hard"] = "soft"
    include_positives: bool = True  # the labelled positives are learned too, as certain positives
    augment: bool = False
    # Share of the agreeing samples with either label that are easy: those the temporary network is surest of.
    surest_positives: float = 1.0
    surest_negatives: float = 1.0
    tails: float = 0.0  # share of the most confident hard samples (each end) that also count as easy
    optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(name="sgd", rate=1e-3, weight_decay=5e-3, schedule="constant")
    )


@dataclass(frozen=True, kw_only=True)
class StudentConfig:
    """The student: noise-tolerant on easy samples, consistent on hard ones."""

    epochs: int = 100
    batch_size: int = 512  # unlabelled rows a step, easy and hard in proportion to their numbers
    positives_per_batch: int = 0  # 0 = in proportion
    easy_loss: Literal["js", "ce"] = "js"
    labels: Literal["soft", "hard"] = "soft"
    label_views: Literal["weak", "strong"] = "weak"  # in which the rows with labels, taught or known, are seen
    hard_loss: Literal["none", "nnpu", "self", "cross", "dual"] = "dual"
    consistency: Literal["hard", "all"] = "hard"  # which unlabelled samples the consistency terms see
    rho: float = 0.7  # weight on the label in the Jensen-Shannon mixture
    alpha: float = 0.3  # weight of the prediction consistency
    beta: float = 0.1  # weight of the feature consistency
    low_weight: float = 0.3  # weight of the low-level cross-consistency
    low_loss: Literal["mse", "norm"] = "mse"  # the mean of squares, as released, or the length of Eq. 8
    positive_weight: float = 1.0  # weight of the cross-entropy on labelled positives
    # Over which rows losses of labels are averaged: easy rows and positives each by themselves, or, as released, all of
    # them together, so that a positive weighs as much as an easy row.
    label_mean: Literal["apart", "pooled"] = "apart"
    confidence: float = 0.0  # prediction consistency only where max(p, 1-p) of the weak view reaches this
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)


@dataclass(frozen=True, kw_only=True)
class ViewsConfig:
    """What weak and strong views do to a sample. Weak: crop and flip (images), noise (vectors). Strong: all of it."""

    crop_padding: float = 0.125  # share of the image side padded on each edge before the random crop
    flip: bool = True  # mirror left-right half of the time
    rotation: float = 0.0  # degrees an image may be turned either way, in weak and strong views
    zoom: float = 0.0  # share by which an image may grow or shrink, in weak and strong views
    # Strong views enlarge a part of the image, of at least this share of its area, instead of shifting it; 1 = off.
    resized_crop: float = 1.0
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1  # share of the colour circle
    jitter: float = 1.0  # share of the strong views whose colours the four above change
    grey: float = 0.0  # share of the strong views without any colour
    blur: float = 0.0  # share of the strong views out of focus; only where the shorter side has 64 pixels or more
    cutout: float = 0.0  # side of the blanked square, as a share of the image side
    noise: float = 0.1  # standard deviation of the noise on standardised features (vectors)
    dropout: float = 0.1  # share of features replaced by their mean in strong views (vectors)


Criterion = Literal["accuracy", "nnpu", "variational", "none"]


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """What rows that no stage trains on are kept for: choosing the epoch, and calibrating the probabilities."""

    held_out: float = 0.0  # share of the labelled and of the unlabelled rows; 0 = all are trained on
    # The figure by which the best epoch of a stage is kept; none: its last epoch, as without held-out rows.
    # variational: VPU's own loss, the only one that needs no prior.
    criterion: Criterion = "accuracy"
    patience: int = 0  # epochs without a better one after which a stage ends; 0 = it goes to its last epoch
    calibration: Literal["none", "temperature", "platt", "isotonic"] = "none"


@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """Before everything else, without any label: learn features in which two views of one row lie close together."""

    name: Literal["none", "simclr"] = "none"
    epochs: int = 100
    batch_size: int = 512  # rows a step, each seen twice
    temperature: float = 0.5  # lower = more weight on the rows that look most alike
    decoupled: bool = False  # leave the pair itself out of what it is compared with: learns faster in few epochs
    projection: int = 128  # numbers a view is compared by, which a head makes of the features and takes with it
    # Which networks start from the warmed-up weights; `base` stands for the networks of the other methods, too.
    base: bool = True
    split: bool = True
    student: bool = True
    views: ViewsConfig = field(  # an image is mirrored only if the views of the other stages mirror as well
        default_factory=lambda: ViewsConfig(
            crop_padding=0.0, resized_crop=0.2, jitter=0.8, grey=0.2, blur=0.5, noise=0.5, dropout=0.3
        )
    )
    optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(name="sgd", rate=0.6, momentum=0.9, weight_decay=1e-4, warmup=0.1)
    )


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How the arithmetic is done; never what is computed."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 on a GPU, and for images on a CPU, that has it
    capture: Literal["auto", "off"] = "auto"  # auto: the whole step as one CUDA graph
    kernels: Literal["auto", "off"] = "auto"  # auto: on a GPU, layers in kernels of our own where they are faster
    residence: Literal["auto", "device", "host"] = "auto"  # where the training rows are kept
    threads: int = 0  # CPU threads; 0 = choose
    # Parts in which a step's rows go through the network, to save device memory; 0 = one, and more when it runs out. A
    # network that mixes rows, as batch norm does, keeps its batch whole; its activations wait in host memory instead.
    pieces: int = 0
    checkpoint_every: int = 1  # epochs between checkpoints inside a stage; a finished stage is always saved


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run: of Split-PU, unless `method` names another one, which reads its own section only."""

    method: str = "split-pu"  # one of METHOD_NAMES
    # What Split-PU's base and student are: networks, or learners for tables, chosen out of fold ("auto") or by name.
    learner: LearnerName = "network"
    rounds: int = 2
    # Networks that are trained alike from other random weights and speak as one: of Split-PU every student and, unless
    # another method trains it, the base; of the methods that read the base section their one model.
    members: int = 1
    # Where the decision is cut: where the predicted positive rate on the population sample meets the prior, if there is
    # one (nearly meets it, in a gap of the logits, if the prior is an estimate), or where the method itself says, which
    # is at 1/2 for nearly all.
    threshold: Literal["prior", "half"] = "prior"
    # What weights are drawn from: what each layer of torch says, or Kaiming normal with biases of 0, as released.
    initialisation: Literal["torch", "kaiming"] = "torch"
    base: BaseConfig = field(default_factory=BaseConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    student: StudentConfig = field(default_factory=StudentConfig)
    vpu: VPUConfig = field(default_factory=VPUConfig)
    dan: DANConfig = field(default_factory=DANConfig)
    pubn: PUbNConfig = field(default_factory=PUbNConfig)
    self_pu: SelfPUConfig = field(default_factory=SelfPUConfig)
    p3mix: P3MixConfig = field(default_factory=P3MixConfig)
    puupl: PUUPLConfig = field(default_factory=PUUPLConfig)
    dist_pu: DistPUConfig = field(default_factory=DistPUConfig)
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    views: ViewsConfig = field(default_factory=ViewsConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


# Keys that came when there were results already: while they stand at their default they are in no name of a result or
# of a stage, so that what was computed before is still found.
LATER_KEYS = {"initialisation": "torch", "student.low_loss": "mse", "student.label_mean": "apart"}

# The sections of the methods beside Split-PU, in the order of the configuration.
METHOD_SECTIONS = tuple(name for name, section in vars(Config()).items() if isinstance(section, PassesConfig))


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
_WEIGHT = Range(low=0)
_POSITIVE = Range(low=0, low_included=False)
_SHARE = Range(low=0, high=1)
_SHARE_ABOVE_NONE = Range(low=0, high=1, low_included=False)
_DECAY = Range(low=0, high=1, high_included=False)
_HALF_AT_MOST = Range(low=0, high=0.5)
_TWO_OR_MORE = Range(low=2)

_STAGES = ("warmup", "base", "split", "student", *METHOD_SECTIONS)
_OPTIMISERS = (*(f"{stage}.optimiser" for stage in _STAGES), "dist_pu.warmup_optimiser")
_VIEWS = ("views", "warmup.views")

# Which numbers make sense: (sections, the range, its keys in each of these sections). A type is checked before.
_ALLOWED: tuple[tuple[tuple[str, ...], Range, str], ...] = (
    (("base", "student", *METHOD_SECTIONS), _COUNT, "epochs"),
    (("base", "student", *METHOD_SECTIONS), _TWO_OR_MORE, "batch_size"),  # batch normalisation needs two rows
    (("base", "student", *METHOD_SECTIONS), _COUNT_OR_NONE, "positives_per_batch"),
    (_OPTIMISERS, _POSITIVE, "rate"),
    (_OPTIMISERS, _WEIGHT, "weight_decay halvings"),
    (_OPTIMISERS, _DECAY, "momentum beta1 beta2 average"),
    (_OPTIMISERS, _SHARE, "warmup"),
    (_VIEWS, Range(low=0, high=180), "rotation"),
    (_VIEWS, _HALF_AT_MOST, "crop_padding hue"),  # half the colour circle either way is all of it
    (_VIEWS, _DECAY, "zoom dropout"),
    (_VIEWS, _SHARE_ABOVE_NONE, "resized_crop"),
    # Factors of brightness, contrast and saturation are drawn from [1 - x, 1 + x] and must not turn negative.
    (_VIEWS, _SHARE, "brightness contrast saturation jitter grey blur cutout"),
    (_VIEWS, _WEIGHT, "noise"),
    (("warmup",), _COUNT, "epochs projection"),
    (("warmup",), _TWO_OR_MORE, "batch_size"),
    (("warmup",), _POSITIVE, "temperature"),
    (("base",), _WEIGHT, "nn_beta nn_gamma"),
    (("split",), _SHARE_ABOVE_NONE, "tau"),
    (("split",), _COUNT, "max_epochs"),
    (("split",), _TWO_OR_MORE, "batch_size"),
    (("split",), _SHARE, "surest_positives surest_negatives"),
    (("split",), _HALF_AT_MOST, "tails"),  # taken from each end, so half is everything
    (("student",), Range(low=0.01, high=0.99), "rho"),  # beyond, float32 has no digits left for the divergence
    (("student",), _WEIGHT, "alpha beta low_weight positive_weight"),
    (("student",), _SHARE, "confidence"),
    (("selection",), _HALF_AT_MOST, "held_out"),
    (("selection",), _COUNT_OR_NONE, "patience"),
    (("engine",), _COUNT_OR_NONE, "threads pieces"),
    (("engine",), _COUNT, "checkpoint_every"),
    (("vpu",), _HALF_AT_MOST, "held_out"),
    (("vpu", "dist_pu"), _WEIGHT, "mix_weight"),
    (("vpu", "p3mix", "dist_pu"), _POSITIVE, "mix_concentration"),
    (("dan",), _WEIGHT, "anchor"),
    (("dan",), Range(low=0.5, high=1, low_included=False), "anchor_level"),
    (("pubn",), _COUNT, "score_epochs"),
    (("pubn",), Range(low=0, high=1, low_included=False, high_included=False), "certain_share"),
    (("self_pu",), _SHARE, "trust_from trust_until teacher_from teacher_ramp"),
    (("self_pu",), _SHARE_ABOVE_NONE, "trust_every"),
    (("self_pu",), _DECAY, "trust_share"),  # below 1: some rows have to stay under the risk
    (("self_pu",), _WEIGHT, "teacher_weight agreement_limit"),
    (("self_pu", "p3mix"), _DECAY, "teacher_average"),
    (("p3mix",), _SHARE, "warmup taken_back"),
    (("p3mix",), _COUNT, "pool"),
    (("p3mix",), Range(low=0.5, high=1), "confident"),
    (("p3mix", "dist_pu"), _WEIGHT, "entropy_weight"),
    (("puupl",), _COUNT, "rounds"),
    (("puupl",), _TWO_OR_MORE, "members per_round"),  # one network alone is never at odds with itself
    (("puupl",), _WEIGHT, "certain doubtful"),
    (("puupl",), _SHARE, "risk_weight"),
    (("dist_pu",), _COUNT, "warmup_epochs"),
    (("dist_pu",), _WEIGHT, "warmup_entropy mix_entropy"),
)
RANGES: dict[str, Range] = {
    "rounds": _COUNT_OR_NONE,  # 0 = the base model alone
    "members": _COUNT,
    **{f"{section}.{key}": r for sections, r, keys in _ALLOWED for section in sections for key in keys.split()},
}
