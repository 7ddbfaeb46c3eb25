"""What the methods do between epochs, and the steps that depend on it, against formulas in numpy."""

from dataclasses import replace
from types import SimpleNamespace
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
    W,
    Weights,
    X,
    close,
    cross_entropy,
    entropy,
    sigmoid,
    stepped,
)
from torch import Tensor, nn

from splitpu.config.schema import DistPUConfig, P3MixConfig, PUbNConfig, PUUPLConfig, SelfPUConfig
from splitpu.data.pudata import PUData
from splitpu.engine.stage import EpochRecord, Stage
from splitpu.methods.context import Context
from splitpu.methods.dist_pu import train_dist_pu
from splitpu.methods.p3mix import P3MixTask, train_p3mix
from splitpu.methods.pubn import PUbNTask, train_pubn
from splitpu.methods.puupl import next_labels
from splitpu.methods.self_pu import following_weight, train_self_pu, trusted_share
from splitpu.networks.backbones import Outputs


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

    stage = Context.stage

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
    made.data = replace(made.data, aside=np.isin(np.arange(9), [0, 3]))
    kept = next_labels(made, SimpleNamespace(members=members), before)[1]  # type: ignore[arg-type]
    assert np.flatnonzero(kept).tolist() == [1, 2, 4]  # nobody trains on those set aside


def test_pubn_draws_its_border_through_the_expected_negatives() -> None:
    made = Made(np.linspace(-5, 5, 100), [98, 99], pubn=PUbNConfig(certain_share=0.9, batch_size=10))
    train_pubn(made)  # type: ignore[arg-type]
    task = made.stages[1].task
    assert isinstance(task, PUbNTask)
    assert (task.scores.double() < task.border).float().mean() == pytest.approx(0.9 * (1 - PRIOR), abs=0.011)


def test_trusted_share_in_short() -> None:
    config = SelfPUConfig()
    assert [trusted_share(config, epoch, 200) for epoch in (9, 10, 11, 50, 60)] == [None, 0.08, None, 0.4, None]
