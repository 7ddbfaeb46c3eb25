"""Split-PU as a whole: it learns, the same seed gives the same, and every ablation is a setting."""

import pytest
import torch
from splitpu_tools import configured, mixture, run

from splitpu.networks.build import build_network
from splitpu.training import open_context

ABLATIONS = (
    "base.risk=upu", "base.population=unlabelled", "base.augment=false", "base.views=strong",
    "split.enabled=false", "split.tau=0.97", "split.surest_positives=0.5",
    "split.labels=hard", "split.include_positives=false", "student.easy_loss=ce", "student.labels=hard",
    "student.hard_loss=none", "student.hard_loss=nnpu", "student.hard_loss=self", "student.hard_loss=cross",
    "student.consistency=all", "student.rho=0.3", "student.alpha=0.9", "student.beta=0.6", "student.confidence=0.95",
    "student.low_weight=1", "student.label_views=strong", "threshold=half", "rounds=1", "warmup.name=simclr",
)  # fmt: skip


@pytest.mark.parametrize("override", ABLATIONS)
def test_every_ablation_is_a_setting_that_changes_the_result(usual, override: str) -> None:
    changed = run(override)
    assert not torch.equal(changed.final.logits, usual.final.logits)
    assert torch.isfinite(changed.final.logits).all()


def test_no_rounds_leave_the_base_model() -> None:
    result = run("rounds=0")
    assert result.rounds == ()
    assert result.final is result.base


def test_same_seed_same_result_other_seed_other_result(usual) -> None:
    assert torch.equal(run().final.logits, usual.final.logits)
    assert not torch.equal(run(seed=1).final.logits, usual.final.logits)


def test_the_whole_method_beats_chance_by_far(usual) -> None:
    data, truth = mixture()
    decided = usual.final.logits.numpy() > usual.final.threshold
    assert (decided[data.unlabelled] == truth[data.unlabelled]).mean() > 0.9


def test_networks_are_fresh_for_every_place_and_the_same_for_the_same() -> None:
    data, _ = mixture()
    context = open_context(data, prior=0.5, config=configured(), device="cpu", seed=4)
    one, again, other = (context.fresh_network(place) for place in ("a", "a", "b"))
    first = build_network("mlp", (6,)).state_dict()
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in one.state_dict().items())
    assert not torch.equal(one.state_dict()["head.weight"], other.state_dict()["head.weight"])
    assert first.keys() == one.state_dict().keys()
