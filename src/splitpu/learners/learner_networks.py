"""Fitted learners as networks of plain tensors: raw feature rows in, one logit per row out.

A forest kept as a pickled scikit-learn object can be neither trusted when it comes from elsewhere nor exported. Here
every learner becomes an `nn.Module` whose state is buffers only, so that safetensors holds all of it and ONNX needs
nothing but gathers, comparisons and sums. `to_spec` gives the few sizes that say which modules to build; `from_spec`
and `check` take them from a file nobody vouches for.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from splitpu.data.sparse_rows import SparseRows
from splitpu.errors import InputError, ModelFileError
from splitpu.networks.backbones import MLP, Backbone, Outputs
from splitpu.types import Floats

Spec = dict[str, Any]

LEARNER = "learner"  # the network's name in the files of such a model
MOST_COLUMNS = 10_000_000
MOST_WIDE = 100_000  # columns of a network, each of which has hundreds of weights
MOST_NODES = 100_000_000
MOST_DEPTH = 512
MOST_MEMBERS = 64
TINIEST_SHARE = 2.0**-20  # shares stay this far from 0 and 1 before the logit; exact in 32 bits, as ONNX writes it


class FlatTrees(NamedTuple):
    """Several trees as one list of nodes. A leaf points to itself, so that a fixed number of steps ends in it."""

    feature: npt.NDArray[np.int64]
    threshold: Floats
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    missing_left: npt.NDArray[np.bool_]
    value: Floats
    roots: npt.NDArray[np.int64]
    depth: int


class LearnerNetwork(nn.Module):
    """What all of them share: a kind, sizes, and a check of the buffers against those sizes."""

    kind = ""

    def hold(self, kind: torch.dtype = torch.float64, **shapes: tuple[int, ...]) -> None:
        """Buffers of these names and shapes, all zero."""
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=kind))

    def filled(self, **given: npt.ArrayLike) -> Self:
        """This network with these numbers in the buffers of these names."""
        for name, numbers in given.items():
            self.get_buffer(name).copy_(torch.from_numpy(np.array(numbers)))
        return self

    def sizes(self) -> Spec:
        raise NotImplementedError

    def sparse_logits(self, rows: SparseRows) -> Floats:
        """The logit of every sparse row; where there is no shorter way, of a few rows made dense at a time."""
        logits = np.empty(len(rows))
        device = next(self.buffers(), torch.empty(0)).device
        with torch.no_grad():
            for some in rows.slices():
                logits[some] = self(torch.from_numpy(rows.dense(some)).to(device)).cpu().numpy()
        return logits

    def linear_weights(self) -> Floats | None:
        """By how much the logit rises with every column, where it does so everywhere alike."""
        return None

    def to_spec(self) -> Spec:
        """Kind and sizes as plain JSON values: all that `from_spec` needs to build an empty one."""
        return {"kind": self.kind, **self.sizes()}

    def check(self) -> None:
        """Refuse buffers that no fitted learner could have: called after foreign weights were loaded."""
        for name, buffer in self.named_buffers():
            if buffer.is_floating_point() and not bool(torch.isfinite(buffer).all()):
                raise ModelFileError(f"the model's {name} holds values that are not finite: the file is damaged")


class LinearNetwork(LearnerNetwork):
    """`weight . x + bias`; a missing value counts as the column's centre, plus a weight for being missing."""

    kind = "linear"
    weight: Tensor
    missing: Tensor
    centre: Tensor
    bias: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.hold(weight=(columns,), missing=(columns,), centre=(columns,), bias=())

    def sizes(self) -> Spec:
        return {"columns": len(self.weight)}

    def forward(self, rows: Tensor) -> Tensor:
        values = rows.to(torch.float64)
        gone = torch.isnan(values)
        filled = torch.where(gone, self.centre, values)
        return (filled * self.weight).sum(1) + torch.where(gone, self.missing, 0.0).sum(1) + self.bias

    def linear_weights(self) -> Floats | None:
        return np.asarray(self.weight.cpu().numpy(), dtype=np.float64)

    def sparse_logits(self, rows: SparseRows) -> Floats:
        """At the cost of the numbers that are there."""
        return np.asarray(rows.tocsr() @ self.weight.cpu().numpy() + float(self.bias), dtype=np.float64)


class KernelNetwork(LearnerNetwork):
    """A weighted sum of Gaussian bumps around landmark rows, on standardised columns (missing = the centre)."""

    kind = "kernel"
    centre: Tensor
    scale: Tensor
    landmarks: Tensor
    weight: Tensor
    bias: Tensor
    width: Tensor

    def __init__(self, columns: int, landmarks: int) -> None:
        super().__init__()
        self.hold(centre=(columns,), scale=(columns,), landmarks=(landmarks, columns))
        self.hold(weight=(landmarks,), bias=(), width=())

    def sizes(self) -> Spec:
        return {"columns": self.landmarks.shape[1], "landmarks": self.landmarks.shape[0]}

    def forward(self, rows: Tensor) -> Tensor:
        values = rows.to(torch.float64)
        standard = (torch.where(torch.isnan(values), self.centre, values) - self.centre) / self.scale
        inner = standard @ self.landmarks.T
        apart = (standard * standard).sum(1, keepdim=True) + (self.landmarks * self.landmarks).sum(1) - 2 * inner
        return torch.exp(-self.width * apart.clamp(min=0.0)) @ self.weight + self.bias

    def check(self) -> None:
        super().check()
        if not bool((self.scale > 0).all()) or not bool(self.width > 0):
            raise ModelFileError("the model's scales are not all above 0: the file is damaged")


class TreeNetwork(LearnerNetwork):
    """Many trees at once: every row takes `depth` steps down every tree, and the leaves' values are summed.

    `shares` says that the sum is a share of positives, whose logit is wanted (forests); otherwise the sum is a logit
    already (boosting). `rounded` says that the trees were grown on rows rounded to 32 bits, as scikit-learn's own are:
    a row between two such numbers must fall on the side it fell on when the tree was grown.
    """

    kind = "trees"
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    missing_left: Tensor
    value: Tensor
    roots: Tensor
    start: Tensor

    def __init__(self, columns: int, nodes: int, trees: int, depth: int, shares: bool, rounded: bool) -> None:
        super().__init__()
        self.columns, self.depth, self.shares, self.rounded = columns, depth, shares, rounded
        self.hold(torch.int64, feature=(nodes,), left=(nodes,), right=(nodes,), roots=(trees,))
        self.hold(threshold=(nodes,), value=(nodes,), start=())
        self.hold(torch.bool, missing_left=(nodes,))

    @classmethod
    def of(cls, trees: FlatTrees, columns: int, *, shares: bool, rounded: bool, start: float = 0.0) -> "TreeNetwork":
        network = cls(columns, len(trees.value), len(trees.roots), trees.depth, shares, rounded)
        return network.filled(start=start, **{name: one for name, one in trees._asdict().items() if name != "depth"})

    def sizes(self) -> Spec:
        return {
            "columns": self.columns,
            "nodes": len(self.value),
            "trees": len(self.roots),
            "depth": self.depth,
            "shares": self.shares,
            "rounded": self.rounded,
        }

    def forward(self, rows: Tensor) -> Tensor:
        values = rows.to(torch.float32).to(torch.float64) if self.rounded else rows.to(torch.float64)
        gone = torch.isnan(values)
        values = torch.where(gone, 0.0, values)
        at = self.roots.unsqueeze(0).expand(values.shape[0], -1)
        for _ in range(self.depth):
            column = self.feature[at]
            below = values.gather(1, column) <= self.threshold[at]
            absent = gone.gather(1, column)
            go_left = (absent & self.missing_left[at]) | (~absent & below)  # `where` of booleans: not in every runtime
            at = torch.where(go_left, self.left[at], self.right[at])
        total = self.value[at].sum(1) + self.start
        return _logit(total) if self.shares else total

    def check(self) -> None:
        super().check()
        nodes, own = len(self.value), torch.arange(len(self.value))
        leaf = (self.left == own) & (self.right == own)
        onwards = (self.left > own) & (self.right > own) & (self.left < nodes) & (self.right < nodes)
        if not bool((leaf | onwards).all()):
            raise ModelFileError("a tree of the model has a branch that leads back or nowhere: the file is damaged")
        if not bool(((self.feature >= 0) & (self.feature < self.columns)).all()):
            raise ModelFileError("a tree of the model asks for a column that there is not: the file is damaged")
        if not bool(((self.roots >= 0) & (self.roots < nodes)).all()):
            raise ModelFileError("a tree of the model begins at a node that there is not: the file is damaged")


class PerceptronNetwork(LearnerNetwork):
    """Our network for vectors as a learner, in double precision, on columns that it standardises itself."""

    kind = "perceptron"
    centre: Tensor
    scale: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.hold(centre=(columns,), scale=(columns,))
        self.network = MLP((columns,)).double().eval().requires_grad_(False)

    @classmethod
    def of(cls, network: nn.Module, centre: Floats, scale: Floats) -> "PerceptronNetwork":
        """A trained network behind the means and deviations of the columns that it was trained on."""
        found = cls(len(centre)).filled(centre=centre, scale=scale)
        found.network.load_state_dict(network.state_dict())
        return found

    def sizes(self) -> Spec:
        return {"columns": len(self.centre)}

    def forward(self, rows: Tensor) -> Tensor:
        values = rows.to(torch.float64)
        standard = (torch.where(torch.isnan(values), self.centre, values) - self.centre) / self.scale
        logit: Tensor = self.network(standard).logit
        return logit

    def check(self) -> None:
        super().check()
        if not bool((self.scale > 0).all()):
            raise ModelFileError("the model's scales are not all above 0: the file is damaged")


class AverageNetwork(LearnerNetwork):
    """The weighted mean of several learners' logits, each brought to the same scale by a slope and an offset first.

    Forests and boosting speak of the same rows on scales of their own; the plain mean would follow the loudest.
    """

    kind = "average"
    slope: Tensor
    offset: Tensor
    share: Tensor

    def __init__(self, members: Sequence[LearnerNetwork]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.hold(slope=(len(members),), offset=(len(members),), share=(len(members),))

    def sizes(self) -> Spec:
        return {"members": [member.to_spec() for member in self._each()]}

    def forward(self, rows: Tensor) -> Tensor:
        logits = torch.stack([member(rows) for member in self.members], dim=1)
        return ((logits * self.slope + self.offset) * self.share).sum(1)

    def linear_weights(self) -> Floats | None:
        """Where all members are linear, the mean of theirs."""
        found = [weights for member in self._each() if (weights := member.linear_weights()) is not None]
        counts = (self.slope * self.share).cpu().numpy()
        return np.asarray(counts @ np.stack(found)) if len(found) == len(counts) else None

    def sparse_logits(self, rows: SparseRows) -> Floats:
        """Of each member in its own way."""
        maps = zip(*(one.cpu().numpy() for one in (self.slope, self.offset, self.share)), strict=True)
        found = np.zeros(len(rows))
        for member, (slope, offset, share) in zip(self._each(), maps, strict=True):
            found += (member.sparse_logits(rows) * slope + offset) * share
        return found

    def check(self) -> None:
        super().check()
        for member in self._each():
            member.check()

    def _each(self) -> list[LearnerNetwork]:
        return [member for member in self.members if isinstance(member, LearnerNetwork)]


def from_spec(spec: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None, deep: int = 0) -> LearnerNetwork:
    """The network that a spec describes, with the tensors of a file in it if they are given.

    Sizes are compared with the tensors before anything is allocated, so that a file of a few bytes cannot ask for all
    the memory there is; what the tensors say is checked before anybody walks down a tree.
    """
    if tensors is not None:
        with torch.device("meta"):  # sizes alone, nothing is allocated
            _compare(_empty(spec, deep).state_dict(), tensors)
    network = _empty(spec, deep)
    if tensors is not None:
        network.load_state_dict(dict(tensors))
        network.check()
    return network


def _empty(spec: Mapping[str, Any], deep: int) -> LearnerNetwork:
    kind = spec.get("kind")
    if kind == "linear":
        return LinearNetwork(_whole(spec, "columns", MOST_COLUMNS))
    if kind == "kernel":
        return KernelNetwork(_whole(spec, "columns", MOST_COLUMNS), _whole(spec, "landmarks", MOST_NODES))
    if kind == "trees":
        columns, nodes = _whole(spec, "columns", MOST_COLUMNS), _whole(spec, "nodes", MOST_NODES)
        trees, depth = _whole(spec, "trees", MOST_NODES), _whole(spec, "depth", MOST_DEPTH, least=0)
        return TreeNetwork(columns, nodes, trees, depth, _yes_or_no(spec, "shares"), _yes_or_no(spec, "rounded"))
    if kind == "perceptron":
        return PerceptronNetwork(_whole(spec, "columns", MOST_WIDE))
    if kind == "average":
        return AverageNetwork([_empty(member, deep + 1) for member in _members(spec, deep)])
    raise ModelFileError(f"{kind!r} is no kind of learner: one of linear, kernel, trees, perceptron, average")


def _compare(promised: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name in promised.keys() ^ tensors.keys():
        there = "is missing from" if name in promised else "does not belong in"
        raise ModelFileError(f"the tensor {name} {there} this model: the file is damaged")
    for name, wanted in promised.items():
        shape, found = tuple(wanted.shape), tuple(tensors[name].shape)
        if found != shape:
            raise ModelFileError(f"the tensor {name} has the shape {found}, but the model's description says {shape}")
        if tensors[name].dtype != wanted.dtype:
            raise ModelFileError(f"the model's {name} is {tensors[name].dtype} where {wanted.dtype} was expected")


def _members(spec: Mapping[str, Any], deep: int) -> list[Mapping[str, Any]]:
    members = spec.get("members")
    listed = isinstance(members, list) and all(isinstance(member, Mapping) for member in members)
    if deep >= 3 or not isinstance(members, list) or not listed or not 1 <= len(members) <= MOST_MEMBERS:
        raise ModelFileError("the model's list of members is not one to three levels of 1 to 64 learners")
    return members


def _whole(spec: Mapping[str, Any], name: str, most: int, least: int = 1) -> int:
    number = spec.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ModelFileError(f"{name} must be a whole number from {least} to {most} in the model, not {number!r:.40}")
    return number


def _yes_or_no(spec: Mapping[str, Any], name: str) -> bool:
    answer = spec.get(name)
    if not isinstance(answer, bool):
        raise ModelFileError(f"{name} must be true or false in the model, not {answer!r:.40}")
    return answer


def flat_trees(trees: Sequence[Any], weights: Sequence[float]) -> FlatTrees:
    """scikit-learn's single trees, end to end; a leaf's value is the tree's weight times its share of positives."""
    parts = []
    for one, weight in zip(trees, weights, strict=True):
        tree = one.tree_
        leaf = tree.children_left < 0
        own = np.arange(tree.node_count)
        value = tree.value[:, 0, :]
        said = value[:, 0] if value.shape[1] == 1 else value[:, 1] / np.maximum(value.sum(1), 1e-300)
        if hasattr(one, "classes_") and len(one.classes_) == 1:
            said = np.full(len(own), float(one.classes_[0]))
        parts.append(
            FlatTrees(
                np.where(leaf, 0, tree.feature),
                _finite(np.where(leaf, 0.0, tree.threshold)),
                np.where(leaf, own, tree.children_left),
                np.where(leaf, own, tree.children_right),
                np.asarray(tree.missing_go_to_left, dtype=bool) & ~leaf,
                weight * said,
                np.zeros(1, dtype=np.int64),
                int(tree.max_depth),
            )
        )
    return _end_to_end(parts)


def flat_stages(stages: Sequence[Any]) -> FlatTrees:
    """The trees of a histogram gradient boosting, one per stage, end to end."""
    parts = []
    for stage in stages:
        nodes = stage.nodes
        if nodes["is_categorical"].any():
            raise InputError("boosting with categorical_features cannot be saved: give it one column per category")
        leaf, own = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
        parts.append(
            FlatTrees(
                np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
                _finite(np.where(leaf, 0.0, nodes["num_threshold"])),
                np.where(leaf, own, nodes["left"]).astype(np.int64),
                np.where(leaf, own, nodes["right"]).astype(np.int64),
                nodes["missing_go_to_left"].astype(bool) & ~leaf,
                np.where(leaf, nodes["value"], 0.0).astype(np.float64),
                np.zeros(1, dtype=np.int64),
                int(nodes["depth"].max()),
            )
        )
    return _end_to_end(parts)


def _finite(threshold: npt.NDArray[Any]) -> Floats:
    """An infinite threshold (whatever is not missing goes left) as the largest number: files hold no infinity."""
    most = np.finfo(np.float64).max
    return np.asarray(np.clip(threshold, -most, most), dtype=np.float64)


def _end_to_end(parts: Sequence[FlatTrees]) -> FlatTrees:
    starts = np.cumsum([0, *(len(part.value) for part in parts[:-1])]).astype(np.int64)
    shifted = [
        part._replace(left=part.left + at, right=part.right + at) for part, at in zip(parts, starts, strict=True)
    ]
    names = ("feature", "threshold", "left", "right", "missing_left", "value")
    joined = {name: np.concatenate([getattr(part, name) for part in shifted]) for name in names}
    return FlatTrees(**joined, roots=starts, depth=max(part.depth for part in parts))


class ForeignNetwork(LearnerNetwork):
    """A classifier of the user's that answers by itself: it trains and predicts, but its kind is no arrays of ours."""

    kind = "foreign"

    def __init__(self, fitted: Any) -> None:
        super().__init__()
        self._fitted = fitted

    def to_spec(self) -> Spec:
        """Refused: what is not plain arrays could only be pickled, and a pickle executes what it likes."""
        raise InputError(
            f"{type(self._fitted).__name__} cannot be saved or exported: linear models, forests, extra trees and "
            "gradient boosting can be; keep the classifier itself, as scikit-learn advises, or use one of these"
        )

    def forward(self, rows: Tensor) -> Tensor:
        """The logit of every row, asked of the classifier on the CPU."""
        return self._asked(rows.detach().cpu().numpy().astype(np.float64)).to(rows.device)

    def sparse_logits(self, rows: SparseRows) -> Floats:
        """The classifier has learned from sparse rows, so it takes them."""
        found: Floats = self._asked(rows.tocsr().astype(np.float64)).numpy()
        return found

    def _asked(self, values: Any) -> Tensor:
        if hasattr(self._fitted, "predict_proba"):
            share = torch.from_numpy(np.asarray(self._fitted.predict_proba(values), dtype=np.float64)[:, -1].copy())
            return _logit(share)
        told = np.asarray(self._fitted.decision_function(values), dtype=np.float64).ravel()
        return torch.from_numpy(told.copy())


def network_of(fitted: Any, columns: int) -> LearnerNetwork:
    """The network of a fitted scikit-learn classifier of two classes, where its kind can be written as one."""
    kind = type(fitted).__name__
    if kind in ("RandomForestClassifier", "ExtraTreesClassifier"):
        trees = fitted.estimators_
        flat = flat_trees(trees, [1 / len(trees)] * len(trees))
        return TreeNetwork.of(flat, columns, shares=True, rounded=True)
    if kind in ("DecisionTreeClassifier", "ExtraTreeClassifier"):
        return TreeNetwork.of(flat_trees([fitted], [1.0]), columns, shares=True, rounded=True)
    if kind == "HistGradientBoostingClassifier":
        stages = [stage[0] for stage in fitted._predictors]
        start = float(np.ravel(fitted._baseline_prediction)[0])
        return TreeNetwork.of(flat_stages(stages), columns, shares=False, rounded=False, start=start)
    if kind == "GradientBoostingClassifier" and fitted.init_ != "zero" and hasattr(fitted.init_, "class_prior_"):
        trees = fitted.estimators_[:, 0]
        flat = flat_trees(trees, [fitted.learning_rate] * len(trees))
        share = min(max(float(fitted.init_.class_prior_[1]), TINIEST_SHARE), 1 - TINIEST_SHARE)
        start = math.log(share / (1 - share))
        return TreeNetwork.of(flat, columns, shares=False, rounded=True, start=start)
    if hasattr(fitted, "coef_") and np.shape(fitted.coef_)[0] == 1:
        weight = np.asarray(fitted.coef_, dtype=np.float64)[0]
        return LinearNetwork(len(weight)).filled(weight=weight, bias=float(np.ravel(fitted.intercept_)[0]))
    return ForeignNetwork(fitted)


def _logit(share: Tensor) -> Tensor:
    inside = share.clamp(TINIEST_SHARE, 1 - TINIEST_SHARE)
    return torch.log(inside) - torch.log1p(-inside)


class LearnerBackbone(Backbone):
    """A learner where a network is expected: it has no layers to look into, so both features are its input."""

    def __init__(self, learner: LearnerNetwork) -> None:
        super().__init__()
        self.learner = learner
        self.feature_dim = 0

    def forward(self, batch: Tensor) -> Outputs:
        """The logit of every row."""
        return Outputs(batch, batch, self.learner(batch.flatten(1)))
