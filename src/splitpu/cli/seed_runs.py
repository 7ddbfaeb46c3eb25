"""`splitpu fit --seeds 0,1,2`: a run for every seed, several at once on a GPU, and what they say together."""

import dataclasses
import sys
import threading
import traceback
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from splitpu.cli.display import notes_in_report, print_facts, print_json, print_note, print_table
from splitpu.cli.interruptions import RunStopped, resumable
from splitpu.cli.progress import ProgressDisplay, choose_display
from splitpu.cli.train import (
    FitOptions,
    all_but_of_data,
    begin_asked,
    named_if_interrupted,
    named_if_unheard,
    source_to_fit,
    tell_of_data,
)
from splitpu.engine.distributed import World
from splitpu.engine.hardware import check_device
from splitpu.engine.parallel_runs import SharedRows
from splitpu.engine.stage import Observer, Stage, StageOutcome
from splitpu.errors import InputError, Interrupted, SomeRunsFailed, SplitPUError
from splitpu.networks.build import weights_file
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid import FIGURES, SeedsFolder, mean_rows, seed_rows, warnings_in_words
from splitpu.runs.prior_stage import kept_until_all_are_known
from splitpu.runs.run import carry_out
from splitpu.runs.sources import LoadedData, check_still_there, check_unchanged, load_draws
from splitpu.training import ObserverList, Runtime, StopWhen, all_or_error, run_jobs
from splitpu.utils.files import in_a_command
from splitpu.utils.signals import StopRequest
from splitpu.utils.text import parse_numbers
from splitpu.utils.warnings import worth_repeating


def run_fit_seeds(asked: FitOptions, *, keep_checkpoints: bool, quiet: bool, json: bool) -> int:
    """Begin a run for every seed, as `--seed` would one by one, and bring them to their end."""
    seeds = parse_seeds(asked.seeds or "")
    if asked.seed is not None:
        raise InputError("--seed and --seeds cannot be given together; leave out one of them.")
    if asked.side_by_side is not None and asked.side_by_side < 1:
        raise InputError(f"--side-by-side {asked.side_by_side} would train nothing; give 1 or more.")
    refuse_several_processes("--seeds")
    check_device(asked.device or "auto")
    asked = dataclasses.replace(asked, weights=weights_file(asked.weights))
    sources = [source_to_fit(asked, seed) for seed in seeds]
    path = RunFolder.free_path(asked.out, sources[0].title)
    display = choose_display(quiet=quiet)
    with display.watching() as watch:
        draws = load_draws(sources, display.say, watch)
    tell_of_data(draws, display)
    threads: list[int] = []  # chosen for the first run and the same for all, as the runs themselves change the load

    def begin(place: Path, seed: int) -> RunFolder:
        number = seeds.index(seed)
        folder, _ = begin_asked(
            asked,
            place,
            sources[number],
            draws[number],
            seed,
            display,
            keep_checkpoints=keep_checkpoints,
            threads=threads[0] if threads else None,
        )
        threads.append(folder.config().engine.threads)
        return folder

    with named_if_interrupted(path):
        with kept_until_all_are_known():
            several = SeedsFolder.create(path, seeds, begin, asked.side_by_side)
        return _train_and_show(several, dict(zip(seeds, draws, strict=True)), display, json=json)


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
    # All runs at once: else a second command trains those that this one has not come to yet, and both fail.
    with RunFolder(several.path).locked() if loaded else nullcontext():
        _train(several, loaded, display)
        summary = several.summarise()
    with named_if_unheard(several.path, f"splitpu fit --resume {in_a_command(several.path)}"):
        show_summary(several, summary, json=json)
    return 0


def _train(several: SeedsFolder, loaded: dict[int, LoadedData], display: ProgressDisplay) -> None:
    left, shared = threading.Event(), SharedRows()
    with StopRequest() as stop:
        stopping = StopWhen(lambda: stop.wanted() or left.is_set())
        jobs = [
            partial(_carry_out_seed, several, seed, data, stopping, display, shared) for seed, data in loaded.items()
        ]
        try:
            device = several.run(next(iter(loaded))).request().device if loaded else "cpu"
            all_or_error(run_jobs(jobs, device, several.at_once(), left.set), [f"seed {seed}" for seed in loaded])
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise RunStopped(several.path, stop.exit_code) from stopped
        except SomeRunsFailed as some:
            several.discard_if_empty()
            raise told(some, f"continue with: splitpu fit --resume {in_a_command(several.path)}") from some


def _carry_out_seed(
    several: SeedsFolder,
    seed: int,
    loaded: LoadedData,
    stopping: StopWhen,
    display: ProgressDisplay,
    shared: SharedRows,
) -> None:
    with resumable(several.path):
        carry_out_named(several.run(seed), loaded, f"seed {seed}", stopping, display, shared)


def carry_out_named(
    folder: RunFolder,
    loaded: LoadedData,
    name: str,
    stopping: StopWhen,
    display: ProgressDisplay,
    shared: SharedRows,
) -> None:
    """Bring one of several runs to its end; what it says has its name before it, and nothing is about the data."""
    if stopping.should_stop():
        raise Interrupted(f"stopped before {name}.")
    observer = ObserverList([StageLines(name, display), stopping])

    note = all_but_of_data(lambda text: display.note(f"{name}: {text}"), loaded)
    carry_out(folder, folder.request(), loaded, runtime=Runtime(observer=observer, shared=shared), note=note)


class StageLines(Observer):
    """One line a stage that says whose it is: bars of several runs at once would be too much to look at."""

    def __init__(self, name: str, display: ProgressDisplay) -> None:
        self._name, self._display = name, display

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        """Say what the stage took."""
        seconds, epochs = sum(record.seconds for record in outcome.history), len(outcome.history)
        self._display.say(f"{self._name}  {stage.name}: {epochs} epoch{'' if epochs == 1 else 's'}, {seconds:.1f} s")


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


def told(some: SomeRunsFailed, how_to_go_on: str) -> SplitPUError:
    """The sentence for the user; what is no mistake of theirs keeps its traceback."""
    reasons = {str(error) for error in some.failed.values()}
    for error in some.failed.values():
        if not isinstance(error, SplitPUError):
            traceback.print_exception(error, file=sys.stderr)
    if len(reasons) == 1 and not some.finished:  # it is not about single runs
        return InputError(reasons.pop())
    return InputError(f"{str(some).rstrip('.')}; {how_to_go_on}")


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
