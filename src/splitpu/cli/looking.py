"""The commands that look at data, runs and methods and train nothing, unless a refit is asked for."""

from pathlib import Path
from typing import Literal

from splitpu.cli.options import NO_WORDS, AsJson, DataWords, Device, FinishedRun, Flag, Link, Whole, WholeOrNone
from splitpu.config.schema import Scenario


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
) -> int:
    """Estimate the share of positives from labelled and unlabelled rows, by several estimators side by side.

    Parameters
    ----------
    data
        A .npz file with X and s, a .csv or .parquet table (see --label), or the name of a public set. For folders of
        images and for .npy files give --positives and --unlabelled instead.
    scenario
        How the data were sampled: single-training-set or case-control.
    scores
        How rows are compared: by quick classical learners, by the package's networks, or as suits the data.
    seed
        Of everything that is drawn.
    """
    from splitpu.cli.inputs import DataOptions
    from splitpu.cli.prior import run_prior

    asked = DataOptions(data=data, **where.__dict__)
    return run_prior(asked, scenario=scenario, scores=scores, seed=seed, device=device, json=json)


def sensitivity(
    run: FinishedRun,
    /,
    *,
    lowest: float | None = None,
    highest: float | None = None,
    steps: Whole = 7,
    refit: Flag = False,
    device: Device = "auto",
    json: AsJson = False,
) -> int:
    """Show how the decisions of a run change over a range of priors.

    Parameters
    ----------
    lowest
        The smallest prior; from the interval of the estimate, or half the run's prior, if not given.
    highest
        The largest prior.
    steps
        How many priors, the run's own included.
    refit
        Train anew with every prior instead of only moving the threshold.
    """
    from splitpu.cli.sensitivity import run_sensitivity

    return run_sensitivity(run, lowest=lowest, highest=highest, steps=steps, refit=refit, device=device, json=json)


def hard(
    run: FinishedRun,
    /,
    *,
    top: WholeOrNone = None,
    out: Path | None = None,
    copy_to: Path | None = None,
    link: Link = False,
    json: Flag = False,
) -> int:
    """List the hard samples of a run, the most doubtful first, and lay their images into a folder for review.

    Parameters
    ----------
    top
        How many of them; all if not given, of which 20 are shown.
    out
        The file to write them to, CSV or, by the ending .parquet, Parquet; a table is shown if not given.
    copy_to
        A new folder for copies of their images, or of patients' folders, named by rank and probability.
    json
        Print one JSON object; without --out it holds the samples.
    """
    from splitpu.cli.hard import run_hard
    from splitpu.cli.review import ReviewOptions

    return run_hard(run, ReviewOptions(top=top, out=out, copy_to=copy_to, link=link, json=json))


def export(run: FinishedRun, file: Path | None = None, /, *, json: AsJson = False) -> int:
    """Write the final model as one ONNX file that takes raw rows, and check it with onnxruntime.

    Parameters
    ----------
    file
        The file to write; model.onnx in the run folder if not given.
    """
    from splitpu.cli.export import run_export

    return run_export(run, file, json=json)


def info(run: str | None = None, /, *, json: AsJson = False) -> int:
    """Say what is installed and on which hardware, or what a run folder holds.

    Parameters
    ----------
    run
        A run folder, finished or not.
    """
    from splitpu.cli.info import run_info

    return run_info(run, json=json)


def methods(*, json: AsJson = False) -> int:
    """List the methods: when to use which, what each assumes, and where it comes from."""
    from splitpu.cli.methods import run_methods

    return run_methods(json=json)


def data_list(*, json: AsJson = False) -> int:
    """List the named sets and whether they are on this machine."""
    from splitpu.cli.datasets import run_list

    return run_list(json=json)


def data_get(name: str, /, *, json: AsJson = False) -> int:
    """Download a named set into the cache.

    Parameters
    ----------
    name
        One of those that `splitpu data list` shows.
    """
    from splitpu.cli.datasets import run_get

    return run_get(name, json=json)
