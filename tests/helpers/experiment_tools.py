"""The names of all experiments, units by name, and result lines without the runs that would make them."""

from typing import Any

from splitpu.config.parse import config_to_dict
from splitpu.reproduce.declared import chosen_experiments
from splitpu.reproduce.units import Unit, planned_units, what_is_computed

NAMES = [
    *("main", "medical", "medical-labels", "starts-busi", "starts-breastmnist", "starts-adrenal"),
    *("early-stop", "easy-loss", "hard-loss", "rounds", "consistency-scope"),
    *("rho", "alpha", "beta", "tau", "base-upu", "base-epochs", "controls"),
    *("noise-by-tau", "learning-of-noise", "spr", "cgh", "gallery"),
    *("competitors", "competitors-mnist", "competitors-breastmnist", "competitors-digits"),
    *("teachers", "teachers-digits", "recipe-choice", "recipe-final", "fast-choice", "fast-final", "record-choice"),
    *("competitor-choice", "competitor-choice-mnist"),
]


def units_of(name: str, **choices: Any) -> list[Unit]:
    return planned_units(chosen_experiments(name), **choices)


def made_up(unit: Unit, accuracy: float, base: float = 80.0, **more: Any) -> dict[str, Any]:
    """A result line as a real run would leave it, without the run."""
    settings = config_to_dict(unit.config)
    return {
        **unit.identity,
        "accuracy": accuracy,
        "base_accuracy": base,
        "rounds": [{"accuracy": accuracy - 1}, {"accuracy": accuracy}],
        "seconds": 100.0,
        "wall_seconds": 60.0,
        "device": "a fine card",
        "work": unit.work,
        "data": unit.data,
        "network": unit.network,
        "config_hash": unit.config_hash,
        "config": {section: settings[section] for section in what_is_computed(unit.config)},
        **more,
    }
