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
    """Estimate the share of positives in the population from labelled and unlabelled rows, by several estimators.

    Parameters
    ----------
    data
        As for fit: a .npz file with X and s, a .csv or .parquet table (see --label), or the name of a public set. For
        folders of images and for .npy files, give --positives and --unlabelled instead.
    scenario
        How the data were sampled: single-training-set (one draw, some of its positives labelled) or case-control (the
        positives were collected separately).
    scores
        What scores the rows: classical (quick learners), network (slower), or auto (whichever suits the data).
    seed
        The seed of all random draws.
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
    """Show how the decisions of a run would change if the prior were another one.

    Parameters
    ----------
    lowest
        The smallest prior to try. If not given: the lower end of the estimate's interval, or half the run's prior if it
        was not estimated.
    highest
        The largest prior to try. If not given: the upper end of that interval, or half as much again as the run's prior
        (less where that would come near 1).
    steps
        How many priors to try, the run's own included.
    refit
        Train again with every prior, instead of only moving the threshold.
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
    """List the hard samples, those worth a second look, most doubtful first, and copy their images for review.

    Parameters
    ----------
    top
        How many samples. If not given: all, of which the first 20 are shown.
    out
        The file to write: Parquet if its name ends in .parquet, otherwise CSV. If not given, a table is shown.
    copy_to
        A new folder for copies of their images, or of the patients' folders, named by rank and probability.
    json
        Print one JSON object. It holds the samples unless --out is given.
    """
    from splitpu.cli.hard import run_hard
    from splitpu.cli.review import ReviewOptions

    return run_hard(run, ReviewOptions(top=top, out=out, copy_to=copy_to, link=link, json=json))


def export(run: FinishedRun, file: Path | None = None, /, *, json: AsJson = False) -> int:
    """Write the final model as one ONNX file that takes raw rows, and check it with onnxruntime.

    Parameters
    ----------
    file
        The .onnx file to write. If not given: model.onnx in the run folder.
    """
    from splitpu.cli.export import run_export

    return run_export(run, file, json=json)


def info(run: str | None = None, /, *, json: AsJson = False) -> int:
    """Show what a run was asked for and what came out or, without RUN, what is installed and on which hardware.

    Parameters
    ----------
    run
        A run folder, of a finished or an unfinished run.
    """
    from splitpu.cli.info import run_info

    return run_info(run, json=json)


def methods(*, json: AsJson = False) -> int:
    """List the methods: when to use which, what each assumes, and where it comes from."""
    from splitpu.cli.methods import run_methods

    return run_methods(json=json)


def data_list(*, json: AsJson = False) -> int:
    """List the public sets that have a name, and whether they are on this machine."""
    from splitpu.cli.datasets import run_list

    return run_list(json=json)


def data_get(name: str, /, *, json: AsJson = False) -> int:
    """Download a public set into the cache.

    Parameters
    ----------
    name
        The name of a set, as `splitpu data list` shows it.
    """
    from splitpu.cli.datasets import run_get

    return run_get(name, json=json)
