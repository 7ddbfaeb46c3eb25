"""What `splitpu reproduce` and `python -m splitpu.reproduce` have in common: all but the reading of options."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splitpu.errors import InputError
from splitpu.reproduce.declared import chosen_experiments
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.units import Unit, planned_units
from splitpu.utils.signals import StopRequest
from splitpu.utils.text import say
from splitpu.utils.warnings import Note

RESULTS, DOCS = Path("results"), Path("docs")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was asked for; None = as the experiment declares."""

    names: str | None = None  # one, several with commas, or `all`
    recipe: str | None = None
    methods: Sequence[str] | None = None
    positives: Sequence[int] | None = None
    seeds: Sequence[int] | None = None
    minutes: float | None = None
    fill: bool = False  # the minutes, with units that may not end in them
    results: Path = RESULTS
    cache: Path | None = None  # of stages
    datasets: Path | None = None  # of data sets
    data_dir: Path | None = None  # of sets that are read from files
    docs: Path = DOCS
    device: str = "auto"
    side_by_side: int = 1  # units at once
    commit: str | None = None
    only_list: bool = False
    dry_run: bool = False
    choose: bool = False
    smoke: bool = False
    render: bool = False


def carry_out_politely(order: Order) -> int:
    """The same until Ctrl-C or SIGTERM, which end it after the step it is in; the code is then that of the signal."""
    with StopRequest() as stop:
        code = carry_out(order, stop.wanted)
        return stop.exit_code if stop.wanted() else code


def carry_out(order: Order, stop: Callable[[], bool] = lambda: False, tell: Note = say) -> int:
    """Run, list or render; 0 if nothing failed."""
    if order.smoke:
        chosen_experiments(
            order.names or "all"
        )  # a name that there is not is told; all of them are run, as all are shown
        from splitpu.reproduce.runner import smoke

        with tempfile.TemporaryDirectory(prefix="splitpu-smoke-") as folder:
            return 1 if smoke(chosen_experiments("all"), Path(folder), "cpu", tell).failed else 0
    if order.names is None and order.only_list:
        return _list_experiments(order, tell)
    if order.names is None and not order.render:
        raise InputError("name an experiment, such as 'main', or 'all' (--list alone names them), or ask for --render")
    if order.minutes is not None and not order.minutes > 0:  # what is no number is not above 0 either
        raise InputError(f"--minutes {order.minutes:g} leaves no time; give a number above 0")
    if order.fill and order.minutes is None:
        raise InputError("--fill says what to do with the end of a time: give that, too, with --minutes")
    if order.side_by_side < 1:
        raise InputError(f"--side-by-side {order.side_by_side} runs nothing; give the number of units to run at once")
    # Rendering takes what is there; to run more and then render, both are said one after the other.
    if order.render:
        from splitpu.reproduce.pages import render

        for path in render(ResultStore(order.results), order.docs):
            tell(f"wrote {path}")
        return 0
    if order.choose:
        from splitpu.reproduce.summary import print_choices

        return print_choices(chosen_experiments(order.names or ""), _opened(order, tell))
    if order.dry_run:
        return _plan(order, tell)
    return _list(order, tell) if order.only_list else _run(order, stop, tell)


def _opened(order: Order, tell: Note) -> ResultStore:
    """The results so far; what is wrong with them is told before anything is run again because of it."""
    store = ResultStore(order.results)
    for remark in store.remarks():
        tell(f"{order.results}: {remark}")
    return store


def _list_experiments(order: Order, tell: Note) -> int:
    """Which experiments there are, and how much of each is done."""
    store = _opened(order, tell)
    for experiment in chosen_experiments("all"):
        units = _planned(replace(order, names=experiment.name))
        done = sum(store.find(unit) is not None for unit in units)
        print(f"{experiment.name:<24} {done:>3} of {len(units):>3} units done  {experiment.title}")
    return 0


def _list(order: Order, tell: Note) -> int:
    store = _opened(order, tell)
    for unit in _planned(order):
        print(f"{'done' if store.find(unit) else 'open'}  {unit}")
    return 0


def _plan(order: Order, tell: Note) -> int:
    """What would be run, in which order, and how long each unit may take on a GPU; nothing is trained."""
    from splitpu.reproduce.store import plan_lines

    store = _opened(order, tell)
    for line in plan_lines([unit for unit in _here(order, tell) if store.find(unit) is None], store):
        print(line)
    return 0


def _run(order: Order, stop: Callable[[], bool], tell: Note) -> int:
    began = time.monotonic()  # before the imports, which take their time on a machine that has just started
    from splitpu.data.public.download import cache_folder
    from splitpu.reproduce.runner import run_units
    from splitpu.reproduce.unit_runs import Workplace

    cache = order.cache or cache_folder(order.datasets) / "stages"
    workplace = Workplace(
        cache, order.device, order.datasets, order.data_dir, order.commit, side_by_side=order.side_by_side
    )
    units, store = _here(order, tell), _opened(order, tell)
    store.check_place()
    minutes = None if order.minutes is None else order.minutes - (time.monotonic() - began) / 60
    session = run_units(units, store, workplace, minutes=minutes, fill=order.fill, stop=stop, tell=tell)
    return 1 if session.failed else 0


def _here(order: Order, tell: Note) -> list[Unit]:
    """The units that can be run on this machine, with a sentence for what cannot."""
    from splitpu.data.public.medical import why_missing

    for experiment in chosen_experiments(order.names or ""):
        if experiment.unavailable:
            tell(f"{experiment.name} is not run: {experiment.unavailable}.")
    units = _planned(order)
    asked = dict.fromkeys(unit.data for unit in units)
    missing = {data: reason for data in asked if (reason := why_missing(data, order.data_dir, order.datasets))}
    for data, reason in missing.items():
        tell(f"{sum(unit.data == data for unit in units)} units are not run: {reason}.")
    return [unit for unit in units if unit.data not in missing]


def _planned(order: Order) -> list[Unit]:
    chosen = chosen_experiments(order.names or "")
    return planned_units(
        chosen, recipe=order.recipe, positives=order.positives, seeds=order.seeds, methods=order.methods
    )
