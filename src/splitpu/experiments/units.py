"""Units of work: which there are, the configuration of each, and the names by which results are found again."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from splitpu.config import (
    Config,
    DataProfile,
    config_differences,
    config_from_dict,
    config_hash,
    preset,
)
from splitpu.config.schema import METHOD_SECTIONS
from splitpu.errors import InputError
from splitpu.experiments.costs import guessed_seconds
from splitpu.experiments.declared import SPLIT_PU, Experiment, Row, Treatment, chosen_recipe
from splitpu.methods.registry import METHODS, find_method, sections_in_use

CHECKPOINT_EVERY = 10  # epochs; a checkpoint costs time, a stage that is interrupted costs at most this much again

# Kind and training rows of each set, so that a table can be rendered without the data at hand.
_SETS: dict[str, tuple[Literal["vectors", "images", "volumes"], int]] = {
    "cifar10": ("images", 50_000),
    "mnist": ("images", 60_000),
    "digits": ("images", 1347),
    "breastmnist": ("images", 546),
    "busi": ("images", 395),
    "adrenal": ("volumes", 259),
}

SMOKE_SET, SMOKE_NETWORK, SMOKE_POSITIVES = "digits", "cnn-small", 50
_SMOKE_BEFORE = {"rounds": 1}  # a table may ask for more
_SMOKE_AFTER = {
    **{"warmup.epochs": 2, "base.epochs": 2, "split.max_epochs": 2, "student.epochs": 2},
    **{f"{section}.epochs": 2 for section in METHOD_SECTIONS},
    **{"pubn.score_epochs": 2, "puupl.rounds": 2, "dist_pu.warmup_epochs": 2},
}


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
    def method(self) -> str:
        """The method's name."""
        return self.row.method

    @property
    def network(self) -> str:
        """The network's name."""
        return SMOKE_NETWORK if self.smoke else self._treatment.network or chosen_recipe(self.recipe).backbone

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
        """Recipe as it was when the table was run, then what the table changes in all rows, then what this row does."""
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
            "method": self.method,
            "positives": self.positives,
            "setting": self.setting,
            "seed": self.seed,
        }

    @property
    def work_key(self) -> str:
        """What finds the result: experiments that need the same training share it."""
        return work_key(
            {
                "work": self.work,
                "data": self.data,
                "network": self.network,
                "recipe": self.recipe,
                "method": self.method,
                "positives": self.positives,
                "seed": self.seed,
            },
            self.config_hash,
        )

    def __str__(self) -> str:
        changed = ", ".join(f"{key}={value}" for key, value in self.setting.items()) or "as the recipe says"
        what = "" if self.method == SPLIT_PU else f" / {self.method}"
        where = "" if self.data in (self.experiment.data, SMOKE_SET) else f" / {self.data}"
        start = f"{self.experiment.name} / {self.recipe}{where}{what}"
        return f"{start} / {self.positives} positives / seed {self.seed} / {changed}"

    @property
    def guessed_seconds(self) -> float:
        """What its training may take on the GPU that most results were made on."""
        rows = self.profile.rows * (1 - self.experiment.held_out)
        return guessed_seconds(self.config, self.network, round(rows), self.positives)

    @property
    def _treatment(self) -> Treatment:
        return self.experiment.sets.get(self.row.data or self.experiment.data, Treatment())

    def _asked(self) -> str:
        was = chosen_recipe(self.recipe).as_run_for(self.experiment.name)
        asked = {**was, **self.experiment.common, **self._treatment.setting, **self.row.setting, "method": self.method}
        return json.dumps(asked, sort_keys=True)


def what_is_computed(config: Config) -> tuple[str, ...]:
    """The sections a result depends on: not how the arithmetic is done, nor what its method never reads.

    The method itself has a place of its own in a result line.

    >>> what_is_computed(Config())
    ('rounds', 'threshold', 'base', 'split', 'student', 'selection', 'views')
    """
    return tuple(section for section in sections_in_use(config) if section != "method")


def work_key(line: Mapping[str, Any], hash_of_config: str) -> str:
    """The name under which a result line is found."""
    parts = ("work", "data", "network", "recipe", "method", "positives", "seed")
    return json.dumps([*(line[part] for part in parts), hash_of_config])


def computed_hash(config: Config) -> str:
    """Name of everything that decides about a result besides data, network, method and seed."""
    return config_hash(config, *what_is_computed(config))


def known_set(name: str) -> bool:
    """Whether runs on this set can be told without loading it."""
    return name in _SETS


def planned_units(
    chosen: Iterable[Experiment],
    *,
    recipe: str | None = None,
    positives: Iterable[int] | None = None,
    seeds: Iterable[int] | None = None,
    methods: Iterable[str] | None = None,
) -> list[Unit]:
    """All units asked for, each training once, seed by seed, so that the first seeds of every table come first.

    Within a seed, units that share a base model follow one another. Tables that ask for it come row by row instead,
    the cheapest first, so that whatever time there is fills whole rows; what can be held against a published figure
    comes before tables that quote none, and those before what is left of the tables that do.
    """
    asked_methods = None if methods is None else tuple(methods)
    sizes, draws = (tuple(asked) if asked is not None else None for asked in (positives, seeds))
    units = [
        Unit(experiment, name, row, size, seed)
        for experiment in chosen
        for name in (experiment.recipes if recipe is None else (_runnable(recipe),))
        if not chosen_recipe(name).unavailable
        for size in sizes or experiment.positives
        for seed in draws or experiment.seeds
        for row in rows_for(experiment, asked_methods)
        if not experiment.unavailable and known_set(row.data or experiment.data)
    ]
    order = {id(unit): number for number, unit in enumerate(units)}

    def place(unit: Unit) -> tuple[Any, ...]:
        if unit.experiment.order == "rows":
            urgency = 0 if unit.positives in unit.row.paper else 2 if unit.experiment.quotes_figures else 1
            return 1, urgency, unit.guessed_seconds, unit.positives, unit.row.label, unit.seed
        return 0, unit.seed, unit.recipe, unit.positives, order[id(unit)]

    units.sort(key=place)
    once: dict[str, Unit] = {}
    for unit in units:
        once.setdefault(unit.work_key, unit)
    return list(once.values())


def smoke_units(chosen: Iterable[Experiment]) -> list[Unit]:
    """A tiny unit for every experiment that can be run, one that no other one trains if there is a choice; more where
    a table has methods that none before it had."""
    units: list[Unit] = []
    for experiment in chosen:
        if experiment.unavailable:
            continue
        recipe = "default" if "default" in experiment.recipes else experiment.recipes[0]
        candidates = [Unit(experiment, recipe, row, SMOKE_POSITIVES, 0, smoke=True) for row in experiment.rows]
        known = {unit.work_key for unit in units}
        changed = [unit for unit in candidates if unit.setting]
        units.append(next((unit for unit in changed if unit.work_key not in known), (changed or candidates)[0]))
        for unit in candidates:
            if unit.method not in {one.method for one in units}:
                units.append(unit)
    return units


def rows_for(experiment: Experiment, methods: tuple[str, ...] | None) -> tuple[Row, ...]:
    """The rows of these methods, alone or as teachers; one that the table does not name gets a row of its own, at its
    own settings.

    >>> from splitpu.experiments.declared import experiments
    >>> [row.label for row in rows_for(experiments()["rho"], ("vpu",))]
    ['VPU']
    """
    if methods is None:
        return experiment.rows
    unknown = [find_method(name).name for name in methods if not any(row.is_of((name,)) for row in experiment.rows)]
    if unknown and experiment.kind == "figure":
        raise InputError(
            f"figure '{experiment.name}' looks into {METHODS[SPLIT_PU].title} and cannot be made of method "
            f"'{unknown[0]}'; name a table instead"
        )
    named = tuple(row for row in experiment.rows if row.is_of(methods))
    return named + tuple(Row(label=METHODS[name].title, method=name) for name in unknown)


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
    after = config_from_dict(json.loads(asked), before)
    read = what_is_computed(after)  # the method itself is named apart from the settings
    return {key: value for key, value in config_differences(before, after).items() if key.partition(".")[0] in read}
