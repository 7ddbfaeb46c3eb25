"""Every choice a run can make, as typed dataclasses: the same object in Python, in TOML and on the command line.

Settings of the methods beside Split-PU are the published ones but for what is said beside a line; `upu`, `nnpu`,
`naive` and `supervised` are trained as `base` says. The type of a number also says in which range it makes sense."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True, kw_only=True)
class Range:
    """An interval that can say in words what it allows, so that check and error message never disagree."""

    low: float
    high: float = math.inf
    low_included: bool = True
    high_included: bool = True

    def __contains__(self, value: float) -> bool:
        at_end = (self.low_included and value == self.low) or (self.high_included and value == self.high)
        return self.low < value < self.high or at_end

    def __str__(self) -> str:
        low = f"{'at least' if self.low_included else 'above'} {self.low:g}"
        if self.high == math.inf:
            return low
        return f"{low} and {'at most' if self.high_included else 'below'} {self.high:.15g}"


# Numbers far above anything of use are a slip, or meant to fill the memory or never to end.
Count = Annotated[int, Range(low=1, high=1_000_000)]
CountOrNone = Annotated[int, Range(low=0, high=1_000_000)]
TwoOrMore = Annotated[int, Range(low=2, high=1_000_000)]  # as batch normalisation needs of rows
Weight = Annotated[float, Range(low=0)]
Positive = Annotated[float, Range(low=0, low_included=False)]
Share = Annotated[float, Range(low=0, high=1)]
PositiveShare = Annotated[float, Range(low=0, high=1, low_included=False)]
InnerShare = Annotated[float, Range(low=0, high=1, low_included=False, high_included=False)]
Mostly = Annotated[float, Range(low=0.5, high=1)]
Decay = Annotated[float, Range(low=0, high=1, high_included=False)]
HalfAtMost = Annotated[float, Range(low=0, high=0.5)]


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """How one stage's weights move."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    rate: Positive = 1e-3
    weight_decay: Weight = 0.0  # coupled L2 for adam and sgd, decoupled for adamw
    momentum: Decay = 0.0  # sgd only
    beta1: Decay = 0.9  # adam and adamw: memory of the gradient
    beta2: Decay = 0.999  # adam and adamw: memory of its square
    schedule: Literal["constant", "cosine", "halving"] = "cosine"
    halvings: Weight = 2.5  # schedule "halving": how many halvings' distance the stage lasts, 2.5 = at 40 % and 80 %
    warmup: Share = 0.0  # share of the steps over which the rate rises linearly from zero
    average: Decay = 0.0  # decay of the weight average per step; 0 = keep the last weights


# Of methods; `splitpu.methods.registry.register` adds to them.
LEARNER_METHODS = ("logistic", "forest", "boosting", "bagging", "elkan-noto", "sar-em")
METHOD_NAMES = [
    *("split-pu", "upu", "nnpu", "vpu", "dan", "pubn", "self-pu", "p3mix", "puupl", "dist-pu", "supervised", "naive"),
    *LEARNER_METHODS,
]
# What can be the first teacher of Split-PU; "risk" is the nnPU or uPU risk that `base.risk` names.
TeacherName = Literal["risk", "vpu", "dan", "pubn", "self-pu", "p3mix", "puupl", "dist-pu", "supervised", "naive"]


LearnerName = Literal["network", "auto", "logistic", "kernel", "forest", "bagging", "boosting"]


@dataclass(frozen=True, kw_only=True)
class PassesConfig:
    """What any training has: so many passes over batches of so many rows."""

    epochs: Count = 100
    batch_size: TwoOrMore = 512  # population rows a step, at most as many as there are
    positives_per_batch: CountOrNone = 64  # labelled rows a step, at most as many as there are; 0 = in proportion
    augment: bool = True  # weak views instead of plain ones
    optimiser: OptimiserConfig = OptimiserConfig()


@dataclass(frozen=True, kw_only=True)
class VPUConfig(PassesConfig):
    """VPU: a variational bound with a mixing penalty."""

    epochs: Count = 50
    batch_size: TwoOrMore = 500
    positives_per_batch: CountOrNone = 0  # in proportion; published: 500, which are soon known by heart
    # Share of P and of U that are not trained on: the epoch with the lowest loss on them is the model, as published;
    # 0 = the last epoch. What `selection` says of a stage's epochs comes before it.
    held_out: HalfAtMost = 0.2
    mix_weight: Weight = 0.03
    mix_concentration: Positive = 0.3  # of the Beta distribution of mixing weights
    optimiser: OptimiserConfig = OptimiserConfig(rate=3e-5, beta1=0.5, beta2=0.99, schedule="halving")


@dataclass(frozen=True, kw_only=True)
class DANConfig(PassesConfig):
    """DAN: a discriminator against an adversary, two networks in one training."""

    epochs: Count = 80
    positives_per_batch: CountOrNone = 0  # in proportion: many are soon known by heart, and others then called negative
    anchor: Weight = 1.0  # weight of the cross-entropy on labelled positives, which fixes the scale of the predictions
    # The probability it asks of them: at 1 nothing but the game brings predictions down again.
    anchor_level: Annotated[float, Range(low=0.5, high=1, low_included=False)] = 1.0
    optimiser: OptimiserConfig = OptimiserConfig(rate=1e-4, weight_decay=5e-3, beta1=0.5, average=0.999)


@dataclass(frozen=True, kw_only=True)
class PUbNConfig(PassesConfig):
    r"""PUbN\N: one network finds where negatives are certain, a second one learns with that."""

    score_epochs: Count = 60  # of the first network; `epochs` are those of the second
    epochs: Count = 60
    batch_size: TwoOrMore = 500  # published: 100 beside 10 positives, of a fifth as many rows; this is the same ratio
    positives_per_batch: CountOrNone = 50
    certain_share: InnerShare = 0.9  # of the expected negatives (tau in the paper)
    optimiser: OptimiserConfig = OptimiserConfig(weight_decay=5e-3, average=0.999)


@dataclass(frozen=True, kw_only=True)
class SelfPUConfig(PassesConfig):
    """Self-PU: two students with a teacher each, a growing set of trusted rows. Moments are shares of the epochs."""

    epochs: Count = 200
    batch_size: TwoOrMore = 256
    trust_from: Share = 0.05  # first time that rows become trusted
    trust_until: Share = 0.25  # last time
    trust_every: PositiveShare = 0.05
    trust_share: Decay = 0.4  # of the unlabelled rows, reached at the last time; some have to stay under the risk
    teacher_from: Share = 0.25  # from here on the teachers average and their students follow them
    teacher_average: Decay = 0.999  # decay of the teachers' averages per step
    teacher_weight: Weight = 0.3
    teacher_ramp: Share = 0.25  # share of the epochs in which that weight rises from nearly nothing
    agreement_limit: Weight = 0.1  # the students are held together while that costs less than this share of the loss
    optimiser: OptimiserConfig = OptimiserConfig(rate=5e-4, weight_decay=5e-3)


@dataclass(frozen=True, kw_only=True)
class P3MixConfig(PassesConfig):
    """P3MIX-C: mixing with positives near the border, and correction of labels."""

    positives_per_batch: CountOrNone = 0  # in proportion: many are soon known by heart, and others then called negative
    warmup: Share = 0.1  # share of the epochs before labels are corrected and partners chosen
    pool: Count = 96  # labelled positives nearest to the border
    confident: Mostly = 0.8  # above: becomes positive; between this and one minus this: mixed with the pool
    taken_back: Share = 0.5  # below: is no longer positive; 0 = it stays so for good
    teacher_average: Decay = 0.999  # decay, per step, of the averaged weights that look at the rows and are the model
    mix_concentration: Positive = 1.0
    entropy_weight: Weight = 0.1
    optimiser: OptimiserConfig = OptimiserConfig(weight_decay=5e-3)


@dataclass(frozen=True, kw_only=True)
class PUUPLConfig(PassesConfig):
    """PUUPL: an ensemble trained anew every round, with labels where it was certain."""

    epochs: Count = 50  # a round
    rounds: Annotated[int, Range(low=1, high=1000)] = 4  # the first without labels of its own
    members: Annotated[int, Range(low=2, high=100)] = 2  # one network alone is never at odds with itself
    per_round: TwoOrMore = 1000  # most rows labelled in one round, half of them of each class
    certain: Weight = 0.05  # mutual information (nats) below which a row may get a label
    doubtful: Weight = 0.35  # and above which it loses it
    risk_weight: Share = 0.9  # of the nnPU risk; the rest is that of the cross-entropy with its own labels
    optimiser: OptimiserConfig = OptimiserConfig(weight_decay=5e-3, average=0.999)


@dataclass(frozen=True, kw_only=True)
class DistPUConfig(PassesConfig):
    """Dist-PU: predictions that match the prior, then mixing at a smaller rate."""

    epochs: Count = 60  # with mixing
    warmup_epochs: Count = 60  # without
    batch_size: TwoOrMore = 256
    positives_per_batch: CountOrNone = 0  # in proportion, as published: many a step are soon known by heart
    warmup_entropy: Weight = 0.002  # weight of the entropy of predictions, without mixing
    entropy_weight: Weight = 0.004  # with mixing: reached at the end, from nothing
    mix_weight: Weight = 5.0
    mix_entropy: Weight = 0.04  # weight of the entropy of predictions on mixed rows
    mix_concentration: Positive = 6.0
    optimiser: OptimiserConfig = OptimiserConfig(rate=5e-5, weight_decay=1e-3, average=0.999)
    warmup_optimiser: OptimiserConfig = OptimiserConfig(rate=5e-4, weight_decay=5e-3, average=0.999)


Scenario = Literal["single-training-set", "case-control"]


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """The base model, first teacher: a PU risk on all data, unless another method is to be the teacher."""

    method: TeacherName = "risk"  # "risk": as this section says; another method is trained as its own section says
    risk: Literal["nnpu", "upu"] = "nnpu"
    epochs: Count = 50
    batch_size: TwoOrMore = 512  # population rows a step
    positives_per_batch: CountOrNone = 0  # labelled rows a step; 0 = in proportion to their number
    # Which rows stand for the population in the risk: what the sampling scenario says, U alone, or P and U together.
    population: Literal["scenario", "unlabelled", "all"] = "scenario"
    augment: bool = True  # views of the rows instead of plain ones
    views: Literal["weak", "strong"] = "weak"  # which, if so
    half_size: Decay = 0.0  # share of the epochs, the first ones, in which images are seen at half their size
    nn_beta: Weight = 0.0  # the nnPU tolerance: how far the negative risk may fall below zero
    nn_gamma: Weight = 1.0  # the nnPU correction: size of the step back
    optimiser: OptimiserConfig = OptimiserConfig()


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """The temporary network that is stopped early to tell easy from hard samples."""

    enabled: bool = True  # False: every unlabelled sample counts as easy (the paper's "w/o early stop")
    tau: PositiveShare = 0.92  # agreement with the teacher at which the temporary network stops
    max_epochs: Count = 60
    batch_size: TwoOrMore = 512
    labels: Literal["soft", "hard"] = "soft"
    include_positives: bool = True  # the labelled positives are learned too, as certain positives
    augment: bool = False
    # Share of the agreeing samples with either label that are easy: those the temporary network is surest of.
    surest_positives: Share = 1.0
    surest_negatives: Share = 1.0
    tails: HalfAtMost = 0.0  # share of the most confident hard samples (each end) that also count as easy
    optimiser: OptimiserConfig = OptimiserConfig(name="sgd", rate=1e-3, weight_decay=5e-3, schedule="constant")


@dataclass(frozen=True, kw_only=True)
class StudentConfig:
    """The student: noise-tolerant on easy samples, consistent on hard ones."""

    epochs: Count = 100
    batch_size: TwoOrMore = 512  # unlabelled rows a step, easy and hard in proportion to their numbers
    positives_per_batch: CountOrNone = 0  # 0 = in proportion
    half_size: Decay = 0.0  # share of the epochs, the first ones, in which images are seen at half their size
    start: Literal["fresh", "teacher"] = "fresh"  # weights drawn as the base's are, or those of its teacher
    easy_loss: Literal["js", "ce"] = "js"
    labels: Literal["soft", "hard"] = "soft"
    label_views: Literal["weak", "strong"] = "weak"  # in which the rows with labels, taught or known, are seen
    hard_loss: Literal["none", "nnpu", "self", "cross", "dual"] = "dual"
    consistency: Literal["hard", "all"] = "hard"  # which unlabelled samples the consistency terms see
    # Of the label in the mixture; beyond, float32 has no digits left.
    rho: Annotated[float, Range(low=0.01, high=0.99)] = 0.7
    alpha: Weight = 0.3  # weight of the prediction consistency
    beta: Weight = 0.1  # weight of the feature consistency
    low_weight: Weight = 0.3  # weight of the low-level cross-consistency
    low_loss: Literal["mse", "norm"] = "mse"  # the mean of squares, as released, or the length of Eq. 8
    positive_weight: Weight = 1.0  # weight of the cross-entropy on labelled positives
    # Over which rows losses of labels are averaged: easy rows and positives each by themselves, or, as released, all of
    # them together, so that a positive weighs as much as an easy row.
    label_mean: Literal["apart", "pooled"] = "apart"
    confidence: Share = 0.0  # prediction consistency only where max(p, 1-p) of the weak view reaches this
    optimiser: OptimiserConfig = OptimiserConfig()


@dataclass(frozen=True, kw_only=True)
class ViewsConfig:
    """What weak and strong views do to a sample. Weak: crop and flip (images), noise (vectors). Strong: all of it."""

    crop_padding: HalfAtMost = 0.125  # share of the image side padded on each edge before the random crop
    flip: bool = True  # mirror left-right half of the time
    rotation: Annotated[float, Range(low=0, high=180)] = 0.0  # degrees an image may be turned either way, in all views
    zoom: Decay = 0.0  # share by which an image may grow or shrink, in weak and strong views
    # Strong views enlarge a part of the image, of at least this share of its area, instead of shifting it; 1 = off.
    resized_crop: PositiveShare = 1.0
    brightness: Share = 0.4
    contrast: Share = 0.4
    saturation: Share = 0.4
    hue: HalfAtMost = 0.1  # share of the colour circle
    jitter: Share = 1.0  # share of the strong views whose colours the four above change
    grey: Share = 0.0  # share of the strong views without any colour
    blur: Share = 0.0  # share of the strong views out of focus; only where the shorter side has 64 pixels or more
    cutout: Share = 0.0  # side of the blanked square, as a share of the image side
    noise: Weight = 0.1  # standard deviation of the noise on standardised features (vectors)
    dropout: Decay = 0.1  # share of features replaced by their mean in strong views (vectors)


Criterion = Literal["accuracy", "nnpu", "variational", "none"]


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """What rows that no stage trains on are kept for: choosing the epoch, and calibrating the probabilities."""

    held_out: HalfAtMost = 0.0  # share of the labelled and of the unlabelled rows; 0 = all are trained on
    # The figure by which the best epoch of a stage is kept; none: its last epoch, as without held-out rows.
    # variational: VPU's own loss, the only one that needs no prior.
    criterion: Criterion = "accuracy"
    # Parts of P and U that rounds are trained without once more: a student is taken if it ranks them better; 0, 1: none
    folds: Annotated[int, Range(low=0, high=20)] = 0
    patience: CountOrNone = 0  # epochs without a better one after which a stage ends; 0 = it goes to its last epoch
    calibration: Literal["none", "temperature", "platt", "isotonic"] = "none"


@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """Before everything else, without any label: learn features in which two views of one row lie close together."""

    name: Literal["none", "simclr"] = "none"
    epochs: Count = 100
    batch_size: TwoOrMore = 512  # rows a step, each seen twice
    temperature: Positive = 0.5  # lower = more weight on the rows that look most alike
    decoupled: bool = False  # leave the pair itself out of what it is compared with: learns faster in few epochs
    projection: Count = 128  # numbers a view is compared by, which a head makes of the features and takes with it
    # Which networks start from the warmed-up weights; `base` stands for the networks of the other methods, too.
    base: bool = True
    split: bool = True
    student: bool = True
    views: ViewsConfig = ViewsConfig(  # an image is mirrored only if the views of the other stages mirror as well
        crop_padding=0.0, resized_crop=0.2, jitter=0.8, grey=0.2, blur=0.5, noise=0.5, dropout=0.3
    )
    optimiser: OptimiserConfig = OptimiserConfig(name="sgd", rate=0.6, momentum=0.9, weight_decay=1e-4, warmup=0.1)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How the arithmetic is done; never what is computed."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 on a GPU, and for images on a CPU, that has it
    capture: Literal["auto", "off"] = "auto"  # auto: the whole step as one CUDA graph
    kernels: Literal["auto", "off"] = "auto"  # auto: on a GPU, layers in kernels of our own where they are faster
    residence: Literal["auto", "device", "host"] = "auto"  # where the training rows are kept
    threads: Annotated[int, Range(low=0, high=512)] = 0  # CPU threads; 0 = choose
    # Parts in which a step's rows go through the network, to save device memory; 0 = one, and more when it runs out. A
    # network that mixes rows, as batch norm does, keeps its batch whole; its activations wait in host memory instead.
    pieces: CountOrNone = 0
    checkpoint_every: Count = 1  # epochs between checkpoints inside a stage; a finished stage is always saved


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run: of Split-PU, unless `method` names another one, which reads its own section only."""

    method: str = "split-pu"  # one of METHOD_NAMES
    # What Split-PU's base and student are: networks, or learners for tables, chosen out of fold ("auto") or by name.
    learner: LearnerName = "network"
    # Of sar-em: the columns that labels may depend on, with commas, by name or, where they have none, by number from 0.
    labelled_by: str = ""
    rounds: Annotated[int, Range(low=0, high=1000)] = 2  # 0 = the base model alone
    # Networks that are trained alike from other random weights and speak as one: of Split-PU every student and, unless
    # another method trains it, the base; of the methods that read the base section their one model.
    members: Annotated[int, Range(low=1, high=100)] = 1
    # Where the decision is cut: where the predicted positive rate on the population sample meets the prior, if there is
    # one (nearly meets it, in a gap of the logits, if the prior is an estimate), or where the method itself says, which
    # is at 1/2 for nearly all. f1: between the prior and the share for which P, U and the prior let expect the highest
    # F1; only of learners, as their scores are out of fold, and what tables get that say nothing else.
    threshold: Literal["prior", "half", "f1"] = "prior"
    # What weights are drawn from: what each layer of torch says, or Kaiming normal with biases of 0, as released.
    initialisation: Literal["torch", "kaiming"] = "torch"
    base: BaseConfig = BaseConfig()
    split: SplitConfig = SplitConfig()
    student: StudentConfig = StudentConfig()
    vpu: VPUConfig = VPUConfig()
    dan: DANConfig = DANConfig()
    pubn: PUbNConfig = PUbNConfig()
    self_pu: SelfPUConfig = SelfPUConfig()
    p3mix: P3MixConfig = P3MixConfig()
    puupl: PUUPLConfig = PUUPLConfig()
    dist_pu: DistPUConfig = DistPUConfig()
    warmup: WarmupConfig = WarmupConfig()
    views: ViewsConfig = ViewsConfig()
    selection: SelectionConfig = SelectionConfig()
    engine: EngineConfig = EngineConfig()


# Keys that came when there were results already: while they stand at their default they are in no name of a result or
# of a stage, so that what was computed before is still found.
LATER_KEYS = {
    **{"initialisation": "torch", "labelled_by": "", "student.low_loss": "mse", "student.label_mean": "apart"},
    **{"base.half_size": 0.0, "student.half_size": 0.0, "student.start": "fresh", "selection.folds": 0},
}

# The sections of the methods beside Split-PU, in the order of the configuration.
METHOD_SECTIONS = tuple(name for name, section in vars(Config()).items() if isinstance(section, PassesConfig))
