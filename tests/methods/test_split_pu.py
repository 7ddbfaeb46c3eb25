"""The split: what the temporary network learns first is easy, and what happens where it learns nothing.

Split-PU as a whole: it learns, the same seed gives the same, and every ablation is a setting.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from splitpu_tools import configured, mixture, run

from splitpu.config.schema import SplitConfig
from splitpu.errors import InputError, SplitPUWarning
from splitpu.methods import split_pu
from splitpu.methods.context import RowsAside, Student
from splitpu.methods.split import _surest, split_unlabelled
from splitpu.methods.split_pu import _kept_back
from splitpu.networks.build import build_network
from splitpu.training import Runtime, TrainSpec, open_context, train


class TestSplit:
    def test_easy_is_where_the_temporary_network_agrees(self, usual) -> None:
        split = usual.rounds[0].split
        assert split.reached
        assert split.agreement[split.epoch - 1] == pytest.approx(split.easy.mean())
        assert split.agreement[-1] > split.tau
        assert all(agreement <= split.tau for agreement in split.agreement[:-1])
        assert set(split.easy_rows) | set(split.hard_rows) == set(split.rows)
        assert not set(split.easy_rows) & set(split.hard_rows)

    def test_it_works_on_the_unlabelled_alone_and_keeps_the_teachers_probabilities(self, usual) -> None:
        data, _ = mixture()
        split = usual.rounds[0].split
        assert np.array_equal(split.rows, data.unlabelled)
        expected = usual.base.probabilities[torch.from_numpy(split.rows)].double().numpy()
        assert np.allclose(split.teacher_probability, expected)

    def test_the_second_round_asks_the_first_student(self, usual) -> None:
        first, second = usual.rounds
        rows = torch.from_numpy(second.split.rows)
        expected = first.student.probabilities[rows].double().numpy()
        assert np.allclose(second.split.teacher_probability, expected)

    def test_a_tau_out_of_reach_keeps_the_best_epoch_and_says_so(self) -> None:
        data, _ = mixture()
        config = configured("split.tau=1.0", "split.max_epochs=5", "rounds=1")
        with pytest.warns(SplitPUWarning, match=r"never rose above tau = 1 .* best epoch"):
            split = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result.rounds[0].split
        assert not split.reached
        assert split.epoch == int(np.argmax(split.agreement)) + 1
        assert split.easy.mean() == pytest.approx(max(split.agreement))

    def test_a_temporary_network_that_learns_nothing_is_trained_again_with_larger_steps(self) -> None:
        data, _ = mixture()
        config = configured("split.optimiser.rate=3e-4", "split.max_epochs=3", "rounds=1", "student.epochs=1")
        with pytest.warns(SplitPUWarning, match=r"which the same answer for all would reach.*rate = 0.0009"):
            result = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
        stages = [record.stage for record in result.history if ".split" in record.stage]
        assert stages == ["round1.split"] * 3 + ["round1.split.again1"] * 3
        split = result.rounds[0].split
        positive = (split.teacher_probability > 0.5).mean()
        first = max(record.agreement or 0 for record in result.history if record.stage == "round1.split")
        assert first <= max(positive, 1 - positive) < max(split.agreement)
        assert split.easy.mean() == pytest.approx(max(split.agreement))

    def test_where_no_step_is_large_enough_the_best_attempt_is_used(self) -> None:
        data, _ = mixture()
        config = configured("split.optimiser.rate=1e-12", "split.max_epochs=2", "rounds=1", "student.epochs=1")
        with pytest.warns(SplitPUWarning, match="never rose above tau"):
            result = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
        found: dict[str, float] = {}
        for record in result.history:
            if ".split" in record.stage:
                found[record.stage] = max(found.get(record.stage, 0.0), record.agreement or 0.0)
        assert list(found) == ["round1.split", "round1.split.again1", "round1.split.again2"]
        assert len(set(found.values())) > 1  # so that which attempt is used can be told
        assert max(result.rounds[0].split.agreement) == max(found.values())

    def test_tails_are_taught_but_stay_hard(self) -> None:
        split = run("split.tails=0.2", "rounds=1").rounds[0].split
        extra = split.taught & ~split.easy
        assert extra.any()
        assert set(split.rows[extra]) <= set(split.hard_rows)
        q = split.teacher_probability
        inner = q[~split.easy & ~extra]
        assert len(inner)
        assert ((q[extra] <= inner.min()) | (q[extra] >= inner.max())).all()

    def test_of_the_agreeing_the_surest_are_easy_label_by_label(self, usual) -> None:
        whole = usual.rounds[0].split
        split = run("split.surest_positives=0.1", "split.surest_negatives=0.5", "rounds=1").rounds[0].split
        assert split.agreement == whole.agreement  # the temporary network is the same one
        assert not (split.easy & ~whole.easy).any()
        positive = split.teacher_probability > 0.5
        for kind, share in ((positive, 0.1), (~positive, 0.5)):
            assert (split.easy & kind).sum() == round(share * (whole.easy & kind).sum())
        assert set(split.hard_rows) == set(split.rows[~split.easy])

    def test_surest_is_what_the_temporary_network_is_surest_of(self) -> None:
        agrees = np.array([True, True, True, False, True, True])
        logits = np.array([0.2, 3.0, 1.0, 9.0, -0.1, -4.0])
        half = SplitConfig(surest_positives=0.67, surest_negatives=0.5)
        assert _surest(agrees, logits, half).tolist() == [False, True, True, False, False, True]
        assert _surest(agrees, logits, SplitConfig()).tolist() == agrees.tolist()
        assert not _surest(agrees, logits, SplitConfig(surest_positives=0, surest_negatives=0)).any()

    def test_noise_is_counted_against_the_truth(self, usual) -> None:
        _, truth = mixture()
        split = usual.rounds[0].split
        wrong = (split.teacher_probability > 0.5) != truth[split.rows]
        noise = split.noise(truth)
        assert noise is not None
        assert noise["all"] == pytest.approx(wrong.mean())
        assert noise["easy"] == pytest.approx(wrong[split.easy].mean())

    def test_without_the_split_everything_is_easy(self) -> None:
        data, _ = mixture()
        context = open_context(
            data, TrainSpec(prior=0.5, config=configured("split.enabled=false")), Runtime(device="cpu")
        )
        teacher = context.as_teacher(context.fresh_network("t"), "key")
        split = split_unlabelled(context, teacher, 1)
        assert split.easy.all()
        assert split.agreement == ()


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
    context = open_context(data, TrainSpec(prior=0.5, config=configured(), seed=4), Runtime(device="cpu"))
    one, again, other = (context.fresh_network(place) for place in ("a", "a", "b"))
    first = build_network("mlp", (6,)).state_dict()
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in one.state_dict().items())
    assert not torch.equal(one.state_dict()["head.weight"], other.state_dict()["head.weight"])
    assert first.keys() == one.state_dict().keys()


class TestAnswers:
    """Labels that somebody gave unlabelled rows."""

    def test_they_are_learned_by_base_split_and_student(self) -> None:
        data, _ = mixture()
        wrong = np.zeros(len(data), dtype=bool)
        sure = np.flatnonzero(~data.labelled & data.truth)[:20]
        wrong[sure] = True  # lies, so that nothing but the answers says so
        config = configured("rounds=1")
        plain = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
        told = train(data.answered(negatives=wrong), TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
        rows = torch.from_numpy(sure)
        for before, after in ((plain.base, told.base), (plain.final, told.final)):
            assert after.probabilities[rows].mean() < before.probabilities[rows].mean() - 0.01
        split = told.rounds[0].split
        place = np.isin(split.rows, sure)
        assert (split.teacher_probability[place] < 1e-6).all() and split.easy[place].all() and split.taught[place].all()
        assert (told.base.logits[rows] > -20).all()  # the teacher itself stays what it is

    def test_confirmed_positives_are_taught_as_such(self) -> None:
        data, _ = mixture()
        chosen = np.flatnonzero(~data.labelled & ~data.truth)[:20]
        mask = np.isin(np.arange(len(data)), chosen)
        config = configured("rounds=1")
        told = train(data.answered(confirmed=mask), TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
        split = told.rounds[0].split
        assert (split.teacher_probability[np.isin(split.rows, chosen)] > 1 - 1e-6).all()

    def test_methods_that_cannot_learn_them_say_so(self) -> None:
        data, _ = mixture()
        negatives = np.isin(np.arange(len(data)), data.unlabelled[:3])
        with pytest.raises(InputError, match="'vpu' learns nothing from known negatives"):
            train(data.answered(negatives=negatives), TrainSpec(prior=0.5, config=configured("method=vpu")))


def test_a_student_that_ranks_worse_on_rows_set_aside_is_not_taken() -> None:
    labelled = np.arange(60) < 20
    aside = RowsAside(np.arange(10), np.arange(20, 50))
    context = SimpleNamespace(aside=aside, data=SimpleNamespace(labelled=labelled), rows=torch.as_tensor)
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=60))
    good, bad = (noise + distance * torch.from_numpy(labelled) for distance in (3.0, 0.0))
    rest = {"network": torch.nn.Identity(), "threshold": 0.0, "key": ""}
    better, worse = (Student(logits=logits, **rest) for logits in (good, bad))
    assert _kept_back(context, worse, better, 1).sound and _kept_back(context, better, better, 1).sound
    with pytest.warns(SplitPUWarning, match="on 40 rows that were set aside"):
        assert not _kept_back(context, better, worse, 1).sound
    context.aside = None  # then nothing can be said
    assert _kept_back(context, better, worse, 1).sound


def test_a_run_keeps_its_base_where_the_rows_set_aside_say_so(monkeypatch) -> None:
    """Through the whole method, since a rule that nothing asks keeps nobody back."""
    data, _ = mixture()
    trained = split_pu.train_student

    def spoiled(*given) -> Student:
        student = trained(*given)
        return replace(student, logits=-student.logits)

    monkeypatch.setattr(split_pu, "train_student", spoiled)
    config = configured("rounds=1", "selection.held_out=0.2")
    with pytest.warns(SplitPUWarning, match="rows that were set aside it tells labelled from unlabelled rows less"):
        result = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
    assert not result.rounds[0].student.sound and result.final is result.base
