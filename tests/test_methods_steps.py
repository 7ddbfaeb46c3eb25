"""Whole steps of the methods, and what they do between epochs, against formulas written down a second time in numpy."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from splitpu.config.methods import (
    DANConfig,
    DistPUConfig,
    P3MixConfig,
    PUbNConfig,
    PUUPLConfig,
    SelfPUConfig,
    VPUConfig,
)
from splitpu.config.schema import Config
from splitpu.config.small import methods_fitted_to
from splitpu.data import PUData
from splitpu.engine.stage import Batch, EpochRecord, Stage
from splitpu.methods.dan import DANTask
from splitpu.methods.distpu import DistributionTask, MixingTask, train_dist_pu
from splitpu.methods.p3mix import P3MixTask, train_p3mix
from splitpu.methods.parts import shuffled
from splitpu.methods.pubn import PUbNTask, train_pubn
from splitpu.methods.puupl import PUUPLTask, next_labels
from splitpu.methods.selfpu import SelfPUTask, following_weight, train_self_pu
from splitpu.methods.vpu import VPUTask
from splitpu.networks import Backbone
from splitpu.networks.backbone import Outputs

Array = NDArray[np.float64]
PRIOR = 0.4


class Line(Backbone):
    """A network with nothing hidden: one weight a feature."""

    feature_dim = 2

    def __init__(self, *weights: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights or (0.0, 0.0), dtype=torch.float32))

    def forward(self, batch: Tensor) -> Outputs:
        return Outputs(batch, batch, batch @ self.weights)


class Views:
    """Rows as they are; a step that is told not to augment must not ask for weak views."""

    def plain(self, raw: Tensor) -> Tensor:
        return raw


class Weights:
    """Mixing weights that are known beforehand."""

    def __init__(self, *weights: float) -> None:
        self.weights = torch.tensor(weights, dtype=torch.float32)

    def draw(self, count: int) -> Tensor:
        return self.weights.repeat(-(-count // len(self.weights)))[:count]


X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32).astype(np.float64)
POSITIVES, POPULATION = [0, 1, 2], [1, 3, 4, 5, 6, 7]
W, V = np.array([0.8, -0.5]), np.array([-0.3, 1.1])


def batch(**groups: list[int]) -> dict[str, Batch]:
    raw = torch.from_numpy(X).float()
    return {name: Batch(torch.tensor(rows), raw[rows]) for name, rows in groups.items()}


def stepped(task: Any, seed: int = 0, **groups: list[int]) -> dict[str, Tensor]:
    groups = groups or {"positives": POSITIVES, "population": POPULATION}
    return task.step(batch(**groups), Views(), torch.Generator().manual_seed(seed))  # type: ignore[no-any-return]


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def cross_entropy(z: Array, y: Any) -> Any:
    return np.mean(-y * np.log(sigmoid(z)) - (1 - y) * np.log(sigmoid(-z)))


def entropy(z: Array) -> Any:
    p = sigmoid(z)
    return np.mean(-p * np.log(p) - (1 - p) * np.log(1 - p))


def slope(function: Any, at: Array) -> Array:
    """The gradient, by differences."""
    small = 1e-6 * np.eye(len(at))
    return np.array([(function(at + one) - function(at - one)) / 2e-6 for one in small])


def close(found: Any, expected: Any) -> None:
    assert np.asarray(found.detach(), dtype=np.float64) == pytest.approx(np.asarray(expected), rel=1e-4, abs=1e-5)


# ---------------------------------------------------------------------------------------------------------------- steps


def vpu_loss(w: Array, weights: Array, share: float) -> Any:
    p, x = X[POSITIVES], X[POPULATION]
    partners = np.concatenate([p, p])  # each positive serves twice
    mixed = weights[:, None] * x + (1 - weights[:, None]) * partners
    variational = np.log(sigmoid(x @ w).mean()) - np.log(sigmoid(p @ w)).mean()
    target = weights * sigmoid(x @ w) + 1 - weights
    return variational + share * np.mean((np.log(target) - np.log(sigmoid(mixed @ w))) ** 2)


def test_vpu_moves_both_sides_of_its_mixing_term() -> None:
    weights = (0.2, 0.9, 0.5, 0.0, 1.0, 0.7)
    network = Line(*W)
    loss = stepped(VPUTask(network, Weights(*weights), VPUConfig(augment=False, mix_weight=0.7)))["loss"]  # type: ignore[arg-type]
    close(loss, vpu_loss(W, np.array(weights), 0.7))
    loss.backward()
    close(network.weights.grad, slope(lambda w: vpu_loss(w, np.array(weights), 0.7), W))


def dan_value(w: Array, v: Array) -> Any:
    p, x = X[POSITIVES], X[POPULATION]
    phi = sigmoid(x @ w)
    return np.log(sigmoid(p @ v)).mean() + (phi * np.log(sigmoid(-x @ v))).mean() / phi.mean()


def test_dan_lowers_with_one_network_what_it_raises_with_the_other() -> None:
    network, adversary = Line(*W), Line(*V)
    config = DANConfig(augment=False, anchor=0.3, anchor_level=0.9)
    terms = stepped(DANTask(network, adversary, config))
    terms["loss"].backward()
    close(terms["value"], dan_value(W, V))
    anchored = slope(lambda w: dan_value(w, V) + 0.3 * cross_entropy(X[POSITIVES] @ w, 0.9), W)
    close(network.weights.grad, anchored)
    close(adversary.weights.grad, -slope(lambda v: dan_value(W, v), V))


class Level(Line):
    """As a network is before it can tell rows apart: one number for all of them."""

    def forward(self, batch: Tensor) -> Outputs:
        return Outputs(batch, batch, self.weights[:1].expand(len(batch)))


def test_dan_on_few_rows_comes_down_again_where_everything_was_called_positive() -> None:
    # The game does not mind: all Phi times a factor are worth the same. Where every Phi is one it has no slope left.
    network, few = Level(12.0, 0.0), methods_fitted_to(Config(), 500).dan
    config = replace(few, augment=False)
    optimiser = torch.optim.Adam([network.weights], lr=0.1)
    for _ in range(200):
        loss = stepped(DANTask(network, Line(*V), config))["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert 0.5 < torch.sigmoid(network.weights[0]).item() < 0.98


def test_pubn_looks_up_the_scores_of_its_rows() -> None:
    scores = np.linspace(0.05, 0.95, 12)
    task = PUbNTask(Line(*W), torch.from_numpy(scores).float(), 0.4, PRIOR, PUbNConfig(augment=False))
    expected = 0.0
    for row in POSITIVES:
        z, s = X[row] @ W, scores[row]
        expected += PRIOR / 3 * (np.log1p(np.exp(-z)) + (s > 0.4) * (1 - s) / s * np.log1p(np.exp(z)))
    for row in POPULATION:
        expected += (scores[row] <= 0.4) * (1 - scores[row]) * np.log1p(np.exp(X[row] @ W)) / 6
    close(stepped(task)["loss"], expected)


def nnpu(zp: Array, zu: Array) -> Any:
    negative = sigmoid(zu).mean() - PRIOR * sigmoid(zp).mean()
    return PRIOR * sigmoid(-zp).mean() + negative if negative >= 0 else -negative


def test_puupl_adds_labels_to_the_risk_of_each_member_on_its_own_rows() -> None:
    labels, has_label = np.linspace(0, 1, 12), np.arange(12) % 2 == 1
    own = [(POSITIVES, POPULATION), ([2, 0], [8, 9, 10])]
    task = PUUPLTask(
        [Line(*W), Line(*V)],
        torch.from_numpy(labels).float(),
        torch.from_numpy(has_label),
        PRIOR,
        PUUPLConfig(augment=False, risk_weight=0.8),
    )
    groups = {f"{name}{i}": rows for i, both in enumerate(own) for name, rows in zip(POOLS, both, strict=True)}
    expected = 0.0
    for w, (positives, population) in zip((W, V), own, strict=True):
        known = [row for row in population if has_label[row]]
        expected += 0.8 * nnpu(X[positives] @ w, X[population] @ w) + 0.2 * cross_entropy(X[known] @ w, labels[known])
    close(stepped(task, **groups)["loss"], expected)


POOLS = ("positives", "population")


def test_dist_pu_mixes_rows_and_labels_alike() -> None:
    config = DistPUConfig(augment=False, mix_weight=2.0, mix_entropy=0.5)
    labels, weights = np.linspace(0, 1, 12), np.array([0.1, 0.6, 0.45])
    task = MixingTask(Line(*W), torch.from_numpy(labels).float(), Weights(*weights), PRIOR, config)  # type: ignore[arg-type]
    task.module.state("decided").fill_(0.3)
    rows = np.array(POSITIVES + POPULATION)
    other = rows[shuffled(9, torch.device("cpu"), torch.Generator().manual_seed(5)).numpy()]
    g = np.tile(weights, 3)
    blended = (g[:, None] * X[rows] + (1 - g[:, None]) * X[other]) @ W
    zp, zu = X[POSITIVES] @ W, X[POPULATION] @ W
    expected = abs(sigmoid(zp).mean() - 1) + abs(sigmoid(zu).mean() - PRIOR) / (2 * PRIOR) + 0.3 * entropy(zu)
    expected += 2.0 * cross_entropy(blended, g * labels[rows] + (1 - g) * labels[other]) + 0.5 * entropy(blended)
    close(stepped(task, seed=5)["loss"], expected)
    first = stepped(DistributionTask(Line(*W), PRIOR, config))
    close(first["loss"], first["distribution"].item() + config.warmup_entropy * entropy(zu))


def test_dist_pu_leaves_alone_what_is_beyond_the_largest_logit() -> None:
    network = Line(1e4, 0.0)
    stepped(DistributionTask(network, PRIOR, DistPUConfig(augment=False)))["loss"].backward()
    assert network.weights.grad is not None and not network.weights.grad.any()


@pytest.mark.parametrize("following", [0.0, 0.25])
def test_self_pu_adds_up_risk_trust_agreement_and_lessons(following: float) -> None:
    config = SelfPUConfig(augment=False, agreement_limit=10.0)
    task = SelfPUTask([Line(*W), Line(*V)], 12, PRIOR, config)
    trusted = np.full((2, 12), -1.0)
    trusted[0, [3, 4]], trusted[1, [5]] = [1.0, 0.0], 1.0
    task.module.state("trusted").copy_(torch.from_numpy(trusted))
    task.module.state("following").fill_(following)
    before = [np.array([0.1, 0.2]), np.array([-0.4, 0.0])]
    for teacher, old in zip(task.teachers, before, strict=True):
        teacher.weights.data.copy_(torch.from_numpy(old))
    loss = stepped(task)["loss"]
    expected, outputs = 0.0, [sigmoid(X @ w) for w in (W, V)]
    for number, w in enumerate((W, V)):
        taught = before[number] + 0.9 * (w - before[number])  # the first step takes nine tenths of the way
        close(task.teachers[number].weights, taught)
        is_trusted = trusted[number, POPULATION] >= 0
        rest, known = np.array(POPULATION)[~is_trusted], np.array(POPULATION)[is_trusted]
        share = is_trusted.mean()
        expected += (1 - share) * nnpu(X[POSITIVES] @ w, X[rest] @ w)
        expected += share * cross_entropy(X[known] @ w, trusted[number, known])
        expected += np.mean((outputs[number] - outputs[1 - number])[POPULATION] ** 2)
        rows = POSITIVES + POPULATION
        expected += 0.3 * following * np.mean((outputs[number][rows] - sigmoid(X[rows] @ taught)) ** 2)
    close(loss, expected)
    assert float(task.module.state("averaged")) == (following > 0)  # steps, however small the weight still is


# ------------------------------------------------------------------------------------------------------- between epochs


class Made:
    """A context whose networks say what they are told to, and an engine that only calls what comes after an epoch."""

    def __init__(self, logits: Array, labelled: list[int], epochs: tuple[int, ...] = (), **config: Any) -> None:
        count = logits.shape[-1]
        self.data = PUData.from_arrays(np.zeros((count, 2)), np.isin(np.arange(count), labelled))
        self.said, self.config, self.known_prior, self.epochs = logits, SimpleNamespace(**config), PRIOR, epochs
        self.later: dict[int, Array] = {}  # what they say from an epoch on
        self.stages: list[Stage] = []
        self.seen: list[dict[str, Array]] = []
        self.engine = SimpleNamespace(hardware=SimpleNamespace(device=torch.device("cpu")), rows=None, run=self.run)

    def run(self, stage: Stage) -> None:
        self.stages.append(stage)
        for epoch in self.epochs if stage.after_epoch else ():
            record = EpochRecord(stage.name, epoch, stage.epochs, 0.0, 0.0, {})
            self.said = self.later.get(epoch, self.said)
            assert stage.after_epoch is not None and not stage.after_epoch(record, {})
            self.seen.append({name: t.clone().numpy() for name, t in stage.task.module.named_buffers()})

    def fresh_network(self, place: str) -> Line:
        return Line(*W)

    def logits_of(self, network: nn.Module) -> Tensor:
        return torch.from_numpy(self.said[getattr(network, "number", 0)] if self.said.ndim > 1 else self.said).float()

    def rows(self, numbers: Any) -> Tensor:
        return torch.as_tensor(numbers)

    def identity(self, *names: str, **upstream: Any) -> dict[str, Any]:
        return {}

    def as_teacher(self, network: nn.Module, *_: Any) -> nn.Module:
        return network


LOGITS = np.array([3.0, -0.1, 2.0, 5.0, 0.4, -0.3, -2.0, -6.0, 1.3, -1.3])


def test_p3mix_corrects_and_doubts_after_its_warm_up_only() -> None:
    config = P3MixConfig(epochs=20, pool=2, batch_size=4)
    made = Made(LOGITS, [0, 1, 2], (1, 2, 3, 4), p3mix=config)
    made.later[3] = np.r_[LOGITS[:3], 0.1, LOGITS[4:]]
    made.later[4] = np.r_[-3.0, LOGITS[1:3], -0.1, LOGITS[4:]]
    model = train_p3mix(made)  # type: ignore[arg-type]
    early, late, latest, last = made.seen
    # Who has become positive stays so while anything speaks for it, and is not doubted meanwhile.
    assert (latest["labels"] == late["labels"]).all() and (latest["doubtful"] == late["doubtful"]).all()
    assert last["labels"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0] and last["doubtful"][3]
    assert model is made.stages[0].task.teacher  # type: ignore[attr-defined, comparison-overlap]
    assert early["labels"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0] and not early["doubtful"].any()
    # sigmoid(1.3) = 0.79 and sigmoid(-1.3) = 0.21 are still doubtful; the labelled ones never are.
    assert late["labels"].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert np.flatnonzero(late["doubtful"]).tolist() == [4, 5, 8, 9]
    assert early["pool"].tolist() == late["pool"].tolist() == [1, 2]  # nearest to a half
    (stage,) = made.stages
    assert sorted(stage.pools["population"].rows) == list(range(3, 10))  # U without P


def test_p3mix_gives_doubtful_rows_partners_from_the_pool_and_rows_the_larger_part() -> None:
    made = Made(LOGITS, [0, 1, 2], p3mix=P3MixConfig(augment=False, pool=1))
    gathered: list[Array] = []
    rows = SimpleNamespace(
        gather=lambda numbers: gathered.append(numbers.numpy()) or torch.from_numpy(X).float()[numbers]
    )
    task = P3MixTask(Line(*W), made, Weights(0.25, 0.6), rows, made.config.p3mix)  # type: ignore[arg-type]
    task.module.state("doubtful")[[4, 6]] = True
    task.module.state("labels")[3] = 1.0
    loss = stepped(task, positives=[0, 2], population=[3, 4, 5, 6])["loss"]
    own, (partners,) = np.array([0, 2, 3, 4, 5, 6]), gathered
    assert partners[3] == partners[5] == 0 and set(partners) <= set(own)  # 0 is the pool
    g, labels = np.tile([0.75, 0.6], 3), np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0.0])
    z = (g[:, None] * X[own] + (1 - g[:, None]) * X[partners]) @ W
    target = g * labels[own] + (1 - g) * labels[partners]
    close(loss, cross_entropy(z[:2], target[:2]) + cross_entropy(z[2:], target[2:]) + 0.1 * entropy(z[2:]))


class Norm(Line):
    """A line after a batch norm, whose statistics tell what was shown to it."""

    def __init__(self, *weights: float) -> None:
        super().__init__(*weights)
        self.norm = nn.BatchNorm1d(2, momentum=1.0)

    def forward(self, batch: Tensor) -> Outputs:
        return super().forward(self.norm(batch))


def test_p3mix_has_a_teacher_that_follows_and_is_shown_rows_that_are_not_mixed() -> None:
    made = Made(LOGITS, [0, 1, 2], p3mix=P3MixConfig(augment=False))
    rows = SimpleNamespace(gather=lambda numbers: torch.from_numpy(X).float()[numbers])
    task = P3MixTask(Norm(*W), made, Weights(0.5), rows, made.config.p3mix)  # type: ignore[arg-type]
    task.teacher.weights.data.copy_(torch.tensor([0.1, 0.2]))
    stepped(task)
    close(task.teacher.weights, np.array([0.1, 0.2]) + 0.9 * (W - np.array([0.1, 0.2])))
    close(task.teacher.norm.running_mean, X[POSITIVES + POPULATION].mean(axis=0))  # type: ignore[union-attr]
    assert not torch.allclose(task.network.norm.running_var, task.teacher.norm.running_var)  # type: ignore[union-attr, arg-type]
    assert float(task.module.state("averaged")) == 1


def test_dist_pu_keeps_known_positives_and_renews_the_other_labels() -> None:
    made = Made(LOGITS, [0, 1, 2], (1, 2), dist_pu=DistPUConfig(epochs=2, batch_size=4, entropy_weight=0.3))
    train_dist_pu(made)  # type: ignore[arg-type]
    assert [stage.name for stage in made.stages] == ["dist-pu.warmup", "dist-pu"]
    assert [stage.optimiser.rate for stage in made.stages] == [5e-4, 5e-5]
    expected = np.where(np.arange(10) < 3, 1.0, sigmoid(LOGITS))
    assert made.seen[0]["labels"] == pytest.approx(expected, abs=1e-6)
    # Predictions are asked to be decided ever more, not at all in the first epoch.
    assert [float(one["decided"]) for one in made.seen] == pytest.approx([0.3 * (1 - np.cos(np.pi / 4)), 0.3])


def test_self_pu_trusts_both_ends_in_the_proportion_of_the_prior() -> None:
    config = SelfPUConfig(epochs=200, trust_share=0.8, batch_size=4)
    made = Made(np.r_[9.0, 9.0, np.linspace(-4, 5, 10)], [0, 1], (9, 10, 49, 50, 75, 100), self_pu=config)
    train_self_pu(made)  # type: ignore[arg-type]
    counts = [((one["trusted"][0] == 1).sum(), (one["trusted"][0] == 0).sum()) for one in made.seen]
    # First 16 % of the ten unlabelled rows, in the end 80 %: 3.2 positives and 4.8 negatives.
    assert counts == [(0, 0), (1, 1), (1, 1), (3, 5), (3, 5), (3, 5)]
    assert np.flatnonzero(made.seen[3]["trusted"][0] == 1).tolist() == [9, 10, 11]  # never the labelled ones
    assert [float(one["following"]) for one in made.seen] == pytest.approx([0, 0, 0, np.exp(-5), np.exp(-1.25), 1])


def test_self_pu_can_follow_at_once() -> None:
    at_once = SelfPUConfig(teacher_ramp=0.0)
    assert [following_weight(at_once, epoch, 200) for epoch in (49, 50, 51)] == [0.0, 1.0, 1.0]


def test_puupl_labels_where_members_agree_and_takes_labels_back() -> None:
    agreed, opposed = [9.0, 8.0, 7.0, -9.0, -8.0, 9.0, 9.0], [-9.0, 9.0]
    members = [Line(), Line()]
    for number, member in enumerate(members):
        member.number = number  # type: ignore[assignment]
    said = np.array([agreed + opposed, agreed + opposed[::-1]])
    made = Made(said, [5, 6], puupl=PUUPLConfig(per_round=4))
    before = torch.zeros(9, dtype=torch.bool)
    before[[2, 7]] = True  # of the last one the members are no longer sure
    labels, kept = next_labels(made, SimpleNamespace(members=members), before)  # type: ignore[arg-type]
    # Two of each class are new, none of them labelled positive or already there.
    assert np.flatnonzero(kept).tolist() == [0, 1, 2, 3, 4]
    assert labels.numpy() == pytest.approx(sigmoid(said).mean(0), abs=1e-6)
    scarce = next_labels(made, SimpleNamespace(members=members), before | (torch.arange(9) == 3))[1]  # type: ignore[arg-type]
    assert int(scarce.sum()) == 2 + 1 + 1  # one negative is left, so one positive joins it


def test_pubn_draws_its_border_through_the_expected_negatives() -> None:
    made = Made(np.linspace(-5, 5, 100), [98, 99], pubn=PUbNConfig(certain_share=0.9, batch_size=10))
    train_pubn(made)  # type: ignore[arg-type]
    task = made.stages[1].task
    assert isinstance(task, PUbNTask)
    assert (task.scores.double() < task.border).float().mean() == pytest.approx(0.9 * (1 - PRIOR), abs=0.011)
