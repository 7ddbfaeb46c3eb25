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
    """Run the experiments behind a table or figure of the paper, or write the result pages.

    An experiment consists of units, each of which gives one line of results. Units that are done are skipped, and an
    interrupted one is continued. To merge the results of several machines, copy their files together.

    Parameters
    ----------
    name
        The experiment, such as main, early-stop or rho (`splitpu reproduce --list` shows all of them); several,
        separated by commas; or all.
    recipe
        Only this recipe: paper, default or record. If not given: all that the experiment declares.
    method
        Only this method, or several, separated by commas (see `splitpu methods`), even if the experiment does not
        declare it; for `teachers`, the students of this method. If not given: all that the experiment declares.
    seeds
        Only these seeds, separated by commas, such as 0,1,2.
    positives
        Only these numbers of labelled positives, separated by commas, such as 500,1000.
    minutes
        Stop cleanly before this many minutes are over. The same command continues later.
    fill
        With --minutes: also start units that may not end in time. They are continued later if --cache is still there.
    results
        The folder of the result lines.
    cache
        The folder of finished stages, which all experiments share.
    datasets
        The folder where downloaded data sets are cached.
    data_dir
        The folder of sets that are read from files (busi, adrenal, breastmnist). If not given: $SPLITPU_DATA or the
        cache.
    docs
        The folder that --render writes to.
    side_by_side
        How many units to run at once on one GPU. They share the data there, and stages that several of them need.
    commit
        The commit to record with the results, where the code is not a git checkout.
    only_list
        List the units of the experiment and whether they are done; without NAME, list the experiments.
    dry_run
        Print what would be run, in which order, and how long each unit may take on a GPU.
    choose
        For an experiment that chooses between candidates, such as recipe-choice: say which one its criterion picks from
        the results so far.
    smoke
        Run one tiny unit of every experiment and every method on the CPU, whichever experiment is named.
    render
        Write RESULTS.md and results.html from the results so far.
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
