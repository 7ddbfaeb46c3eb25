"""Units of work: which there are, the configuration of each, and the names by which results are found again."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from splitpu.config import (
    Config,
    DataProfile,
    WarmupConfig,
    config_differences,
    config_from_dict,
    config_hash,
    preset,
)
from splitpu.errors import InputError
from splitpu.experiments.declared import Experiment, Row, chosen_recipe

METHOD = "split-pu"
# What a result of the method depends on; not how the arithmetic is done, nor the settings of other methods.
WHAT_IS_COMPUTED = ("rounds", "threshold", "warmup", "base", "split", "student", "views")
CHECKPOINT_EVERY = 10  # epochs; a checkpoint costs time, a stage that is interrupted costs at most this much again

# Kind and training rows of each set, so that a table can be rendered without the data at hand.
_SETS: dict[str, tuple[Literal["vectors", "images"], int]] = {"cifar10": ("images", 50_000), "digits": ("images", 1347)}

SMOKE_SET, SMOKE_NETWORK, SMOKE_POSITIVES = "digits", "cnn-small", 50
_SMOKE_BEFORE = {"rounds": 1}  # a table may ask for more
_SMOKE_AFTER = {"warmup.epochs": 2, "base.epochs": 2, "split.max_epochs": 2, "student.epochs": 2}


@dataclass(frozen=True)
class Unit:
    """One (experiment, recipe, method, positives, setting, seed): what one line of the results is about."""

    experiment: Experiment
    recipe: str
    row: Row
    positives: int
    seed: int
    smoke: bool = False

    @property
    def data(self) -> str:
        """The data set."""
        return SMOKE_SET if self.smoke else self.row.data or self.experiment.data

    @property
    def network(self) -> str:
        """The network's name."""
        return SMOKE_NETWORK if self.smoke else chosen_recipe(self.recipe).backbone

    @property
    def profile(self) -> DataProfile:
        """What the preset knows of the data."""
        return _profile(self.data, self.positives)

    @property
    def setting(self) -> dict[str, Any]:
        """What differs from the recipe; a row that only repeats what the recipe says differs in nothing."""
        return _setting(self.recipe, self.data, self.positives, self._asked(), self.smoke)

    @property
    def config(self) -> Config:
        """Recipe, then what the table changes in all rows, then what this row changes."""
        return _config(self.recipe, self.data, self.positives, self._asked(), self.smoke)

    @property
    def config_hash(self) -> str:
        """Name of everything that decides about the result besides data, network and seed."""
        return _hash(self.recipe, self.data, self.positives, self._asked(), self.smoke)

    @property
    def work(self) -> str:
        """What is done with data and configuration: tables share their trainings, figures do not."""
        if self.experiment.kind == "figure":
            return f"figure:{self.experiment.name}"
        return f"choice:{self.experiment.held_out:g}" if self.experiment.kind == "choice" else "train"

    @property
    def identity(self) -> dict[str, Any]:
        """The unit as its result line says it."""
        return {
            "experiment": self.experiment.name,
            "recipe": self.recipe,
            "method": METHOD,
            "positives": self.positives,
            "setting": self.setting,
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """The unit as text, the same on every machine."""
        return json.dumps(self.identity, sort_keys=True)

    @property
    def work_key(self) -> str:
        """What finds the result: experiments that need the same training share it."""
        return work_key(
            {
                "work": self.work,
                "data": self.data,
                "network": self.network,
                "recipe": self.recipe,
                "method": METHOD,
                "positives": self.positives,
                "seed": self.seed,
            },
            self.config_hash,
        )

    def __str__(self) -> str:
        changed = ", ".join(f"{key}={value}" for key, value in self.setting.items()) or "as the recipe says"
        return f"{self.experiment.name} / {self.recipe} / {self.positives} positives / seed {self.seed} / {changed}"

    def _asked(self) -> str:
        return json.dumps({**self.experiment.common, **self.row.setting}, sort_keys=True)


def work_key(line: Mapping[str, Any], hash_of_config: str) -> str:
    """The name under which a result line is found."""
    parts = ("work", "data", "network", "recipe", "method", "positives", "seed")
    return json.dumps([*(line[part] for part in parts), hash_of_config])


def computed_hash(config: Config) -> str:
    """Name of everything that decides about a result; the settings of a warm-up that does not happen do not."""
    if config.warmup.name == "none":
        config = replace(config, warmup=WarmupConfig())
    return config_hash(config, *WHAT_IS_COMPUTED)


def known_set(name: str) -> bool:
    """Whether runs on this set can be told without loading it."""
    return name in _SETS


def planned_units(
    chosen: Iterable[Experiment],
    *,
    recipe: str | None = None,
    positives: Iterable[int] | None = None,
    seeds: Iterable[int] | None = None,
) -> list[Unit]:
    """All units asked for, each training once, seed by seed, so that the first seeds of every table come first.

    Within a seed, units that share a base model follow one another.
    """
    sizes, draws = (tuple(asked) if asked is not None else None for asked in (positives, seeds))
    units = [
        Unit(experiment, name, row, size, seed)
        for experiment in chosen
        for name in (experiment.recipes if recipe is None else (_runnable(recipe),))
        if not chosen_recipe(name).unavailable
        for size in sizes or experiment.positives
        for seed in draws or experiment.seeds
        for row in experiment.rows
        if not experiment.unavailable
    ]
    order = {id(unit): number for number, unit in enumerate(units)}
    units.sort(key=lambda unit: (unit.seed, unit.recipe, unit.positives, order[id(unit)]))
    once: dict[str, Unit] = {}
    for unit in units:
        once.setdefault(unit.work_key, unit)
    return list(once.values())


def smoke_units(chosen: Iterable[Experiment]) -> list[Unit]:
    """One tiny unit for every experiment that can be run; where there is a choice, one that changes something."""
    units = []
    for experiment in chosen:
        if experiment.unavailable:
            continue
        recipe = "default" if "default" in experiment.recipes else experiment.recipes[0]
        candidates = [Unit(experiment, recipe, row, SMOKE_POSITIVES, 0, smoke=True) for row in experiment.rows]
        units.append(next((unit for unit in candidates if unit.setting), candidates[0]))
    return units


def _runnable(recipe: str) -> str:
    """A user may name any recipe for any table, unless it cannot be run at all."""
    if chosen_recipe(recipe).unavailable:
        raise InputError(chosen_recipe(recipe).unavailable)
    return recipe


def _profile(data: str, positives: int) -> DataProfile:
    kind, rows = _SETS[data]
    return DataProfile(kind=kind, rows=rows, labelled=positives)


@cache
def _recipe_config(recipe: str, data: str, positives: int, smoke: bool) -> Config:
    declared = chosen_recipe(recipe)
    config = preset(declared.preset, _profile(data, positives))
    config = config_from_dict({**declared.overrides, "engine.checkpoint_every": CHECKPOINT_EVERY}, config)
    return config_from_dict(_SMOKE_BEFORE, config) if smoke else config


@cache
def _config(recipe: str, data: str, positives: int, asked: str, smoke: bool) -> Config:
    config = config_from_dict(json.loads(asked), _recipe_config(recipe, data, positives, smoke))
    return config_from_dict(_SMOKE_AFTER, config) if smoke else config


@cache
def _hash(recipe: str, data: str, positives: int, asked: str, smoke: bool) -> str:
    return computed_hash(_config(recipe, data, positives, asked, smoke))


@cache
def _setting(recipe: str, data: str, positives: int, asked: str, smoke: bool) -> dict[str, Any]:
    before = _recipe_config(recipe, data, positives, smoke)
    return config_differences(before, config_from_dict(json.loads(asked), before))
