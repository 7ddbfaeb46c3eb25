"""Split-PU on embeddings of a pretrained network that stays as it is, one mean embedding a picture: a linear head of
P against U, and a student that adds what the nearest pictures say, each step measured against a dozen others
(benchmarks/few_images_frozen.py). All is chosen by the AUC of P against U out of fold; the prior decides the cut."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import HeldOut, PUData
from splitpu.errors import InputError
from splitpu.learners.auto import FEWEST_KNOWN, what_is_known
from splitpu.learners.catalogue import Logistic
from splitpu.learners.crossfit import auc_of, compare_auc, fold_numbers, platt
from splitpu.learners.split_learner import posteriors
from splitpu.methods.context import Context, Student, Teacher
from splitpu.methods.split import MethodResult, Round
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.networks.build import FEW_IMAGES, SMALL_SIDE, NetworkChoice, chosen_backbone
from splitpu.networks.efficientnet_lite import EfficientNetLite
from splitpu.networks.embeddings import ViewPlan, embed, embed_chunk, sensible_processes
from splitpu.networks.encoders import Encoder, encoder, is_encoder, rebuilt
from splitpu.prior.algorithms import share_above_dip
from splitpu.types import Array, Bytes, Floats, Mask, Rows, Vectors, Watch

_TINY = 1e-6  # what varies less than that is taken not to vary
FEWEST_LABELLED = 2
_SMALL = 0.3  # of an encoder's side: pictures of no more are small
_SLICES = 16  # of a volume, chosen evenly
MOST_IN_GRAPH = 5_000  # rows: a graph of more takes gigabytes, and so many labels hardly need neighbours
_NUMBERS = ("bias", "base_mean", "base_std", "neighbours", "spread_weight")  # of a head; the rest are arrays
# Of the head and the graph. Tried: penalties 1 to 1000 (flat from 30), 10 to 20 neighbours.
PENALTY = 30.0  # of the linear head, for features of spread 1 whose products are averaged
TAUGHT_PENALTY = 10.0  # where it learns how probable every row is
NEIGHBOURS = 20  # nearest pictures that have a say about one
REACH = 0.9  # how far labels spread: 0 = to the labelled ones only, towards 1 = everywhere
SPREAD_WEIGHT = 0.5  # of the spread labels in the student's score; that of the base is 1
FOLDS = 5  # by which base and student are compared
LEAST_GAIN = 1.0  # in AUC of P against U out of fold, by standard errors, from which a student is taken
ENCODER = "encoder"  # the part of a model's tensors that base and student share


@dataclass(frozen=True, eq=False)
class FrozenHead:
    """All that a score needs, as plain arrays: what a model file keeps."""

    centre: Vectors  # (d,) of the training embeddings
    scale: Vectors  # (d,)
    weight: Vectors  # (d,) of the base
    bias: float
    base_mean: float  # of the base's scores on the training rows
    base_std: float
    reference: Vectors  # (n, d) training embeddings of length 1; no rows where the base alone was taken
    spread: Vectors  # (n,) what was spread to each of them, standardised
    neighbours: int
    spread_weight: float

    def tensors(self) -> dict[str, torch.Tensor]:
        """As named tensors, for a safetensors file."""
        arrays = {name: one for name, one in vars(self).items() if name not in _NUMBERS}
        found = {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()}
        numbers = [float(getattr(self, name)) for name in _NUMBERS]
        return {**found, "numbers": torch.tensor(numbers, dtype=torch.float64)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> "FrozenHead":
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items() if name != "numbers"}
        numbers: dict[str, Any] = dict(zip(_NUMBERS, tensors["numbers"].tolist(), strict=True))
        return cls(**arrays, **{**numbers, "neighbours": int(numbers["neighbours"])})


@dataclass(frozen=True, eq=False)
class FrozenFit:
    """Base and student, which of them is taken, and their scores of rows that took no part in their fit."""

    taken: Literal["base", "student"]
    base_head: FrozenHead
    student_head: FrozenHead | None
    base_out_of_fold: Floats  # standardised, as those of the student
    student_out_of_fold: Floats  # noughts for no student

    @property
    def head(self) -> FrozenHead:
        return self.base_head if self.taken == "base" or self.student_head is None else self.student_head


def fit_frozen(
    views: npt.ArrayLike,
    labelled: npt.ArrayLike,
    seed: int,
    answers: npt.ArrayLike | None = None,
    watch: Watch = lambda *_: None,
) -> FrozenFit:
    """Fit base and student on embeddings (n, views, d) or (n, d), and take the student if it is the better one.

    `seed` draws the folds. `answers` are labels of unlabelled rows that somebody gave: 1 = positive, -1 = negative."""
    from sklearn.metrics import roc_auc_score

    rows, mask = averaged_views(views), np.asarray(labelled, dtype=np.bool_)
    if mask.shape != (len(rows),):
        raise InputError(f"labelled has the shape {mask.shape} for {len(rows)} rows: give one entry per row.")
    if min(mask.sum(), (~mask).sum()) < FEWEST_LABELLED:
        raise InputError(f"{mask.sum()} of {len(rows)} rows are labelled: two of them and two others are the least.")
    if not np.isfinite(rows).all():
        raise InputError("the embeddings hold numbers that are not finite: compute them anew.")
    known: npt.NDArray[Any] = mask.astype(np.int8)
    base, student = _both_heads(rows, known)
    base_apart, student_apart = out_of_fold_scores(rows, known, mask, seed, watch=watch)
    if answers is not None and np.any(answers):
        said = np.asarray(answers, dtype=np.int8)
        ahead = student is not None and roc_auc_score(mask, student_apart) > roc_auc_score(mask, base_apart)
        apart = student_apart if ahead else base_apart
        expected = posteriors(apart, mask, None)
        if min((said < 0).sum(), mask.sum()) >= FEWEST_KNOWN:  # what known rows say by themselves, as for tables
            part, alone = float(expected[~mask].mean()), _known_alone(rows, known + said, mask, seed)
            expected = posteriors((1 - part) * _unit_spread(apart) + part * alone, mask)
        target, weight = what_is_known(expected, mask, said)
        known, taught = known + said, np.column_stack([weight, 2 * target - 1])
        base, student = _both_heads(rows, known, taught)
        base_apart, student_apart = out_of_fold_scores(rows, known, mask, seed, taught, watch)
    gain = compare_auc(student_apart, base_apart, mask)
    gap = share_above_dip(student_apart[mask], student_apart[~mask])
    better = student is not None and (gap is not None or gain.value > LEAST_GAIN * gain.error)
    return FrozenFit("student" if better else "base", base, student, base_apart, student_apart)


def out_of_fold_scores(
    rows: Floats,
    known: npt.NDArray[Any],
    labelled: Mask,
    seed: int,
    taught: Floats | None = None,
    watch: Watch = lambda *_: None,
) -> tuple[Floats, Floats]:
    """Scores of base and student of rows that took no part in their fit; noughts for no student."""
    folds = min(FOLDS, int(labelled.sum()), int((~labelled).sum()))
    part = fold_numbers(labelled, folds, seed)
    base, student = np.zeros(len(rows)), np.zeros(len(rows))
    for number in range(folds):
        watch("heads judged", number, folds)
        out = part == number
        base_head, student_head = _both_heads(rows[~out], known[~out], None if taught is None else taught[~out])
        # Of fold scores only the order within a fold compares, unless they are on one scale.
        base[out] = (frozen_scores(base_head, rows[out]) - base_head.base_mean) / base_head.base_std
        if student_head is not None:
            student[out] = frozen_scores(student_head, rows[out])
    return base, student


def _known_alone(rows: Floats, known: npt.NDArray[Any], labelled: Mask, seed: int) -> Floats:
    """Scores out of fold of a logistic regression of labelled rows and known negatives alone."""
    part, scores = fold_numbers(labelled, FOLDS, seed), np.empty(len(rows))
    for number in range(FOLDS):
        taught = (part != number) & (known != 0)
        told = Logistic(even=False).fit(rows[taught], known[taught] > 0).scores(rows)
        scores[part == number] = _unit_spread(told)[part == number]
    return scores


def frozen_scores(head: FrozenHead, views: npt.ArrayLike) -> Floats:
    """Scores of new rows; above the fit's threshold means positive."""
    rows = (averaged_views(views) - head.centre) / head.scale
    base = rows @ head.weight.astype(np.float64) + head.bias
    if not len(head.reference):
        return np.asarray(base, np.float64)
    near = _unit(rows) @ head.reference.T.astype(np.float64)
    nearest = np.argpartition(-near, head.neighbours - 1, axis=1)[:, : head.neighbours]
    weight = np.take_along_axis(near, nearest, 1).clip(0) ** 2  # nearer ones count more
    spread = (weight * head.spread.astype(np.float64)[nearest]).sum(axis=1) / (weight.sum(axis=1) + _TINY)
    return np.asarray((base - head.base_mean) / head.base_std + head.spread_weight * spread, np.float64)


def averaged_views(views: npt.ArrayLike) -> Floats:
    """One vector a row."""
    rows = np.asarray(views, np.float64)
    if rows.ndim not in (2, 3) or 0 in rows.shape[1:]:
        raise InputError(f"embeddings of shape {rows.shape} cannot be used: give (rows, views, d) or (rows, d).")
    return rows if rows.ndim == 2 else rows.mean(axis=1)


def balanced_head(rows: Floats, labelled: Mask, penalty: float) -> tuple[Floats, float]:
    """Weight and bias of least squares of P (+1) against U (-1), each side with half of the weight."""
    weight = np.where(labelled, 0.5 / labelled.mean(), 0.5 / (1 - labelled.mean()))
    return weighted_head(rows, weight, np.where(labelled, 1.0, -1.0), penalty)


def weighted_head(rows: Floats, weight: Floats, target: Floats, penalty: float) -> tuple[Floats, float]:
    """Weight and bias of least squares."""
    from sklearn.linear_model import Ridge

    head = Ridge(penalty * rows.shape[1]).fit(rows, target, weight)
    return np.asarray(head.coef_, np.float64), float(head.intercept_)


def spread_labels(near: Floats, known: npt.NDArray[Any], neighbours: int, reach: float) -> Floats:
    """Labels spread over the graph of the nearest rows, by their cosines `near` (n, n): large where P is near.

    Each labelled row gives 1 over their share, every row takes 1, so that the whole is 0 and what is large is more than
    its part; a known negative (-1) takes as much as a labelled row gives. Normalised by how many neighbours a row has,
    or those in crowds would seem positive."""
    count = len(near)
    cosines = near.copy()
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argpartition(-cosines, neighbours - 1, axis=1)[:, :neighbours]
    ties = np.zeros_like(near)
    np.put_along_axis(ties, nearest, np.take_along_axis(cosines, nearest, 1).clip(0) ** 2, 1)
    ties = np.maximum(ties, ties.T)
    root = 1 / np.sqrt(ties.sum(axis=1) + _TINY)
    given = np.where(known > 0, 1 / (known > 0).mean(), 0.0) - 1
    if (known < 0).any():
        given = given - np.where(known < 0, 1 / (known > 0).mean(), 0.0)
        given = given - given.mean()
    spread: Floats = np.linalg.solve(np.eye(count) - reach * ties * root[:, None] * root, given) * root
    return spread


def _both_heads(
    rows: Floats, known: npt.NDArray[Any], taught: Floats | None = None
) -> tuple[FrozenHead, FrozenHead | None]:
    """Base and student; `taught` are the weight and the target of every row, if the base learns more than P and U."""
    centre, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale < _TINY * max(1.0, float(np.abs(rows).max())), 1.0, scale)
    standard = (rows - centre) / scale
    if taught is None:
        weight, bias = balanced_head(standard, known > 0, PENALTY)
    else:
        weight, bias = weighted_head(standard, taught[:, 0], taught[:, 1], TAUGHT_PENALTY)
    scores = standard @ weight + bias
    arrays = {"centre": centre, "scale": scale, "weight": weight}
    fixed: dict[str, Any] = {name: one.astype(np.float32) for name, one in arrays.items()}
    fixed |= {"bias": bias, "base_mean": float(scores.mean()), "base_std": float(scores.std()) or 1.0}
    fixed |= {"neighbours": min(NEIGHBOURS, len(rows) - 1), "spread_weight": SPREAD_WEIGHT}
    nobody, nothing = np.empty((0, rows.shape[1]), np.float32), np.empty(0, np.float32)
    base = FrozenHead(**fixed, reference=nobody, spread=nothing)
    if len(rows) > MOST_IN_GRAPH:
        return base, None
    unit = _unit(standard)
    spread = _unit_spread(spread_labels(unit @ unit.T, known, fixed["neighbours"], REACH))
    return base, FrozenHead(**fixed, reference=unit.astype(np.float32), spread=spread.astype(np.float32))


def _unit_spread(scores: Floats) -> Floats:
    return np.asarray((scores - scores.mean()) / (float(scores.std()) or 1.0), np.float64)


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY), np.float64)


class FrozenNetwork(Backbone):
    """Encoder and head as one network: plain views of pictures in, the logit of their views' mean embedding out.

    Views are made inside, from the bytes that a plain view stands for, exactly as for the embeddings it was fitted on.
    """

    def __init__(
        self,
        encoder: Encoder,
        plan: ViewPlan,
        head: FrozenHead,
        line: tuple[float, float],
        preprocessing: Preprocessing,
    ) -> None:
        """`line`: slope and offset that make the head's scores logits."""
        super().__init__()
        self.add_module(ENCODER, encoder.module)
        self._encoder, self._plan, self._volumes = encoder, plan, preprocessing.kind == "volumes"
        self._mean = torch.tensor(preprocessing.mean, dtype=torch.float64)
        self._std = torch.tensor(preprocessing.std, dtype=torch.float64)
        self.head = nn.Module()
        for name, tensor in head.tensors().items():
            self.head.register_buffer(name, tensor)
        self.head.register_buffer("line", torch.tensor(line, dtype=torch.float64))
        self.feature_dim = encoder.width

    def forward(self, batch: Tensor) -> Outputs:
        """Return the mean embedding, twice, and the logit of every picture."""
        # The pictures that plain views were made of; slices that are not there are empty again.
        values = batch.detach().cpu().double().movedim(-3, -1)
        there: Tensor | float = 1.0
        if self._volumes:
            values, there = values[..., :-1], values[..., -1:]
        pictures = ((values * self._std + self._mean) * 255 * there).round().clamp(0, 255).byte().numpy()
        features = averaged_views(embed_chunk(list(pictures), self._encoder, self._plan))
        head = {name: tensor.cpu() for name, tensor in self.head.named_buffers()}
        slope, offset = head.pop("line").tolist()
        logit = slope * frozen_scores(FrozenHead.from_tensors(head), features) + offset
        vectors = torch.from_numpy(features).float().to(batch.device)
        return Outputs(vectors, vectors, torch.from_numpy(logit).to(batch.device))

    def spec(self) -> dict[str, Any]:
        """What `rebuilt` needs beside the tensors, as JSON."""
        return {"encoder": self._encoder.spec(), "views": asdict(self._plan)}

    @classmethod
    def rebuilt(cls, spec: Any, preprocessing: Preprocessing, tensors: Mapping[str, Tensor]) -> "FrozenNetwork":
        """The network of a saved model, from what `spec` said and its tensors."""
        parts: dict[str, dict[str, Tensor]] = {ENCODER: {}, "head": {}}
        for name, tensor in tensors.items():
            part, _, inner = name.partition(".")
            parts[part][inner] = tensor
        slope, offset = parts["head"].pop("line").tolist()
        views = dict(spec["views"])
        plan = ViewPlan(**{**views, "how": ViewsConfig(**views["how"])})
        head = FrozenHead.from_tensors(parts["head"])
        return cls(rebuilt(spec["encoder"], parts[ENCODER]), plan, head, (slope, offset), preprocessing)


@dataclass(frozen=True, eq=False)
class FrozenChoice:
    """Base and student on the embeddings of some data, and what they say of the rows that may be taught."""

    encoder: Encoder
    plan: ViewPlan
    features: Floats  # (taught rows, d)
    labelled: Mask
    numbers: Rows  # which rows of the data they are
    fit: FrozenFit
    seconds: float  # embeddings, base and student

    @property
    def out_of_fold(self) -> Floats:
        """Scores of the model that was taken, of rows that it had not seen."""
        return self.fit.student_out_of_fold if self.fit.taken == "student" else self.fit.base_out_of_fold

    @property
    def gap(self) -> tuple[float, float] | None:
        """The share of positives among the unlabelled rows, if a gap between scores tells it, and how sure that is."""
        return share_above_dip(self.out_of_fold[self.labelled], self.out_of_fold[~self.labelled])


# The last choice that was made: the prior is estimated from the very scores that the model is chosen by.
_LATEST: dict[tuple[Any, ...], FrozenChoice] = {}


def frozen_choice(data: PUData, name: str, seed: int, watch: Watch = lambda *_: None) -> FrozenChoice:
    """Base and student on embeddings of the data, computed or read; asked again, not made again."""
    key = (data.fingerprint(), name, seed)
    if (found := _LATEST.get(key)) is None:
        began = time.perf_counter()
        asked, plan = encoder_for(name, data.features.shape[1:])
        features = averaged_views(embed(pictures_of(data.features), asked, plan))[data.taught]
        labelled = data.labelled[data.taught]
        answers = None if data.answers is None else data.answers[data.taught]
        fit = fit_frozen(features, labelled, seed, answers, watch)
        found = FrozenChoice(asked, plan, features, labelled, data.taught, fit, time.perf_counter() - began)
        _LATEST.clear()
        _LATEST[key] = found
    return found


def run_frozen(context: Context) -> MethodResult:
    """Split-PU on frozen features: a base, the rows that are hard for it, and the student, taken if it ranks better."""
    from splitpu.methods.table_learners import Rows as TaughtRows
    from splitpu.methods.table_learners import split_rows

    found = frozen_choice(context.data, context.recipe.name, context.engine.seed)
    fit, head = found.fit, found.fit.base_head
    base = _teacher(context, found, head, fit.base_out_of_fold, (1 / head.base_std, -head.base_mean / head.base_std))
    rounds = []
    if context.config.rounds and fit.student_head is not None:
        rows = TaughtRows(found.features, found.labelled, found.numbers)
        split = split_rows(context, rows, fit.base_out_of_fold)
        student = _teacher(context, found, fit.student_head, fit.student_out_of_fold, (1.0, 0.0))
        rounds = [Round(1, base, split, Student(**vars(student), sound=fit.taken == "student"))]
    judged = {"base": fit.base_out_of_fold, **({"student": fit.student_out_of_fold} if rounds else {})}
    table: list[dict[str, Any]] = []
    for name, scores in judged.items():  # one fit made them both
        auc, seconds = auc_of(scores, found.labelled), found.seconds / len(judged)
        ranked = {"learner": name, "auc": auc.value, "auc_low": auc.low, "auc_high": auc.high, "seconds": seconds}
        gain = None if name == "base" else auc.value - table[0]["auc"]
        table.append({**ranked, "chosen": name == fit.taken, "gain_over_base": gain})
    return MethodResult(base, tuple(rounds), tuple(context.engine.history), learners=table)


def _teacher(
    context: Context, found: FrozenChoice, head: FrozenHead, out_of_fold: Floats, standard: tuple[float, float]
) -> Teacher:
    """The head with its logits, out of fold; `standard` is what makes its scores those of the folds."""
    slope, offset = platt(out_of_fold, found.labelled)
    line = slope * standard[0], slope * standard[1] + offset
    network = FrozenNetwork(found.encoder, found.plan, head, line, context.preprocessing).eval()
    device = context.engine.hardware.device
    logits = torch.zeros(len(context.data), dtype=torch.float64, device=device)
    if len(found.numbers) < len(context.data):  # rows set aside, which no head has seen
        logits = context.logits_of(network).double()
    told = torch.as_tensor(slope * out_of_fold + offset, dtype=torch.float64, device=device)
    logits[context.rows(found.numbers)] = told
    return Teacher(network.to(device), context.threshold_for(logits), logits, key="")


def backbone_for(
    backbone: NetworkChoice, features: str | None, data: PUData, seed: int, *, on_cpu: bool, watch: Watch | None = None
) -> NetworkChoice:
    """The backbone that is meant; a network is better of thousands of small pictures, unless frozen scores have a gap.

    >>> backbone_for("auto", None, PUData.from_arrays(np.eye(4), [1, 1, 0, 0]), 0, on_cpu=True)
    'auto'
    """
    shape = data.features.shape[1:]
    chosen = chosen_backbone(backbone, features, shape, len(data), on_cpu=on_cpu)
    small = len(data) >= FEW_IMAGES and max(shape[:2]) <= SMALL_SIDE
    if features or not small or is_encoder(backbone) or not is_encoder(chosen):
        return chosen
    if watch is not None:
        embed_all(data, None, str(chosen), watch, sensible_processes(len(data)))
    if len(data.positives) < FOLDS:
        return backbone
    return chosen if frozen_choice(data, str(chosen), seed, watch or (lambda *_: None)).gap else backbone


def embed_all(data: PUData, tested: HeldOut | None, name: str, watch: Watch, processes: int = 1) -> None:
    """Embed all rows of a run where that can be watched; whoever asks for them later finds them."""
    parts = [("embedding", data.features), *([("embedding test rows", tested.features)] if tested else [])]
    asked, plan = encoder_for(name, data.features.shape[1:])
    for what, rows in parts:
        watched: Callable[[int], None] = partial(lambda what, of, done: watch(what, done, of), what, len(rows))
        pictures = pictures_of(rows, data.features)
        embed(pictures, asked, plan, watch=watched, processes=processes)


def pictures_of(features: Array, training: Array | None = None) -> Iterator[Bytes]:
    """Rows as bytes, as `FrozenNetwork` sees them; what is black and white the training rows say, if others are meant.

    >>> next(pictures_of(np.linspace(0, 1, 4).reshape(1, 2, 2, 1))).ravel().tolist()
    [0, 85, 170, 255]
    """
    shape = features.shape[1:]
    if len(shape) not in (3, 4) or shape[-1] not in (1, 3):
        raise InputError(f"rows of shape {shape} are no pictures: give images or volumes with one channel or three")
    if features.dtype == np.uint8:
        return (np.asarray(row) for row in features)
    return map(Preprocessing.fit(features if training is None else training).pixels, features)


def encoder_for(name: str, shape: tuple[int, ...]) -> tuple[Encoder, ViewPlan]:
    """The encoder of that name and the views it is shown, for rows of this shape.

    Small pictures have no more to show at the encoder's full size than at half of it, in a quarter of the time, and
    turned or cropped ones show less (docs/LOG.md); slices of a volume are many views already."""
    asked, plan = usual_encoder(name), ViewPlan()
    small = isinstance(asked.module, EfficientNetLite) and max(shape[-3:-1]) <= _SMALL * asked.size
    if small:
        asked = asked.at_size(asked.size // 2)
    if len(shape) == 4:
        return asked, replace(plan, weak=1, slices=_SLICES)
    return asked, replace(plan, weak=0) if small else plan


usual_encoder = lru_cache(maxsize=1)(encoder)  # of the last one asked for, the very same
