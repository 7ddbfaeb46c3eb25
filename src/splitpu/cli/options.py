"""Options that several commands share, and sentences of the library in the words of the command line."""

import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Group, Parameter, Token

from splitpu.config.schema import Scenario
from splitpu.errors import InputError

if TYPE_CHECKING:
    from splitpu.data.sources import SourceWords
    from splitpu.runs.cluster import RayCluster

HELP = tomllib.loads(Path(__file__).with_name("help.toml").read_text(encoding="utf-8"))
Explained = TypeVar("Explained", bound=Callable[..., Any])
USUAL_METHODS = "split-pu,nnpu,dist-pu,naive"  # of a comparison
# Not behind a slash or a dot: there it is part of a file's name.
_AS_IN_PYTHON = re.compile(r"(?<![\w/\\.-])(prior|scenario|device|positives)=(?:'([^']*)'|([\w.:-]*\w))")
_OPTIONS = {"positives": "labelled"}  # where they have other names


def explained(words: Explained) -> Explained:
    """What is decorated, a command or a group of options, with what `help.toml` says of its single words."""
    everywhere = {name: HELP["everywhere"].get(name) for name in inspect.signature(words).parameters}
    texts = {name: text for name, text in everywhere.items() if text} | HELP.get(words.__name__, {})
    said = "".join(f"\n    {name}: {text}" for name, text in texts.items())
    words.__doc__ = inspect.cleandoc(words.__doc__ or "") + (f"\n\nArgs:{said}" if said else "")
    return words


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


@explained
@Parameter(name="*", group=Group("Where the data are", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class DataWords:
    """Where the data are, besides DATA itself; the same words for every command that reads data."""

    positives: Words = None
    unlabelled: Words = None
    labelled: WholeOrNone = None
    test: Words = None
    labels: str | None = None
    size: str | None = None
    strict: Flag = False
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


@explained
@Parameter(name="*", group=Group("How to train", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class TrainingWords:
    """How to train; the same words for every command that trains."""

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


@explained
@Parameter(name="*", group=Group("On a cluster", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class ClusterWords:
    """Where else to run; the same words for every command that runs several things."""

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


def as_options(sentence: str) -> str:
    """The sentence as a user of the command line needs it."""
    return _AS_IN_PYTHON.sub(lambda found: f"--{_OPTIONS.get(found[1], found[1])} {found[2] or found[3]}", sentence)


@explained
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReviewWords:
    """How samples are reviewed."""

    order: Literal["gain", "likely", "random"] = "gain"
    reviewer: Annotated[str, Parameter(name="--as")] = "me"
    port: Whole = 0
    no_browser: Flag = False
    to: Path | None = None
    answers: Annotated[Path | None, Parameter(name="--from")] = None
    top: WholeOrNone = None


@explained
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PriorsTried:
    """Which priors, and whether the run is trained again with each."""

    lowest: float | None = None
    highest: float | None = None
    steps: Whole = 7
    refit: Flag = False


@explained
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PredictWords:
    """Where the scores go."""

    out: Path | None = None
    top: WholeOrNone = None
    copy_to: Path | None = None
    link: Flag = False
    strict: Flag = False
    shard: str | None = None
