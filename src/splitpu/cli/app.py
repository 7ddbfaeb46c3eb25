"""The commands and their options. Nothing heavy is imported here, so that help is there at once."""

from importlib.metadata import version
from pathlib import Path
from typing import Literal

from cyclopts import App

from splitpu.cli import looking
from splitpu.cli.options import Calibration, Flag, Settings, Whole, Words
from splitpu.cli.reproduce import reproduce
from splitpu.config.schema import Scenario

app = App(
    name="splitpu",
    help="A classifier from known positives and unlabelled data.\n\nTry `splitpu demo` first.",
    version=lambda: version("splitpu"),
    result_action="return_value",
)
datasets = App(name="data", help="Named public sets: list them, download them.")
app.command(datasets)
app.command(reproduce)
for command in (looking.prior, looking.sensitivity, looking.export, looking.info, looking.methods):
    app.command(command)
datasets.command(looking.data_list, name="list")
datasets.command(looking.data_get, name="get")


@app.command
def demo(*, out: Path | None = None, quiet: Flag = False, json: Flag = False) -> int:
    """Train on the digits that scikit-learn brings along: even digits are positive, 50 of them are labelled.

    Parameters
    ----------
    out
        The run folder; runs/digits-<time> if not given.
    quiet
        Show no progress.
    json
        Print the result as one JSON object.
    """
    from splitpu.cli.fit import run_demo

    return run_demo(out=out, quiet=quiet, json=json)


@app.command
def fit(
    data: str | None = None,
    /,
    *,
    method: str | None = None,
    prior: float | Literal["auto"] | None = None,
    positives: Words = None,
    unlabelled: Words = None,
    test: Words = None,
    labels: str | None = None,
    size: str | None = None,
    strict: Flag = False,
    label: str | None = None,
    positive_label: str | None = None,
    out: Path | None = None,
    preset: str | None = None,
    config: Path | None = None,
    settings: Settings = None,
    rounds: Whole = None,
    backbone: str | None = None,
    weights: Path | None = None,
    scenario: Scenario | None = None,
    calibration: Calibration | None = None,
    seed: Whole = None,
    device: str | None = None,
    resume: str | None = None,
    keep_checkpoints: Flag = False,
    quiet: Flag = False,
    json: Flag = False,
) -> int:
    """Train Split-PU, or another method, and leave a run folder with the model, its figures and a report page.

    Parameters
    ----------
    data
        A .npz file with X and s (1 = labelled positive, 0 = unlabelled), if you have them also X_test and y_test,
        names and truth; a .csv or .parquet table (see --label); or the name of a public set (see `splitpu data list`).
        For images give --positives and --unlabelled instead.
    method
        split-pu if not given; `splitpu methods` lists the others.
    prior
        Share of positives in the population, or auto to estimate it; if not given, the true one of a named set, else
        auto. Methods that do without it only let their threshold follow it.
    positives
        Folders of images (PNG, JPEG, TIFF, WebP) that are known to be positive; or, for a named set, how many of its
        positives are labelled.
    unlabelled
        Folders of the images that may be positive or not.
    test
        Two folders of images, positives and negatives, to test on; or one table whose label is the truth.
    labels
        A CSV of name and label for images: 1 = labelled positive, 0 or nothing = unlabelled.
    size
        What images are resized to, as 64 or 48x64 (height x width). If not given: their own size if they share one of
        at most 224 pixels, 224 for the longer side of larger ones, and for mixed sizes a square of 32 to 224.
    strict
        Stop at the first image that cannot be read, instead of skipping up to a tenth of them.
    label
        The column of a table that says which rows are labelled: 1 = positive, 0 or empty = unlabelled.
    positive_label
        What that column says of positives, if not 1.
    out
        The run folder; runs/<data>-<time> if not given.
    preset
        Where the settings start from: default or paper.
    config
        A TOML file of settings, laid over the preset.
    settings
        A single setting such as student.epochs=20, laid over both; may be repeated.
    rounds
        Rounds of split and student.
    backbone
        auto, mlp, cnn-small, cnn13 or resnet18.
    weights
        A file of weights that resnet18 starts from, in torchvision's format (.safetensors, or .pth of tensors only).
    scenario
        How the data were sampled: single-training-set (one draw, some of its positives labelled) or case-control (the
        positives were collected apart).
    calibration
        Make probabilities mean what they say, by temperature, platt or isotonic, learned on a fifth of the rows that is
        kept out of the training (or as many as --set selection.held_out=... says).
    seed
        Of everything that is drawn, 0 if not given; the same seed gives the same model.
    device
        auto, cpu or cuda.
    resume
        A run folder to continue; takes data and options from there.
    keep_checkpoints
        Keep the intermediate states of a finished run.
    quiet
        Show no progress.
    json
        Print the result as one JSON object.
    """
    from splitpu.cli.fit import FitOptions, run_fit, run_resume

    asked = FitOptions(
        data=data,
        method=method,
        prior=prior,
        positives=positives,
        unlabelled=unlabelled,
        test=test,
        labels=labels,
        size=size,
        strict=strict or None,
        label=label,
        positive_label=positive_label,
        out=out,
        preset=preset,
        config=config,
        settings=settings,
        rounds=rounds,
        backbone=backbone,
        weights=weights,
        scenario=scenario,
        calibration=calibration,
        seed=seed,
        device=device,
    )
    if resume is not None:
        return run_resume(resume, asked, quiet=quiet, json=json)
    return run_fit(asked, keep_checkpoints=keep_checkpoints, quiet=quiet, json=json)


@app.command
def predict(
    run: str,
    input: Path,
    /,
    *,
    out: Path | None = None,
    top: Whole = None,
    copy_to: Path | None = None,
    link: Flag = False,
    strict: Flag = False,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Score new rows: name, probability of being positive and decision, as CSV or Parquet.

    Parameters
    ----------
    run
        A finished run folder.
    input
        The rows: a .npy file; a .npz file with X and, if you have them, names; a folder of images; a .csv or .parquet
        table with the columns the model was trained on.
    out
        The CSV file, or Parquet by its ending; CSV on standard output if not given.
    top
        How many of the most probable images to lay into --copy-to, for review.
    copy_to
        A new folder for copies of these images, named by rank and probability.
    link
        Make links there instead of copies.
    strict
        Stop at the first image that cannot be read, instead of skipping up to a tenth of them.
    device
        auto, cpu or cuda.
    json
        Print one JSON object; without --out it holds the scores.
    """
    from splitpu.cli.predict import PredictOptions, run_predict

    asked = PredictOptions(out=out, top=top, copy_to=copy_to, link=link, strict=strict, device=device, json=json)
    return run_predict(run, input, asked)


@app.command
def evaluate(run: str, data: str | None = None, /, *, device: str = "auto", json: Flag = False) -> int:
    """Compare a model with the truth, base and final side by side; without truth, estimate its figures from P and U.

    Parameters
    ----------
    run
        A finished run folder.
    data
        A .npz file with X_test and y_test, or X and s without truth, or the name of a public set; the run's own data
        if not given.
    device
        auto, cpu or cuda.
    json
        Print one JSON object.
    """
    from splitpu.cli.evaluate import run_evaluate

    return run_evaluate(run, data, device=device, json=json)
