"""Named configurations to start from, as files of settings; methods fitted to small data, for which none exist."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from splitpu.config.parse import config_from_dict, read_config, unknown_name
from splitpu.config.schema import METHOD_SECTIONS, Config

SMALL = 5_000  # rows below which a set is trained in small batches and few epochs
FEWEST_LABELLED_TO_CHOOSE_BY = 10  # of those that are kept from the training; fewer would choose any epoch
_FITTED = {"epochs": 60, "batch_size": 128, "positives_per_batch": 16, "optimiser.rate": 1e-3}
_PRESETS = ("default", "fast", "paper", "record")


@cache
def _laid_over(name: str, base: Config | None = None) -> Config:
    """The settings of a file beside this one."""
    return read_config(Path(__file__).with_name("settings") / f"{name}.toml", base)


def methods_fitted_to(config: Config, rows: int, labelled: int) -> Config:
    """Give small data smaller batches and a larger rate, so that there are steps enough for anything to be learned."""
    if rows >= SMALL:
        enough = config.vpu.held_out * labelled >= FEWEST_LABELLED_TO_CHOOSE_BY
        return config if enough else config_from_dict({"vpu.held_out": 0.0}, config)
    settings = {f"{method}.{key}": value for method in METHOD_SECTIONS for key, value in _FITTED.items()}
    fitted = _laid_over("methods-on-few-rows", config_from_dict(settings, config))
    return config_from_dict({"puupl.per_round": max(2, rows // 8)}, fitted)


@dataclass(frozen=True)
class DataProfile:
    """What a preset may know of the data: its kind and size, never its labels' truth."""

    kind: Literal["vectors", "images", "volumes"]
    rows: int  # training rows, labelled and unlabelled together
    labelled: int  # how many of them are labelled positive
    tuned: bool = False  # whether the network starts from pretrained weights, which large steps would undo


def preset(name: str, profile: DataProfile | None = None) -> Config:
    """Build the configuration of that name, fitted to the data where the preset makes use of their profile.

    >>> preset("paper").base.optimiser.rate
    0.0001
    """
    if not isinstance(name, str) or name not in _PRESETS:
        raise unknown_name("preset", str(name), _PRESETS)
    if name == "paper":
        return _laid_over("paper")  # the same for all data
    if profile is None or (profile.kind == "images" and profile.rows >= SMALL):
        config = _laid_over(f"{name}-many-images")
    else:  # what was measured for each line of these is in docs/LOG.md
        config = _laid_over(f"default-{profile.kind}", _laid_over("default-few-rows"))
        config = replace(config, warmup=replace(config.warmup, name="simclr")) if name == "record" else config
    if profile is not None and profile.tuned:
        config = _laid_over("tuned", config)
    return config if profile is None else methods_fitted_to(config, profile.rows, profile.labelled)


def preset_names() -> list[str]:
    """List the presets, the default first."""
    return list(_PRESETS)
