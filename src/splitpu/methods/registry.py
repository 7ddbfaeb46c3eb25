"""Every method by name: what it is for, what it assumes, where its code lives, and how much work it is. No torch."""

import importlib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splitpu.config.parse import unknown_name
from splitpu.config.schema import METHOD_NAMES, Config

if TYPE_CHECKING:
    from splitpu.methods.context import Context, Teacher
    from splitpu.methods.split import MethodResult

# The stages that units may share, in the order they are trained; what comes after them is hardly ever shared.
WARMUP, BASE, SPLIT, STUDENT, LATER = range(5)

# Guesses are for planning only: results hold what was measured. Fitted to one run on an NVIDIA H200 (captured steps,
# bf16, our kernels): its base model's 4,750 steps of 522 images took 15.2 seconds, a student's 9,500 of 560 took 34.3.
# Milliseconds of a step with 512 images, forward and backward; networks that are not here count as the first.
_MILLISECONDS = {"cnn13": 3.2, "resnet18": 6.0, "slices-resnet18": 100.0, "cnn-small": 0.8, "mlp": 0.3}
_SHORTEST = 1.2  # milliseconds that a step takes however few rows it has
_FORWARD = 1 / 3  # of a step's work: the way there
_USUAL_STOP = 0.4  # of the split's longest: where the temporary network has mostly agreed
_HARD_SHARE = 0.1  # of the unlabelled rows; each is seen in two views and by the teacher's first layers


@dataclass(frozen=True, kw_only=True)
class Method:
    """What a user has to know of a method before choosing it, and how it is run."""

    name: str
    title: str
    summary: str  # when to use it, in one line
    assumes: str
    citation: str
    home: str  # "module:function", inside `splitpu.methods` or with its whole path; imported when first run
    sections: tuple[str, ...]  # of the configuration that it reads, besides `views` and `engine`
    needs_prior: bool = False
    needs_truth: bool = False  # the true labels of the training rows, which only an oracle may ask for
    needs_rows_aside: bool = False  # a share of P and U that it is not trained on, to choose its epoch by
    # How often a step has its population rows and its labelled rows go through a network, and how often it looks at all
    # rows after an epoch; a way back is two thirds of one. Without them it is trained as the base section says.
    passes: Sequence[float] = ()

    def train(self, context: "Context") -> "Teacher":
        """Train the method's one model; not for Split-PU, which makes several."""
        return self.run(context).base

    def run(self, context: "Context") -> "MethodResult":
        """What its home makes of a `Context`: a `Teacher`, or a whole `MethodResult`."""
        from splitpu.methods.split import MethodResult

        module, _, name = self.home.partition(":")
        home: Any = importlib.import_module(module if "." in module else f"splitpu.methods.{module}")
        found: Teacher | MethodResult = getattr(home, name)(context)
        return found if isinstance(found, MethodResult) else MethodResult(found, (), tuple(context.engine.history))


@cache
def methods() -> dict[str, Method]:
    """Every method by its name, as `methods.toml` declares them, and those that were registered."""
    told = tomllib.loads(Path(__file__).with_name("methods.toml").read_text(encoding="utf-8"))
    return {name: Method(name=name, **(one | {"sections": tuple(one["sections"])})) for name, one in told.items()}


def register(method: Method) -> None:
    """Make a method known by its name: to configurations, to `compare` and to `splitpu methods`.

    A method is one file: a function from a `Context` to a `Teacher`, and a `Method` that says what it is."""
    methods()[method.name] = method
    if method.name not in METHOD_NAMES:
        METHOD_NAMES.append(method.name)


def find_method(name: str) -> Method:
    """The method of that name."""
    if name in methods():
        return methods()[name]
    raise unknown_name("method", name, methods())


def uses_learners(config: Config) -> bool:
    """Whether learners for tables are trained, which are judged out of fold; networks see every row they are given."""
    of_learners = find_method(config.method).home.startswith("table_learners:")
    return of_learners or (config.method == "split-pu" and config.learner != "network")


def sections_in_use(config: Config) -> tuple[str, ...]:
    """The keys and sections of the configuration that decide about a run's outcome; the others are never read."""
    warmed = () if config.warmup.name == "none" else ("warmup",)
    several = () if config.members == 1 else ("members",)
    drawn = () if config.initialisation == "torch" else ("initialisation",)
    own = find_method(config.method).sections
    teacher = config.base.method
    learned = ("learner",) if config.method == "split-pu" and config.learner != "network" else ()
    taught_by = () if config.method != "split-pu" or teacher == "risk" else find_method(teacher).sections
    kept_out = ("selection",) if config.selection.held_out else ()  # rows are kept from any method
    return ("method", *learned, *several, *drawn, *warmed, *dict.fromkeys((*own, *taught_by, *kept_out)), "views")


@dataclass(frozen=True)
class Work:
    """So many epochs of so many steps, each with so many rows through a network."""

    place: int  # of the stage in the order above
    epochs: float
    steps: int
    images: float

    @property
    def rows(self) -> float:
        return self.epochs * self.steps * self.images

    def seconds(self, network: str) -> float:
        milliseconds = _MILLISECONDS.get(network, _MILLISECONDS["cnn13"])
        return self.epochs * self.steps * max(_SHORTEST, milliseconds * self.images / 512) / 1000


def whole_run_seconds(config: Config, rows: int, positives: int, epoch_seconds: float) -> float:
    """What a run may take in all, from what one epoch of its first stage took on whatever machine this is."""
    works = list(works_of(config, rows, positives))
    times = max(1, config.selection.folds) if config.method == "split-pu" else 1
    return times * epoch_seconds * sum(work.rows for work in works) * works[0].epochs / works[0].rows


def works_of(config: Config, rows: int, positives: int) -> Iterator[Work]:
    """Everything that a run trains, in its order."""
    if config.warmup.name != "none":
        steps, size = _batch(rows, config.warmup.batch_size)
        yield Work(WARMUP, config.warmup.epochs, steps, 2 * size)
    split, student, is_split_pu = config.split, config.student, config.method == "split-pu"
    yield from _method_works(config, config.base.method if is_split_pu else config.method, rows, positives)
    for number in range(config.rounds if is_split_pu else 0):
        steps, size = _batch(rows, split.batch_size, rows * _FORWARD)
        yield Work(LATER if number else SPLIT, _USUAL_STOP * split.max_epochs, steps, size)
        steps, size = _batch(rows, student.batch_size)
        labelled = student.positives_per_batch or size * positives / rows
        views = 2.0 if student.consistency == "all" else 1 + 2 * _HARD_SHARE
        yield Work(LATER if number else STUDENT, config.members * student.epochs, steps, size * views + labelled)


def _method_works(config: Config, method: str, rows: int, positives: int) -> Iterator[Work]:
    """What one method trains, alone or as the first teacher."""
    passes = () if method == "risk" else find_method(method).passes
    settings: Any = getattr(config, method.replace("-", "_")) if passes else config.base
    of_population, of_labelled, looks = passes or (1, method not in ("naive", "supervised"), 0)
    steps, size = _batch(rows, settings.batch_size)
    labelled = settings.positives_per_batch or size * positives / rows
    if method == "dist-pu":  # begins without mixing
        yield Work(BASE, settings.warmup_epochs, steps, size + min(labelled, positives))
    if looks:
        steps, size = _batch(rows, settings.batch_size, looks * rows * _FORWARD)
        labelled = settings.positives_per_batch or size * positives / rows
    epochs, images = settings.epochs, of_population * size + of_labelled * min(labelled, positives)
    if not passes:
        epochs *= config.members
    elif method == "pubn":
        epochs += settings.score_epochs
    elif method == "puupl":
        epochs, images = epochs * settings.rounds, images * settings.members
    yield Work(BASE, epochs, steps, images)


def _batch(rows: int, size: int, beside: float = 0.0) -> tuple[int, float]:
    """Steps of an epoch, and rows of a step with its part of what is done beside once an epoch."""
    size = min(size, rows)
    steps = max(1, rows // size)
    return steps, size + beside / steps
