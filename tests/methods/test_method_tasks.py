"""Whole steps of the methods, against formulas written down a second time in numpy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from step_tools import (
    POPULATION,
    POSITIVES,
    PRIOR,
    Array,
    Line,
    V,
    W,
    Weights,
    X,
    close,
    cross_entropy,
    entropy,
    sigmoid,
    slope,
    stepped,
)
from torch import Tensor

from splitpu.config.presets import methods_fitted_to
from splitpu.config.schema import Config, DANConfig, DistPUConfig, PUbNConfig, PUUPLConfig, SelfPUConfig, VPUConfig
from splitpu.methods.common import shuffled
from splitpu.methods.dan import DANTask
from splitpu.methods.dist_pu import DistributionTask, MixingTask
from splitpu.methods.pubn import PUbNTask
from splitpu.methods.puupl import PUUPLTask
from splitpu.methods.self_pu import SelfPUTask
from splitpu.methods.vpu import VPUTask
from splitpu.networks.backbones import Outputs


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
    network, few = Level(12.0, 0.0), methods_fitted_to(Config(), 500, 40).dan
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
