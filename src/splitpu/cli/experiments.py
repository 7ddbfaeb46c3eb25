"""`splitpu reproduce`: the experiments of the paper. Nothing heavy is imported before a command needs it."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from splitpu.cli.options import ClusterWords, Flag, explained
from splitpu.errors import InputError
from splitpu.utils.files import disk_errors_in_words
from splitpu.utils.signals import StopRequest
from splitpu.utils.text import parse_numbers, parse_words, say

if TYPE_CHECKING:
    from splitpu.reproduce.store import ResultStore
    from splitpu.reproduce.units import Unit

RESULTS, DOCS = Path("results"), Path("docs")


@explained
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UnitChoice:
    """Which units of the named experiments; None = all that an experiment declares."""

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


@explained
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DataPlaces:
    """Where the data sets are on this machine."""

    datasets: Path | None = None
    data_dir: Path | None = None


def reproduce_list(*names: str, choice: UnitChoice = UnitChoice(), results: Path = RESULTS) -> None:
    """List the experiments and how much of each is done or, with names, their units and whether they are done."""
    from splitpu.reproduce.declared import chosen_experiments

    store = _opened(results)
    for unit in choice.units(",".join(names)) if names else ():
        print(f"{'done' if store.find(unit) else 'open'}  {unit}")
    for experiment in () if names else chosen_experiments("all"):
        units = choice.units(experiment.name)
        done = sum(store.find(unit) is not None for unit in units)
        print(f"{experiment.name:<24} {done:>3} of {len(units):>3} units done  {experiment.title}")


def reproduce_run(
    *names: str,
    choice: UnitChoice = UnitChoice(),
    places: DataPlaces = DataPlaces(),
    results: Path = RESULTS,
    minutes: float | None = None,
    fill: Flag = False,
    cache: Path | None = None,
    device: str = "auto",
    cluster: ClusterWords = ClusterWords(),
    commit: str | None = None,
    side_by_side: int = 1,
) -> int:
    """Run the experiments behind tables or figures of the paper.

    An experiment consists of units, each of which gives one line of results. Units that are done are skipped, and an
    interrupted one is continued. To merge the results of several machines, copy their files together."""
    began = time.monotonic()  # before the imports, which take their time on a machine that has just started
    if minutes is not None and not minutes > 0:  # what is no number is not above 0 either
        raise InputError(f"--minutes {minutes:g} leaves no time; give a number above 0")
    if side_by_side < 1:
        raise InputError(f"--side-by-side {side_by_side}: at least one process, this one, uses the device")
    if fill and minutes is None:
        raise InputError("--fill says what to do with the end of a time: give that, too, with --minutes")
    with StopRequest() as stop:  # Ctrl-C and SIGTERM end it after the step it is in
        units = _here(",".join(names), choice, places)
        from splitpu.data.public.download import cache_folder
        from splitpu.reproduce.runner import run_units
        from splitpu.reproduce.unit_runs import Workplace

        stages = cache or cache_folder(places.datasets) / "stages"
        workplace = Workplace(stages, device, places.datasets, places.data_dir, commit, side_by_side)
        store = _opened(results)
        store.check_place()
        left = None if minutes is None else minutes - (time.monotonic() - began) / 60
        with disk_errors_in_words(stages):
            stages.mkdir(parents=True, exist_ok=True)  # which the machines of a cluster have to see
        executor = cluster.executor(stages, device)
        done = run_units(units, store, workplace, minutes=left, fill=fill, stop=stop.wanted, executor=executor)
        return stop.exit_code if stop.wanted() else int(bool(done.failed))


def reproduce_plan(
    *names: str, choice: UnitChoice = UnitChoice(), places: DataPlaces = DataPlaces(), results: Path = RESULTS
) -> None:
    """Print what `splitpu reproduce run` would run, in which order, and how long each unit may take on a GPU."""
    from splitpu.reproduce.store import plan_lines

    units, store = _here(",".join(names), choice, places), _opened(results)
    for line in plan_lines([unit for unit in units if store.find(unit) is None], store):
        print(line)


def reproduce_choose(*names: str, results: Path = RESULTS) -> None:
    """Say which candidate the criterion of an experiment picks from the results so far."""
    from splitpu.reproduce.declared import chosen_experiments
    from splitpu.reproduce.summary import verdict

    experiments, store = chosen_experiments(",".join(names)), _opened(results)
    for experiment in experiments:
        if experiment.kind != "choice":
            print(f"{experiment.name}: nothing is chosen there; name a choice, such as recipe-choice")
            continue
        for recipe in experiment.recipes:
            print(f"{experiment.name} / {recipe}: {verdict(experiment, recipe, store) or 'not run'}")


def reproduce_smoke() -> int:
    """Run one tiny unit of every experiment and every method on the CPU."""
    from splitpu.reproduce.declared import chosen_experiments
    from splitpu.reproduce.runner import smoke

    with tempfile.TemporaryDirectory(prefix="splitpu-smoke-") as folder:  # nothing of it is kept
        return int(bool(smoke(chosen_experiments("all"), Path(folder), "cpu", say).failed))


def reproduce_render(*, results: Path = RESULTS, docs: Path = DOCS) -> None:
    """Write RESULTS.md and results.html from the results so far."""
    from splitpu.reproduce.pages import render
    from splitpu.reproduce.store import ResultStore

    for path in render(ResultStore(results), docs):
        say(f"wrote {path}")


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
