"""Every choice a run can make, as typed dataclasses: the same object in Python, in TOML and on the command line."""

from dataclasses import dataclass, field
from typing import Literal

from splitpu.config.methods import (
    DANConfig,
    DistPUConfig,
    MethodName,
    P3MixConfig,
    PassesConfig,
    PUbNConfig,
    PUUPLConfig,
    SelfPUConfig,
    TeacherName,
    VPUConfig,
)
from splitpu.config.optimiser import OptimiserConfig as OptimiserConfig  # at home here for everybody else

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
    positive_weight: float = 1.0  # weight of the cross-entropy on labelled positives
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

    method: MethodName = "split-pu"
    rounds: int = 2
    # Networks that are trained alike from other random weights and speak as one: of Split-PU every student and, unless
    # another method trains it, the base; of the methods that read the base section their one model.
    members: int = 1
    # Where the decision is cut: where the predicted positive rate on the population sample meets the prior, if there is
    # one (nearly meets it, in a gap of the logits, if the prior is an estimate), or where the method itself says, which
    # is at 1/2 for nearly all.
    threshold: Literal["prior", "half"] = "prior"
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


# The sections of the methods beside Split-PU, in the order of the configuration.
METHOD_SECTIONS = tuple(name for name, section in vars(Config()).items() if isinstance(section, PassesConfig))
