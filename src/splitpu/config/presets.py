"""Named configurations to start from; of the other methods fitted to small data, for which none are published."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from splitpu.config.parse import config_from_dict, read_config, unknown_name
from splitpu.config.schema import (
    METHOD_SECTIONS,
    BaseConfig,
    Config,
    OptimiserConfig,
    SplitConfig,
    StudentConfig,
    ViewsConfig,
    WarmupConfig,
)

_PAPER = Path(__file__).with_name("paper.toml")  # as published, for all data
SMALL = 5_000  # rows below which a set is trained in small batches and few epochs
FEWEST_LABELLED_TO_CHOOSE_BY = 10  # of those that are kept from the training; fewer would choose any epoch
_FITTED = {"epochs": 60, "batch_size": 128, "positives_per_batch": 16, "optimiser.rate": 1e-3}


def methods_fitted_to(config: Config, rows: int, labelled: int) -> Config:
    """Give small data smaller batches and a larger rate, so that there are steps enough for anything to be learned."""
    if rows >= SMALL:
        enough = config.vpu.held_out * labelled >= FEWEST_LABELLED_TO_CHOOSE_BY
        return config if enough else config_from_dict({"vpu.held_out": 0.0}, config)
    settings = {f"{method}.{key}": value for method in METHOD_SECTIONS for key, value in _FITTED.items()}
    special = {
        # Its loss soon knows few positives by heart, and then calls nothing else positive: stop early, mix much.
        "vpu.epochs": 20,
        "vpu.held_out": 0.0,
        "vpu.optimiser.rate": 3e-4,
        "vpu.mix_weight": 1.0,
        # All predictions rise to one before the adversary knows anything; in so few steps the game would not undo it.
        "dan.anchor_level": 0.95,
        "dan.positives_per_batch": 0,
        "dan.optimiser.weight_decay": 0.0,
        "dan.optimiser.average": 0.0,
        "p3mix.positives_per_batch": 0,
        "p3mix.optimiser.weight_decay": 5e-4,
        "puupl.epochs": 40,
        "puupl.rounds": 3,
        "puupl.per_round": max(2, rows // 8),
        "dist_pu.epochs": 40,
        "dist_pu.warmup_epochs": 40,
        "dist_pu.warmup_optimiser.rate": 1e-3,
        "dist_pu.optimiser.rate": 1e-4,  # the second part only refines the first
    }
    return config_from_dict(settings | special, config)


@dataclass(frozen=True)
class DataProfile:
    """What a preset may know of the data: its kind and size, never its labels' truth."""

    kind: Literal["vectors", "images", "volumes"]
    rows: int  # training rows, labelled and unlabelled together
    labelled: int  # how many of them are labelled positive


def preset(name: str, profile: DataProfile | None = None) -> Config:
    """Build the configuration of that name, fitted to the data where the preset makes use of their profile.

    >>> preset("paper").base.optimiser.rate
    0.0001
    """
    if not isinstance(name, str) or name not in _PRESETS:
        raise unknown_name("preset", str(name), _PRESETS)
    config, fitted = _PRESETS[name](profile), name != "paper"
    return methods_fitted_to(config, profile.rows, profile.labelled) if fitted and profile is not None else config


def preset_names() -> list[str]:
    """List the presets, the default first."""
    return list(_PRESETS)


def _default(profile: DataProfile | None) -> Config:
    """The same method, trained as well as we know how; what was measured for each line is in docs/LOG.md."""
    if profile is None or (profile.kind == "images" and profile.rows >= SMALL):
        # Confirmed, and the epochs of the base chosen, by held-out positives and unlabelled images (docs/RESULTS.md).
        optimiser = OptimiserConfig(name="adam", rate=1e-3, weight_decay=5e-3, schedule="cosine", average=0.999)
        return Config(
            base=BaseConfig(epochs=100, positives_per_batch=64, optimiser=optimiser),
            student=StudentConfig(epochs=50, positives_per_batch=64, optimiser=optimiser),
        )
    # Small batches, so that an epoch has enough steps to move the temporary network at all.
    slow = OptimiserConfig(name="sgd", rate=3e-3, weight_decay=5e-3, schedule="constant")
    # The usual rate goes with the usual batch: a quarter of the one with a quarter of the other.
    usual = WarmupConfig()
    gentle = replace(usual.optimiser, rate=usual.optimiser.rate * 128 / 512)
    warmup = replace(usual, epochs=40, batch_size=128, optimiser=gentle)
    for_few = Config(split=SplitConfig(batch_size=64, optimiser=slow), warmup=warmup)
    lower = OptimiserConfig(rate=3e-4)
    if profile.kind == "images":
        return replace(
            for_few,
            base=BaseConfig(epochs=40, batch_size=128, positives_per_batch=32, optimiser=lower),
            student=StudentConfig(epochs=60, batch_size=128, positives_per_batch=32, label_views="strong"),
            # These stand in for the variety that few images lack; no mirroring: it changes what a digit says.
            views=ViewsConfig(flip=False, rotation=15.0, zoom=0.1),
        )
    if profile.kind == "volumes":  # small batches: sets of patients are small, and each is many images in memory
        return replace(
            for_few,
            base=BaseConfig(epochs=40, batch_size=32, positives_per_batch=16, optimiser=lower),
            # The usual rate is too much for attention over slices: two of three students ended in saying always yes.
            student=StudentConfig(epochs=60, batch_size=32, positives_per_batch=16, optimiser=lower),
            # The strong view of the paper's medical sets: CutOut, no other colours. Not tuned.
            views=ViewsConfig(rotation=10.0, brightness=0.0, contrast=0.0, cutout=0.4),
        )
    # Learners for tables, chosen and cut out of fold; the rest is for `learner="network"` and for the other methods. Of
    # those, few features overfit quickly: strong noise, and a base that sees as much of the data as it can in a step.
    return replace(
        for_few,
        learner="auto",
        threshold="f1",
        base=BaseConfig(epochs=60, batch_size=512, positives_per_batch=32),
        student=StudentConfig(epochs=40, batch_size=128, positives_per_batch=32),
        views=ViewsConfig(noise=0.6, dropout=0.3),
    )


def _record(profile: DataProfile | None) -> Config:
    """The most accuracy we know how to get: every network starts from a label-free warm-up and is then fine-tuned."""
    config = _default(profile)
    if profile is not None and (profile.kind != "images" or profile.rows < SMALL):
        return replace(config, warmup=replace(config.warmup, name="simclr"))
    return Config(
        rounds=2,
        warmup=WarmupConfig(name="simclr"),
        base=BaseConfig(epochs=25, positives_per_batch=64, views="strong", optimiser=_fine_tuning(3e-4)),
        # Of rows called positive the surest half only: known positives show what hard ones look like, but of negatives
        # nothing is known, so their labels are all needed (docs/LOG.md). Momentum: good features need few epochs.
        split=SplitConfig(
            tau=0.95,
            max_epochs=15,
            surest_positives=0.5,
            optimiser=OptimiserConfig(name="sgd", rate=3e-3, weight_decay=5e-3, momentum=0.9, schedule="constant"),
        ),
        student=StudentConfig(
            epochs=40,
            positives_per_batch=64,
            label_views="strong",
            alpha=1.0,
            confidence=0.95,
            optimiser=replace(_fine_tuning(0.03), name="sgd", momentum=0.9, weight_decay=5e-4),
        ),
        views=ViewsConfig(resized_crop=0.35, jitter=0.8, grey=0.2, cutout=0.5),
    )


def _fine_tuning(rate: float) -> OptimiserConfig:
    """Small steps with a gentle start, so that features which took long to learn are not lost in the first epoch."""
    return OptimiserConfig(name="adamw", rate=rate, weight_decay=0.05, schedule="cosine", warmup=0.05, average=0.999)


_PRESETS: dict[str, Callable[[DataProfile | None], Config]] = {
    "default": _default,
    "paper": lambda _: read_config(_PAPER),
    "record": _record,
}
