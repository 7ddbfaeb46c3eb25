"""The commands and their options. Nothing heavy is imported here, so that help is there at once."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter, Token

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


def _whole_number(_: object, tokens: Sequence[Token]) -> int:
    return int(tokens[0].value)  # cyclopts itself would round 1.5 to 2


Whole = Annotated[int | None, Parameter(converter=_whole_number)]
Seed = Annotated[int, Parameter(converter=_whole_number)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Words = Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)]
Settings = Annotated[list[str] | None, Parameter(name="--set", negative=(), consume_multiple=False)]


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


@app.command
def prior(
    data: str,
    /,
    *,
    positives: Whole = None,
    scenario: Scenario = "single-training-set",
    scores: Literal["auto", "classical", "network"] = "auto",
    seed: Seed = 0,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Estimate the share of positives from labelled and unlabelled rows, by several estimators side by side.

    Parameters
    ----------
    data
        A .npz file with X and s, or the name of a public set.
    positives
        How many positives of a named set are labelled.
    scenario
        How the data were sampled: single-training-set or case-control.
    scores
        How rows are compared: by quick classical learners, by the package's networks, or as suits the data.
    seed
        Of everything that is drawn.
    device
        auto, cpu or cuda.
    json
        Print one JSON object.
    """
    from splitpu.cli.prior import run_prior

    return run_prior(data, positives=positives, scenario=scenario, scores=scores, seed=seed, device=device, json=json)


@app.command
def sensitivity(
    run: str,
    /,
    *,
    lowest: float | None = None,
    highest: float | None = None,
    steps: Seed = 7,
    refit: Flag = False,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Show how the decisions of a run change over a range of priors.

    Parameters
    ----------
    run
        A finished run folder.
    lowest
        The smallest prior; from the interval of the estimate, or half the run's prior, if not given.
    highest
        The largest prior.
    steps
        How many priors, the run's own included.
    refit
        Train anew with every prior instead of only moving the threshold.
    device
        auto, cpu or cuda.
    json
        Print one JSON object.
    """
    from splitpu.cli.sensitivity import run_sensitivity

    return run_sensitivity(run, lowest=lowest, highest=highest, steps=steps, refit=refit, device=device, json=json)


@app.command
def export(run: str, /, *, onnx: Path | None = None, json: Flag = False) -> int:
    """Write the final model as one ONNX file that takes raw rows, and check it with onnxruntime.

    Parameters
    ----------
    run
        A finished run folder.
    onnx
        The file to write.
    json
        Print one JSON object.
    """
    from splitpu.cli.export import run_export

    return run_export(run, onnx=onnx, json=json)


@app.command
def info(run: str | None = None, /, *, json: Flag = False) -> int:
    """Say what is installed and on which hardware, or what a run folder holds.

    Parameters
    ----------
    run
        A run folder, finished or not.
    json
        Print one JSON object.
    """
    from splitpu.cli.info import run_info

    return run_info(run, json=json)


@app.command
def methods(*, json: Flag = False) -> int:
    """List the methods: when to use which, what each assumes, and where it comes from.

    Parameters
    ----------
    json
        Print one JSON object.
    """
    from splitpu.cli.methods import run_methods

    return run_methods(json=json)


@datasets.command(name="list")
def data_list(*, json: Flag = False) -> int:
    """List the named sets and whether they are on this machine.

    Parameters
    ----------
    json
        Print one JSON object.
    """
    from splitpu.cli.datasets import run_list

    return run_list(json=json)


@datasets.command(name="get")
def data_get(name: str, /, *, json: Flag = False) -> int:
    """Download a named set into the cache.

    Parameters
    ----------
    name
        digits, breast-cancer, mnist or cifar10.
    json
        Print one JSON object.
    """
    from splitpu.cli.datasets import run_get

    return run_get(name, json=json)
