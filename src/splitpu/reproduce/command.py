"""What `splitpu reproduce` and `python -m splitpu.reproduce` have in common: all but the reading of options, which are
the fields of three dataclasses. Nothing heavy is imported before a command needs it, so that help is there at once.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from splitpu.errors import InputError
from splitpu.utils.signals import StopRequest
from splitpu.utils.text import parse_numbers, parse_words, say

if TYPE_CHECKING:
    from splitpu.reproduce.store import ResultStore
    from splitpu.reproduce.units import Unit

RESULTS, DOCS = Path("results"), Path("docs")


@dataclass(frozen=True, kw_only=True)
class UnitChoice:
    """Which units of the named experiments; None = all that an experiment declares.

    Parameters
    ----------
    recipe
        Only this recipe: paper, default or record.
    method
        Only this method, or several, separated by commas (see `splitpu methods`), even if the experiment does not
        declare it; for `teachers`, the students of this method.
    seeds
        Only these seeds, separated by commas, such as 0,1,2.
    labelled
        Only these numbers of labelled positives, separated by commas, such as 500,1000.
    """

    recipe: str | None = None
    method: str | None = None
    seeds: str | None = None
    labelled: str | None = None

    def units(self, names: str) -> "list[Unit]":
        """The units of these experiments: one, several with commas, or `all`."""
        from splitpu.reproduce.declared import chosen_experiments
        from splitpu.reproduce.units import planned_units

        return planned_units(
            chosen_experiments(names),
            recipe=self.recipe,
            methods=None if self.method is None else parse_words(self.method, "--method", "vpu or vpu,dan"),
            positives=None if self.labelled is None else parse_numbers(self.labelled, "--labelled"),
            seeds=None if self.seeds is None else parse_numbers(self.seeds, "--seeds"),
        )


@dataclass(frozen=True, kw_only=True)
class DataPlaces:
    """Where the data sets are on this machine.

    Parameters
    ----------
    datasets
        The folder where downloaded data sets are cached.
    data_dir
        The folder of sets that are read from files (busi, adrenal, breastmnist). If not given: $SPLITPU_DATA or the
        cache.
    """

    datasets: Path | None = None
    data_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Session:
    """How units are run on this machine, and for how long."""

    minutes: float | None = None
    fill: bool = False  # the minutes, with units that may not end in them
    cache: Path | None = None  # of stages
    device: str = "auto"
    side_by_side: int = 1  # units at once
    commit: str | None = None

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:  # what is no number is not above 0 either
            raise InputError(f"--minutes {self.minutes:g} leaves no time; give a number above 0")
        if self.fill and self.minutes is None:
            raise InputError("--fill says what to do with the end of a time: give that, too, with --minutes")
        if self.side_by_side < 1:
            raise InputError(
                f"--side-by-side {self.side_by_side} runs nothing; give the number of units to run at once"
            )


def run_politely(names: str, choice: UnitChoice, places: DataPlaces, session: Session, results: Path = RESULTS) -> int:
    """Run what is not done until Ctrl-C or SIGTERM, which end it after the step it is in; the code is the signal's."""
    with StopRequest() as stop:
        code = run(names, choice, places, session, results, stop.wanted)
        return stop.exit_code if stop.wanted() else code


def run(
    names: str,
    choice: UnitChoice,
    places: DataPlaces,
    session: Session,
    results: Path,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Run the units that are not done; 0 if none failed."""
    began = time.monotonic()  # before the imports, which take their time on a machine that has just started
    units = _here(names, choice, places)
    from splitpu.data.public.download import cache_folder
    from splitpu.reproduce.runner import run_units
    from splitpu.reproduce.unit_runs import Workplace

    workplace = Workplace(
        session.cache or cache_folder(places.datasets) / "stages",
        session.device,
        places.datasets,
        places.data_dir,
        session.commit,
        side_by_side=session.side_by_side,
    )
    store = _opened(results)
    store.check_place()
    minutes = None if session.minutes is None else session.minutes - (time.monotonic() - began) / 60
    done = run_units(units, store, workplace, minutes=minutes, fill=session.fill, stop=stop, tell=say)
    return 1 if done.failed else 0


def plan(names: str, choice: UnitChoice, places: DataPlaces, results: Path = RESULTS) -> int:
    """Print what would be run, in which order, and how long each unit may take on a GPU; nothing is trained."""
    from splitpu.reproduce.store import plan_lines

    units, store = _here(names, choice, places), _opened(results)
    for line in plan_lines([unit for unit in units if store.find(unit) is None], store):
        print(line)
    return 0


def list_units(names: str, choice: UnitChoice, results: Path = RESULTS) -> int:
    """Print the units of the named experiments and whether they are done; without a name, how much of each is."""
    from splitpu.reproduce.declared import chosen_experiments

    store = _opened(results)
    if names:
        for unit in choice.units(names):
            print(f"{'done' if store.find(unit) else 'open'}  {unit}")
        return 0
    for experiment in chosen_experiments("all"):
        units = choice.units(experiment.name)
        done = sum(store.find(unit) is not None for unit in units)
        print(f"{experiment.name:<24} {done:>3} of {len(units):>3} units done  {experiment.title}")
    return 0


def choose(names: str, results: Path = RESULTS) -> int:
    """Print which candidate the criterion of an experiment picks from the results so far."""
    from splitpu.reproduce.declared import chosen_experiments
    from splitpu.reproduce.summary import print_choices

    return print_choices(chosen_experiments(names), _opened(results))


def smoke() -> int:
    """Run one tiny unit of every experiment and method on the CPU; nothing of it is kept."""
    from splitpu.reproduce.declared import chosen_experiments
    from splitpu.reproduce.runner import smoke as run_tiny_units

    with tempfile.TemporaryDirectory(prefix="splitpu-smoke-") as folder:
        return 1 if run_tiny_units(chosen_experiments("all"), Path(folder), "cpu", say).failed else 0


def render(results: Path = RESULTS, docs: Path = DOCS) -> int:
    """Write the result pages from the lines that are there."""
    from splitpu.reproduce.pages import render as write_pages
    from splitpu.reproduce.store import ResultStore

    for path in write_pages(ResultStore(results), docs):
        say(f"wrote {path}")
    return 0


def _opened(results: Path) -> "ResultStore":
    """The results so far; what is wrong with them is told before anything is run again because of it."""
    from splitpu.reproduce.store import ResultStore

    store = ResultStore(results)
    for remark in store.remarks():
        say(f"{results}: {remark}")
    return store


def _here(names: str, choice: UnitChoice, places: DataPlaces) -> "list[Unit]":
    """The units that can be run on this machine, with a sentence for what cannot."""
    from splitpu.data.public.medical import why_missing
    from splitpu.reproduce.declared import chosen_experiments

    for experiment in chosen_experiments(names):
        if experiment.unavailable:
            say(f"{experiment.name} is not run: {experiment.unavailable}.")
    units = choice.units(names)
    asked = dict.fromkeys(unit.data for unit in units)
    missing = {data: reason for data in asked if (reason := why_missing(data, places.data_dir, places.datasets))}
    for data, reason in missing.items():
        say(f"{sum(unit.data == data for unit in units)} units are not run: {reason}.")
    return [unit for unit in units if unit.data not in missing]
