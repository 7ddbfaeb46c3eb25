"""A whole run: begin or continue it, train, and leave a complete folder behind."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch

from splitpu.config.schema import Config
from splitpu.data.sources import LoadedData, Source
from splitpu.engine.distributed import World
from splitpu.engine.hardware import Hardware
from splitpu.engine.parallel_runs import SharedRows
from splitpu.engine.stage import Observer
from splitpu.errors import DiskError, InputError
from splitpu.networks.build import build_network, check_weights, same_weights
from splitpu.networks.pretrained import pretrainable
from splitpu.prior.estimate import ResolvedPrior
from splitpu.report.render import write_report
from splitpu.runs.folder import RunFolder
from splitpu.runs.report_data import report_data
from splitpu.runs.request import Request
from splitpu.runs.results import figures_of, result_of, write_duplicates, write_scores, write_skipped, write_split
from splitpu.training import Everyone, MetricsFile, Training, check_needs, train, warn_if_worthless
from splitpu.utils.files import write_text
from splitpu.utils.warnings import Note, collected_warnings


def begin_run(
    path: Path,
    source: Source,
    loaded: LoadedData,
    config: Config,
    *,
    prior: ResolvedPrior,
    preset: str,
    backbone: str,
    seed: int,
    device: str,
    keep_checkpoints: bool = False,
    weights: Path | None = None,
) -> tuple[RunFolder, Request]:
    """Check everything that can be wrong before training, then make the run's folder."""
    check_needs(config, loaded.data, prior.value)
    hardware = Hardware.choose(device, config.engine, trains_images=loaded.data.kind != "vectors")
    shape = tuple(loaded.data.features.shape[1:])
    start = check_network(backbone, weights, shape)
    # Sums depend on the number of threads, so a resumed run has to use as many as it began with.
    config = dataclasses.replace(config, engine=dataclasses.replace(config.engine, threads=hardware.threads))
    request = Request(
        source=source,
        fingerprint=loaded.data.fingerprint(),
        prior=prior.value,
        preset=preset,
        backbone=backbone,
        seed=seed,
        device=str(hardware.device),
        precision="bf16" if hardware.bf16 else "fp32",
        keep_checkpoints=keep_checkpoints,
        prior_source=prior.source,
        prior_estimate=prior.to_dict(),
        doubts=list(prior.doubts),
        weights=start,
    )
    return RunFolder.create(path, request, config), request


def check_network(backbone: str, weights: Path | None, shape: tuple[int, ...]) -> dict[str, Any] | None:
    """Refuse a network or weights that these data cannot have; gives what the request remembers of the weights."""
    start = None if weights is None else check_weights(weights, backbone, shape)
    with torch.device("meta"):  # at no cost and without drawing weights
        build_network(pretrainable(shape) if start else backbone, shape)
    return start


def carry_out(
    folder: RunFolder,
    request: Request,
    loaded: LoadedData,
    *,
    observer: Observer,
    note: Note,
    world: World | None = None,
    shared: SharedRows | None = None,
) -> dict[str, Any]:
    """Train from wherever the folder's checkpoints stand to the end, write everything, and give the result.

    Of several processes the first one does this, and the others `help_out`. A run that another command has finished
    meanwhile is not trained again: its result is given as it is.
    """
    with folder.locked(), collected_warnings(note) as given:
        if folder.finished:
            note(f"{folder.path} has meanwhile been finished by another process; nothing is trained again")
            return folder.read_result()
        given += request.doubts or (request.prior_estimate or {}).get("verdicts", [])
        folder.sweep()
        _account_for_files(folder, loaded, given, note)
        metrics = MetricsFile(folder.metrics)
        try:
            training = _train(folder, request, loaded, Everyone([metrics, observer]), world, shared)
        except DiskError:  # the run is possible and waits for room
            raise
        except InputError:
            if metrics.epochs == 0 and not folder.checkpoints.exists():
                folder.discard()
            raise
        warn_if_worthless(training, loaded.data)
        result = _write_everything(folder, training, loaded, request, given)
        folder.tidy(keep_checkpoints=request.keep_checkpoints)
    return result


def help_out(folder: RunFolder, request: Request, loaded: LoadedData, *, observer: Observer, world: World) -> None:
    """Do this process's part of the training and leave everything else to the first one."""
    with collected_warnings(lambda _: None):
        _train(folder, request, loaded, observer, world)


def _train(
    folder: RunFolder,
    request: Request,
    loaded: LoadedData,
    observer: Observer,
    world: World | None,
    shared: SharedRows | None = None,
) -> Training:
    return train(
        loaded.data,
        prior=request.prior,
        prior_interval=request.prior_interval,
        config=_as_begun(folder.config(), request),
        backbone=request.backbone,
        seed=request.seed,
        device=request.device,
        checkpoints=folder.checkpoints,
        observer=observer,
        classes=loaded.classes,
        world=world,
        weights=None if request.weights is None else same_weights(request.weights),
        shared=shared,
    )


def _as_begun(config: Config, request: Request) -> Config:
    """In the precision the run began with, since checkpoints of another one are of no use to it."""
    engine = config.engine
    begun = request.precision or ("bf16" if Hardware.choose(request.device, engine).bf16 else "fp32")
    return dataclasses.replace(config, engine=dataclasses.replace(engine, precision=begun))


def _account_for_files(folder: RunFolder, loaded: LoadedData, given: list[str], note: Note) -> None:
    """Before training, so that even a run that is never finished says what it left out."""
    for warning in loaded.warnings:
        given.append(warning)
        note(warning)
    if loaded.skipped:
        write_skipped(folder.skipped, loaded.skipped)
        note(f"{folder.skipped} lists every file that is not used, and why")
    if loaded.duplicates:
        write_duplicates(folder.duplicates, loaded)
        note(f"{folder.duplicates} lists all that are identical")


def _write_everything(
    folder: RunFolder, training: Training, loaded: LoadedData, request: Request, given: list[str]
) -> dict[str, Any]:
    """The result comes last: a folder that has it is complete."""
    figures = figures_of(training, loaded, request.prior)
    dataclasses.replace(training.model, inputs=loaded.inputs).save(folder.path)
    write_scores(folder.scores, training, loaded)
    write_split(folder.split, training, loaded.data)
    write_report(folder.report, report_data(training, loaded, request, figures, given))
    result = result_of(training, loaded, request, figures, given)
    write_text(folder.result, json.dumps(result, indent=2))
    return result
