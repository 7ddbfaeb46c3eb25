"""How long a unit may take, guessed from its epochs before anything is run, so that GPU time can be planned.

Fitted to one run on an NVIDIA H200 (captured steps, bf16, our kernels): its base model's 4,750 steps of 522 images took
15.2 seconds, a student's 9,500 steps of 560 images 34.3. A guess is for planning only: results hold what was measured.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from splitpu.config.methods import PassesConfig
from splitpu.config.schema import Config

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
