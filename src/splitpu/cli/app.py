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
    AS_USUAL,
    FIRST_REVIEW,
    HERE,
    NO_WORDS,
    SEVEN_PRIORS,
    TO_BE_PRINTED,
    USUAL_METHODS,
    AsJson,
    ClusterWords,
    DataWords,
    Device,
    FinishedRun,
    Flag,
    Link,
    PredictWords,
    PriorsTried,
    Quiet,
    ResultAsJson,
    ReviewWords,
    Share,
    Strict,
    TrainingWords,
    Whole,
    WholeOrNone,
)
from splitpu.config.schema import Scenario

Command = Callable[..., int | None]


def run_by(module: str) -> Callable[[Command], Command]:
    """What is decorated are the words of a command; `run_NAME` of this module is given them, and imported only then."""

    def decorate(words: Command) -> Command:
        @functools.wraps(words)
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
    where: DataWords = NO_WORDS,
    scenario: Scenario = "single-training-set",
    scores: Literal["auto", "classical", "network"] = "auto",
    seed: Whole = 0,
    device: Device = "auto",
    json: AsJson = False,
) -> None:
    """Estimate the share of positives in the population from labelled and unlabelled rows, by several estimators.

    Args:
        data: As for fit: a .npz file with X and s, a .csv or .parquet table (see --label), or the name of a public set.
            For folders of images and for .npy files, give --positives and --unlabelled instead.
        scenario: How the data were sampled: single-training-set (one draw, some of its positives labelled) or
            case-control (the positives were collected separately).
        scores: What scores the rows: classical (quick learners), network (slower), or auto (whichever suits the data).
        seed: The seed of all random draws.
    """


@run_by("evaluate")
def sensitivity(
    run: FinishedRun,
    /,
    *,
    tried: PriorsTried = SEVEN_PRIORS,
    cluster: ClusterWords = HERE,
    device: Device = "auto",
    json: AsJson = False,
) -> None:
    """Show how the decisions of a run would change if the prior were another one."""


@run_by("inspect")
def hard(
    run: FinishedRun,
    /,
    *,
    top: WholeOrNone = None,
    out: Path | None = None,
    copy_to: Path | None = None,
    link: Link = False,
    json: Flag = False,
) -> None:
    """List the hard samples, those worth a second look, most doubtful first, and copy their images for review.

    Args:
        top: How many samples. If not given: all, of which the first 20 are shown.
        out: The file to write: Parquet if its name ends in .parquet, otherwise CSV. If not given, a table is shown.
        copy_to: A new folder for copies of their images, or of the patients' folders, named by rank and probability.
        json: Print one JSON object. It holds the samples unless --out is given.
    """


@run_by("review")
def review(run: FinishedRun, /, *, asked: ReviewWords = FIRST_REVIEW, json: AsJson = False) -> None:
    """Open a page that asks about samples, one key an answer; `splitpu refit` then trains with the answers.

    Answers are in answers.jsonl in the run folder, one line each, and in answers.csv, which is made from them.
    """


@run_by("review")
def refit(run: FinishedRun, /, *, out: Path | None = None, quiet: Quiet = False, json: ResultAsJson = False) -> None:
    """Train again as RUN was trained, with the answers of its review: confirmed positives and known negatives.

    Args:
        out: The run folder to write. If not given: runs/DATA-refit-DATE-TIME.
    """


@run_by("predict")
def export(run: FinishedRun, file: Path | None = None, /, *, json: AsJson = False) -> None:
    """Write the final model as one ONNX file that takes raw rows, and check it with onnxruntime.

    Args:
        file: The .onnx file to write. If not given: model.onnx in the run folder.
    """


def card(run: FinishedRun, out: Path | None = None, /) -> None:
    """Write a model card: what the model learned from, how good it is, what it assumes, as the Hugging Face Hub has it.

    Args:
        out: The Markdown file to write. If not given: README.md in the run folder.
    """
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
    strict: Strict = False,
    json: AsJson = False,
) -> None:
    """Write what a pretrained network says of images or volumes, one vector each, for other tools.

    These are the very vectors that fit --features frozen works on, and they are computed once for both.

    Args:
        inputs: Folders of images or of patients; or one .npy or .npz file of images; or the name of a public set.
        out: The file to write: .npy, with the names of its rows beside it in .names.csv; .npz with X and names; or
            .parquet with a column of names.
        backbone: The network: efficientnet-lite0, -lite1 or -lite2, timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER.
        each: What has a vector of its own: every row (the mean over views of it; of a volume, over slices, too), every
            view of a row, or every slice of a volume.
        size: The size to resize images to, as for fit.
        series: For patients: which DICOM series to take, as for fit.
        slices: For patients: the largest number of slices, as for fit.
    """


@run_by("predict")
def serve(run: FinishedRun, /, *, host: str = "127.0.0.1", port: Whole = 8000, device: Device = "auto") -> None:
    """Serve the model of a run: a page to drop an image or paste rows, and POST /score for programs.

    Args:
        host: The address to listen on. Other machines can ask only if another one than the usual is given, and anybody
            there can: nobody has to say who they are.
        port: The port; 0 takes a free one.
    """


@run_by("inspect")
def info(run: str | None = None, /, *, json: AsJson = False) -> None:
    """Show what a run was asked for and what came out or, without RUN, what is installed and on which hardware.

    Args:
        run: A run folder, of a finished or an unfinished run.
    """


@run_by("inspect")
def methods(*, json: AsJson = False) -> None:
    """List the methods: when to use which, what each assumes, and where it comes from."""


@run_by("inspect")
def data_list(*, json: AsJson = False) -> None:
    """List the public sets that have a name, and whether they are on this machine."""


@run_by("inspect")
def data_get(name: str, /, *, json: AsJson = False) -> None:
    """Download a public set into the cache.

    Args:
        name: The name of a set, as `splitpu data list` shows it.
    """


@run_by("several_runs")
def compare(
    data: str | None = None,
    /,
    *,
    method: str = USUAL_METHODS,
    seeds: str = "0,1,2",
    prior: Share = None,
    where: DataWords = NO_WORDS,
    out: Path | None = None,
    how: TrainingWords = AS_USUAL,
    cluster: ClusterWords = HERE,
    keep_checkpoints: Flag = False,
    quiet: Quiet = False,
    json: ResultAsJson = False,
) -> None:
    """Train several methods on the same rows with the same prior and network, and put their figures side by side.

    To continue a comparison that was stopped, give the same command again. Methods and seeds can be added later.

    Args:
        data: As for fit: a .npz file, a .csv or .parquet table (see --label), or the name of a public set. For folders
            of images and for .npy files, give --positives and --unlabelled instead.
        method: The methods, separated by commas (see `splitpu methods`). All others are compared with the first.
            supervised works only where the truth of the training rows is known. If not given, for texts, other sparse
            rows and groups, which networks do not take: split-pu, logistic and elkan-noto.
        seeds: Seeds, separated by commas: one run for each method and seed, one after the other, so that their seconds
            can be compared. For a named set, each seed draws other labels. A single seed says nothing about chance.
        prior: The share of positives in the population, such as 0.3. auto (if not given) estimates it once for all
            methods (for a named set, once for each draw of labels); true takes the known share of a named set; none if
            all methods are to do without.
        out: The folder for all runs; runs.jsonl in it has a line for each. If not given: runs/compare-DATA-..., which
            is the same for the same command.
        keep_checkpoints: Keep the intermediate states of finished runs.
    """


@run_by("train")
def demo(*, out: Path | None = None, quiet: Quiet = False, json: ResultAsJson = False) -> None:
    """Try it out: train on the digits that come with scikit-learn. Even digits are positive, 50 of them labelled.

    Args:
        out: The run folder to write. If not given: runs/digits-DATE-TIME.
    """


@run_by("train")
def fit(
    data: str | None = None,
    /,
    *,
    method: str | None = None,
    prior: Share = None,
    where: DataWords = NO_WORDS,
    out: Path | None = None,
    how: TrainingWords = AS_USUAL,
    seed: WholeOrNone = None,
    seeds: str | None = None,
    cluster: ClusterWords = HERE,
    keep_checkpoints: Flag = False,
    log: str | None = None,
    quiet: Quiet = False,
    json: ResultAsJson = False,
) -> None:
    """Train Split-PU, or another method, and write a run folder with the model, its figures and a report page.

    Args:
        data: One of these: a .npz file with X and s (1 = labelled positive, 0 = unlabelled) and, if you have them,
            X_test and y_test, names and truth; a .csv or .parquet table (see --label); the name of a public set (see
            `splitpu data list`). For folders of images and for .npy files, give --positives and --unlabelled instead.
        method: The method to train (see `splitpu methods`). If not given: split-pu.
        prior: The share of positives in the population, such as 0.3. auto (if not given) estimates it; true takes the
            known share of a named set; none trains without a prior. Only methods that learn without a prior accept
            none; with one, they use it for their threshold alone.
        out: The run folder to write. If not given: runs/DATA-DATE-TIME.
        seed: The seed of all random draws. The same seed gives the same model. If not given: 0.
        seeds: Several seeds instead of one, such as 0,1,2,3,4. Each has its own run folder inside the run folder, which
            also shows means and deviations. They are trained one after the other, or several at once with --ray.
        keep_checkpoints: Keep the intermediate states after the run has finished.
        log: Where to send every epoch and the result as well: tensorboard (into the run folder) or mlflow (where
            MLFLOW_TRACKING_URI says).
    """


@run_by("train")
def resume(run: str, /, *, cluster: ClusterWords = HERE, quiet: Quiet = False, json: ResultAsJson = False) -> None:
    """Continue a run that was stopped or killed, with the data and options it was started with.

    Args:
        run: The folder of the run, or of the runs of several seeds. A finished run is only shown again.
    """


@run_by("predict")
def predict(
    run: FinishedRun,
    input: Path,
    /,
    *,
    asked: PredictWords = TO_BE_PRINTED,
    cluster: ClusterWords = HERE,
    device: Device = "auto",
    json: Flag = False,
) -> None:
    """Score new rows: write the name, probability of being positive and decision of each as CSV or Parquet.

    Args:
        input: The rows to score: a .npy file; a .npz file with X and, if you have them, names; one image; a folder of
            images or of patients; a .csv or .parquet table with the columns the model was trained on.
        json: Print one JSON object. It holds the scores unless --out is given.
    """


@run_by("predict")
def merge(scores: Path, out: Path, /, *, json: AsJson = False) -> None:
    """Make one file of the parts that `predict --shard` or `predict --ray` has written, one row for every input.

    Args:
        scores: The folder of the parts, of which none may be missing.
        out: The file to write: Parquet if its name ends in .parquet, otherwise CSV.
    """


@run_by("evaluate")
def evaluate(
    run: FinishedRun,
    data: str | None = None,
    /,
    *,
    where: DataWords = NO_WORDS,
    scenario: Scenario | None = None,
    device: Device = "auto",
    json: AsJson = False,
) -> None:
    """Say how good a model is: from rows whose truth is known, or else estimated from labelled and unlabelled rows.

    Args:
        data: The rows to judge by: a .npz file with X_test and y_test (truth known) or with X and s (not known); a
            public set (truth known); a table of labelled and unlabelled rows (not known). Or give --test (truth known)
            or --positives and --unlabelled (not known) instead. If nothing is given: the run's own data.
        scenario: How the labelled and unlabelled rows given here were sampled: case-control if the positives were
            collected separately from the unlabelled rows, else single-training-set. If not given: as for the run.
    """


app = App(
    name="splitpu",
    help=(
        "Train a classifier from a few known positives and unlabelled data.\n\nStart with `splitpu demo`, then run "
        "`splitpu fit` on data of your own. `splitpu COMMAND --help` lists the options of a command."
    ),
    version=lambda: version("splitpu"),
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
)
datasets = App(name="data", help="List or download the public data sets that can be given by name.")
reproduce = App(name="reproduce", help="Run the experiments of the paper, and write the pages of their results.")
for command in (data_list, data_get):
    datasets.command(command, name=command.__name__.removeprefix("data_"))
for name in ("list", "run", "plan", "choose", "smoke", "render"):
    reproduce.command(getattr(experiments, f"reproduce_{name}"), name=name)

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
