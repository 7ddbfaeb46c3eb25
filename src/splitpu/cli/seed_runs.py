"""`splitpu fit --seeds 0,1,2`: a run for every seed, several at once on a GPU, and what they say together."""

import dataclasses
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from splitpu.cli.display import notes_in_report, print_facts, print_json, print_note, print_table
from splitpu.cli.interruptions import RunStopped, continue_with, resumable
from splitpu.cli.progress import ProgressDisplay, choose_display
from splitpu.cli.train import (
    FitOptions,
    all_but_of_data,
    begin_asked,
    named_if_interrupted,
    named_if_unheard,
    settle_prior,
    source_to_fit,
    tell_of_data,
)
from splitpu.data.sources import LoadedData, check_still_there, load_draws
from splitpu.engine.distributed import World
from splitpu.engine.hardware import check_device
from splitpu.engine.parallel_runs import SharedRows
from splitpu.engine.stage import Observer, Stage, StageOutcome
from splitpu.errors import InputError, Interrupted, SomeRunsFailed, SplitPUError
from splitpu.networks.build import weights_file
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid import Executor, Grid, Progress, SideBySide
from splitpu.runs.grid_folders import FIGURES, SeedsFolder, mean_rows, seed_rows, warnings_in_words
from splitpu.runs.request import check_unchanged
from splitpu.runs.run import carry_out
from splitpu.training import Runtime
from splitpu.utils.files import in_a_command
from splitpu.utils.signals import StopRequest
from splitpu.utils.text import parse_numbers
from splitpu.utils.warnings import Note, worth_repeating


def run_fit_seeds(asked: FitOptions, *, quiet: bool, json: bool) -> int:
    """Begin a run for every seed, as `--seed` would one by one, and bring them to their end."""
    seeds = parse_seeds(asked.seeds or "")
    if asked.seed is not None:
        raise InputError("--seed and --seeds cannot be given together; leave out one of them.")
    if asked.side_by_side is not None and asked.side_by_side < 1:
        raise InputError(f"--side-by-side {asked.side_by_side} would train nothing; give 1 or more.")
    refuse_several_processes("--seeds")
    check_device(asked.device or "auto")
    asked = dataclasses.replace(asked, weights=weights_file(asked.weights))
    sources = {seed: source_to_fit(asked, seed) for seed in seeds}
    path = RunFolder.free_path(asked.out, sources[seeds[0]].title)
    display = choose_display(quiet=quiet)
    with display.watching() as watch:
        loaded = load_draws(list(sources.values()), display.say, watch)
    draws = dict(zip(seeds, loaded, strict=True))
    tell_of_data(loaded, display)
    threads: int | None = None  # chosen for the first run and the same for all, as the runs themselves change the load

    def begin(place: Path, seed: int) -> RunFolder:
        nonlocal threads
        folder = begin_asked(asked, place, sources[seed], draws[seed], seed, display, threads)
        threads = folder.config().engine.threads
        return folder

    with named_if_interrupted(path):
        several = SeedsFolder.create(path, seeds, begin, asked.side_by_side)
        return _train_and_show(several, draws, display, json=json)


def resume_seeds(several: SeedsFolder, *, quiet: bool, json: bool) -> int:
    """Continue those runs that are not finished."""
    refuse_several_processes("--seeds")
    display = choose_display(quiet=quiet)
    seeds = several.seeds()
    unfinished = [seed for seed in seeds if not several.run(seed).finished]
    for seed in set(seeds) - set(unfinished):
        several.run(seed).check_model()
    loaded: dict[int, LoadedData] = {}
    if unfinished:
        requests = [several.run(seed).request() for seed in unfinished]
        check_still_there(requests[0].source.paths)
        with display.watching() as watch:
            draws = load_draws([request.source for request in requests], display.say, watch)
        for data, request in zip(draws, requests, strict=True):
            check_unchanged(data, request)
        loaded = dict(zip(unfinished, draws, strict=True))
    tell_of_data(loaded.values(), display)
    return _train_and_show(several, loaded, display, json=json)


def _train_and_show(
    several: SeedsFolder, loaded: dict[int, LoadedData], display: ProgressDisplay, *, json: bool
) -> int:
    """Train the runs of these seeds, then show what all runs in the folder say together."""
    device = several.run(next(iter(loaded))).request().device if loaded else "cpu"
    rows = SharedRows()
    units = [_SeedRun(f"seed {seed}", several.run(seed), data, rows, display) for seed, data in loaded.items()]
    # All runs at once: else a second command trains those that this one has not come to yet, and both fail.
    with RunFolder(several.path).locked() if loaded else nullcontext():
        try:
            grid = Grid(units, progress=StageLines(display))
            run_grid(grid, SideBySide(device, several.at_once()), how_to_go_on=continue_with(several.path))
        except InputError:
            several.discard_if_empty()
            raise
        summary = several.summarise()
    with named_if_unheard(several.path, f"splitpu resume {in_a_command(several.path)}"):
        show_summary(several, summary, json=json)
    return 0


def run_grid(grid: Grid[Any], executor: Executor, *, how_to_go_on: str) -> None:
    """Bring all units to their end; Ctrl-C stops them, and what failed is named in one sentence.

    What is no mistake of the user's keeps its traceback.
    """
    with StopRequest() as stop:
        try:
            grid.run(executor, stop.wanted).results()
        except (Interrupted, KeyboardInterrupt) as error:
            raise RunStopped(f"stopped; {how_to_go_on}", stop.exit_code) from error
        except SomeRunsFailed as some:
            for mistake in some.failed.values():
                if not isinstance(mistake, SplitPUError):
                    traceback.print_exception(mistake, file=sys.stderr)
            reasons = {str(error) for error in some.failed.values()}
            if len(reasons) == 1 and not some.finished:  # it is not about single runs
                raise InputError(reasons.pop()) from some
            raise InputError(f"{str(some).rstrip('.')}; {how_to_go_on}") from some


@dataclasses.dataclass(frozen=True)
class RunUnit:
    """One of several runs, in a folder of its own; it says nothing about the data, which all have in common."""

    name: str
    folder: RunFolder
    loaded: LoadedData
    rows: SharedRows

    def run(self, observer: Observer, note: Note) -> dict[str, Any]:
        """Train from wherever its checkpoints stand to the end; gives the run's result."""
        runtime = Runtime(observer=observer, shared=self.rows)
        note = all_but_of_data(note, self.loaded)
        return carry_out(self.folder, self.folder.request(), self.loaded, runtime=runtime, note=note)


@dataclasses.dataclass(frozen=True)
class _SeedRun(RunUnit):
    display: ProgressDisplay  # which says how far the estimate of the prior is, the first stage of the run

    def run(self, observer: Observer, note: Note) -> dict[str, Any]:
        with resumable(self.folder.path.parent):
            settle_prior(self.folder, self.loaded, self.display, observer)
            return super().run(observer, note)


class StageLines(Progress[RunUnit]):
    """One line a stage that says whose it is: bars of several runs at once would be too much to look at."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display

    def stage_done(self, unit: RunUnit, stage: Stage, outcome: StageOutcome, restored: int) -> None:
        """Say what the stage took."""
        seconds, epochs = sum(record.seconds for record in outcome.history), len(outcome.history)
        self._display.say(f"{unit.name}  {stage.name}: {epochs} epoch{'' if epochs == 1 else 's'}, {seconds:.1f} s")

    def note(self, unit: RunUnit, text: str) -> None:
        """Say it with the name of the run before it."""
        self._display.note(f"{unit.name}: {text}")


def show_summary(several: SeedsFolder, summary: dict[str, Any], *, json: bool) -> None:
    """Mean and deviation of every model, the final model of every seed, and where everything is."""
    if json:
        print_json({"run": str(several.path), "report": str(several.page), **summary})
        return
    columns = [figure for figure in FIGURES if any(figure in model["figures"] for model in summary["models"])]
    narrower = [column for column in columns if column != "average_precision"]  # it is on the page; 80 columns are few
    title = "mean and standard deviation over the seeds (accuracy, called positive: percent)"
    print_table(mean_rows(summary), ["model", *narrower], title=title)
    print_table(seed_rows(summary), ["model", *columns], title="final model of every seed")
    warned = warnings_in_words(summary)
    print_facts({"runs": several.path, "report": several.page, **notes_in_report(warned)})
    for warning in filter(worth_repeating, warned):
        print_note(warning)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read the seeds, each of which is named once.

    >>> parse_seeds("3,0")
    (3, 0)
    """
    seeds = parse_numbers(text, "--seeds")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds {text} names a seed twice; give each of them once.")
    return seeds


def refuse_several_processes(what: str) -> None:
    """Several runs in one command share one process."""
    if World.join().size > 1:
        raise InputError(f"{what} trains in one process; leave out torchrun, or start one run per seed.")
