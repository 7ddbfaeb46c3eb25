"""How long a unit may take, guessed from its epochs before anything is run, so that GPU time can be planned.

Fitted to one run on an NVIDIA H200 (captured steps, bf16, our kernels): its base model's 4,750 steps of 522 images took
15.2 seconds, a student's 9,500 steps of 560 images 34.3. A guess is for planning only: results hold what was measured.

Units of work: which there are, the configuration of each, and the names by which results are found again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from splitpu.config.parse import config_differences, config_from_dict, config_hash
from splitpu.config.presets import DataProfile, preset
from splitpu.config.schema import METHOD_SECTIONS, Config, PassesConfig
from splitpu.errors import InputError
from splitpu.methods.registry import METHODS, find_method, sections_in_use
from splitpu.reproduce.declared import SPLIT_PU, Experiment, Row, Treatment, chosen_recipe

LONG = 100.0  # seconds from which a plan points a unit out

# Milliseconds of a step with 512 images, forward and backward; networks that are not here count as the first.
_MILLISECONDS = {"cnn13": 3.2, "resnet18": 6.0, "slices-resnet18": 100.0, "cnn-small": 0.8, "mlp": 0.3}
_SHORTEST = 1.2  # milliseconds that a step takes however few rows it has
_FORWARD = 1 / 3  # of a step's work
_USUAL_STOP = 0.4  # of the split's longest: where the temporary network has mostly agreed
_HARD_SHARE = 0.1  # of the unlabelled rows; each is seen in two views and by the teacher's first layers


@dataclass(frozen=True)
class Work:
    """So many epochs of so many steps, each with so many rows through a network."""

    epochs: float
    steps: int
    images: float

    @property
    def rows(self) -> float:
        """That go through a network in all."""
        return self.epochs * self.steps * self.images

    def seconds(self, milliseconds: float) -> float:
        """With a network that takes so long for 512 images."""
        return self.epochs * self.steps * max(_SHORTEST, milliseconds * self.images / 512) / 1000


def guessed_seconds(config: Config, network: str, rows: int, positives: int) -> float:
    """Seconds of training that the configuration asks for on `rows` rows.

    >>> round(guessed_seconds(Config(method="nnpu"), "cnn13", 50_000, 1000))
    16
    >>> round(guessed_seconds(Config(method="nnpu", members=3), "cnn13", 50_000, 1000))
    47
    """
    milliseconds = _MILLISECONDS.get(network, _MILLISECONDS["cnn13"])
    return sum(work.seconds(milliseconds) for work in _works(config, rows, positives))


def whole_run_seconds(config: Config, rows: int, positives: int, epoch_seconds: float) -> float:
    """What a run may take in all, from what one epoch of its first stage took on whatever machine this is.

    >>> round(whole_run_seconds(Config(method="nnpu"), 50_000, 1000, 2.0))
    100
    """
    works = list(_works(config, rows, positives))
    return epoch_seconds * sum(work.rows for work in works) * works[0].epochs / works[0].rows


def _works(config: Config, rows: int, positives: int) -> Iterator[Work]:
    if config.warmup.name != "none":
        steps, size = _batch(rows, config.warmup.batch_size)
        yield Work(config.warmup.epochs, steps, 2 * size)
    if config.method != "split-pu":
        yield from _WORKS[config.method](config, rows, positives)
        return
    teacher = "nnpu" if config.base.method == "risk" else config.base.method
    yield from _WORKS[teacher](config, rows, positives)
    split, student = config.split, config.student
    for _ in range(config.rounds):
        yield Work(_USUAL_STOP * split.max_epochs, *_batch(rows, split.batch_size, rows * _FORWARD))
        steps, size = _batch(rows, student.batch_size)
        per_batch = student.positives_per_batch or size * positives / rows
        views = 2.0 if student.consistency == "all" else 1 + 2 * _HARD_SHARE
        yield Work(config.members * student.epochs, steps, size * views + per_batch)


def _batch(rows: int, size: int, beside: float = 0.0) -> tuple[int, float]:
    """Steps of an epoch, and rows of a step with its part of what is done beside once an epoch."""
    size = min(size, rows)
    steps = max(1, rows // size)
    return steps, size + beside / steps


def _risk(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size = _batch(rows, config.base.batch_size)
    per_batch = config.base.positives_per_batch or size * positives / rows
    yield Work(config.members * config.base.epochs, steps, size + per_batch)


def _labels(config: Config, rows: int, positives: int) -> Iterator[Work]:
    yield Work(config.members * config.base.epochs, *_batch(rows, config.base.batch_size))


def _passes(settings: PassesConfig, rows: int, positives: int, looks: float = 0.0) -> tuple[int, float, float]:
    """Steps, population rows and labelled rows of a step; `looks` = passes over all rows after every epoch."""
    steps, size = _batch(rows, settings.batch_size, looks * rows * _FORWARD)
    return steps, size, min(settings.positives_per_batch or size * positives / rows, positives)


def _vpu(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size, labelled = _passes(config.vpu, rows, positives)
    yield Work(config.vpu.epochs, steps, 2 * size + labelled)


def _dan(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size, labelled = _passes(config.dan, rows, positives)
    yield Work(config.dan.epochs, steps, 2 * (size + labelled))


def _pubn(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size, labelled = _passes(config.pubn, rows, positives)
    yield Work(config.pubn.score_epochs + config.pubn.epochs, steps, size + labelled)


def _self_pu(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size, labelled = _passes(config.self_pu, rows, positives)
    yield Work(config.self_pu.epochs, steps, 2 * (1 + _FORWARD) * (size + labelled))


def _p3mix(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size, labelled = _passes(config.p3mix, rows, positives, looks=1)
    yield Work(config.p3mix.epochs, steps, (1 + _FORWARD) * (size + labelled))


def _puupl(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size, labelled = _passes(config.puupl, rows, positives)
    yield Work(config.puupl.rounds * config.puupl.epochs, steps, config.puupl.members * (size + labelled))


def _dist_pu(config: Config, rows: int, positives: int) -> Iterator[Work]:
    steps, size, labelled = _passes(config.dist_pu, rows, positives)
    yield Work(config.dist_pu.warmup_epochs, steps, size + labelled)
    steps, size, labelled = _passes(config.dist_pu, rows, positives, looks=1)
    yield Work(config.dist_pu.epochs, steps, 2 * (size + labelled))


_WORKS: dict[str, Callable[[Config, int, int], Iterator[Work]]] = {
    "nnpu": _risk,
    "upu": _risk,
    "naive": _labels,
    "supervised": _labels,
    "vpu": _vpu,
    "dan": _dan,
    "pubn": _pubn,
    "self-pu": _self_pu,
    "p3mix": _p3mix,
    "puupl": _puupl,
    "dist-pu": _dist_pu,
}


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

    >>> from splitpu.reproduce.declared import experiments
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
