"""Units of work: which there are, the configuration of each, the names by which results and stages are found again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from splitpu.config.parse import config_differences, config_from_dict, config_hash
from splitpu.config.presets import DataProfile, preset
from splitpu.config.schema import METHOD_SECTIONS, Config
from splitpu.data.public.named_set import SETS
from splitpu.errors import InputError
from splitpu.methods.registry import BASE, LATER, SPLIT, STUDENT, WARMUP, find_method, sections_in_use, works_of
from splitpu.reproduce.declared import SPLIT_PU, Experiment, Row, Treatment, chosen_recipe

_NOT_OF_THE_BASE = ("rounds", "threshold", "split", "student")
CHECKPOINT_EVERY = 10  # epochs; a checkpoint costs time, a stage that is interrupted costs at most this much again

SMOKE_SET, SMOKE_NETWORK, SMOKE_POSITIVES = "digits", "cnn-small", 50
_SMOKE_BEFORE = {"rounds": 1}  # a table may ask for more
_SMOKE_AFTER = {
    **{"warmup.epochs": 2, "base.epochs": 2, "split.max_epochs": 2, "student.epochs": 2},
    **{f"{section}.epochs": 2 for section in METHOD_SECTIONS},
    **{"pubn.score_epochs": 2, "puupl.rounds": 2, "dist_pu.warmup_epochs": 2},
}
_KEY_PARTS = ("work", "data", "network", "recipe", "method", "positives", "seed")


class Settled(NamedTuple):
    """What the recipe, the table and the row of a unit come to."""

    config: Config
    setting: dict[str, Any]  # what differs from the recipe
    config_hash: str


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
        return SMOKE_SET if self.smoke else self.row.data or self.experiment.data

    @property
    def method(self) -> str:
        return self.row.method

    @property
    def network(self) -> str:
        own = self.row.network or self._treatment.network
        return SMOKE_NETWORK if self.smoke else own or chosen_recipe(self.recipe).backbone

    @property
    def profile(self) -> DataProfile:
        """What the preset knows of the data."""
        about = SETS[self.data]  # so that a table can be rendered without the data at hand
        return DataProfile(kind=about["kind"], rows=about["train_rows"], labelled=self.positives)

    @property
    def setting(self) -> dict[str, Any]:
        """What differs from the recipe; a row that only repeats what the recipe says differs in nothing."""
        return self._settled.setting

    @property
    def config(self) -> Config:
        """Recipe as it was when the table was run, then what the table changes in all rows, then what this row does."""
        return self._settled.config

    @property
    def config_hash(self) -> str:
        """Name of everything that decides about the result besides data, network and seed."""
        return self._settled.config_hash

    @property
    def work(self) -> str:
        """What is done with data and configuration: tables share their trainings, figures do not."""
        if self.experiment.kind == "figure":
            return f"figure:{self.experiment.name}"
        return f"choice:{self.experiment.held_out:g}" if self.experiment.kind == "choice" else "train"

    @property
    def identity(self) -> dict[str, Any]:
        """The unit as its result line says it."""
        names = ("recipe", "method", "positives", "setting", "seed")
        return {"experiment": self.experiment.name, **{name: getattr(self, name) for name in names}}

    @property
    def work_key(self) -> str:
        """What finds the result: experiments that need the same training share it."""
        return work_key({name: getattr(self, name) for name in _KEY_PARTS}, self.config_hash)

    def __str__(self) -> str:
        changed = ", ".join(f"{key}={value}" for key, value in self.setting.items()) or "as the recipe says"
        what = "" if self.method == SPLIT_PU else f" / {self.method}"
        where = "" if self.data in (self.experiment.data, SMOKE_SET) else f" / {self.data}"
        start = f"{self.experiment.name} / {self.recipe}{where}{what}"
        return f"{start} / {self.positives} positives / seed {self.seed} / {changed}"

    @property
    def guessed_seconds(self) -> float:
        """What its training may take on the GPU that most results were made on."""
        return sum(self.guessed_by_stage.values())

    @property
    def guessed_by_stage(self) -> dict[int, float]:
        """The same, by the place of the stage."""
        rows = round(self.profile.rows * (1 - self.experiment.held_out))
        found: dict[int, float] = {}
        for work in works_of(self.config, rows, self.positives):
            found[work.place] = found.get(work.place, 0.0) + work.seconds(self.network)
        return found

    @property
    def _treatment(self) -> Treatment:
        return self.experiment.sets.get(self.row.data or self.experiment.data, Treatment())

    @property
    def _settled(self) -> Settled:
        was = chosen_recipe(self.recipe).as_run_for(self.experiment.name)
        asked = {**was, **self.experiment.common, **self._treatment.setting, **self.row.setting, "method": self.method}
        return _settled(self.recipe, self.profile, json.dumps(asked, sort_keys=True), self.smoke)


@cache
def _settled(recipe: str, profile: DataProfile, asked: str, smoke: bool) -> Settled:
    declared = chosen_recipe(recipe)
    always = {**declared.overrides, "engine.checkpoint_every": CHECKPOINT_EVERY, **(_SMOKE_BEFORE if smoke else {})}
    before = config_from_dict(always, preset(declared.preset, profile))
    after = config_from_dict(json.loads(asked), before)
    read = what_is_computed(after)  # the method itself is named apart from the settings
    differences = config_differences(before, after)
    setting = {key: value for key, value in differences.items() if key.partition(".")[0] in read}
    config = config_from_dict(_SMOKE_AFTER, after) if smoke else after
    return Settled(config, setting, computed_hash(config))


def work_key(line: Mapping[str, Any], hash_of_config: str) -> str:
    """The name under which a result line is found."""
    return json.dumps([*(line[part] for part in _KEY_PARTS), hash_of_config])


def what_is_computed(config: Config) -> tuple[str, ...]:
    """The sections a result depends on: not how the arithmetic is done, nor what its method never reads."""
    return tuple(section for section in sections_in_use(config) if section != "method")


def computed_hash(config: Config) -> str:
    """Name of everything that decides about a result besides data, network, method and seed."""
    return config_hash(config, *what_is_computed(config))


def shareable_stages(unit: Unit) -> dict[int, str]:
    """Place and name of every stage that another unit may need as well; equal names stand for the same training."""
    config, found = unit.config, {}
    if config.warmup.name != "none":
        named = config_hash(config, "warmup", "views.flip")
        found[WARMUP] = f"warmup {unit.data} {unit.network} {unit.seed} {named}"
    draw = (unit.data, unit.network, unit.seed, unit.positives, unit.experiment.held_out, unit.method)
    sections = [section for section in what_is_computed(config) if section not in _NOT_OF_THE_BASE]
    found[BASE] = f"base {draw} {config_hash(config, *sections)}"
    if unit.method == SPLIT_PU and config.rounds:
        sections += ["threshold", "split"]
        if config.split.enabled:
            found[SPLIT] = f"split {draw} {config_hash(config, *sections)}"
        # Figures look into their students while these learn, which others cannot use.
        watched = unit.experiment.kind == "figure"
        found[STUDENT] = f"student {draw} {watched} {config_hash(config, *sections, 'student')}"
    return found


def place_of(stage: str) -> int:
    """Where a stage stands in the order; one that is trained again or has members is named after the first of them."""
    starts = {"warmup": WARMUP, "round1.split": SPLIT, "round1.student": STUDENT, "round": LATER}
    return next((place for start, place in starts.items() if stage.startswith(start)), BASE)


def known_set(name: str) -> bool:
    """Whether runs on this set can be told without loading it."""
    return "kind" in SETS.get(name, {})


def planned_units(
    chosen: Iterable[Experiment],
    *,
    recipe: str | None = None,
    positives: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
) -> list[Unit]:
    """All units asked for, each training once, seed by seed, so that the first seeds of every table come first.

    Within a seed, units that share a base model follow one another. Tables that ask for it come row by row instead,
    the cheapest first, so that whatever time there is fills whole rows; what can be held against a published figure
    comes before tables that quote none, and those before what is left of the tables that do."""
    if recipe is not None and chosen_recipe(recipe).unavailable:
        raise InputError(chosen_recipe(recipe).unavailable)
    units = [
        Unit(experiment, name, row, size, seed)
        for experiment in chosen
        for name in (experiment.recipes if recipe is None else (recipe,))
        if not chosen_recipe(name).unavailable
        for size in positives or experiment.positives
        for seed in seeds or experiment.seeds
        for row in rows_for(experiment, methods)
        if not experiment.unavailable and known_set(row.data or experiment.data)
    ]

    def place(numbered: tuple[int, Unit]) -> tuple[Any, ...]:
        number, unit = numbered
        if unit.experiment.order == "rows":
            quotes = any(row.paper for row in unit.experiment.rows)
            urgency = 0 if unit.positives in unit.row.paper else 2 if quotes else 1
            return 1, urgency, unit.guessed_seconds, unit.positives, unit.row.label, unit.seed, number
        return 0, unit.seed, unit.recipe, unit.positives, number

    once: dict[str, Unit] = {}
    for _, unit in sorted(enumerate(units), key=place):
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


def rows_for(experiment: Experiment, methods: Sequence[str] | None) -> tuple[Row, ...]:
    """The rows of these methods, alone or as teachers; a method that the table does not name gets one of its own."""
    if methods is None:
        return experiment.rows
    unknown = [find_method(name).name for name in methods if not any(row.is_of((name,)) for row in experiment.rows)]
    if unknown and experiment.kind == "figure":
        wrong = f"figure '{experiment.name}' looks into {find_method(SPLIT_PU).title}"
        raise InputError(f"{wrong} and cannot be made of method '{unknown[0]}'; name a table instead")
    named = tuple(row for row in experiment.rows if row.is_of(methods))
    return named + tuple(Row(label=find_method(name).title, method=name) for name in unknown)
