"""Several trainings at once on one device: seeds, labelled draws or settings that share their rows."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from splitpu.config.schema import Config, EngineConfig
from splitpu.data.priors import check_interval
from splitpu.data.pudata import PUData, check_pudata
from splitpu.engine.hardware import Hardware
from splitpu.engine.lanes import Ended, SharedRows, in_lanes, sensible_lanes
from splitpu.engine.stage import Observer
from splitpu.errors import InputError, Interrupted, SomeRunsFailed
from splitpu.runs.observers import Everyone, StopWhen
from splitpu.seeds import checked_seed
from splitpu.training import Backbone, Training, check_config, check_needs, train

_One = TypeVar("_One")


def train_side_by_side(
    data: PUData | Sequence[PUData],
    *,
    seeds: Sequence[int],
    prior: float | None,
    prior_interval: tuple[float, float] | None = None,
    config: Config | Sequence[Config],
    backbone: Backbone = "auto",
    device: str = "auto",
    checkpoints: str | Path | None = None,
    observers: Sequence[Observer] | None = None,
    classes: tuple[Any, Any] = (0, 1),
    at_once: int | None = None,
) -> list[Training]:
    """Train once for every seed, several at once on a GPU and one after the other on a CPU; results in their order.

    `data` and `config` may be one for all or one for each seed; data over the same features, as `make_pu` gives them,
    have one copy of the rows on the device. Every training is the one that `train` gives for its seed: bitwise on the
    CPU, up to the order of sums on a GPU. `at_once` limits how many share the device at a time. If one fails, the
    others are brought to their end; `SomeRunsFailed` then holds both.

    >>> from splitpu import load_named, make_pu, preset
    >>> digits = load_named("digits")
    >>> draws = [make_pu(digits, 50, seed)[0] for seed in (0, 1)]
    >>> from splitpu.config import apply_overrides
    >>> quick = apply_overrides(preset("default"), ["method=nnpu", "base.epochs=1"])
    >>> [one.model.network_name for one in train_side_by_side(draws, seeds=(0, 1), prior=0.49, config=quick)]
    ['cnn-small', 'cnn-small']
    """
    seeds = _whole_numbers(seeds)
    sets, configs = _for_each(data, check_pudata, seeds, "data"), _for_each(config, check_config, seeds, "config")
    listeners = list(observers) if observers is not None else [Observer() for _ in seeds]
    if len(listeners) != len(seeds):
        raise InputError(f"{len(listeners)} observers were given for {len(seeds)} seeds: give one for each")
    for one, settings in zip(sets, configs, strict=True):
        checked = check_needs(settings, one, prior)
        if prior_interval is not None:
            check_interval(prior_interval, checked)
    shared, left = SharedRows(), threading.Event()
    jobs = [
        partial(
            train,
            one,
            prior=prior,
            prior_interval=prior_interval,
            config=settings,
            backbone=backbone,
            seed=seed,
            device=device,
            checkpoints=checkpoints,
            observer=Everyone([listener, StopWhen(left.is_set)]),
            classes=classes,
            shared=shared,
        )
        for one, settings, seed, listener in zip(sets, configs, seeds, listeners, strict=True)
    ]
    return all_or_error(run_jobs(jobs, device, at_once, when_left=left.set), [f"seed {seed}" for seed in seeds])


def run_jobs(
    jobs: Sequence[Callable[[], _One]], device: str, at_once: int | None, when_left: Callable[[], None]
) -> list[Ended[_One]]:
    """Run the jobs in as many lanes as suit the device, or as were asked for."""
    if at_once is not None and at_once < 1:
        raise InputError(f"{at_once} runs at once would train nothing: give 1 or more")
    chosen = Hardware.choose(device, EngineConfig()).device
    lanes = min(len(jobs), at_once or sensible_lanes(chosen, len(jobs)))
    return in_lanes(jobs, chosen, lanes, when_left)


def all_or_error(ended: Sequence[Ended[_One]], names: Sequence[str]) -> list[_One]:
    """All answers, or an error that names the runs that failed; one that was asked to stop did not fail."""
    failed = {number: one.error for number, one in enumerate(ended) if one.error is not None}
    for error in failed.values():
        if isinstance(error, Interrupted):
            raise error
    if failed:
        finished = {number: one.answer for number, one in enumerate(ended) if one.error is None}
        first = next(iter(failed.values()))
        raise SomeRunsFailed(_in_words(failed, finished, names), failed, finished) from first
    return [one.answer for one in ended]


def _in_words(failed: Mapping[int, Exception], finished: Mapping[int, Any], names: Sequence[str]) -> str:
    reasons = "; ".join(f"{names[number]} failed ({error})" for number, error in failed.items())
    others = ", ".join(names[number] for number in finished)
    return f"{reasons}; finished: {others or 'none'}."


def _whole_numbers(seeds: Sequence[int]) -> list[int]:
    try:
        given = list(seeds)
    except TypeError:
        raise InputError(f"seeds={seeds!r} is not a list: give one for each training, such as [0, 1, 2]") from None
    if not given:
        raise InputError("seeds is empty: give at least one, such as [0, 1, 2]")
    return [checked_seed(seed) for seed in given]


def _for_each(
    given: _One | Sequence[_One], check: Callable[[object], None], seeds: Sequence[int], name: str
) -> list[_One]:
    """One for every seed, each of which passed the `check` that `train` has for it."""
    several: list[_One] = list(given) if isinstance(given, list | tuple) else [given] * len(seeds)  # type: ignore[list-item]
    for one in several:
        check(one)
    if len(several) != len(seeds):
        raise InputError(f"{name} has {len(several)} entries for {len(seeds)} seeds: give one for all, or one for each")
    return several
