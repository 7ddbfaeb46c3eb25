"""Several runs in one command: `splitpu fit --seeds 0,1,2`, and `splitpu compare`, every method on the same rows."""

import dataclasses
import hashlib
import itertools
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

from splitpu.cli import train
from splitpu.cli.display import notes_in_report, print_facts, print_json, print_note, print_table, title_of
from splitpu.cli.entry_point import RunStopped, continue_with, resumable
from splitpu.cli.options import USUAL_METHODS, ClusterWords
from splitpu.cli.progress import ProgressDisplay, choose_display
from splitpu.config.parse import apply_overrides, config_hash
from splitpu.config.schema import Config
from splitpu.data.sources import LoadedData, Source, check_still_there
from splitpu.engine.distributed import World
from splitpu.engine.hardware import Hardware
from splitpu.engine.rows import SharedRows
from splitpu.engine.stage import EpochRecord, Observer
from splitpu.errors import InputError, Interrupted, SomeRunsFailed, SplitPUError
from splitpu.evaluation.ranking import RARE, always_negative, in_telling_order
from splitpu.methods.registry import find_method, uses_learners
from splitpu.prior.estimate import TO_BE_ESTIMATED, PriorOptions, ResolvedPrior
from splitpu.runs import grid_folders
from splitpu.runs.folder import KEEPING_ROWS, RUNS, Request, RunFolder, check_unchanged, kept_until_settled
from splitpu.runs.grid import Executor, Grid, InTurn, Progress
from splitpu.runs.grid_folders import ComparisonFolder, Line, Lines, SeedsFolder
from splitpu.runs.results import KNOWN_ROWS, ON_ROWS_ASIDE
from splitpu.runs.run import begin_run, carry_out, check_network
from splitpu.training import Runtime, check_method, check_needs, check_per_row
from splitpu.utils.files import in_a_command
from splitpu.utils.signals import StopRequest
from splitpu.utils.statistics import by_chance
from splitpu.utils.text import listed, parse_numbers, parse_words
from splitpu.utils.warnings import UNRELIABLE, Note, worth_repeating

METHODS_OF_LEARNERS = ("split-pu", "logistic", "elkan-noto")


def run_fit_seeds(asked: train.FitOptions, cluster: ClusterWords, *, quiet: bool, json: bool) -> int:
    """Begin a run for every seed, as `--seed` would one by one, and bring them to their end."""
    seeds = parse_seeds(asked.seeds or "")
    if asked.seed is not None:
        raise InputError("--seed and --seeds cannot be given together; leave out one of them.")
    refuse_several_processes("--seeds")
    display = choose_display(quiet=quiet)
    asked, sources = train.sources_to_fit(asked, seeds)
    path = RunFolder.free_path(asked.out, sources[seeds[0]].title)
    draws = train.draws_of(sources, display)
    display.note(*(warning for draw in draws.values() for warning in draw.warnings))
    threads = 0  # chosen for the first run and the same for all, as the runs themselves change the load

    def begin(place: Path, seed: int) -> RunFolder:
        nonlocal threads
        folder = train.begin_asked(asked, place, asked.request(sources[seed], seed), draws[seed], display, threads)
        threads = folder.config().engine.threads
        return folder

    with train.named_if_interrupted(path):
        several = SeedsFolder.create(path, seeds, begin)
        return _train_and_show(several, draws, display, cluster, json=json)


def resume_seeds(several: SeedsFolder, cluster: ClusterWords, *, quiet: bool, json: bool) -> int:
    """Continue those runs that are not finished."""
    refuse_several_processes("--seeds")
    display = choose_display(quiet=quiet)
    seeds = several.seeds()
    unfinished = [seed for seed in seeds if not several.run(seed).finished]
    for seed in set(seeds) - set(unfinished):
        several.run(seed).settle()
    RunFolder(several.path).clear_up()
    loaded: dict[int, LoadedData] = {}
    if unfinished:
        requests = {seed: several.run(seed).request() for seed in unfinished}
        check_still_there(requests[unfinished[0]].source.paths)
        loaded = train.draws_of({seed: request.source for seed, request in requests.items()}, display)
        for seed, request in requests.items():
            check_unchanged(loaded[seed], request)
    display.note(*(warning for one in loaded.values() for warning in one.warnings))
    return _train_and_show(several, loaded, display, cluster, json=json)


def _train_and_show(
    several: SeedsFolder, loaded: dict[int, LoadedData], display: ProgressDisplay, cluster: ClusterWords, *, json: bool
) -> int:
    """Train the runs of these seeds, then show what all runs in the folder say together."""
    first = several.run(next(iter(loaded))) if loaded else None
    device, threads = (first.request().device, first.config().engine.threads) if first else ("cpu", 1)
    executor = cluster.executor(several.path, device, threads) or InTurn()
    rows = SharedRows()
    units = [_SeedRun(f"seed {seed}", several.run(seed), data, rows, display) for seed, data in loaded.items()]
    # All runs at once: else a second command trains those that this one has not come to yet, and both fail.
    with RunFolder(several.path).locked() if loaded else nullcontext():
        try:
            run_grid(Grid(units, progress=StageLines(display)), executor, how_to_go_on=continue_with(several.path))
        except InputError:
            if not any(several.run(seed).path.exists() for seed in several.seeds()):  # none was possible
                shutil.rmtree(several.path, ignore_errors=True)
            raise
        summary = several.summarise()
    with train.named_if_unheard(several.path, f"splitpu resume {in_a_command(several.path)}"):
        show_summary(several, summary, json=json)
    return 0


def run_grid(grid: Grid[Any], executor: Executor, *, how_to_go_on: str) -> list[Any]:
    """Bring all units to their end and give their results; Ctrl-C stops them, and one sentence names what failed."""
    with StopRequest() as stop:
        try:
            return grid.run(executor, stop.wanted).results()
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

        def say(text: str) -> None:
            if text not in self.loaded.warnings:  # which were said before, for all runs
                note(text)

        return carry_out(self.folder, self.folder.request(), self.loaded, runtime=runtime, note=say)


@dataclasses.dataclass(frozen=True)
class _SeedRun(RunUnit):
    display: ProgressDisplay  # which says how far the estimate of the prior is, the first stage of the run

    def run(self, observer: Observer, note: Note) -> dict[str, Any]:
        with resumable(self.folder.path.parent):
            train.settle_prior(self.folder, self.loaded, self.display, observer)
            return super().run(observer, note)


class StageLines(Progress[Any]):
    """One line a stage that says whose it is: bars of several runs at once would be too much to look at."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display

    def stage_done(self, unit: Any, stage: str, history: Sequence[EpochRecord], restored: int) -> None:
        seconds, epochs = sum(record.seconds for record in history), len(history)
        self._display.say(f"{unit.name}  {stage}: {epochs} epoch{'' if epochs == 1 else 's'}, {seconds:.1f} s")

    def watch(self, what: str, done: int, of: int) -> None:
        if done < of:  # its end has a line of its own
            self._display.watch(what, done, of)

    def note(self, unit: Any, text: str) -> None:
        self._display.note(f"{unit.name}: {text}")


def show_summary(several: SeedsFolder, summary: dict[str, Any], *, json: bool) -> None:
    """Mean and deviation of every model, the final model of every seed, and where everything is."""
    if json:
        return print_json({"run": str(several.path), "report": str(several.page), **summary})
    known = {figure for model in summary["models"] for figure in model["figures"]}
    columns = [figure for figure in grid_folders.FIGURES if figure in known]
    narrower = [column for column in columns if column != "average_precision"]  # it is on the page; 80 columns are few
    title = "mean and standard deviation over the seeds (accuracy, called positive: percent)"
    print_table(grid_folders.mean_rows(summary), ["model", *narrower], title=title)
    print_table(grid_folders.seed_rows(summary), ["model", *columns], title="final model of every seed")
    warned = grid_folders.warnings_in_words(summary)
    print_facts({"runs": several.path, "report": several.page, **notes_in_report(warned)})
    print_note(*filter(worth_repeating, warned))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read the seeds, each of which is named once."""
    seeds = parse_numbers(text, "--seeds")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds {text} names a seed twice; give each of them once.")
    return seeds


def refuse_several_processes(what: str) -> None:
    """Several runs in one command share one process."""
    if World.join().size > 1:
        raise InputError(f"{what} trains in one process; leave out torchrun, or start one run per seed.")


def show_comparison(folder: ComparisonFolder, methods: Sequence[str], seeds: Sequence[int], *, json: bool) -> None:
    """One row a method, and under it everything that decides how far the figures can be trusted."""
    found = folder.lines()
    lines = {(method, seed): found[method, seed] for method in methods for seed in seeds}
    summary = grid_folders.summary_of_methods(lines, methods, seeds)
    rates = [line["prior"] if line["test"] is None else line["test"]["true_rate"] for line in lines.values()]
    share = sum(rates) / len(rates)
    leading = "average_precision" if share < RARE else "accuracy"
    notes = _notes(summary, lines, len(seeds), leading)
    warned = [(f"{method}, seed {seed}", one) for (method, seed), line in lines.items() for one in line["warnings"]]
    unreliable = [f"{where}: {warning}" for where, warning in warned if UNRELIABLE in warning]
    negative = {figure: always_negative(figure, share, 1) for figure in grid_folders.COMPARED}
    if json:
        places = {"comparison": str(folder.path), "runs": str(folder.lines_file)}
        content = {"seeds": list(seeds), "methods": summary, "always_negative": negative, "notes": notes}
        return print_json({**places, **content, "unreliable": unreliable})
    tested = lines[methods[0], seeds[0]]["test_rows"]
    judged = f"on {tested:,} test rows by which nothing was chosen" if tested else "estimated from P, U and the prior"
    rows = grid_folders.method_rows(summary, leading)
    rows.append({"method": "(always negative)", **{name: f"{100 * (one or 0):.1f}" for name, one in negative.items()}})
    compared = f"{title_of(leading)} less {methods[0]}"
    columns = ["method", "seeds", *in_telling_order(grid_folders.COMPARED, share), "seconds"]
    if any(method["difference"] for method in summary):
        columns.append(compared)
    spread = "mean±standard deviation over the seeds" if len(seeds) > 1 else "one seed"
    title = f"percent, {spread}, {judged}"
    print_table([{**row, compared: row.get("difference")} for row in rows], columns, title=title)
    print_facts({**notes, "folder": folder.path, "lines": folder.lines_file})
    print_note(*unreliable, *_doubts(summary))


def _doubts(summary: Sequence[Line]) -> list[str]:
    """Why the estimates of a method are not to be believed: each reason once, as the first seed that has it says it."""
    said = []
    for method in summary:
        reasons: dict[str, list[Line]] = {}
        for one in method["degenerate"]:
            reasons.setdefault(one["kind"], []).append(one)
        for found in reasons.values():
            seeds = grid_folders.seeds_in_words([one["seed"] for one in found])
            which = f"{seeds}; of the first of them" if len(found) > 1 else seeds
            said.append(f"{grid_folders.DOUBTFUL} {method['method']}, {which}: {found[0]['sentence']}")
    return said


def _notes(summary: Sequence[Line], lines: Lines, seeds: int, leading: str) -> dict[str, str]:
    """What has to be known before a figure is believed."""
    first = next(iter(lines.values()))
    without = [line["prior_source"] for line in lines.values() if line["prior"] is None]
    values = [line["prior"] for line in lines.values() if line["prior"] is not None]  # other draws may give others
    bounds = dict.fromkeys(f"{value:.4g}" for value in (min(values, default=0), max(values, default=0)))
    known = f"{' to '.join(bounds)}, {first['prior_source']}; the same for all methods"
    notes = {"prior": without[0] if without else known, "network": first["network"]}
    if seeds == 1:
        notes["spread"] = "a single seed has none, so differences may be chance; give --seeds 0,1,2,3,4"
    compared = {one["method"]: one["difference"][leading] for one in summary if leading in one["difference"]}
    if compared:
        chance = [method for method, difference in compared.items() if by_chance(difference)]
        here = f" (here {', '.join(chance)})" if chance else ""
        smaller = f"a smaller difference is chance{here}, and with {seeds} seeds larger ones may be chance too"
        notes["difference"] = f"in points, seed by seed, ± standard error; {smaller}"
    if "estimates_note" in first:
        notes["intervals"] = "95 %, for one run, averaged over the seeds; deviations are only those between seeds"
        by_note: dict[str, list[str]] = {}
        for line in lines.values():
            by_note.setdefault(line["estimates_note"], []).append(line["method"])
        notes["estimates"] = ". ".join(
            f"{', '.join(dict.fromkeys(methods))}: {note}" if len(by_note) > 1 else note
            for note, methods in by_note.items()
        )
        if any(ON_ROWS_ASIDE in note for note in by_note):
            notes["rows kept out"] = f"so that there are rows to judge by ({KEEPING_ROWS}); with {KNOWN_ROWS} none are"
    doubtful = [one["method"] for one in summary if one["degenerate"]]
    if doubtful:
        advice = f"do not believe the figures of {', '.join(doubtful)}; the notes below say why"
        notes["doubtful"] = f"{grid_folders.DOUBTFUL} {advice}"
    warned = [line["run"] for line in lines.values() if line["warnings"]]
    if warned:
        notes["warnings"] = f"in the reports of {listed(warned)} in the folder"
    mixed = [what for what in ("versions", "device") if len({str(line[what]) for line in lines.values()}) > 1]
    if mixed:
        notes["beware"] = f"not all runs had the same {' and '.join(mixed)}; the lines say which had which"
    return notes


def run_compare(data: str | None, *, cluster: ClusterWords, quiet: bool, json: bool, **words: Any) -> int:
    """Bring all runs to their end that are not there yet, and show what they say."""
    asked = train.FitOptions.of(data, **words)
    asked = train.sized_for_encoder(asked) if asked.backbone else asked
    if asked.features == "frozen":
        raise InputError("--features frozen is for split-pu alone: give --features tuned, which any method takes.")
    world = World.join()
    if not world.writes:  # one process says what is wrong
        return train.help_first_process(world)
    refuse_several_processes("splitpu compare")
    methods, seeds = parse_methods(asked.method or ""), parse_seeds(asked.seeds or "")
    display = choose_display(quiet=quiet)
    asked, sources = train.sources_to_fit(asked, seeds)
    draws = train.draws_of(sources, display)
    first = draws[seeds[0]].data
    if asked.method == USUAL_METHODS and (first.is_sparse or first.groups is not None):
        methods = METHODS_OF_LEARNERS
        display.note(f"sparse rows (free text) and groups are for learners: compared are {', '.join(methods)}")
    asked, folder = _folder_asked(asked, methods, sources[seeds[0]], draws[seeds[0]])
    with folder.locked():  # before anything of it is read, as another command may be about to write it
        with kept_until_settled(folder.checkpoints):
            configs, priors = _settled(asked, methods, draws, folder, display)
        shared = SharedRows()
        threads = next(iter(configs.values())).engine.threads
        units = []  # seed by seed, so that methods can be compared as early as possible
        for seed, method in itertools.product(seeds, methods):
            what = (asked.request(sources[seed], seed), configs[method], priors[seed])
            units.append(_MethodRun(f"{method}, seed {seed}", folder.run(method, seed), draws[seed], shared, *what))
        if finished := sum(folder.find(unit) is not None for unit in units):
            display.say(f"{finished} of {len(units)} runs are finished already")
        executor = cluster.executor(folder.shared_file, asked.device or "auto", threads) or InTurn()
        again = f"run the same command to continue with what is in {folder.path}"
        run_grid(Grid(units, folder, progress=StageLines(display)), executor, how_to_go_on=again)
    show_comparison(folder, methods, seeds, json=json)
    return 0


def parse_methods(text: str) -> tuple[str, ...]:
    """Read the names of methods, each of which is named once."""
    names = tuple(find_method(word).name for word in parse_words(text, "--method", "split-pu,nnpu"))
    if len(set(names)) < len(names):
        raise InputError(f"--method {text} names a method twice; give names with commas, such as split-pu,nnpu.")
    return names


def _folder_asked(
    asked: train.FitOptions, methods: Sequence[str], source: Source, first: LoadedData
) -> tuple[train.FitOptions, ComparisonFolder]:
    """What is asked for, in full, and the folder for it; what can be wrong without a prior is found first."""
    data = first.data
    start = check_network(asked.backbone or "auto", asked.weights, data.features.shape[1:])
    configs = _configs(asked, methods, first)
    for config in configs.values():
        check_method(config, data)
    if asked.prior is None:
        # Estimates without truth rest on the prior, also those of methods that do without.
        no_use = first.held_out is not None and find_method(_most_in_need(configs).method).needs_truth
        asked = dataclasses.replace(asked, prior="none" if no_use else "auto")
    truth = None if data.truth is None else hashlib.sha256(data.truth.tobytes()).hexdigest()
    shared = {  # what runs must have in common for their figures to be comparable, by the names it is told by
        "scenario": source.scenario,
        "number of labelled positives": source.labelled_count,
        "content of the training rows": data.features_fingerprint() if source.draws_labels else data.fingerprint(),
        "content of the test rows": first.held_out and first.held_out.fingerprint(),
        "truth of the training rows": truth,
        "set of settings": config_hash(_configs(asked, ["split-pu"], first)["split-pu"]),
        "backbone": asked.backbone or "auto",
        "device": asked.device or "auto",
        "prior": asked.prior,
        "file of weights": start and start["checksum"],
    }
    # The usual path is the same for the same command, which is how it finds what it had done.
    name = hashlib.sha256(dumps(shared, sort_keys=True).encode()).hexdigest()[:8]
    return asked, ComparisonFolder(asked.out or RUNS / f"compare-{source.title}-{name}", shared)


def _settled(
    asked: train.FitOptions,
    methods: Sequence[str],
    draws: Mapping[int, LoadedData],
    folder: ComparisonFolder,
    display: ProgressDisplay,
) -> tuple[dict[str, Config], dict[int, ResolvedPrior]]:
    """Settle configurations by method and priors by seed, check what depends on them, and write them down."""
    first = next(iter(draws.values()))
    configs = _configs(asked, methods, first)
    needing = _most_in_need(configs)
    for config in configs.values():
        check_per_row(config, first.data)
    display.say(f"data: {first.in_words()}")
    display.note(*(warning for draw in draws.values() for warning in draw.warnings))
    display.note(train.if_settings_do_nothing(list(configs.values()), asked.all_settings, asked.rounds))

    def find(draw: LoadedData, seed: int) -> ResolvedPrior:
        chosen = train.chosen_prior(asked.prior, needing.method, draw, display)
        if chosen.source != TO_BE_ESTIMATED:
            return chosen
        device = asked.device or "auto"
        how = PriorOptions(seed=seed, device=device, checkpoints=folder.checkpoints, backbone=asked.backbone)
        return train.estimated_prior(needing.method, draw, display, **how)

    priors = {seed: folder.prior(draw.data.fingerprint(), partial(find, draw, seed)) for seed, draw in draws.items()}
    if first.held_out is None and any(prior.value is None for prior in priors.values()):
        raise InputError(f"without test rows, figures are estimates that rest on the prior: give one, or {KNOWN_ROWS}.")
    for seed, prior in priors.items():
        for config in configs.values():
            check_needs(config, draws[seed].data, prior.value)
    folder.threads = folder.threads or Hardware.choose(asked.device or "auto", needing.engine).threads
    folder.save()
    return _configs(asked, methods, first, folder.threads), priors


def _configs(asked: train.FitOptions, methods: Sequence[str], first: LoadedData, threads: int = 0) -> dict[str, Config]:
    """The configuration of every method; rows are kept out for judging where nothing else shows it new ones."""
    network_given = asked.backbone not in (None, "auto") or asked.weights is not None
    configs = {}
    for method in methods:
        config = train.resolved_config(dataclasses.replace(asked, method=method), first, threads)
        by_networks = not uses_learners(config) or (network_given and method == "split-pu")
        if first.held_out is None and by_networks and not config.selection.held_out:
            config = apply_overrides(config, ["selection.held_out=0.2", "selection.criterion=none"])
        configs[method] = config
    return configs


def _most_in_need(configs: Mapping[str, Config]) -> Config:
    """Of the method for which the prior is found, for all of them: first those that cannot do without one."""
    methods = {name: find_method(name) for name in configs}
    return configs[min(methods, key=lambda name: (not methods[name].needs_prior, methods[name].needs_truth))]


@dataclasses.dataclass(frozen=True)
class _MethodRun(RunUnit):
    """The run of a method and a seed, which begins when its turn comes; its result is its line."""

    asked: Request
    config: Config
    prior: ResolvedPrior

    def run(self, observer: Observer, note: Note) -> Line:
        if not self.folder.finished:
            if not self.folder.request_file.exists():
                begin_run(self.folder.path, self.asked, self.config, self.prior, self.loaded)
            super().run(observer, note)
        else:
            self.folder.settle()
        return grid_folders.line_of(self.folder, self.loaded)
