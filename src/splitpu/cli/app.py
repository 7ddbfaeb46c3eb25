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
    help="A classifier from known positives and unlabelled data.\n\nTry `splitpu demo` first.",
    version=lambda: version("splitpu"),
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
)
datasets = App(name="data", help="Named public sets: list them, download them.")
app.command(datasets)
app.command(compare)
app.command(reproduce)
for command in (looking.hard, looking.prior, looking.sensitivity, looking.export, looking.info, looking.methods):
    app.command(command)
datasets.command(looking.data_list, name="list")
datasets.command(looking.data_get, name="get")


@app.command
def demo(*, out: Path | None = None, quiet: Quiet = False, json: ResultAsJson = False) -> int:
    """Train on the digits that scikit-learn brings along: even digits are positive, 50 of them are labelled.

    Parameters
    ----------
    out
        The run folder; runs/digits-DATE-TIME if not given.
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
    """Train Split-PU, or another method, and leave a run folder with the model, its figures and a report page.

    Parameters
    ----------
    data
        A .npz file with X and s (1 = labelled positive, 0 = unlabelled), if you have them also X_test and y_test,
        names and truth; a .csv or .parquet table (see --label); or the name of a public set (see `splitpu data list`).
        For folders of images and for .npy files give --positives and --unlabelled instead.
    method
        split-pu if not given; `splitpu methods` lists the others.
    prior
        Share of positives in the population; estimated if not given (auto). Of a named set, true takes the true one.
        Methods that learn without it only let their threshold follow it; none has them do without altogether.
    out
        The run folder; runs/DATA-DATE-TIME if not given.
    seed
        Of everything that is drawn, 0 if not given; the same seed gives the same model.
    seeds
        Several instead, such as 0,1,2,3,4: one run folder a seed inside the run folder, with means and deviations. On a
        GPU all are trained at once and share the data; on a CPU one after the other.
    side_by_side
        At most so many of them at once.
    resume
        A run folder to continue; takes data and options from there.
    keep_checkpoints
        Keep the intermediate states of a finished run.
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
    """Score new rows: name, probability of being positive and decision, as CSV or Parquet.

    Parameters
    ----------
    input
        The rows: a .npy file; a .npz file with X and, if you have them, names; one image; a folder of images or of
        patients; a .csv or .parquet table with the columns the model was trained on.
    out
        The file to write, CSV or, by the ending .parquet, Parquet; CSV on standard output if not given.
    top
        How many of the most probable images or patients to lay into --copy-to, for review.
    copy_to
        A new folder for copies of these images, or of patients' folders, named by rank and probability.
    json
        Print one JSON object; without --out it holds the scores.
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
    """Compare a model with the truth, base and final side by side; without truth, estimate its figures from P and U.

    Parameters
    ----------
    data
        A .npz file with X_test and y_test, or X and s without truth; the name of a public set; a table of labelled and
        unlabelled rows. With --test the truth is known, with --positives and --unlabelled it is not. The run's own data
        if nothing is given.
    scenario
        How labelled and unlabelled rows that are given here were sampled: case-control if the positives were collected
        apart from the unlabelled rows; as the run's own rows were if not given.
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
