"""Rows set aside: the best epoch by them, stopping early, and going on after an interruption."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from selection_tools import PRIOR, QUICK, WILD, pu_data, trained

from splitpu import InputError, train
from splitpu.config.parse import config_from_dict
from splitpu.data.pudata import PUData
from splitpu.engine.stage import EpochRecord, Observer
from splitpu.errors import Interrupted
from splitpu.evaluation.held_out import hold_out, nnpu_value, pu_criterion, set_aside, variational_value
from splitpu.methods.context import TERM
from splitpu.training import Training, TrainSpec


def figures(training: Training, stage: str = "base") -> list[float]:
    return [record.terms[TERM] for record in training.result.history if record.stage == stage]


def weights(training: Training) -> torch.Tensor:
    return torch.cat([tensor.double().flatten() for tensor in training.model.final.network.state_dict().values()])


def test_off_by_default():
    training = trained({})
    assert training.aside is None and all(TERM not in record.terms for record in training.result.history)


def test_rows_set_aside_are_in_no_pool():
    data, watching = pu_data(), PoolWatcher()
    stages = {"warmup.name": "simclr", "warmup.epochs": 1, "rounds": 1, "student.epochs": 1, "split.tau": 0.01}
    training = trained({"selection.held_out": 0.25} | stages, data, observer=watching)
    aside = set(training.aside.positives) | set(training.aside.unlabelled)
    assert len(aside) == round(0.25 * 30) + round(0.25 * 150)
    assert len(watching.pools) == 4 and all(rows and not rows & aside for rows in watching.pools.values())
    assert len(training.result.final.logits) == len(data)  # they are scored all the same
    kept_out = replace(data, aside=np.isin(np.arange(len(data)), sorted(aside)))
    assert (
        kept_out.features_fingerprint() != data.features_fingerprint()
    )  # or the checkpoint of another warm-up would do


class PoolWatcher(Observer):
    def __init__(self) -> None:
        self.pools: dict[str, set[int]] = {}

    def stage_started(self, stage: Any, done: int) -> None:
        self.pools[stage.name] = {int(row) for pool in stage.pools.values() for row in pool.rows}


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
def test_the_best_epoch_is_kept(scenario):
    training = trained(WILD, pu_data(scenario))
    aside, decision = training.aside, training.result.final.logits.double().numpy() - training.result.final.threshold
    known, others = decision[aside.positives], decision[aside.unlabelled]
    population = np.concatenate([known, others]) if scenario == "single-training-set" else others
    assert len(figures(training)) == 8
    assert pu_criterion(known, population, PRIOR) == pytest.approx(max(figures(training)))
    assert max(figures(training)) > figures(training)[-1]  # else this test would say nothing


SHORT = {"base.epochs": 4, "base.optimiser.rate": 1e-3, "base.optimiser.average": 0.99}  # the average is best


@pytest.mark.parametrize(("settings", "averaged"), [({"base.optimiser.average": 0.0}, False), (SHORT, True)])
def test_what_is_told_is_what_was_kept(settings, averaged, tmp_path: Path):
    for _ in range(2):  # the second time everything comes out of the finished stage
        training = trained(WILD | {"selection.criterion": "nnpu"} | settings, checkpoints=tmp_path)
        aside, found = training.aside, figures(training)
        decision = training.result.final.logits.double().numpy() - training.result.final.threshold
        known, others = decision[aside.positives], decision[aside.unlabelled]
        kept = aside.kept["base"]
        assert kept.figure == pytest.approx(-nnpu_value(known, np.concatenate([known, others]), PRIOR))
        assert kept.averaged == averaged == (kept.figure > max(found) + 0.01)
        assert kept.epoch == (4 if averaged else 1 + int(np.argmax(found)))


def test_epochs_are_judged_where_their_model_would_be_cut():
    """VPU knows its probabilities up to a factor, so it does not cut at 1/2."""
    vpu = {"method": "vpu", "threshold": "half", "vpu.epochs": 4, "vpu.optimiser.average": 0.0}
    training = trained(vpu | {"selection.held_out": 0.3})
    aside, final = training.aside, training.result.final
    decision = final.logits.double().numpy() - final.threshold
    known, others = decision[aside.positives], decision[aside.unlabelled]
    best = pu_criterion(known, np.concatenate([known, others]), PRIOR)
    assert final.threshold != 0 and best == pytest.approx(max(figures(training, "vpu")))


def test_patience_ends_a_stage_and_the_nnpu_value_may_decide():
    long = trained(WILD | {"selection.criterion": "nnpu", "base.epochs": 30, "selection.patience": 2})
    found = figures(long)
    assert len(found) < 30 and int(np.argmax(found)) == len(found) - 3 and max(found) <= 0


class BreaksWeights(Observer):
    """Makes weights of one epoch no numbers any more, as a step that is far too large would."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def step_done(self, stage: Any, epoch: int, step: int, steps: int) -> None:
        if epoch == self.epoch:
            with torch.no_grad():
                next(stage.task.module.parameters()).fill_(float("nan"))


@pytest.mark.parametrize("criterion", ["accuracy", "nnpu"])
def test_weights_that_are_no_numbers_are_never_the_best(criterion):
    training = trained(WILD | {"selection.criterion": criterion}, observer=BreaksWeights(5))
    assert np.isfinite(figures(training)[:5]).all() and np.isneginf(figures(training)[5:]).all()
    assert torch.isfinite(training.result.final.logits).all()


def test_an_epoch_that_another_cut_chose_is_not_taken_up(tmp_path: Path):
    def stages() -> set[str]:
        return {path.name for path in tmp_path.rglob("*") if path.is_file()}

    trained(WILD, checkpoints=tmp_path)
    before = stages()
    half = trained(WILD | {"threshold": "half"}, checkpoints=tmp_path)
    assert before and stages() > before
    assert torch.equal(weights(half), weights(trained(WILD | {"threshold": "half"})))


class StopAfter(Observer):
    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def epoch_done(self, record: EpochRecord) -> None:
        self.left -= 1

    def should_stop(self) -> bool:
        return self.left <= 0


def test_an_interrupted_choice_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    whole = trained(WILD)
    with pytest.raises(Interrupted):
        trained(WILD, checkpoints=tmp_path, observer=StopAfter(5))
    for _ in range(2):  # the second time everything comes out of the finished stage
        resumed = trained(WILD, checkpoints=tmp_path)
        assert torch.equal(weights(resumed), weights(whole)) and figures(resumed) == figures(whole)


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
def test_vpu_keeps_the_epoch_of_its_own_lowest_loss_and_needs_no_prior(scenario: str):
    settings = {"vpu.epochs": 8, "vpu.optimiser.rate": 3e-2, "selection.held_out": 0.3}
    vpu = {"method": "vpu", "selection.criterion": "variational", **settings}
    training = trained(vpu, pu_data(scenario), prior=None)
    aside, logits = training.aside, training.result.final.logits.double()
    phi = torch.sigmoid(logits)
    rows = np.concatenate([aside.positives, aside.unlabelled]) if scenario != "case-control" else aside.unlabelled
    loss = phi[rows].mean().log() - phi[aside.positives].log().mean()
    assert -loss.item() == pytest.approx(max(figures(training, "vpu")))
    assert max(figures(training, "vpu")) > figures(training, "vpu")[-1]  # else this test would say nothing
    with pytest.raises(InputError, match="choose by VPU's own loss"):
        trained(vpu | {"selection.criterion": "nnpu"}, pu_data(scenario), prior=None)


OWN_ROWS = {"vpu.held_out": 0.3, "vpu.epochs": 8, "vpu.optimiser.rate": 3e-2, "vpu.optimiser.average": 0.0}


def test_vpu_takes_rows_of_its_own_from_the_data():
    asked = {"method": "vpu", "selection.criterion": "variational", "selection.held_out": 0.3, **OWN_ROWS}
    by_itself, as_asked = trained({"method": "vpu", **OWN_ROWS}), trained(asked)
    assert by_itself.aside is None and as_asked.aside is not None
    assert figures(by_itself, "vpu") == figures(as_asked, "vpu") and len(set(figures(by_itself, "vpu"))) > 1
    assert torch.equal(weights(by_itself), weights(as_asked))
    assert all(TERM not in record.terms for record in trained({"method": "vpu", "vpu.held_out": 0.0}).result.history)


def test_only_vpu_does_without_its_own_rows_and_none_of_them_are_for_the_calibration():
    data, watching = pu_data(), PoolWatcher()
    student = {"rounds": 1, "student.epochs": 1, "split.tau": 0.01, "base.method": "vpu"}
    training = trained(OWN_ROWS | student, data, observer=watching)
    taught = set(range(len(data)))
    assert len(taught - watching.pools["vpu"]) == round(0.3 * 30) + round(0.3 * 150)
    assert taught - watching.pools["vpu"] <= watching.pools["round1.split"] and training.aside is None
    calibrated = {"selection.held_out": 0.2, "selection.criterion": "none", "selection.calibration": "platt"}
    training = trained({"method": "vpu"} | OWN_ROWS | calibrated, data, observer=watching)
    for_calibration = {*training.aside.positives, *training.aside.unlabelled}
    unseen = taught - watching.pools["vpu"]
    assert for_calibration < unseen and len(unseen) == 36 + round(0.3 * 24) + round(0.3 * 120)


def test_vpu_interrupted_chooses_as_if_nothing_had_happened(tmp_path: Path):
    vpu = {"method": "vpu", **OWN_ROWS}
    with pytest.raises(Interrupted):
        trained(vpu, checkpoints=tmp_path, observer=StopAfter(5))
    assert torch.equal(weights(trained(vpu, checkpoints=tmp_path)), weights(trained(vpu)))


def test_the_variational_value_bears_extreme_logits() -> None:
    assert variational_value([-800.0, 900.0], [-1000.0, 5.0, 1000.0]) == pytest.approx(
        np.log((0 + 1 / (1 + np.exp(-5)) + 1) / 3) + 400.0
    )


@pytest.mark.parametrize("threshold", ["half", "prior"])
def test_an_epoch_is_judged_where_its_model_is_cut(threshold: str):
    # So few steps that half of the largest probability is well below one half.
    steps = {"vpu.epochs": 1, "vpu.batch_size": 8, "vpu.optimiser.rate": 3e-4, "vpu.optimiser.average": 0.0}
    vpu = {"method": "vpu", "threshold": threshold, **steps}
    training = trained(vpu | {"selection.held_out": 0.3})
    aside, final = training.aside, training.result.final
    decision = (final.logits - final.threshold).numpy()
    population = decision[np.concatenate([aside.positives, aside.unlabelled])]
    assert figures(training, "vpu") == [pu_criterion(decision[aside.positives], population, PRIOR)]


def test_settings_that_cannot_be():
    with pytest.raises(InputError, match="needs rows that were not trained on"):
        trained({"selection.calibration": "platt"})
    with pytest.raises(InputError, match="method 'dan' does not use held-out rows"):
        trained({"method": "dan", "selection.held_out": 0.2})
    config = config_from_dict(QUICK | {"method": "vpu", "selection.held_out": 0.2})
    with pytest.raises(InputError, match="needs the prior"):
        train(pu_data(), TrainSpec(prior=None, config=config))
    with pytest.raises(InputError, match="leaves too few"):
        set_aside(PUData.from_arrays(np.zeros((20, 1)), np.arange(20) < 2), 0.4, 0)
    with pytest.raises(InputError, match=r"selection.held_out.*at most 0.5"):
        config_from_dict({"selection.held_out": 0.9})


def test_the_criterion_is_the_accuracy_where_both_samples_are_complete() -> None:
    draw = np.random.default_rng(0)
    truth = draw.random(1000) < 0.4
    decision = np.where(truth, 1.0, -1.0) + draw.normal(size=1000)
    accuracy = float(((decision > 0) == truth).mean())
    assert pu_criterion(decision[truth], decision, float(truth.mean())) == pytest.approx(accuracy)
    good, bad = (nnpu_value(sign * decision[truth], sign * decision, 0.4) for sign in (1, -1))
    assert good < bad


def test_holding_out_keeps_the_shares() -> None:
    labelled = np.arange(100) < 20
    data = PUData.from_arrays(np.arange(100.0)[:, None], labelled, truth=labelled, names=[str(i) for i in range(100)])
    left, positives, population = hold_out(data, 0.25, seed=1)
    assert len(left) == 75 and len(left.positives) == 15 and len(positives) == 5 and len(population) == 25
    assert not set(population.tolist()) & set(left.features[:, 0].astype(int).tolist())
    assert set(positives.tolist()) <= set(population.tolist()) and left.names is not None and left.truth is not None
    assert [int(name) for name in left.names] == left.features[:, 0].astype(int).tolist()
    apart = replace(data, scenario="case-control")
    _, positives, population = hold_out(apart, 0.25, seed=1)
    assert len(population) == 20 and not set(positives.tolist()) & set(population.tolist())
    with pytest.raises(InputError, match="too few"):
        hold_out(data, 0.95, seed=0)
    with pytest.raises(InputError, match="between 0 and 1"):
        hold_out(data, 1.5, seed=0)
    with pytest.raises(InputError, match="flat array"):
        pu_criterion([], [1.0], 0.5)


@pytest.mark.parametrize("kind", [np.float32, np.array])
def test_any_kind_of_number_may_be_a_prior(kind: Any, tmp_path: Path) -> None:
    training = trained({}, prior=kind(PRIOR))
    training.model.save(tmp_path)
    assert torch.equal(weights(training), weights(trained({})))
