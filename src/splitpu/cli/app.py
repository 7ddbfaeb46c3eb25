"""The commands and their options. Nothing heavy is imported here, so that help is there at once."""

import functools
import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from cyclopts import App, Group

from splitpu.cli import experiments
from splitpu.cli.entry_point import quick_start
from splitpu.cli.options import (
    HELP,
    USUAL_METHODS,
    ClusterWords,
    DataWords,
    Flag,
    PredictWords,
    PriorsTried,
    ReviewWords,
    Share,
    TrainingWords,
    Whole,
    WholeOrNone,
    explained,
)
from splitpu.config.schema import Scenario

Command = Callable[..., int | None]


def run_by(module: str) -> Callable[[Command], Command]:
    """What is decorated are the words of a command; `run_NAME` of this module is given them, and imported only then."""

    def decorate(words: Command) -> Command:
        @functools.wraps(explained(words))
        def command(*given: Any, **options: Any) -> int | None:
            with quick_start():
                run: Command = getattr(importlib.import_module(f"splitpu.cli.{module}"), f"run_{words.__name__}")
            bound = inspect.signature(words).bind(*given, **options)
            bound.apply_defaults()
            return run(*bound.args, **bound.kwargs)

        return command

    return decorate


@run_by("evaluate")
def prior(
    data: str | None = None,
    /,
    *,
    where: DataWords = DataWords(),
    scenario: Scenario = "single-training-set",
    scores: Literal["auto", "classical", "network"] = "auto",
    seed: Whole = 0,
    device: str = "auto",
    json: Flag = False,
) -> None:
    """Estimate the share of positives in the population from labelled and unlabelled rows, by several estimators."""


@run_by("evaluate")
def sensitivity(
    run: str,
    /,
    *,
    tried: PriorsTried = PriorsTried(),
    cluster: ClusterWords = ClusterWords(),
    device: str = "auto",
    json: Flag = False,
) -> None:
    """Show how the decisions of a run would change if the prior were another one."""


@run_by("inspect")
def hard(
    run: str,
    /,
    *,
    top: WholeOrNone = None,
    out: Path | None = None,
    copy_to: Path | None = None,
    link: Flag = False,
    json: Flag = False,
) -> None:
    """List the hard samples, those worth a second look, most doubtful first, and copy their images for review."""


@run_by("review")
def review(run: str, /, *, asked: ReviewWords = ReviewWords(), json: Flag = False) -> None:
    """Open a page that asks about samples, one key an answer; `splitpu refit` then trains with the answers.

    Answers are in answers.jsonl in the run folder, one line each, and in answers.csv, which is made from them."""


@run_by("review")
def refit(run: str, /, *, out: Path | None = None, quiet: Flag = False, json: Flag = False) -> None:
    """Train again as RUN was trained, with the answers of its review: confirmed positives and known negatives."""


@run_by("predict")
def export(run: str, file: Path | None = None, /, *, json: Flag = False) -> None:
    """Write the final model as one ONNX file that takes raw rows, and check it with onnxruntime."""


@explained
def card(run: str, out: Path | None = None, /) -> None:
    """Write a model card, as the Hugging Face Hub has it: what the model learned from, assumes, and how good it is."""
    from splitpu.runs.card import write_card

    print(write_card(run, out))


@run_by("predict")
def embed(
    *inputs: str,
    out: Path,
    backbone: str = "efficientnet-lite0",
    each: Literal["row", "view", "slice"] = "row",
    size: str | None = None,
    series: str | None = None,
    slices: WholeOrNone = None,
    strict: Flag = False,
    json: Flag = False,
) -> None:
    """Write what a pretrained network says of images or volumes, one vector each, for other tools.

    These are the very vectors that fit --features frozen works on, and they are computed once for both."""


@run_by("predict")
def serve(run: str, /, *, host: str = "127.0.0.1", port: Whole = 8000, device: str = "auto") -> None:
    """Serve the model of a run: a page to drop an image or paste rows, and POST /score for programs."""


@run_by("inspect")
def info(run: str | None = None, /, *, json: Flag = False) -> None:
    """Show what a run was asked for and what came out or, without RUN, what is installed and on which hardware."""


@run_by("inspect")
def methods(*, json: Flag = False) -> None:
    """List the methods: when to use which, what each assumes, and where it comes from."""


@run_by("inspect")
def data_list(*, json: Flag = False) -> None:
    """List the public sets that have a name, and whether they are on this machine."""


@run_by("inspect")
def data_get(name: str, /, *, json: Flag = False) -> None:
    """Download a public set into the cache."""


@run_by("several_runs")
def compare(
    data: str | None = None,
    /,
    *,
    method: str = USUAL_METHODS,
    seeds: str = "0,1,2",
    prior: Share = None,
    where: DataWords = DataWords(),
    out: Path | None = None,
    how: TrainingWords = TrainingWords(),
    cluster: ClusterWords = ClusterWords(),
    keep_checkpoints: Flag = False,
    quiet: Flag = False,
    json: Flag = False,
) -> None:
    """Train several methods on the same rows with the same prior and network, and put their figures side by side.

    To continue a comparison that was stopped, give the same command again. Methods and seeds can be added later."""


@run_by("train")
def demo(*, out: Path | None = None, quiet: Flag = False, json: Flag = False) -> None:
    """Try it out: train on the digits that come with scikit-learn. Even digits are positive, 50 of them labelled."""


@run_by("train")
def fit(
    data: str | None = None,
    /,
    *,
    method: str | None = None,
    prior: Share = None,
    where: DataWords = DataWords(),
    out: Path | None = None,
    how: TrainingWords = TrainingWords(),
    seed: WholeOrNone = None,
    seeds: str | None = None,
    cluster: ClusterWords = ClusterWords(),
    keep_checkpoints: Flag = False,
    log: str | None = None,
    quiet: Flag = False,
    json: Flag = False,
) -> None:
    """Train Split-PU, or another method, and write a run folder with the model, its figures and a report page."""


@run_by("train")
def resume(run: str, /, *, cluster: ClusterWords = ClusterWords(), quiet: Flag = False, json: Flag = False) -> None:
    """Continue a run that was stopped or killed, with the data and options it was started with."""


@run_by("predict")
def predict(
    run: str,
    input: Path,
    /,
    *,
    asked: PredictWords = PredictWords(),
    cluster: ClusterWords = ClusterWords(),
    device: str = "auto",
    json: Flag = False,
) -> None:
    """Score new rows: write the name, probability of being positive and decision of each as CSV or Parquet."""


@run_by("predict")
def merge(scores: Path, out: Path, /, *, json: Flag = False) -> None:
    """Make one file of the parts that `predict --shard` or `predict --ray` has written, one row for every input."""


@run_by("evaluate")
def evaluate(
    run: str,
    data: str | None = None,
    /,
    *,
    where: DataWords = DataWords(),
    scenario: Scenario | None = None,
    device: str = "auto",
    json: Flag = False,
) -> None:
    """Say how good a model is: from rows whose truth is known, or else estimated from labelled and unlabelled rows."""


app = App(
    name="splitpu",
    help=HELP["splitpu"]["help"],
    version=lambda: version("splitpu"),
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
)
datasets = App(name="data", help="List or download the public data sets that can be given by name.")
reproduce = App(name="reproduce", help="Run the experiments of the paper, and write the pages of their results.")
for command in (data_list, data_get):
    datasets.command(command, name=command.__name__.removeprefix("data_"))
for name in ("list", "run", "plan", "choose", "smoke", "render"):
    reproduce.command(explained(getattr(experiments, f"reproduce_{name}")), name=name)

# The help names the commands in the order in which most people need them, not in that of the alphabet.
IN_ORDER_OF_NEED: dict[str, tuple[Command | App, ...]] = {
    "Train a model and use it": (demo, fit, resume, predict, merge, hard, evaluate),
    "Hand a model on": (export, embed, card, serve),
    "Ask an expert": (review, refit),
    "Choose and compare": (prior, sensitivity, methods, compare),
    "Look up and reproduce": (info, datasets, reproduce),
}
for title, commands in IN_ORDER_OF_NEED.items():
    group = Group.create_ordered(title)
    for place, one in enumerate(commands):
        app.command(one)
        known = one if isinstance(one, App) else app[one.__name__]
        known.group, known.sort_key = group, place
for place, name in enumerate(("--help", "--version"), start=len(commands)):
    app[name].group, app[name].sort_key = group, place
