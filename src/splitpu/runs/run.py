"""A whole run: begin or continue it, train, leave a complete folder behind, and tell loggers of it (`fit --log`)."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from splitpu.config.schema import Config
from splitpu.data.sources import LoadedData
from splitpu.data.tables.read import write_rows
from splitpu.engine.hardware import Hardware
from splitpu.engine.stage import EpochRecord, Observer
from splitpu.errors import DiskError, InputError, MissingExtraError
from splitpu.evaluation.metrics import if_truth_is_swapped
from splitpu.networks.build import build_network, check_weights, same_weights
from splitpu.networks.encoders import encoder, encoder_of, is_encoder
from splitpu.networks.pretrained import pretrainable
from splitpu.prior.estimate import TO_BE_ESTIMATED, ResolvedPrior
from splitpu.report.render import write_report
from splitpu.runs import results
from splitpu.runs.folder import MODEL_FILES, Request, RunFolder
from splitpu.runs.report_data import report_data
from splitpu.training import (
    MetricsFile,
    ObserverList,
    Runtime,
    Training,
    TrainSpec,
    check_needs,
    train,
    warn_if_worthless,
)
from splitpu.types import Watch
from splitpu.utils.files import replacing
from splitpu.utils.reading import Guarded, write_sealed
from splitpu.utils.text import parse_words
from splitpu.utils.warnings import Note, collected_warnings, warn_where_called

Send = Callable[[str, float, int], object]  # a number under a name at a step
FOLDER = "tensorboard"  # in the run folder
WRITING = "figures and report"


def begin_run(
    path: Path, asked: Request, config: Config, prior: ResolvedPrior, loaded: LoadedData
) -> tuple[RunFolder, Request]:
    """Check everything that can be wrong before training, settle what is left open, then make the run's folder."""
    if prior.source != TO_BE_ESTIMATED:
        check_needs(config, loaded.data, prior.value)
    hardware = Hardware.choose(asked.device, config.engine, trains_images=loaded.data.kind != "vectors")
    weights = None if asked.weights is None else Path(asked.weights["path"])
    # Sums depend on the number of threads, so a resumed run has to use as many as it began with.
    config = replace(config, engine=replace(config.engine, threads=hardware.threads))
    request = replace(
        asked,
        fingerprint=loaded.data.fingerprint(),
        form=loaded.form(),
        device=str(hardware.device),
        precision="bf16" if hardware.bf16 else "fp32",
        weights=check_network(asked.backbone, weights, tuple(loaded.data.features.shape[1:])),
    ).with_prior(prior)
    return RunFolder.create(path, request, config), request


def check_network(backbone: str, weights: Path | None, shape: tuple[int, ...]) -> dict[str, Any] | None:
    """Refuse a network or weights that these data cannot have; gives what the request remembers of the weights."""
    start = None if weights is None else check_weights(weights, backbone, shape)
    if name := encoder_of(backbone):
        if start is not None:
            raise InputError(f"--weights are for {pretrainable(shape)}, not for {backbone}; leave one of them out.")
        encoder(name)  # says what is missing
    if is_encoder(backbone):
        return None
    with torch.device("meta"):  # at no cost and without drawing weights
        build_network(pretrainable(shape) if start else backbone, shape)
    return start


def carry_out(folder: RunFolder, request: Request, loaded: LoadedData, runtime: Runtime, note: Note) -> dict[str, Any]:
    """Train from wherever the folder's checkpoints stand to the end, write everything, and give the result.

    Of several processes the first one does this, and the others `help_out`. A run that another command has finished
    meanwhile is not trained again: its result is given as it is."""
    with folder.locked(), collected_warnings(note) as given:
        if folder.finished:
            note(f"{folder.path} has meanwhile been finished by another process; nothing is trained again")
            return folder.read_result()
        given += request.doubts
        folder.sweep()
        _account_for_files(folder, loaded, given, note)
        metrics = MetricsFile(folder.metrics)
        try:
            observer = ObserverList(metrics, runtime.observer or Observer())
            training = _train(folder, request, loaded, replace(runtime, observer=observer))
        except InputError as error:  # without room on the disk the run is possible and waits for it
            if metrics.epochs == 0 and not folder.checkpoints.exists() and not isinstance(error, DiskError):
                folder.discard()
            raise
        folder.must_be_there()
        warn_if_worthless(training, loaded.data)
        result = _write_everything(folder, training, loaded, request, given, observer.watch)
        folder.tidy(keep_checkpoints=request.keep_checkpoints)
        folder.must_be_there()
    return result


def help_out(folder: RunFolder, request: Request, loaded: LoadedData, runtime: Runtime) -> None:
    """Do this process's part of the training and leave everything else to the first one."""
    with collected_warnings(lambda _: None):
        _train(folder, request, loaded, runtime)


def _train(folder: RunFolder, request: Request, loaded: LoadedData, runtime: Runtime) -> Training:
    config = folder.config()
    # In the precision the run began with, since checkpoints of another one are of no use to it.
    config = replace(config, engine=replace(config.engine, precision=request.precision))
    spec = spec_of(request, config, loaded.classes)
    return train(loaded.data, spec, replace(runtime, device=request.device, checkpoints=folder.checkpoints))


def spec_of(request: Request, config: Config, classes: tuple[Any, Any]) -> TrainSpec:
    """What a run's folder says about its training, in the form that `train` takes."""
    return TrainSpec(
        config=config,
        prior=request.prior,
        prior_interval=request.prior_interval,
        backbone=request.backbone,
        weights=None if request.weights is None else same_weights(request.weights),
        seed=request.seed,
        classes=classes,
    )


def _account_for_files(folder: RunFolder, loaded: LoadedData, given: list[str], note: Note) -> None:
    """Before training, so that even a run that is never finished says what it left out."""
    for warning in loaded.warnings:
        given.append(warning)
        note(warning)
    if loaded.skipped:
        results.write_skipped(folder.skipped, loaded.skipped)
        note(f"{folder.skipped} lists every file that is not used, and why")
    if loaded.duplicates:
        pairs = ((second, first) for first, second in loaded.duplicates)
        write_rows(folder.duplicates, ["name", "same_as"], pairs)
        note(f"{folder.duplicates} lists all that are identical")


def _write_everything(
    folder: RunFolder, training: Training, loaded: LoadedData, request: Request, given: list[str], watch: Watch
) -> dict[str, Any]:
    """The result comes last: a folder that has it is complete."""
    replace(training.model, inputs=loaded.inputs).save(folder.path)
    watch(WRITING, 0, 3)  # for thousands of images on a busy machine each of the three takes seconds
    figures = results.figures_of(training, loaded, request.prior)
    watch(WRITING, 1, 3)
    if loaded.held_out is not None and figures[-1].test is not None:
        for sentence in if_truth_is_swapped(figures[-1].test, len(loaded.held_out)):
            warn_where_called(sentence)
    judged = results.judged_in_training(training, loaded, request, figures)
    results.write_scores(folder.scores, training, loaded)
    if training.out_of_fold is not None:  # cannot be found again from the model, and the honest figures rest on it
        with replacing(folder.out_of_fold) as temporary, temporary.open("wb") as file:
            np.save(file, training.out_of_fold, allow_pickle=False)
    results.write_split(folder.split, training, loaded.data)
    watch(WRITING, 2, 3)
    result = results.result_of(training, loaded, request, figures, judged, given)
    write_report(folder.report, report_data(training, loaded, request, result, judged))
    written = (folder.request_file, folder.scores, folder.split, folder.out_of_fold, folder.path / MODEL_FILES[0])
    result["files"] = {path.name: Guarded(path).checksum() for path in written if path.exists()}
    write_sealed(folder.result, result)
    return result


class EpochLogger(Observer):
    """Sends what the epochs of a run say; epochs that a checkpoint holds are sent again, under the same steps."""

    def __init__(self, send: Send, close: Callable[[], None] = lambda: None) -> None:
        self._send, self.close = send, close

    def epoch_done(self, record: EpochRecord) -> None:
        agreement = {} if record.agreement is None else {"agreement": record.agreement}
        for name, value in {**record.terms, **agreement, "rate": record.rate, "seconds": record.seconds}.items():
            self._send(f"{record.stage}/{name}", float(value), record.epoch)

    def result(self, result: Mapping[str, Any]) -> None:
        """The figures of every model on the test rows, or those estimated from P and U."""
        for model in result["models"]:
            for name, value in {**(model["test"] or {}), "called": model["positive_rate_unlabelled"]}.items():
                if value is not None:
                    self._send(f"result/{_as_key(model['model'])}/{name}", float(value), 0)
        for name, figure in (result.get("figures") or {}).items():
            self._send(f"estimated/{_as_key(name)}", float(figure["value"]), 0)


def _as_key(words: str) -> str:
    """Letters that every logger takes."""
    return "-".join("".join(c if c.isalnum() else " " for c in words).split())


def asked_loggers(names: str) -> Sequence[str]:
    """The loggers that were asked for, with commas between them; refused, before anything is trained, if not there."""
    asked = parse_words(names, "--log", "tensorboard")
    for name in asked:
        if name not in _MAKERS:
            raise InputError(f"--log {name} is not a logger: choose from {', '.join(_MAKERS)}")
        if find_spec(name) is None:
            raise MissingExtraError(f"--log {name} needs it to be installed: pip install 'splitpu[{name}]'.")
    return asked


@contextmanager
def logging_to(names: Sequence[str], run: Path) -> Iterator[list[EpochLogger]]:
    """The loggers of a run, open inside the block."""
    with ExitStack() as closing:
        opened = []
        for name in names:
            try:
                opened.append(_MAKERS[name](run))
            except Exception as error:  # of a package of others, such as a server that does not answer
                raise InputError(f"--log {name} cannot begin: {str(error).strip().partition(chr(10))[0]}") from error
            closing.callback(opened[-1].close)
        yield opened


def _tensorboard(run: Path) -> EpochLogger:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(run / FOLDER))
    return EpochLogger(writer.add_scalar, writer.close)


def _mlflow(run: Path) -> EpochLogger:
    """Where MLFLOW_TRACKING_URI says, else in the folder mlruns; the run is called what its folder is."""
    import mlflow

    if mlflow.get_tracking_uri().startswith("sqlite") and find_spec("sqlalchemy") is None:  # its usual place needs that
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow.set_tracking_uri(Path("mlruns").absolute().as_uri())
    mlflow.start_run(run_name=run.name)
    return EpochLogger(lambda name, value, step: mlflow.log_metric(name, value, step=step), mlflow.end_run)


_MAKERS = {"tensorboard": _tensorboard, "mlflow": _mlflow}
