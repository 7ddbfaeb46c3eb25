"""Named configurations to start from; settings are laid over them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from splitpu.config.keys import nearest, quoted_list
from splitpu.config.schema import BaseConfig, Config, OptimiserConfig, SplitConfig, StudentConfig
from splitpu.config.small import methods_fitted_to
from splitpu.errors import InputError


@dataclass(frozen=True)
class DataProfile:
    """What a preset may know of the data: its kind and size, never its labels' truth."""

    kind: Literal["vectors", "images"]
    rows: int  # training rows, labelled and unlabelled together
    labelled: int  # how many of them are labelled positive


def preset(name: str, profile: DataProfile | None = None) -> Config:
    """Build the configuration of that name, fitted to the data where the preset makes use of their profile.

    >>> preset("paper").base.optimiser.rate
    0.0001
    """
    if name in _PRESETS:
        config = _PRESETS[name](profile)
        return config if name == "paper" or profile is None else methods_fitted_to(config, profile.rows)
    meant = nearest(name, _PRESETS)
    if meant is not None:
        raise InputError(f"unknown preset '{name}'; did you mean '{meant}'?")
    raise InputError(f"unknown preset '{name}'; choose one of {quoted_list(_PRESETS)}")


def preset_names() -> list[str]:
    """List the presets, the default first.

    >>> preset_names()
    ['default', 'paper']
    """
    return list(_PRESETS)


def _default(profile: DataProfile | None) -> Config:
    return Config()


def _paper(profile: DataProfile | None) -> Config:
    """The published settings, with the released code deciding what the text leaves open; the same for all data."""
    # Written out in full where defaults might agree today: tuning the defaults must not move the paper's settings.
    return Config(
        rounds=2,
        threshold="half",
        base=BaseConfig(
            risk="nnpu",
            epochs=50,
            batch_size=512,
            positives_per_batch=0,
            population="unlabelled",
            augment=False,
            nn_beta=0.0,
            nn_gamma=1.0,
            optimiser=_constant("adam", rate=1e-4, weight_decay=5e-4),
        ),
        split=SplitConfig(
            enabled=True,
            tau=0.92,
            max_epochs=60,
            batch_size=512,
            labels="soft",
            include_positives=True,
            augment=False,
            tails=0.0,
            optimiser=_constant("sgd", rate=1e-3, weight_decay=5e-3),
        ),
        student=StudentConfig(
            epochs=100,
            batch_size=512,
            positives_per_batch=0,
            easy_loss="js",
            labels="soft",
            hard_loss="dual",
            consistency="hard",
            rho=0.7,
            alpha=0.3,
            beta=0.1,
            low_weight=0.3,
            positive_weight=1.0,
            confidence=0.0,
            optimiser=_constant("adam", rate=5e-5, weight_decay=1e-2),
        ),
    )


def _constant(name: Literal["adam", "sgd"], *, rate: float, weight_decay: float) -> OptimiserConfig:
    """An optimiser without schedule, warm-up, momentum or weight average."""
    return OptimiserConfig(
        name=name, rate=rate, weight_decay=weight_decay, momentum=0.0, schedule="constant", warmup=0.0, average=0.0
    )


_PRESETS: dict[str, Callable[[DataProfile | None], Config]] = {"default": _default, "paper": _paper}
