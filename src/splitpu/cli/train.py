"""`splitpu fit`, `splitpu resume` and `splitpu demo`: from the words to a run, its prior, and its training."""

import dataclasses
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import torch

from splitpu.cli.display import show_result
from splitpu.cli.entry_point import RunStopped, continue_with, output_refused, resumable
from splitpu.cli.options import ClusterWords, DataWords, TrainingWords
from splitpu.cli.progress import ProgressDisplay, choose_display
from splitpu.config.parse import apply_overrides, read_config
from splitpu.config.presets import preset
from splitpu.config.schema import Config
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.data.sources import LoadedData, Source, parse_source
from splitpu.engine.distributed import World
from splitpu.engine.hardware import check_device
from splitpu.engine.stage import CountedEpochs, EpochRecord, Observer, Stage
from splitpu.errors import DiskError, InputError, Interrupted, RankLost
from splitpu.methods.registry import find_method, sections_in_use, whole_run_seconds
from splitpu.networks.build import choose_network, few_to_embed, network_recipe, weights_file
from splitpu.networks.encoders import USUAL_ENCODER, encoder_of, is_encoder, weights_installed
from splitpu.networks.fine_tuning import tuned_name
from splitpu.prior.estimate import (
    TO_BE_ESTIMATED,
    TRUE_SHARE,
    PriorOptions,
    ResolvedPrior,
    being_estimated,
    prior_for,
    prior_in_words,
)
from splitpu.prior.scores import ScoreKind, needs_networks, too_few_rows
from splitpu.runs.folder import Request, RunFolder, load_request
from splitpu.runs.grid_folders import SeedsFolder
from splitpu.runs.run import EpochLogger, asked_loggers, begin_run, carry_out, check_network, help_out, logging_to
from splitpu.training import (
    ObserverList,
    Runtime,
    check_method,
    check_needs,
    check_per_row,
    profile_of,
    with_calibration,
)
from splitpu.utils.arrays import checked_seed
from splitpu.utils.files import in_a_command
from splitpu.utils.reading import write_sealed
from splitpu.utils.signals import StopRequest
from splitpu.utils.torch_state import seeded
from splitpu.utils.warnings import collected_warnings
from splitpu.views import Views

_PICTURES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"}
_USUAL_FOR_FEW, _ENCODER_SIDE = 128, 224  # pixels: what few images are brought to, and what encoders look at

_LONG = 20 * 60.0  # seconds from which it is said what a run will take
_FEWEST_TRIED, _VALUES_TRIED = 4, 2**17  # rows, and values of them, that steps are tried with
_SMALLER_SIDE, _SMALLER_NETWORK = 64, "cnn-small"


@contextmanager
def estimating(
    data: PUData, scores: ScoreKind, display: ProgressDisplay, checkpoints: Path | None, own: Observer | None = None
) -> Iterator[Observer]:
    """Say that the prior is being estimated, and lend what its networks are watched by.

    It stops politely where there are checkpoints to go on from; one of several runs at once has an observer of its own.
    """
    if not too_few_rows(data):  # else there is no estimate to wait for
        display.say(being_estimated(data, scores))
    if checkpoints is not None and checkpoints.exists():
        display.say("prior: an estimate of these rows was stopped; it continues from there")
    if own is not None:
        yield own
        return
    with display.watching() as watch:
        if checkpoints is None:
            yield CountedEpochs(watch)
            return
        with StopRequest() as stop:
            try:
                yield CountedEpochs(watch, stop.wanted)
                if stop.wanted():  # after the last step of the last network
                    raise Interrupted
            except (Interrupted, KeyboardInterrupt) as stopped:
                sentence = "stopped while the prior was being estimated; run the same command to continue from there"
                raise RunStopped(sentence, stop.exit_code) from stopped


def chosen_prior(prior: float | str | None, method: str, loaded: LoadedData, display: ProgressDisplay) -> ResolvedPrior:
    """The prior as the user chose it: a number, that of a named set, none, or else one that is to be estimated."""
    if prior is None and find_method(method).needs_truth:
        return ResolvedPrior.none()  # who knows every label has no use for an estimate of their share
    if prior in (None, "auto"):
        return ResolvedPrior.none(TO_BE_ESTIMATED)
    with collected_warnings(display.note):
        meant: dict[object, object] = {"true": loaded.true_prior, "none": None}
        found = prior_for(method, meant.get(prior, prior), loaded.data)
    if found.value is not None and prior == "true":
        found = dataclasses.replace(found, source=TRUE_SHARE)
        display.say(f"prior: {prior_in_words(found.value, found.interval, found.source)}")
    return found


def estimated_prior(
    method: str, loaded: LoadedData, display: ProgressDisplay, **how: Unpack[PriorOptions]
) -> ResolvedPrior:
    """The estimate, from wherever its checkpoints stand; what is doubtful about it is said."""
    by_networks = needs_networks(loaded.data) and encoder_of(how.get("backbone")) is None
    if not by_networks:
        how["checkpoints"] = None
    scores: ScoreKind = "auto" if by_networks else "classical"
    watched = estimating(loaded.data, scores, display, how.get("checkpoints"), how.get("observer"))
    with collected_warnings(display.note), watched as how["observer"]:
        found = prior_for(method, "auto", loaded.data, **how)
    if found.value is not None:
        true = loaded.true_prior
        known = "" if true is None else f"; the set's true share is {true:.3g} (--prior true takes it)"
        display.say(f"prior: {prior_in_words(found.value, found.interval, found.source)}{known}")
    return found


def settle_prior(
    folder: RunFolder, loaded: LoadedData, display: ProgressDisplay, observer: Observer | None = None
) -> None:
    """The first stage of a run whose prior is to be estimated; a run of which no estimate can be made is discarded."""
    request, data = folder.request(), loaded.data
    encoder, frozen = encoder_of(request.backbone), is_encoder(request.backbone)
    if encoder and (frozen or request.prior_is_open):  # what takes long is shown; prior and training find it done
        from splitpu.methods.frozen_features import embed_all, frozen_choice
        from splitpu.networks.embeddings import sensible_processes

        why = "" if frozen else " for the prior"
        display.say(f"features: frozen{why}, of {encoder}; embeddings are computed once and kept")
        with resumable(folder.path), display.watching() as watch:
            embed_all(data, loaded.held_out if frozen else None, encoder, watch, sensible_processes(len(data)))
            frozen_choice(data, encoder, request.seed, watch)  # whoever asks again finds it
    if not request.prior_is_open:
        return
    with folder.locked(), resumable(folder.path):
        request, config = folder.request(), folder.config()
        if not request.prior_is_open:  # another process was at it meanwhile
            return
        folder.sweep()
        try:
            how = PriorOptions(seed=request.seed, device=request.device, backbone=request.backbone)
            how |= {"checkpoints": folder.checkpoints, "observer": observer}
            found = estimated_prior(config.method, loaded, display, **how)
            check_needs(config, data, found.value)
        except RunStopped as stopped:
            raise RunStopped(f"stopped; {continue_with(folder.path)}", stopped.code) from stopped
        except InputError as error:
            if not isinstance(error, DiskError):  # else the estimate is possible and waits for room
                folder.discard()
            raise
        write_sealed(folder.request_file, request.with_prior(found).to_dict())
        folder.tidy(keep_checkpoints=request.keep_checkpoints)  # the estimate's networks are no longer needed


@contextmanager
def named_if_interrupted(run: Path) -> Iterator[None]:
    """Ctrl-C inside the block, where it is no polite request (yet), is told with the run if that is there by then."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        if not (RunFolder(run).request_file.exists() or SeedsFolder(run).list_file.exists()):
            raise
        raise RunStopped(f"stopped; {continue_with(run)}", 128 + signal.SIGINT) from stopped


@contextmanager
def named_if_unheard(run: Path, shown_by: str) -> Iterator[None]:
    """What a finished run came to is printed inside the block: if it cannot be, the same command would be refused."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        advice = f"{run} is finished nevertheless; show it again with: {shown_by}"
        if error.filename is not None or not (refused := output_refused(advice)):
            raise
        raise DiskError(refused) from error


def if_settings_do_nothing(configs: Sequence[Config], settings: Sequence[str], rounds: int | None) -> str:
    """A note about settings without any effect on the methods of these configurations, waited for in vain."""
    read = {"engine", "members", "warmup"}.union(*map(sections_in_use, configs))  # the first three by all methods
    if any(config.method == "split-pu" for config in configs):
        read.add("learner")
    idle = [f"--set {one}" for one in settings if one.partition("=")[0].partition(".")[0].strip() not in read]
    idle = [one.replace("--set learner=", "--learner ") for one in idle]
    if rounds is not None and "rounds" not in read:
        idle.append(f"--rounds {rounds}")
    if not idle:
        return ""
    methods = [config.method for config in configs]
    theirs = dict.fromkeys(name for method in methods for name in find_method(method).sections)
    sections = ", ".join(name for name in theirs if name not in ("threshold", "rounds"))
    have, reads = "has" if len(idle) == 1 else "have", "reads" if len(methods) == 1 else "read"
    return f"{', '.join(idle)} {have} no effect: {', '.join(methods)} {reads} the settings in {sections}"


@dataclass
class LongRun(Observer):
    """After the second epoch that is trained here, which libraries no longer warm up in, says what all will take."""

    config: Config
    data: PUData
    tell: Callable[[str], None]
    backbone: str
    from_files: bool  # images or patients, of any size
    on_cpu: bool = False
    timed: tuple[str, int] | None = None  # of the first stage the second epoch; later stages take other times

    def guess(self) -> float:
        """Seconds that training may take on this CPU, before its first epoch: from steps tried after a slow one."""
        data = self.data
        size = min(len(data), max(_FEWEST_TRIED, _VALUES_TRIED // math.prod(self.data.features.shape[1:])))
        preprocessing = Preprocessing.fit(data.features)
        recipe = network_recipe(self.backbone, preprocessing, rows=len(data), on_cpu=True)
        raw = torch.from_numpy(np.array(data.features[:size]))
        views, seconds = Views(preprocessing, self.config.views, "cpu"), list[float]()
        with seeded(0, "pace"):
            network = recipe.build().train()
            for _ in range(3):
                started = time.monotonic()
                network(views.weak(raw, torch.Generator().manual_seed(0))).logit.sum().backward()
                seconds.append(time.monotonic() - started)
        return whole_run_seconds(self.config, len(data), len(data.positives), min(seconds[1:]) / size * len(data))

    def stage_started(self, stage: Stage, done: int) -> None:
        """Only the first stage is timed, and of it no epoch that was restored."""
        self.timed = self.timed or (stage.name, done + 2)

    def epoch_done(self, record: EpochRecord) -> None:
        if (record.stage, record.epoch) != self.timed:
            return
        seconds = whole_run_seconds(self.config, len(self.data), len(self.data.positives), record.seconds)
        if seconds < _LONG:
            return
        length = length_in_words(seconds)
        shape, network = self.data.features.shape[1:], self.backbone
        if network == "auto":
            network = choose_network(shape, len(self.data), on_cpu=self.on_cpu)
        ways = []  # only what would change this run: nobody is told to make small images larger
        if self.from_files and max(shape[-3:-1], default=0) > _SMALLER_SIDE:
            ways.append(f"smaller images (--size {_SMALLER_SIDE})")
        if self.data.kind == "images" and network != _SMALLER_NETWORK:
            ways.append(f"a smaller network (--backbone {_SMALLER_NETWORK})")
        if self.config.method == "split-pu" and self.config.rounds > 1:
            ways.append("a single round (--rounds 1)")
        listed = " or ".join([", ".join(ways[:-1]), ways[-1]] if ways[1:] else ways)
        advice = f". Faster: {listed}" if ways else ""
        self.tell(f"at this speed the run takes about {length}; it can be stopped (Ctrl-C) and resumed{advice}.")


def length_in_words(seconds: float) -> str:
    """No more exact than a guess can be.

    >>> [length_in_words(one) for one in (7, 50, 290, 2000, 9000)]
    ['10 seconds', '1 minute', '5 minutes', '35 minutes', '2.5 hours']
    """
    if seconds < 45:
        return f"{max(10, 10 * round(seconds / 10))} seconds"
    minutes = max(1, round(seconds / 60)) if seconds < 600 else 5 * round(seconds / 300)
    if minutes < 90:
        return f"{minutes} minute{'s' * (minutes > 1)}"
    return f"{round(seconds / 1800) / 2:g} hours"


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingWords, DataWords):
    """What was written on the command line; None = not given."""

    method: str | None = None
    prior: float | str | None = None  # a share, "auto" (as None), "true" or "none"
    out: Path | None = None
    seed: int | None = None
    seeds: str | None = None
    keep_checkpoints: bool = False
    log: str | None = None  # names of loggers

    @classmethod
    def of(cls, data: str | None, where: DataWords, how: TrainingWords = TrainingWords(), **own: Any) -> Self:
        """From the words of a command, as it has them."""
        asked = cls(**where.__dict__ | how.__dict__ | own | {"data": data})
        if asked.features != "tuned":
            return asked
        return dataclasses.replace(asked, features=None, backbone=tuned_name(asked.backbone or USUAL_ENCODER))

    @property
    def all_settings(self) -> list[str]:
        """Single settings, by whichever option."""
        return [*(self.settings or []), *([f"learner={self.learner}"] if self.learner else [])]

    def request(self, source: Source, seed: int) -> Request:
        """The run of one seed, as far as it is settled before it begins."""
        return Request(
            source=source,
            preset=self.preset or "default",
            backbone=self.backbone or "auto",
            seed=seed,
            device=self.device or "auto",
            weights=None if self.weights is None else {"path": str(self.weights)},
            keep_checkpoints=self.keep_checkpoints,
        )


def run_demo(*, out: Path | None, quiet: bool, json: bool) -> int:
    """The same on a named set."""
    return run_fit("digits", where=DataWords(labelled=50), out=out, quiet=quiet, json=json)


def run_fit(data: str | None, *, cluster: ClusterWords = ClusterWords(), quiet: bool, json: bool, **words: Any) -> int:
    """Begin a new run and bring it to its end."""
    asked = FitOptions.of(data, **words)
    world = World.join()
    if not world.writes:  # before anything can be wrong, which one process is to say
        return help_first_process(world)
    asked = sized_for_encoder(asked)
    loggers = () if asked.log is None else asked_loggers(asked.log)
    if loggers and asked.seeds is not None:
        raise InputError("--log is for one run: give --seed instead of --seeds.")
    if asked.seeds is not None:
        from splitpu.cli.several_runs import run_fit_seeds

        return run_fit_seeds(asked, cluster, quiet=quiet, json=json)
    refuse_cluster(cluster)
    seed = checked_seed(asked.seed or 0, "--seed ")
    display = choose_display(quiet=quiet)
    asked, sources = sources_to_fit(asked, [seed])
    source = sources[seed]
    path = RunFolder.free_path(asked.out, source.title)
    loaded = draws_of(sources, display)[seed]
    with named_if_interrupted(path):
        display.note(*loaded.warnings)
        folder = begin_asked(asked, path, asked.request(source, seed), loaded, display)
        settle_prior(folder, loaded, display)
        display.say(f"data: {loaded.in_words()}")
        with logging_to(loggers, folder.path) as opened:
            return train_and_show(folder, loaded, display, opened, json=json)


def refuse_cluster(cluster: ClusterWords) -> None:
    """One run is not spread over machines by Ray; several processes of one run are torchrun's business."""
    if cluster.ray is not None:
        raise InputError("--ray is for several runs: name seeds with --seeds 0,1,2; one large run takes torchrun.")


def sources_to_fit(asked: FitOptions, seeds: Sequence[int]) -> tuple[FitOptions, dict[int, Source]]:
    """Where the rows of every seed are; what can be wrong is found before anything long is begun."""
    check_device(asked.device or "auto")
    scenario = asked.scenario or "single-training-set"
    sources = {seed: parse_source(asked.as_words(seed=seed, scenario=scenario)) for seed in seeds}
    source = sources[seeds[0]]
    if asked.prior == "true" and not source.draws_labels:
        wrong = f"--prior true is for named sets, as nobody knows the true share of positives in {source.where}"
        raise InputError(f"{wrong}: give a number such as --prior 0.3, or leave --prior out to have it estimated.")
    return dataclasses.replace(asked, weights=weights_file(asked.weights)), sources


def draws_of(sources: Mapping[int, Source], display: ProgressDisplay) -> dict[int, LoadedData]:
    """The rows of every seed; of named sets, each seed draws other labels."""
    with display.watching() as watch:
        wanted = list(sources.values())
        return dict(zip(sources, wanted[0].load_draws(wanted, progress=display.say, watch=watch), strict=True))


def begin_asked(
    asked: FitOptions, path: Path, request: Request, loaded: LoadedData, display: ProgressDisplay, threads: int = 0
) -> RunFolder:
    """Make the run's folder from what was asked for; `threads` where the number has been chosen already."""
    config = resolved_config(asked, loaded, threads)
    if not threads:  # of several seeds, the first
        display.note(if_settings_do_nothing([config], asked.all_settings, asked.rounds))
    # Before there is a run, and before its prior is estimated, which may take minutes.
    check_method(config, loaded.data)
    check_per_row(config, loaded.data)
    backbone = asked.backbone or "auto"
    if asked.features is not None or (config.method == "split-pu" and not _says_how_to_train(asked)):
        from splitpu.methods.frozen_features import backbone_for

        on_cpu = check_device(asked.device or "auto").type == "cpu"
        with display.watching() as watch:
            how = asked.features, loaded.data, request.seed
            backbone = str(backbone_for(backbone, *how, on_cpu=on_cpu, watch=watch))
        request = dataclasses.replace(request, backbone=backbone)
    check_network(backbone, asked.weights, loaded.data.features.shape[1:])
    prior = chosen_prior(asked.prior, config.method, loaded, display)
    folder, request = begin_run(path, request, config, prior, loaded)
    if request.weights is not None:
        display.say(f"weights: {request.weights['in_words']}")
    return folder


def _says_how_to_train(asked: FitOptions) -> bool:
    """Whoever says how networks are trained wants them trained."""
    usual = asked.preset in (None, "default") and not asked.all_settings
    return not usual or any(one is not None for one in (asked.config, asked.weights, asked.warmup))


def sized_for_encoder(asked: FitOptions) -> FitOptions:
    """Pictures as large as a pretrained encoder looks at, where it will be asked and nobody gave another size.

    The usual size for few images is smaller, because it is chosen for networks that are trained."""
    words = (asked.data, *(asked.positives or []), *(asked.unlabelled or []))
    folders = [Path(word) for word in words if word]
    if asked.size is not None or not folders or not all(map(Path.is_dir, folders)):
        return asked
    many = None  # that were asked for are embedded however many there are
    if asked.features != "frozen" and encoder_of(asked.backbone) is None:
        usual = asked.features is None and asked.backbone in (None, "auto") and asked.method in (None, "split-pu")
        if not usual or _says_how_to_train(asked) or not weights_installed():
            return asked
        many = few_to_embed(on_cpu=check_device(asked.device or "auto").type == "cpu")
    return dataclasses.replace(asked, size=size_for_encoder(folders, many))


def size_for_encoder(folders: Sequence[Path], many: int | None = None) -> str | None:
    """The size that images in folders are embedded at; None where they keep theirs, are none, or are too `many`."""
    pictures = [path for folder in folders for path in folder.rglob("*") if path.suffix.lower() in _PICTURES]
    if not 0 < len(pictures) < (many or len(pictures) + 1):
        return None
    from splitpu.data.images.decode import BadImage, read_header

    try:
        header = read_header(pictures[0])
    except BadImage:  # whoever reads them all will say so
        return None
    return None if max(header.height, header.width) <= _USUAL_FOR_FEW else str(_ENCODER_SIDE)


def run_resume(run: str, *, cluster: ClusterWords, quiet: bool, json: bool) -> int:
    """Continue a run as it was asked for; one that is finished already only says so."""
    world = World.join()
    if not world.writes:
        return help_first_process(world)
    folder = RunFolder.find(run)
    if SeedsFolder(folder.path).list_file.exists():
        from splitpu.cli.several_runs import resume_seeds

        return resume_seeds(SeedsFolder(folder.path), cluster, quiet=quiet, json=json)
    refuse_cluster(cluster)
    display = choose_display(quiet=quiet)
    request = folder.request()
    if folder.finished:
        world.tell("")
        folder.settle()
        if not quiet:
            display.say(f"{folder.path} is finished already; there is nothing to resume.")
        show_result(folder, folder.read_result(), json=json)
        return 0
    with named_if_interrupted(folder.path):
        with display.watching() as watch:
            loaded = load_request(request, display.say, watch)
        display.note(*loaded.warnings)
        settle_prior(folder, loaded, display)
        return train_and_show(folder, loaded, display, json=json)


def resolved_config(asked: FitOptions, loaded: LoadedData, threads: int = 0) -> Config:
    """Preset, then configuration file, then single settings: the later ones win."""
    config = preset(asked.preset or "default", profile_of(loaded.data, asked.backbone))
    if asked.config is not None:
        config = read_config(asked.config, config)
    single = {
        "method": None if asked.method is None else find_method(asked.method).name,
        "rounds": asked.rounds,
        "warmup.name": asked.warmup,
        "engine.threads": threads or None,
    }
    words = [f"{key}={value}" for key, value in single.items() if value is not None]
    config = apply_overrides(config, [*asked.all_settings, *words])
    return with_calibration(config, asked.calibration)


def train_and_show(
    folder: RunFolder, loaded: LoadedData, display: ProgressDisplay, loggers: Sequence[EpochLogger] = (), *, json: bool
) -> int:
    """Bring a run that has its folder to its end."""
    world, request = World.join(), folder.request()
    with StopRequest() as stop:
        try:
            world.tell(str(folder.path.resolve()))
            with display, resumable(folder.path):
                from_files, on_cpu = request.source.rows_are_files, check_device(request.device).type == "cpu"
                pace = LongRun(folder.config(), loaded.data, display.note, request.backbone, from_files, on_cpu)
                trained = loaded.data.kind != "vectors" and not is_encoder(request.backbone) and not request.weights
                if on_cpu and trained and not folder.checkpoints.exists():
                    display.say(f"training: about {length_in_words(pace.guess())}, as far as three steps can tell")
                runtime = Runtime(observer=ObserverList(display, pace, *loggers, stop=stop.wanted), world=world)
                result = carry_out(folder, request, loaded, runtime=runtime, note=display.note)
                for logger in loggers:
                    logger.result(result)
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise RunStopped(f"stopped; {continue_with(folder.path)}", stop.exit_code) from stopped
        except RankLost as lost:
            raise _run_lost(folder.path) from lost
    with named_if_unheard(folder.path, f"splitpu info {in_a_command(folder.path)}"):
        show_result(folder, result, json=json)
    return 0


def _run_lost(run: Path) -> RunStopped:
    """One of the processes of a run has died; the others cannot go on without it, but the run can."""
    return RunStopped(f"another process of this run has died; {continue_with(run)}", 1)


def help_first_process(world: World) -> int:
    """What every process but the first does: wait until there is a run, take part in its training, and say nothing."""
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
            runtime = Runtime(observer=ObserverList(stop=stop.wanted), world=world)
            help_out(folder, request, load_request(request), runtime)
        except (Interrupted, KeyboardInterrupt):
            return stop.exit_code
        except RankLost as lost:
            raise _run_lost(folder.path) from lost
    return 0
