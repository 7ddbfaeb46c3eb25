"""Fitted learners as networks of plain tensors: raw feature rows in, one logit per row out.

A forest kept as a pickled scikit-learn object can be neither trusted when it comes from elsewhere nor exported. Here
every learner becomes an `nn.Module` whose state is buffers only, so that safetensors holds all of it and ONNX needs
nothing but gathers, comparisons and sums. `to_spec` gives the few sizes that say which modules to build; `from_spec`
and `check` take them from a file nobody vouches for."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from splitpu.data.sparse_rows import VALUES_AT_ONCE, is_sparse_matrix
from splitpu.errors import InputError, ModelFileError
from splitpu.networks.backbones import MLP, Backbone, Outputs
from splitpu.types import Floats
from splitpu.utils.arrays import log_odds

Spec = dict[str, Any]

LEARNER = "learner"  # the network's name in the files of such a model
MOST_COLUMNS = 10_000_000
MOST_WIDE = 100_000  # columns of a network, each of which has hundreds of weights
MOST_NODES = 100_000_000
MOST_DEPTH = 512
MOST_MEMBERS = 64
CHUNK = 512  # rows scored at once: what they are to landmarks or trees stays in the cache, which is four times as fast
TINIEST_SHARE = 2.0**-20  # shares stay this far from 0 and 1 before the logit; exact in 32 bits, as ONNX writes it


class LearnerNetwork(nn.Module):
    """What all of them share: a kind, sizes, and a check of the buffers against those sizes.

    Where the learner is arrays and sums anyway, fitting it gives this network at once."""

    kind = ""
    limits: ClassVar[Mapping[str, tuple[int, int] | None]] = {}  # of each size; None: it is true or false

    def __init__(self, **sizes: int | bool) -> None:
        super().__init__()
        self.sizes = sizes

    def hold(self, kind: torch.dtype = torch.float64, **shapes: tuple[int, ...]) -> None:
        """Buffers of these names and shapes, all zero."""
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=kind))

    def filled(self, **given: npt.ArrayLike) -> Self:
        """This network with these numbers in the buffers of these names."""
        for name, numbers in given.items():
            self.get_buffer(name).copy_(torch.from_numpy(np.array(numbers)))
        return self

    def scores(self, rows: Any) -> Floats:
        """The logit of every dense or sparse row, of so many at a time as can be made dense."""
        logits = np.empty(rows.shape[0])
        device = next(self.buffers()).device
        step = max(1, min(CHUNK, VALUES_AT_ONCE // rows.shape[1]))
        with torch.no_grad():
            for start in range(0, len(logits), step):
                some = rows[start : start + step]
                dense = some.tocsr().toarray() if is_sparse_matrix(rows) else np.asarray(some)
                logits[start : start + step] = self(torch.from_numpy(dense).to(device)).cpu().numpy()
        return logits

    def linear_weights(self) -> Floats | None:
        """By how much the logit rises with every column, where it does so everywhere alike."""
        return None

    def as_network(self) -> "LearnerNetwork":
        """A copy: two models may be made of one learner, on two devices."""
        return copy.deepcopy(self)

    def to_spec(self) -> Spec:
        """Kind and sizes as plain JSON values: all that `from_spec` needs to build an empty one."""
        return {"kind": self.kind, **self.sizes}

    def check(self) -> None:
        """Refuse buffers that no fitted learner could have: called after foreign weights were loaded."""
        for name, buffer in self.named_buffers():
            if buffer.is_floating_point() and not bool(torch.isfinite(buffer).all()):
                raise ModelFileError(f"the model's {name} holds values that are not finite: the file is damaged")
            if name.split(".")[-1] in ("scale", "width") and not bool((buffer > 0).all()):
                raise ModelFileError(f"the model's {name} is not above 0 throughout: the file is damaged")


class LinearNetwork(LearnerNetwork):
    """`weight . x + bias`; a missing value counts as the column's centre, plus a weight for being missing."""

    kind = "linear"
    limits: ClassVar = {"columns": (1, MOST_COLUMNS)}
    weight: Tensor
    missing: Tensor
    centre: Tensor
    bias: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__(columns=columns)
        self.hold(weight=(columns,), missing=(columns,), centre=(columns,), bias=())

    def forward(self, rows: Tensor) -> Tensor:
        values = rows.to(torch.float64)
        gone = torch.isnan(values)
        filled = torch.where(gone, self.centre, values)
        return (filled * self.weight).sum(1) + torch.where(gone, self.missing, 0.0).sum(1) + self.bias

    def linear_weights(self) -> Floats | None:
        return np.asarray(self.weight.cpu().numpy(), dtype=np.float64)

    def scores(self, rows: Any) -> Floats:
        """Of sparse rows at the cost of the numbers that are there."""
        if not is_sparse_matrix(rows):
            return super().scores(rows)
        return np.asarray(rows.tocsr() @ self.weight.cpu().numpy() + float(self.bias), dtype=np.float64)


class KernelNetwork(LearnerNetwork):
    """A weighted sum of Gaussian bumps around landmark rows, on standardised columns (missing = the centre)."""

    kind = "kernel"
    limits: ClassVar = {"columns": (1, MOST_COLUMNS), "landmarks": (1, MOST_NODES)}
    centre: Tensor
    scale: Tensor
    landmarks: Tensor
    weight: Tensor
    bias: Tensor
    width: Tensor

    def __init__(self, columns: int, landmarks: int) -> None:
        super().__init__(columns=columns, landmarks=landmarks)
        self.hold(centre=(columns,), scale=(columns,), landmarks=(landmarks, columns))
        self.hold(weight=(landmarks,), bias=(), width=())

    def forward(self, rows: Tensor) -> Tensor:
        standard = _standardised(rows, self.centre, self.scale)
        inner = standard @ self.landmarks.T
        apart = (standard * standard).sum(1, keepdim=True) + (self.landmarks * self.landmarks).sum(1) - 2 * inner
        return torch.exp(-self.width * apart.clamp(min=0.0)) @ self.weight + self.bias


_Nodes = Mapping[str, npt.NDArray[Any]]  # of one tree: leaf, feature, threshold, left, right, missing_left, value


class TreeNetwork(LearnerNetwork):
    """Many trees at once: every row takes `depth` steps down every tree, and the leaves' values are summed.

    `shares` says that the sum is a share of positives, whose logit is wanted (forests); otherwise the sum is a logit
    already (boosting). `rounded` says that the trees were grown on rows rounded to 32 bits, as scikit-learn's own are:
    a row between two such numbers must fall on the side it fell on when the tree was grown."""

    kind = "trees"
    limits: ClassVar = {
        "columns": (1, MOST_COLUMNS),
        "nodes": (1, MOST_NODES),
        "trees": (1, MOST_NODES),
        "depth": (0, MOST_DEPTH),
        "shares": None,
        "rounded": None,
    }
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    missing_left: Tensor
    value: Tensor
    roots: Tensor
    start: Tensor

    def __init__(self, **sizes: int | bool) -> None:
        super().__init__(**sizes)
        nodes, trees = sizes["nodes"], sizes["trees"]
        self.hold(torch.int64, feature=(nodes,), left=(nodes,), right=(nodes,), roots=(trees,))
        self.hold(threshold=(nodes,), value=(nodes,), start=())
        self.hold(torch.bool, missing_left=(nodes,))

    @classmethod
    def of(cls, trees: Sequence[_Nodes], depth: int, *, start: float = 0.0, **sizes: int | bool) -> Self:
        """The nodes of several trees, end to end. A leaf points to itself, so that `depth` steps end in it."""
        roots = np.cumsum([0, *(len(tree["value"]) for tree in trees[:-1])]).astype(np.int64)
        own = [np.arange(len(tree["value"])) for tree in trees]
        most = np.finfo(np.float64).max  # stands for an infinite threshold (all go left): files hold no infinity
        nodes = {
            "feature": [np.where(tree["leaf"], 0, tree["feature"]) for tree in trees],
            "threshold": [np.clip(np.where(tree["leaf"], 0.0, tree["threshold"]), -most, most) for tree in trees],
            "missing_left": [tree["missing_left"].astype(bool) & ~tree["leaf"] for tree in trees],
            "value": [tree["value"] for tree in trees],
        }
        for side in ("left", "right"):
            ends = zip(trees, own, roots, strict=True)
            nodes[side] = [np.where(tree["leaf"], itself, tree[side]) + at for tree, itself, at in ends]
        whole = {name: np.concatenate(parts) for name, parts in nodes.items()}
        found = cls(columns=sizes.pop("columns"), nodes=len(whole["value"]), trees=len(trees), depth=depth, **sizes)
        return found.filled(start=start, roots=roots, **whole)

    def forward(self, rows: Tensor) -> Tensor:
        values = rows.to(torch.float32).to(torch.float64) if self.sizes["rounded"] else rows.to(torch.float64)
        gone = torch.isnan(values)
        values = torch.where(gone, 0.0, values)
        at = self.roots.unsqueeze(0).expand(values.shape[0], -1)
        for _ in range(self.sizes["depth"]):
            column = self.feature[at]
            below = values.gather(1, column) <= self.threshold[at]
            absent = gone.gather(1, column)
            go_left = (absent & self.missing_left[at]) | (~absent & below)  # `where` of booleans: not in every runtime
            at = torch.where(go_left, self.left[at], self.right[at])
        total = self.value[at].sum(1) + self.start
        if not self.sizes["shares"]:
            return total
        inside = total.clamp(TINIEST_SHARE, 1 - TINIEST_SHARE)
        return torch.log(inside) - torch.log1p(-inside)

    def check(self) -> None:
        super().check()
        nodes, own = len(self.value), torch.arange(len(self.value))
        leaf = (self.left == own) & (self.right == own)
        onwards = (self.left > own) & (self.right > own) & (self.left < nodes) & (self.right < nodes)
        for sound, wrong in (
            (leaf | onwards, "has a branch that leads back or nowhere"),
            ((self.feature >= 0) & (self.feature < self.sizes["columns"]), "asks for a column that there is not"),
            ((self.roots >= 0) & (self.roots < nodes), "begins at a node that there is not"),
        ):
            if not bool(sound.all()):
                raise ModelFileError(f"a tree of the model {wrong}: the file is damaged")


class PerceptronNetwork(LearnerNetwork):
    """Our network for vectors as a learner, in double precision, on columns that it standardises itself."""

    kind = "perceptron"
    limits: ClassVar = {"columns": (1, MOST_WIDE)}
    centre: Tensor
    scale: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__(columns=columns)
        self.hold(centre=(columns,), scale=(columns,))
        self.network = MLP((columns,)).double().eval().requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        logit: Tensor = self.network(_standardised(rows, self.centre, self.scale)).logit
        return logit


class AverageNetwork(LearnerNetwork):
    """The weighted mean of several learners' logits, each brought to the same scale by a slope and an offset first.

    Forests and boosting speak of the same rows on scales of their own; the plain mean would follow the loudest."""

    kind = "average"
    slope: Tensor
    offset: Tensor
    share: Tensor
    members: Any  # a ModuleList of learners

    def __init__(self, members: Sequence[LearnerNetwork]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.hold(slope=(len(members),), offset=(len(members),), share=(len(members),))

    def to_spec(self) -> Spec:
        return {"kind": self.kind, "members": [member.to_spec() for member in self.members]}

    def forward(self, rows: Tensor) -> Tensor:
        logits = torch.stack([member(rows) for member in self.members], dim=1)
        return ((logits * self.slope + self.offset) * self.share).sum(1)

    def linear_weights(self) -> Floats | None:
        """Where all members are linear, the mean of theirs."""
        found = [weights for member in self.members if (weights := member.linear_weights()) is not None]
        counts = (self.slope * self.share).cpu().numpy()
        return np.asarray(counts @ np.stack(found)) if len(found) == len(counts) else None

    def scores(self, rows: Any) -> Floats:
        """Of each member in its own way."""
        slope, offset, share = (one.cpu().numpy() for one in (self.slope, self.offset, self.share))
        logits = np.stack([member.scores(rows) for member in self.members], axis=1)
        found: Floats = ((logits * slope + offset) * share).sum(1)
        return found

    def check(self) -> None:
        super().check()
        for member in self.members:
            member.check()


def _standardised(rows: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    values = rows.to(torch.float64)
    return (torch.where(torch.isnan(values), centre, values) - centre) / scale


def from_spec(spec: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> LearnerNetwork:
    """The network that a spec describes, with the tensors of a file in it if they are given.

    Sizes are compared with the tensors before anything is allocated, so that a file of a few bytes cannot ask for all
    the memory there is; what the tensors say is checked before anybody walks down a tree."""
    if tensors is None:
        return _empty(spec)
    with torch.device("meta"):  # sizes alone, nothing is allocated
        promised = _empty(spec).state_dict()
    for name in promised.keys() ^ tensors.keys():
        there = "is missing from" if name in promised else "does not belong in"
        raise ModelFileError(f"the tensor {name} {there} this model: the file is damaged")
    for name, wanted in promised.items():
        shape, found = tuple(wanted.shape), tuple(tensors[name].shape)
        if found != shape:
            raise ModelFileError(f"the tensor {name} has the shape {found}, but the model's description says {shape}")
        if tensors[name].dtype != wanted.dtype:
            raise ModelFileError(f"the model's {name} is {tensors[name].dtype} where {wanted.dtype} was expected")
    network = _empty(spec)
    network.load_state_dict(dict(tensors))
    network.check()
    return network


def _empty(spec: Mapping[str, Any], deep: int = 0) -> LearnerNetwork:
    kind = spec.get("kind")
    if kind == AverageNetwork.kind:
        members = spec.get("members")
        listed = isinstance(members, list) and all(isinstance(member, Mapping) for member in members)
        if deep >= 4 or not isinstance(members, list) or not listed or not 1 <= len(members) <= MOST_MEMBERS:
            raise ModelFileError("the model's list of members is not one to four levels of 1 to 64 learners")
        return AverageNetwork([_empty(member, deep + 1) for member in members])
    plain: tuple[type[LearnerNetwork], ...] = (LinearNetwork, KernelNetwork, TreeNetwork, PerceptronNetwork)
    for one in plain:
        if kind == one.kind:
            return one(**{name: _size(spec.get(name), name, limits) for name, limits in one.limits.items()})
    raise ModelFileError(f"{kind!r} is no kind of learner: one of linear, kernel, trees, perceptron, average")


def _size(given: object, name: str, limits: tuple[int, int] | None) -> int:
    if limits is None:
        if not isinstance(given, bool):
            raise ModelFileError(f"{name} must be true or false in the model, not {given!r:.40}")
        return given
    least, most = limits
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise ModelFileError(f"{name} must be a whole number from {least} to {most} in the model, not {given!r:.40}")
    return given


def network_of_trees(trees: Sequence[Any], weight: float, *, shares: bool, start: float = 0.0) -> TreeNetwork:
    """scikit-learn's single trees; a leaf's value is the weight times its share of positives."""
    parts = []
    for one in trees:
        tree = one.tree_
        value = tree.value[:, 0, :]
        said = value[:, 0] if value.shape[1] == 1 else value[:, 1] / np.maximum(value.sum(1), 1e-300)
        if hasattr(one, "classes_") and len(one.classes_) == 1:
            said = np.full(tree.node_count, float(one.classes_[0]))
        sides = {"left": tree.children_left, "right": tree.children_right, "missing_left": tree.missing_go_to_left}
        nodes = {"feature": tree.feature, "threshold": tree.threshold, "value": weight * said, **sides}
        parts.append({"leaf": tree.children_left < 0, **nodes})
    depth, sizes = max(int(one.tree_.max_depth) for one in trees), {"columns": trees[0].n_features_in_}
    return TreeNetwork.of(parts, depth, start=start, **sizes, shares=shares, rounded=True)


def network_of_stages(model: Any, stages: int | None = None) -> TreeNetwork:
    """A histogram gradient boosting, or its first stages: a tree for each."""
    parts = []
    for (stage,) in model._predictors[:stages]:
        nodes = stage.nodes
        if nodes["is_categorical"].any():
            raise InputError("boosting with categorical_features cannot be saved: give it one column per category")
        leaf = nodes["is_leaf"].astype(bool)
        named = {"feature": "feature_idx", "threshold": "num_threshold", "missing_left": "missing_go_to_left"}
        found = {name: nodes[named.get(name, name)] for name in ("left", "right", *named)}
        parts.append({"leaf": leaf, "value": np.where(leaf, nodes["value"], 0.0), **found})
    depth = max(int(stage.nodes["depth"].max()) for (stage,) in model._predictors[:stages])
    start, sizes = float(np.ravel(model._baseline_prediction)[0]), {"columns": model.n_features_in_}
    return TreeNetwork.of(parts, depth, start=start, **sizes, shares=False, rounded=False)


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
        return torch.from_numpy(self.scores(rows.detach().cpu().numpy().astype(np.float64))).to(rows.device)

    def scores(self, rows: Any) -> Floats:
        """By whichever of scikit-learn's ways of answering it has; if it learned from sparse rows, it takes them."""
        values = rows.tocsr().astype(np.float64) if is_sparse_matrix(rows) else rows
        if hasattr(self._fitted, "predict_proba"):
            told = np.asarray(self._fitted.predict_proba(values), dtype=np.float64)
            return log_odds(told[:, -1], TINIEST_SHARE)
        return np.array(self._fitted.decision_function(values), dtype=np.float64).ravel()

    def as_network(self) -> LearnerNetwork:
        """A network of plain tensors, where the classifier's kind can be written as one."""
        return network_of(self._fitted)


def network_of(fitted: Any) -> LearnerNetwork:
    """The network of a fitted scikit-learn classifier of two classes, where its kind can be written as one."""
    kind = type(fitted).__name__
    if kind in ("RandomForestClassifier", "ExtraTreesClassifier"):
        return network_of_trees(fitted.estimators_, 1 / len(fitted.estimators_), shares=True)
    if kind in ("DecisionTreeClassifier", "ExtraTreeClassifier"):
        return network_of_trees([fitted], 1.0, shares=True)
    if kind == "HistGradientBoostingClassifier":
        return network_of_stages(fitted)
    if kind == "GradientBoostingClassifier" and fitted.init_ != "zero" and hasattr(fitted.init_, "class_prior_"):
        share = min(max(float(fitted.init_.class_prior_[1]), TINIEST_SHARE), 1 - TINIEST_SHARE)
        start = math.log(share / (1 - share))
        return network_of_trees(fitted.estimators_[:, 0], fitted.learning_rate, shares=False, start=start)
    if hasattr(fitted, "coef_") and np.shape(fitted.coef_)[0] == 1:
        weight = np.asarray(fitted.coef_, dtype=np.float64)[0]
        return LinearNetwork(len(weight)).filled(weight=weight, bias=float(np.ravel(fitted.intercept_)[0]))
    return ForeignNetwork(fitted)


class LearnerBackbone(Backbone):
    """A learner where a network is expected: it has no layers to look into, so both features are its input."""

    def __init__(self, learner: LearnerNetwork) -> None:
        super().__init__()
        self.learner = learner
        self.feature_dim = 0

    def forward(self, batch: Tensor) -> Outputs:
        """The logit of every row."""
        return Outputs(batch, batch, self.learner(batch.flatten(1)))
