"""What the TOML files declare: recipes, and for each table or figure its rows, the paper's figures, and what to run."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from splitpu.config.parse import unknown_name
from splitpu.errors import InputError
from splitpu.methods.registry import find_method
from splitpu.utils.text import parse_words

Kind = Literal["table", "sweep", "figure", "choice"]

SPLIT_PU = "split-pu"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run is trained before a table changes anything."""

    name: str
    title: str
    about: str
    preset: str
    backbone: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    chosen_by: str = ""
    chosen_in: tuple[str, ...] = ()  # the choices whose results say it, once there are any
    earlier: Mapping[str, Any] = field(default_factory=dict)  # what it was before its last change, where that differs
    earlier_in: tuple[str, ...] = ()  # the tables whose runs are of that time
    unavailable: str = ""  # why it cannot be run, if it cannot

    def as_run_for(self, experiment: str) -> Mapping[str, Any]:
        """What a table has otherwise than the recipe has it today, because its runs were made before."""
        return self.earlier if experiment in self.earlier_in else {}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table: what it changes, which figure of the run it shows, and what the paper has there."""

    label: str
    setting: Mapping[str, Any] = field(default_factory=dict)
    value: str = "accuracy"  # accuracy, base_accuracy, gain (of the student over its base), rounds.1, rounds.2, ...
    x: float | None = None  # where the row lies on the axis of a sweep
    data: str = ""  # another data set than that of the table
    network: str = ""  # another one than the table's
    method: str = SPLIT_PU
    teacher: str = ""  # the method that is the base here, where a table compares bases
    note: str = ""  # how the protocol behind the figure beside ours differs
    group: str = ""  # choices only: candidates of one group are compared with one another
    paper: Mapping[int, float] = field(default_factory=dict)  # by number of labelled positives
    paper_sd: Mapping[int, float] = field(default_factory=dict)

    def is_of(self, methods: Collection[str]) -> bool:
        """Whether it shows one of these methods, alone or as a teacher."""
        return self.method in methods or self.teacher in methods


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """How a table treats one of its data sets, whatever the row."""

    network: str = ""  # another one than the recipe's
    setting: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure."""

    name: str
    title: str
    place: str  # where it is in the paper
    kind: Kind
    about: str
    what: str = "setting"  # heading of the rows
    theirs: str = "paper"  # heading of the figures beside ours
    reference: str = ""  # label of the row that is the recipe itself, with which the others are compared seed by seed
    data: str = "cifar10"
    recipes: tuple[str, ...] = ("default",)
    positives: tuple[int, ...] = (1000,)
    seeds: tuple[int, ...] = (0, 1, 2)
    common: Mapping[str, Any] = field(default_factory=dict)  # settings of every row
    sets: Mapping[str, Treatment] = field(default_factory=dict)  # by data set
    # What is complete first: every row for one seed, or the cheapest rows for all seeds.
    order: Literal["seeds", "rows"] = "seeds"
    rows: tuple[Row, ...] = (Row(label=""),)
    published: tuple[Row, ...] = ()  # figures of others that the paper quotes
    paper_says: str = ""
    chosen_by: str = ""
    held_out: float = 0.0  # share of P and U kept from training; choices only
    criterion: str = "pu_accuracy"  # choices only: which figure on held-out rows chooses
    # Choices only: own seeds alone count, and the first stays unless one leads by more than the error of its lead.
    second_look: bool = False
    unavailable: str = ""  # why it cannot be run, if it cannot


@cache
def recipes() -> dict[str, Recipe]:
    """Every recipe by name."""
    found = read_declared("recipes.toml")
    lists = {name: {key: tuple(one.get(key, ())) for key in ("chosen_in", "earlier_in")} for name, one in found.items()}
    return {name: Recipe(name=name, **(content | lists[name])) for name, content in found.items()}


@cache
def experiments() -> dict[str, Experiment]:
    """Every table and figure by name, in the order of the page."""
    folder = files("splitpu.reproduce") / "tables"
    found = {path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml")}
    order = read_declared("page.toml")["order"]
    ordered = [name for name in order if name in found] + sorted(found.difference(order))
    return {name: _experiment(name, read_declared(f"tables/{name}.toml")) for name in ordered}


def chosen_experiments(names: str) -> list[Experiment]:
    """The experiments a user named: one, several with commas, or `all`."""
    if not names:
        raise InputError("name an experiment, such as main, or all of them with all; splitpu reproduce list names them")
    known, wanted = experiments(), parse_words(names, "the name of an experiment", "main or main,rho")
    if "all" in wanted:
        return list(known.values())
    for name in wanted:
        if name not in known:
            raise unknown_name("experiment", name, known)
    return [known[name] for name in dict.fromkeys(wanted)]


def chosen_recipe(name: str) -> Recipe:
    """The recipe a user named."""
    if name not in recipes():
        raise unknown_name("recipe", name, recipes())
    return recipes()[name]


def read_declared(name: str) -> dict[str, Any]:
    return tomllib.loads((files("splitpu.reproduce") / name).read_text(encoding="utf-8"))


def _experiment(name: str, content: dict[str, Any]) -> Experiment:
    changed: dict[str, Any] = {key: tuple(content[key]) for key in ("recipes", "positives", "seeds") if key in content}
    groups = content.pop("groups", {})  # settings of all rows of a group, where these have none of their own
    rows = [
        _row(row | {"setting": {**groups.get(row.get("group", ""), {}), **row.get("setting", {})}})
        for row in content.get("rows", ())
    ]
    for method, row in content.pop("methods", {}).items():  # rows that are one method of the registry, as it comes
        rows.append(_row({"label": find_method(method).title, "method": method} | row))
    trained = content.pop("teachers_trained", {})  # otherwise than the recipe says, by name
    for teacher in content.pop("teachers", ()):  # the model a method makes, and the student that Split-PU makes of it
        choice = {"base.method": teacher}
        if teacher in ("nnpu", "upu"):
            choice = {"base.method": "risk", "base.risk": teacher}
        title, setting = find_method(teacher).title, {**choice, **trained.get(teacher, {})}
        rows.append(Row(label=f"{title}: teacher", setting=setting, teacher=teacher, value="base_accuracy"))
        rows.append(Row(label=f"{title}: student", setting=setting, teacher=teacher))
    if rows:
        changed["rows"] = tuple(rows)
    changed["published"] = tuple(_row(row) for row in content.get("published", ()))
    # A table that looks closer at another one treats the data in the same way.
    like = content.pop("sets_of", "")
    sets = read_declared(f"tables/{like}.toml")["sets"] if like else content.get("sets", {})
    changed["sets"] = {data: Treatment(**how) for data, how in sets.items()}
    return Experiment(name=name, **(content | changed))


def _row(content: dict[str, Any]) -> Row:
    # TOML keys are text; the number of positives is a number.
    sizes: dict[str, Any] = {
        key: {int(size): float(figure) for size, figure in content[key].items()}
        for key in ("paper", "paper_sd")
        if key in content
    }
    return Row(**(content | sizes))
