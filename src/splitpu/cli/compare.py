"""`splitpu compare`: every method and seed on the same rows, run by run, and one table of them all.

Under it stands what has to be known before a figure is believed.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from splitpu.cli.display import print_facts, print_json, print_note, print_table, title_of
from splitpu.cli.progress import ProgressDisplay, choose_display
from splitpu.cli.seed_runs import RunUnit, StageLines, parse_seeds, refuse_several_processes, run_grid
from splitpu.cli.train import (
    FitOptions,
    chosen_prior,
    estimated_prior,
    help_first_process,
    if_settings_do_nothing,
    resolved_config,
    source_to_fit,
    tell_of_data,
)
from splitpu.config.parse import apply_overrides, config_hash
from splitpu.config.schema import Config
from splitpu.data.sources import LoadedData, Source, load_draws
from splitpu.engine.distributed import World
from splitpu.engine.hardware import Hardware, check_device
from splitpu.engine.parallel_runs import SharedRows
from splitpu.engine.stage import Observer
from splitpu.errors import InputError
from splitpu.evaluation.ranking import RARE, always_negative, in_telling_order
from splitpu.methods.registry import find_method, uses_learners
from splitpu.networks.build import weights_file
from splitpu.prior.estimate import TO_BE_ESTIMATED, ResolvedPrior
from splitpu.runs.folder import KEEPING_ROWS, RUNS, kept_until_settled
from splitpu.runs.grid import Grid, InTurn, Results
from splitpu.runs.grid_folders import (
    COMPARED,
    DOUBTFUL,
    ComparisonFolder,
    Line,
    line_of,
    method_rows,
    seeds_in_words,
    share_of_positives,
    summary_of_methods,
)
from splitpu.runs.results import KNOWN_ROWS, ON_ROWS_ASIDE
from splitpu.runs.run import NewRun, begin_run, check_network
from splitpu.training import check_method, check_needs
from splitpu.utils.statistics import by_chance
from splitpu.utils.text import listed, parse_words
from splitpu.utils.warnings import UNRELIABLE, Note


def show_comparison(folder: ComparisonFolder, methods: Sequence[str], seeds: Sequence[int], *, json: bool) -> None:
    """One row a method, and under it everything that decides how far the figures can be trusted."""
    found = folder.lines()
    lines = {(method, seed): found[method, seed] for method in methods for seed in seeds}
    summary = summary_of_methods(lines, methods, seeds)
    notes = {"prior": _prior_in_words(list(lines.values())), **_notes(summary, lines, len(seeds))}
    unreliable = [
        f"{method}, seed {seed}: {warning}"
        for (method, seed), line in lines.items()
        for warning in line["warnings"]
        if UNRELIABLE in warning
    ]
    share = share_of_positives(lines.values())
    negative = {figure: always_negative(figure, share, 1) for figure in COMPARED}
    if json:
        places = {"comparison": str(folder.path), "runs": str(folder.lines_file)}
        content = {"seeds": list(seeds), "methods": summary, "always_negative": negative, "notes": notes}
        print_json({**places, **content, "unreliable": unreliable})
        return
    tested = lines[methods[0], seeds[0]]["test_rows"]
    judged = f"on {tested:,} test rows by which nothing was chosen" if tested else "estimated from P, U and the prior"
    leading = "average_precision" if share < RARE else "accuracy"
    rows = method_rows(summary, leading)
    rows.append({"method": "(always negative)", **{name: f"{100 * (one or 0):.1f}" for name, one in negative.items()}})
    compared = f"{title_of(leading)} less {methods[0]}"
    columns = ["method", "seeds", *in_telling_order(COMPARED, share), "seconds"]
    if any(method["difference"] for method in summary):
        columns.append(compared)
    spread = "mean±standard deviation over the seeds" if len(seeds) > 1 else "one seed"
    title = f"percent, {spread}, {judged}"
    print_table([{**row, compared: row.get("difference")} for row in rows], columns, title=title)
    print_facts({**notes, "folder": folder.path, "lines": folder.lines_file})
    for warning in [*unreliable, *_doubts(summary)]:
        print_note(warning)


def _doubts(summary: Sequence[Line]) -> list[str]:
    """Why the estimates of a method are not to be believed: each reason once, as the first seed that has it says it."""
    said = []
    for method in summary:
        seeds: dict[str, list[int]] = {}
        for one in method["degenerate"]:
            seeds.setdefault(one["kind"], []).append(one["seed"])
        for kind, found in seeds.items():
            sentence = next(one["sentence"] for one in method["degenerate"] if one["kind"] == kind)
            which = "; of the first of them" if len(found) > 1 else ""
            said.append(f"{DOUBTFUL} {method['method']}, {seeds_in_words(found)}{which}: {sentence}")
    return said


def _prior_in_words(lines: Sequence[Line]) -> str:
    """The value, or the range of what was estimated from other draws of labels, and where it comes from."""
    without = [line["prior_source"] for line in lines if line["prior"] is None]
    if without:
        return str(without[0])
    values = [line["prior"] for line in lines]
    bounds = dict.fromkeys(f"{value:.4g}" for value in (min(values), max(values)))
    return f"{' to '.join(bounds)}, {lines[0]['prior_source']}; the same for all methods"


def _notes(summary: Sequence[Line], lines: Mapping[tuple[str, int], Line], seeds: int) -> dict[str, str]:
    """What has to be known before a figure is believed."""
    first = next(iter(lines.values()))
    notes = {"network": first["network"]}
    if seeds == 1:
        notes["spread"] = "a single seed has none, so differences may be chance; give --seeds 0,1,2,3,4"
    leading = "average_precision" if share_of_positives(lines.values()) < RARE else "accuracy"
    compared = {one["method"]: one["difference"][leading] for one in summary if leading in one["difference"]}
    if compared:
        chance = [method for method, difference in compared.items() if by_chance(difference)]
        here = f" (here {', '.join(chance)})" if chance else ""
        notes["difference"] = (
            f"in points, seed by seed, ± standard error; a smaller difference is chance{here}, and with {seeds} seeds "
            "larger ones may be chance too"
        )
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
        notes["doubtful"] = f"{DOUBTFUL} do not believe the figures of {', '.join(doubtful)}; the notes below say why"
    warned = [line["run"] for line in lines.values() if line["warnings"]]
    if warned:
        notes["warnings"] = f"in the reports of {listed(warned)} in the folder"
    mixed = [what for what in ("versions", "device") if len({str(line[what]) for line in lines.values()}) > 1]
    if mixed:
        notes["beware"] = f"not all runs had the same {' and '.join(mixed)}; the lines say which had which"
    return notes


@dataclasses.dataclass(frozen=True)
class _Rows:
    """What every run learns from, by seed."""

    sources: Mapping[int, Source]
    draws: Mapping[int, LoadedData]

    @property
    def first(self) -> LoadedData:
        """Of the first seed; of the others only the draw of labels differs."""
        return next(iter(self.draws.values()))


def run_compare(asked: FitOptions, *, quiet: bool, as_json: bool) -> int:
    """Bring all runs to their end that are not there yet, and show what they say."""
    world = World.join()
    if not world.writes:  # one process says what is wrong
        return help_first_process(world)
    refuse_several_processes("splitpu compare")
    methods, seeds = parse_methods(asked.method or ""), parse_seeds(asked.seeds or "")
    check_device(asked.device or "auto")
    asked = dataclasses.replace(asked, weights=weights_file(asked.weights))
    display = choose_display(quiet=quiet)
    sources = {seed: source_to_fit(asked, seed) for seed in seeds}
    with display.watching() as watch:
        draws = load_draws(list(sources.values()), display.say, watch)
    rows = _Rows(sources, dict(zip(seeds, draws, strict=True)))
    asked, folder = _folder_asked(asked, methods, rows)
    with folder.locked():  # before anything of it is read, as another command may be about to write it
        with kept_until_settled(folder.checkpoints):
            configs, priors = _settled(asked, methods, rows, folder, display)
        shared, lines = SharedRows(), _Lines(folder)
        units = [  # seed by seed, so that methods can be compared as early as possible
            _MethodRun(
                f"{method}, seed {seed}",
                folder.run(method, seed),
                rows.draws[seed],
                shared,
                method,
                asked.new_run(sources[seed], seed, configs[method], priors[seed]),
            )
            for seed in seeds
            for method in methods
        ]
        if finished := sum(lines.find(unit) is not None for unit in units):
            display.say(f"{finished} of {len(units)} runs are finished already")
        run_grid(
            Grid(units, lines, progress=StageLines(display)),
            InTurn(),  # on a GPU as well: runs that share a device would take seconds that mean nothing
            how_to_go_on=f"run the same command to continue with what is in {folder.path}",
        )
    show_comparison(folder, methods, seeds, json=as_json)
    return 0


def parse_methods(text: str) -> tuple[str, ...]:
    """Read the names of methods, each of which is named once.

    >>> parse_methods("vpu, nnpu")
    ('vpu', 'nnpu')
    """
    names = tuple(find_method(word).name for word in parse_words(text, "--method", "split-pu,nnpu"))
    if len(set(names)) < len(names):
        raise InputError(f"--method {text} names a method twice; give names with commas, such as split-pu,nnpu.")
    return names


def _folder_asked(asked: FitOptions, methods: Sequence[str], rows: _Rows) -> tuple[FitOptions, ComparisonFolder]:
    """Check what can be wrong without a prior; gives what is asked for, in full, and the folder for it."""
    first, (source, *_) = rows.first, rows.sources.values()
    start = check_network(asked.backbone or "auto", asked.weights, first.data.features.shape[1:])
    configs = _configs(asked, methods, first)
    for config in configs.values():
        check_method(config, first.data)
    if asked.prior is None:
        # Estimates without truth rest on the prior, also those of methods that do without.
        no_use = first.held_out is not None and find_method(_most_in_need(configs).method).needs_truth
        asked = dataclasses.replace(asked, prior="none" if no_use else "auto")
    shared = {**_identity(asked, source, first), "prior": asked.prior, "file of weights": start and start["checksum"]}
    # The usual path is the same for the same command, which is how it finds what it had done.
    name = hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:8]
    return asked, ComparisonFolder(asked.out or RUNS / f"compare-{source.title}-{name}", shared)


def _settled(
    asked: FitOptions, methods: Sequence[str], rows: _Rows, folder: ComparisonFolder, display: ProgressDisplay
) -> tuple[dict[str, Config], dict[int, ResolvedPrior]]:
    """Settle configurations by method and priors by seed, check what depends on them, and write them down."""
    first, draws, configs = rows.first, rows.draws, _configs(asked, methods, rows.first)
    needing = _most_in_need(configs)
    display.say(f"data: {first.in_words()}")
    tell_of_data(draws.values(), display)
    for note in if_settings_do_nothing(configs.values(), asked.settings or [], asked.rounds):
        display.note(note)

    def find(draw: LoadedData, seed: int) -> ResolvedPrior:
        chosen = chosen_prior(asked.prior, needing.method, draw, display)
        if chosen.source != TO_BE_ESTIMATED:
            return chosen
        device, kept = asked.device or "auto", folder.checkpoints
        return estimated_prior(needing.method, draw, seed, display, device=device, checkpoints=kept)

    priors = {seed: folder.prior(draw.data.fingerprint(), partial(find, draw, seed)) for seed, draw in draws.items()}
    if first.held_out is None and any(prior.value is None for prior in priors.values()):
        raise InputError(f"without test rows, figures are estimates that rest on the prior: give one, or {KNOWN_ROWS}.")
    for seed, prior in priors.items():
        for config in configs.values():
            check_needs(config, draws[seed].data, prior.value)
    threads = folder.threads(lambda: Hardware.choose(asked.device or "auto", needing.engine).threads)
    folder.save()
    return _configs(asked, methods, first, threads), priors


def _configs(
    asked: FitOptions, methods: Sequence[str], loaded: LoadedData, threads: int | None = None
) -> dict[str, Config]:
    """The configuration of every method; rows are kept out for judging where nothing else shows it new ones."""
    network_given = asked.backbone not in (None, "auto") or asked.weights is not None
    configs = {}
    for method in methods:
        config = resolved_config(dataclasses.replace(asked, method=method), loaded, threads)
        by_networks = not uses_learners(config) or (network_given and method == "split-pu")
        if loaded.held_out is None and by_networks and not config.selection.held_out:
            config = apply_overrides(config, ["selection.held_out=0.2", "selection.criterion=none"])
        configs[method] = config
    return configs


def _most_in_need(configs: Mapping[str, Config]) -> Config:
    """Of the method for which the prior is found, for all of them: first those that cannot do without one."""

    def rank(config: Config) -> tuple[bool, bool]:
        method = find_method(config.method)
        return not method.needs_prior, method.needs_truth

    return min(configs.values(), key=rank)


def _identity(asked: FitOptions, source: Source, loaded: LoadedData) -> dict[str, Any]:
    """What runs must have in common for their figures to be comparable; names as they are told to the user."""
    data = loaded.data
    truth = None if data.truth is None else hashlib.sha256(data.truth.tobytes()).hexdigest()
    return {
        "scenario": source.scenario,
        "number of labelled positives": source.labelled_count,
        "content of the training rows": data.features_fingerprint() if source.draws_labels else data.fingerprint(),
        "content of the test rows": loaded.held_out and loaded.held_out.fingerprint(),
        "truth of the training rows": truth,
        "set of settings": config_hash(_configs(asked, ["split-pu"], loaded)["split-pu"]),
        "backbone": asked.backbone or "auto",
        "device": asked.device or "auto",
    }


@dataclasses.dataclass(frozen=True)
class _MethodRun(RunUnit):
    """The run of a method and a seed, which begins when its turn comes; its result is its line."""

    method: str
    new: NewRun

    def run(self, observer: Observer, note: Note) -> Line:
        if not self.folder.finished:
            if not self.folder.request_file.exists():
                begin_run(self.folder.path, self.new, self.loaded)
            super().run(observer, note)
        return line_of(self.folder, self.loaded)


class _Lines(Results[_MethodRun]):
    """The lines of the finished runs, in the comparison's folder."""

    def __init__(self, folder: ComparisonFolder) -> None:
        self._folder, self._found = folder, folder.lines()

    def find(self, unit: _MethodRun) -> Line | None:
        return self._found.get((unit.method, unit.new.seed))

    def add(self, unit: _MethodRun, result: Line) -> None:
        self._folder.add(result)
