"""`splitpu fit` and `splitpu demo`."""

import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from splitpu.cli.about_data import all_but_of_data, tell_of_data
from splitpu.cli.estimating import prior_asked
from splitpu.cli.full_disk import resumable
from splitpu.cli.going_on import named_if_interrupted, named_if_unheard
from splitpu.cli.idle_settings import if_settings_do_nothing
from splitpu.cli.inputs import DataOptions, source_asked
from splitpu.cli.options import TrainingWords
from splitpu.cli.pace import LongRun
from splitpu.cli.progress import ProgressDisplay, choose_display
from splitpu.cli.result_table import show_result
from splitpu.cli.stopped import RunLost, RunStopped
from splitpu.config import Config, apply_overrides, preset, read_config
from splitpu.engine.hardware import check_device
from splitpu.engine.world import World
from splitpu.errors import InputError, Interrupted, RankLost
from splitpu.files import in_a_command
from splitpu.methods.registry import find_method
from splitpu.prior.resolve import ResolvedPrior
from splitpu.runs.fitting import begin_run, carry_out, check_network, help_out
from splitpu.runs.folder import RunFolder
from splitpu.runs.observers import Everyone, StopWhen
from splitpu.runs.request import Request, Source
from splitpu.runs.several import SeedsFolder
from splitpu.runs.sources import LoadedData, load_request, load_source
from splitpu.runs.starting_weights import weights_file
from splitpu.stop_request import StopRequest
from splitpu.training import check_method, profile_of, with_calibration

DEMO_SET, DEMO_POSITIVES = "digits", "50"


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingWords, DataOptions):
    """What was written on the command line; None = not given."""

    method: str | None = None
    prior: float | str | None = None  # a share, "auto" (as None), "true" or "none"
    out: Path | None = None
    seed: int | None = None
    seeds: str | None = None
    side_by_side: int | None = None


def run_demo(*, out: Path | None, quiet: bool, json: bool) -> int:
    """The quickest way to see the method at work, through the same code as any other run."""
    return run_fit(FitOptions(data=DEMO_SET, positives=[DEMO_POSITIVES], out=out), quiet=quiet, json=json)


def run_fit(asked: FitOptions, *, keep_checkpoints: bool = False, quiet: bool, json: bool) -> int:
    """Begin a new run and bring it to its end."""
    world = World.join()
    if not world.writes:  # before anything can be wrong, which one process is to say
        return help_first_process(world)
    if asked.seeds is not None:
        from splitpu.cli.fit_seeds import run_fit_seeds

        return run_fit_seeds(asked, keep_checkpoints=keep_checkpoints, quiet=quiet, json=json)
    if asked.side_by_side is not None:
        raise InputError("--side-by-side is for several seeds; name them with --seeds 0,1,2.")
    seed = asked.seed or 0
    if seed < 0:
        raise InputError(f"--seed {seed} is negative; give a whole number, 0 or more.")
    check_device(asked.device or "auto")  # before files are read and the prior is estimated, which may take minutes
    source = source_to_fit(asked, seed)
    path = RunFolder.free_path(asked.out, source.title)
    display = choose_display(quiet=quiet)
    asked = dataclasses.replace(asked, weights=weights_file(asked.weights))  # before anything long is begun
    with display.watching() as watch:
        loaded = load_source(source, display.say, watch)
    with named_if_interrupted(path):
        tell_of_data([loaded], display)
        folder, request = begin_asked(asked, path, source, loaded, seed, display, keep_checkpoints=keep_checkpoints)
        display.say(f"data: {loaded.in_words()}")
        return _train_and_show(folder, request, loaded, display, world, json=json)


def source_to_fit(asked: FitOptions, seed: int) -> Source:
    """Where the rows are; a prior that nobody can know of them is refused before they are read."""
    source = source_asked(asked, seed=seed, scenario=asked.scenario or "single-training-set")
    if asked.prior == "true" and source.named is None:
        raise InputError(
            f"--prior true is for named sets, as nobody knows the true share of positives in {source.where}: give a "
            "number such as --prior 0.3, or leave --prior out to have it estimated."
        )
    return source


def begin_asked(
    asked: FitOptions,
    path: Path,
    source: Source,
    loaded: LoadedData,
    seed: int,
    display: ProgressDisplay,
    *,
    keep_checkpoints: bool,
    threads: int | None = None,
) -> tuple[RunFolder, Request]:
    """Make the run's folder from what was asked for; `threads` where the number has been chosen already."""
    config = resolved_config(asked, loaded, threads)
    if threads is None:  # of several seeds, the first
        for note in if_settings_do_nothing([config], asked.settings or [], asked.rounds):
            display.note(note)
    # Before the prior, which may take minutes.
    check_method(config, loaded.data)
    check_network(asked.backbone or "auto", asked.weights, loaded.data.features.shape[1:])
    prior = prior_asked(asked.prior, config.method, loaded, seed, display, device=asked.device or "auto", out=asked.out)
    folder, request = begin_with(
        asked, path, source, loaded, seed, config=config, prior=prior, keep_checkpoints=keep_checkpoints
    )
    if request.weights is not None:
        display.say(f"weights: {request.weights['in_words']}")
    return folder, request


def begin_with(
    asked: FitOptions,
    path: Path,
    source: Source,
    loaded: LoadedData,
    seed: int,
    *,
    config: Config,
    prior: ResolvedPrior,
    keep_checkpoints: bool,
) -> tuple[RunFolder, Request]:
    """Make the run's folder where configuration and prior are settled already."""
    return begin_run(
        path,
        source,
        loaded,
        config,
        prior=prior,
        preset=asked.preset or "default",
        backbone=asked.backbone or "auto",
        seed=seed,
        device=asked.device or "auto",
        keep_checkpoints=keep_checkpoints,
        weights=asked.weights,
    )


def run_resume(run: str, asked: FitOptions, *, keep_checkpoints: bool = False, quiet: bool, json: bool) -> int:
    """Continue a run as it was asked for; one that is finished already only says so."""
    world = World.join()
    if not world.writes:
        return help_first_process(world)
    given = [*asked.given(), *(["--keep-checkpoints"] if keep_checkpoints else [])]
    if given:
        raise InputError(f"--resume continues a run as it was asked for; leave out {', '.join(given)}.")
    folder = RunFolder.find(run)
    if SeedsFolder(folder.path).list_file.exists():
        from splitpu.cli.fit_seeds import resume_seeds

        return resume_seeds(SeedsFolder(folder.path), quiet=quiet, json=json)
    display = choose_display(quiet=quiet)
    request = folder.request()
    if folder.finished:
        world.tell("")
        folder.check_model()
        if not quiet:
            display.say(f"{folder.path} is finished already; there is nothing to resume.")
        with suppress(InputError), folder.locked():  # whoever else holds it does this, too
            folder.tidy(keep_checkpoints=request.keep_checkpoints)
        show_result(folder, folder.read_result(), json=json)
        return 0
    with named_if_interrupted(folder.path):
        with display.watching() as watch:
            loaded = load_request(request, display.say, watch)
        tell_of_data([loaded], display)
        return _train_and_show(folder, request, loaded, display, world, json=json)


def resolved_config(asked: FitOptions, loaded: LoadedData, threads: int | None = None) -> Config:
    """Preset, then configuration file, then single settings: the later ones win."""
    config = preset(asked.preset or "default", profile_of(loaded.data))
    if asked.config is not None:
        config = read_config(asked.config, config)
    config = apply_overrides(config, asked.settings or [])
    if asked.method is not None:
        config = apply_overrides(config, [f"method={find_method(asked.method).name}"])
    if asked.rounds is not None:
        config = apply_overrides(config, [f"rounds={asked.rounds}"])
    if asked.warmup is not None:
        config = apply_overrides(config, [f"warmup.name={asked.warmup}"])
    if threads is not None:
        config = apply_overrides(config, [f"engine.threads={threads}"])
    return with_calibration(config, asked.calibration)


def _train_and_show(
    folder: RunFolder, request: Request, loaded: LoadedData, display: ProgressDisplay, world: World, *, json: bool
) -> int:
    with StopRequest() as stop:
        try:
            world.tell(str(folder.path.resolve()))
            with display, resumable(folder.path):
                from_files = request.source.folders is not None
                pace = LongRun(
                    folder.config(), loaded.data, display.note, backbone=request.backbone, from_files=from_files
                )
                observer = Everyone([display, pace, StopWhen(stop.wanted)])
                note = all_but_of_data(display.note, loaded)
                result = carry_out(folder, request, loaded, observer=observer, note=note, world=world)
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise RunStopped(folder.path, stop.exit_code) from stopped
        except RankLost as lost:
            raise RunLost(folder.path) from lost
    with named_if_unheard(folder.path, f"splitpu info {in_a_command(folder.path)}"):
        show_result(folder, result, json=json)
    return 0


def help_first_process(world: World) -> int:
    """What every process but the first does: wait until there is a run, take part in its training, and say nothing.

    The first one says what there is to say, unless it is the one that died.
    """
    with StopRequest() as stop:
        try:
            path = world.tell()
        except RankLost:
            return 2  # the first process found something wrong and has said what
        if not path:
            return 0
        folder = RunFolder(Path(path))
        request = folder.request()
        try:
            help_out(folder, request, load_request(request), observer=StopWhen(stop.wanted), world=world)
        except (Interrupted, KeyboardInterrupt):
            return stop.exit_code
        except RankLost as lost:
            raise RunLost(folder.path) from lost
    return 0
