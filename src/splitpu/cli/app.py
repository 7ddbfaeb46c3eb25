"""The commands and their options. Nothing heavy is imported here, so that help is there at once."""

from importlib.metadata import version
from pathlib import Path

from cyclopts import App, Group

from splitpu.cli import looking
from splitpu.cli.compare import compare
from splitpu.cli.options import (
    AS_USUAL,
    NO_WORDS,
    AsJson,
    DataWords,
    Device,
    FinishedRun,
    Flag,
    Link,
    Quiet,
    ResultAsJson,
    Share,
    Strict,
    TrainingWords,
    WholeOrNone,
)
from splitpu.cli.quick_start import quick_start
from splitpu.cli.reproduce import reproduce
from splitpu.config.schema import Scenario

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
app.command(datasets)
app.command(compare)
app.command(reproduce)
for command in (looking.hard, looking.prior, looking.sensitivity, looking.export, looking.info, looking.methods):
    app.command(command)
datasets.command(looking.data_list, name="list")
datasets.command(looking.data_get, name="get")


@app.command
def demo(*, out: Path | None = None, quiet: Quiet = False, json: ResultAsJson = False) -> int:
    """Try it out: train on the digits that come with scikit-learn. Even digits are positive, 50 of them labelled.

    Parameters
    ----------
    out
        The run folder to write. If not given: runs/digits-DATE-TIME.
    """
    with quick_start():
        from splitpu.cli.fit import run_demo

    return run_demo(out=out, quiet=quiet, json=json)


@app.command
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
    side_by_side: WholeOrNone = None,
    resume: str | None = None,
    keep_checkpoints: Flag = False,
    quiet: Quiet = False,
    json: ResultAsJson = False,
) -> int:
    """Train Split-PU, or another method, and write a run folder with the model, its figures and a report page.

    Parameters
    ----------
    data
        One of these: a .npz file with X and s (1 = labelled positive, 0 = unlabelled) and, if you have them, X_test and
        y_test, names and truth; a .csv or .parquet table (see --label); the name of a public set (see
        `splitpu data list`). For folders of images and for .npy files, give --positives and --unlabelled instead.
    method
        The method to train (see `splitpu methods`). If not given: split-pu.
    prior
        The share of positives in the population, such as 0.3. auto (if not given) estimates it; true takes the known
        share of a named set; none trains without a prior. Only methods that learn without a prior accept none; with
        one, they use it for their threshold alone.
    out
        The run folder to write. If not given: runs/DATA-DATE-TIME.
    seed
        The seed of all random draws. The same seed gives the same model. If not given: 0.
    seeds
        Several seeds instead of one, such as 0,1,2,3,4. Each has its own run folder inside the run folder, which also
        shows means and deviations. On a GPU all are trained at once and share the data; on a CPU one after the other.
    side_by_side
        With several seeds: train at most this many at once.
    resume
        Continue the run in this folder, with the data and options it was started with.
    keep_checkpoints
        Keep the intermediate states after the run has finished.
    """
    with quick_start():
        from splitpu.cli.fit import FitOptions, run_fit, run_resume

    words = where.__dict__ | how.__dict__
    asked = FitOptions(
        data=data, method=method, prior=prior, out=out, seed=seed, seeds=seeds, side_by_side=side_by_side, **words
    )
    if resume is not None:
        return run_resume(resume, asked, keep_checkpoints=keep_checkpoints, quiet=quiet, json=json)
    return run_fit(asked, keep_checkpoints=keep_checkpoints, quiet=quiet, json=json)


@app.command
def predict(
    run: FinishedRun,
    input: Path,
    /,
    *,
    out: Path | None = None,
    top: WholeOrNone = None,
    copy_to: Path | None = None,
    link: Link = False,
    strict: Strict = False,
    device: Device = "auto",
    json: Flag = False,
) -> int:
    """Score new rows: write the name, probability of being positive and decision of each as CSV or Parquet.

    Parameters
    ----------
    input
        The rows to score: a .npy file; a .npz file with X and, if you have them, names; one image; a folder of images
        or of patients; a .csv or .parquet table with the columns the model was trained on.
    out
        The file to write: Parquet if its name ends in .parquet, otherwise CSV. If not given, CSV is printed.
    top
        How many of the most probable images or patients to copy into --copy-to, for review.
    copy_to
        A new folder for copies of these images, or of the patients' folders, named by rank and probability.
    json
        Print one JSON object. It holds the scores unless --out is given.
    """
    with quick_start():
        from splitpu.cli.predict import PredictOptions, run_predict

    asked = PredictOptions(out=out, top=top, copy_to=copy_to, link=link, strict=strict, device=device, json=json)
    return run_predict(run, input, asked)


@app.command
def evaluate(
    run: FinishedRun,
    data: str | None = None,
    /,
    *,
    where: DataWords = NO_WORDS,
    scenario: Scenario | None = None,
    device: Device = "auto",
    json: AsJson = False,
) -> int:
    """Say how good a model is: from rows whose truth is known, or else estimated from labelled and unlabelled rows.

    Parameters
    ----------
    data
        The rows to judge by: a .npz file with X_test and y_test (truth known) or with X and s (not known); a public set
        (truth known); a table of labelled and unlabelled rows (not known). Or give --test (truth known) or --positives
        and --unlabelled (not known) instead. If nothing is given: the run's own data.
    scenario
        How the labelled and unlabelled rows given here were sampled: case-control if the positives were collected
        separately from the unlabelled rows, else single-training-set. If not given: as for the run.
    """
    from splitpu.cli.evaluate import run_evaluate
    from splitpu.cli.inputs import DataOptions

    asked = DataOptions(data=data, **where.__dict__)
    return run_evaluate(run, asked, scenario=scenario, device=device, json=json)


# The help names the commands in the order in which most people need them, not in that of the alphabet.
IN_ORDER_OF_NEED = {
    "Train a model and use it": ("demo", "fit", "predict", "hard", "evaluate", "export"),
    "Choose and compare": ("prior", "sensitivity", "methods", "compare"),
    "Look up and reproduce": ("info", "data", "reproduce", "--help", "--version"),
}
for title, names in IN_ORDER_OF_NEED.items():
    group = Group.create_ordered(title)
    for place, name in enumerate(names):
        app[name].group, app[name].sort_key = group, place
