"""The prior of a run: given, known of a named set, or estimated, which can be stopped and gone on with."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from splitpu.cli.progress import CountedEpochs, ProgressDisplay
from splitpu.cli.stopped import PriorStopped
from splitpu.data.pudata import PUData
from splitpu.engine.stage import Observer
from splitpu.errors import Interrupted
from splitpu.listening import collected_warnings
from splitpu.methods.registry import find_method
from splitpu.prior.resolve import TRUE_SHARE, ResolvedPrior, being_estimated, prior_for, prior_in_words
from splitpu.prior.scores import too_few_rows
from splitpu.runs.folder import RUNS
from splitpu.runs.observers import Everyone, StopWhen
from splitpu.runs.prior_under_way import kept_until_known
from splitpu.runs.sources import LoadedData
from splitpu.stop_request import StopRequest


@dataclass(frozen=True)
class Estimating:
    """What the networks of an estimate are watched by, and where they keep what they have."""

    observer: Observer
    checkpoints: Path | None


@contextmanager
def estimating(display: ProgressDisplay, data: PUData, seed: int, out: Path | None = None) -> Iterator[Estimating]:
    """Inside the block a signal is a polite request wherever there is something to go on with."""
    beside = RUNS if out is None else out.parent
    with display.watching() as watch, kept_until_known(data, seed, beside) as checkpoints:
        epochs = CountedEpochs(watch)
        if checkpoints is None:
            yield Estimating(epochs, None)
            return
        if checkpoints.exists():
            display.say("prior: an estimate of these rows was stopped; it continues from there")
        with StopRequest() as stop:
            try:
                yield Estimating(Everyone([epochs, StopWhen(stop.wanted)]), checkpoints)
            except (Interrupted, KeyboardInterrupt) as stopped:
                raise PriorStopped(stop.exit_code) from stopped
            if stop.wanted():  # after the last step of the last network
                raise PriorStopped(stop.exit_code)


def prior_asked(
    prior: float | str | None,
    method: str,
    loaded: LoadedData,
    seed: int,
    display: ProgressDisplay,
    *,
    device: str,
    out: Path | None = None,
) -> ResolvedPrior:
    """An estimate unless a prior was given; that of a named set, or none, where that was asked for."""
    if prior is None and find_method(method).needs_truth:
        return ResolvedPrior.none()  # who knows every label has no use for an estimate of their share
    meant: dict[object, object] = {None: "auto", "true": loaded.true_prior, "none": None}
    wanted = meant.get(prior, prior)
    with collected_warnings(display.note):
        found = _found(wanted, method, loaded.data, seed, display, device, out)
    if found.value is not None and prior == "true":
        found = dataclasses.replace(found, source=TRUE_SHARE)
    if found.value is not None and found.source != "given":
        known = ""
        if found.estimate is not None and loaded.true_prior is not None:
            known = f"; the set's true share is {loaded.true_prior:.3g} (--prior true takes it)"
        display.say(f"prior: {prior_in_words(found.value, found.interval, found.source)}{known}")
    return found


def _found(
    wanted: object,
    method: str,
    data: PUData,
    seed: int,
    display: ProgressDisplay,
    device: str,
    out: Path | None,
) -> ResolvedPrior:
    if wanted != "auto":
        return prior_for(method, wanted, data, seed=seed, device=device)
    if not too_few_rows(data):  # else there is no estimate to wait for
        display.say(being_estimated(data))
    with estimating(display, data, seed, out) as way:
        return prior_for(
            method, wanted, data, seed=seed, device=device, observer=way.observer, checkpoints=way.checkpoints
        )
