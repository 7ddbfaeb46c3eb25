"""`splitpu reproduce`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from splitpu.cli.options import Device, Flag, Whole


def reproduce(
    name: str | None = None,
    /,
    *,
    recipe: str | None = None,
    method: str | None = None,
    seeds: str | None = None,
    positives: str | None = None,
    minutes: float | None = None,
    fill: Flag = False,
    results: Path = Path("results"),
    cache: Path | None = None,
    datasets: Path | None = None,
    data_dir: Path | None = None,
    docs: Path = Path("docs"),
    device: Device = "auto",
    side_by_side: Whole = 1,
    commit: str | None = None,
    only_list: Annotated[bool, Parameter(name="--list", negative=(), show_default=False)] = False,
    dry_run: Flag = False,
    choose: Flag = False,
    smoke: Flag = False,
    render: Flag = False,
) -> int:
    """Run a table or figure of the paper unit by unit, or write the result pages.

    Units that are done are skipped, an interrupted one goes on, and results of several machines merge by copying files.

    Parameters
    ----------
    name
        main, early-stop, rho, ... (--list alone names them); several with commas, or all.
    recipe
        paper, default or record; all that the experiment declares if not given.
    method
        Only this method, or several with commas (see `splitpu methods`), whether the experiment declares it or not; of
        `teachers` the students of this method. All that the experiment declares if not given.
    seeds
        Whole numbers with commas, such as 0,1,2.
    positives
        Numbers of labelled positives with commas, such as 500,1000.
    minutes
        Stop cleanly before so many minutes are over; the same command goes on later.
    fill
        Use the minutes up: start units that may not end in them, too. They go on later if --cache is still there.
    results
        The folder of the result lines.
    cache
        The folder of finished stages, which all experiments share.
    datasets
        The cache of the data sets.
    data_dir
        The folder of sets that are read from files (busi, adrenal, breastmnist); if not given, $SPLITPU_DATA or the
        cache.
    docs
        The folder that --render writes to.
    side_by_side
        How many units to run at once on one GPU; they share the data there, and stages that several need.
    commit
        The commit that results are noted with, where the code is not a git checkout.
    only_list
        List the units of the experiments and whether they are done; without NAME, list the experiments.
    dry_run
        Print what would be run, in which order, and how long each unit may take on a GPU.
    choose
        Say which candidate of a choice (recipe-choice) its criterion picks, from the lines that are there.
    smoke
        Run every experiment, whichever is named, and every method for one tiny unit on the CPU.
    render
        Write RESULTS.md and results.html from the lines that are there.
    """
    from splitpu.comma_lists import parse_numbers, parse_words
    from splitpu.experiments.command import Order, carry_out_politely

    order = Order(
        names=name,
        recipe=recipe,
        methods=parse_words(method, "--method", "vpu or vpu,dan") if method is not None else None,
        positives=parse_numbers(positives, "--positives") if positives is not None else None,
        seeds=parse_numbers(seeds, "--seeds") if seeds is not None else None,
        minutes=minutes,
        fill=fill,
        results=results,
        cache=cache,
        datasets=datasets,
        data_dir=data_dir,
        docs=docs,
        device=device,
        side_by_side=side_by_side,
        commit=commit,
        only_list=only_list,
        dry_run=dry_run,
        choose=choose,
        smoke=smoke,
        render=render,
    )
    return carry_out_politely(order)
