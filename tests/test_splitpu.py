"""Split-PU itself: what the split keeps, what the student sees, and that every ablation is a setting."""

import warnings

import numpy as np
import pytest
import torch

from splitpu.config import Config, apply_overrides
from splitpu.config.schema import SplitConfig
from splitpu.data import PUData
from splitpu.engine.stage import Batch
from splitpu.errors import SplitPUWarning
from splitpu.losses import generalised_jensen_shannon, soft_cross_entropy
from splitpu.methods import student
from splitpu.methods.context import Teacher
from splitpu.methods.split import _surest, split_unlabelled
from splitpu.methods.student import StudentTask, feature_predictor
from splitpu.networks import build_network
from splitpu.training import open_context, train

QUICK = ("base.epochs=6", "base.batch_size=64", "base.positives_per_batch=16", "split.max_epochs=20",
         "split.batch_size=32", "split.optimiser.rate=0.02", "split.tau=0.85", "student.epochs=4",
         "student.batch_size=64", "engine.threads=1")  # fmt: skip


def mixture(seed: int = 0, rows: int = 300) -> tuple[PUData, np.ndarray]:
    """Two overlapping clouds, half of the rows positive, a tenth of those labelled."""
    draw = np.random.default_rng(seed)
    truth = np.arange(rows) % 2 == 0
    features = draw.normal(size=(rows, 6)) + np.where(truth, 0.9, -0.9)[:, None]
    labelled = truth & (np.arange(rows) < rows // 10)
    return PUData.from_arrays(features, labelled.astype(int), truth=truth.astype(int)), truth


def configured(*overrides: str) -> Config:
    return apply_overrides(Config(), [*QUICK, *overrides])


def run(*overrides: str, seed: int = 0):
    data, _ = mixture()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SplitPUWarning)
        return train(data, prior=0.5, config=configured(*overrides), seed=seed, device="cpu").result


@pytest.fixture(scope="module")
def usual():
    return run()


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
            split = train(data, prior=0.5, config=config, device="cpu").result.rounds[0].split
        assert not split.reached
        assert split.epoch == int(np.argmax(split.agreement)) + 1
        assert split.easy.mean() == pytest.approx(max(split.agreement))

    def test_a_temporary_network_that_learns_nothing_is_trained_again_with_larger_steps(self) -> None:
        data, _ = mixture()
        config = configured("split.optimiser.rate=3e-4", "split.max_epochs=3", "rounds=1", "student.epochs=1")
        with pytest.warns(SplitPUWarning, match=r"which one answer for all would reach.*rate = 0.0009"):
            result = train(data, prior=0.5, config=config, device="cpu").result
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
            result = train(data, prior=0.5, config=config, device="cpu").result
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
        context = open_context(data, prior=0.5, config=configured("split.enabled=false"), device="cpu")
        teacher = context.as_teacher(context.fresh_network("t"), "key")
        split = split_unlabelled(context, teacher, 1)
        assert split.easy.all()
        assert split.agreement == ()


class TestStudent:
    def test_its_terms_are_the_losses_they_are_named_after(self) -> None:
        """One step by hand, without augmentation, against the loss functions on the same outputs."""
        data, _ = mixture()
        config = configured("views.noise=0", "views.dropout=0")
        context = open_context(data, prior=0.5, config=config, device="cpu")
        teacher = Teacher(context.fresh_network("teacher").eval(), 0.3, torch.linspace(-3, 3, len(data)), "key")
        network = context.fresh_network("student").eval()  # eval: rows do not influence one another
        task = StudentTask(network, feature_predictor(256).eval(), teacher, 0.5, config.student)
        batch = {name: _batch(context, rows) for name, rows in
                 {"positives": [0, 2, 4], "easy": [31, 33, 35, 37], "consistent": [50, 51]}.items()}  # fmt: skip
        terms = task.step(batch, context.engine.views, torch.Generator())
        logit = network(context.engine.views.plain(batch["easy"].raw)).logit
        target = torch.sigmoid(teacher.logits[batch["easy"].rows] - 0.3)
        assert torch.allclose(terms["easy"], generalised_jensen_shannon(logit, target, 0.7), atol=1e-6)
        positive = network(context.engine.views.plain(batch["positives"].raw)).logit
        assert torch.allclose(terms["positive"], soft_cross_entropy(positive, torch.ones(3)), atol=1e-6)
        assert terms["prediction"].item() == pytest.approx(0, abs=1e-6)  # both views are the same without augmentation
        weighted = (terms["easy"] + terms["positive"] + 0.3 * terms["low"] + 0.3 * terms["prediction"]
                    + 0.1 * terms["feature"])  # fmt: skip
        assert torch.allclose(terms["loss"], weighted, atol=1e-6)

    @pytest.mark.parametrize("views", ["weak", "strong"])
    @pytest.mark.parametrize("hard_loss", ["dual", "nnpu"])
    def test_where_all_rows_agree_a_view_of_an_easy_row_serves_twice(self, views: str, hard_loss: str) -> None:
        """The terms are those of easy rows and of all rows apart, where views of one row are alike."""
        data, _ = mixture()
        settings = (
            "views.noise=0",
            "views.dropout=0",
            f"student.label_views={views}",
            f"student.hard_loss={hard_loss}",
        )
        groups = {"positives": [0, 2, 4], "easy": [31, 33, 35, 37], "rest": [50, 51]}
        found = []
        for consistency in ("all", "hard"):
            config = configured(*settings, f"student.consistency={consistency}")
            context = open_context(data, prior=0.5, config=config, device="cpu")
            if consistency == "hard":
                groups["consistent"] = groups["easy"] + groups.pop("rest")
            teacher = Teacher(context.fresh_network("teacher").eval(), 0.3, torch.linspace(-3, 3, len(data)), "key")
            network, seen = context.fresh_network("student").eval(), []
            network.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(len(given[0])))
            torch.manual_seed(0)
            task = StudentTask(network, feature_predictor(256).eval(), teacher, 0.5, config.student)
            batch = {name: _batch(context, rows) for name, rows in groups.items()}
            terms = task.step(batch, context.engine.views, torch.Generator())
            terms["loss"].backward()
            found.append((terms, [p.grad for p in network.parameters()], seen))
        assert found[0][0].keys() == found[1][0].keys()
        assert all(torch.allclose(term, found[1][0][name], atol=1e-5) for name, term in found[0][0].items())
        assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(found[0][1], found[1][1], strict=True))
        assert [seen for *_, seen in found] == [[3 + 6 + 6], [4 + 3 + 6 + 6]]

    def test_all_rows_agree_with_and_without_a_rest(self) -> None:
        for more in ("split.tau=0.6", "split.enabled=false", "student.label_views=strong"):
            last = run("student.consistency=all", "rounds=1", more).history[-1]
            assert set(last.terms) >= {"easy", "positive", "low", "prediction", "feature"}

    def test_the_teacher_is_frozen(self, usual) -> None:
        assert not any(parameter.requires_grad for parameter in usual.base.network.parameters())
        assert not usual.base.network.training

    @pytest.mark.parametrize(
        ("override", "terms"),
        [
            ("student.hard_loss=none", {"easy", "positive"}),
            ("student.hard_loss=nnpu", {"easy", "positive", "nnpu", "nnpu_objective"}),
            ("student.hard_loss=self", {"easy", "positive", "prediction", "feature"}),
            ("student.hard_loss=cross", {"easy", "positive", "low"}),
            ("student.hard_loss=dual", {"easy", "positive", "low", "prediction", "feature"}),
            ("split.enabled=false", {"easy", "positive"}),
        ],
    )
    def test_each_hard_loss_has_its_terms_and_no_others(self, override: str, terms: set[str]) -> None:
        last = run(override, "rounds=1").history[-1]
        assert last.stage == "round1.student"
        assert set(last.terms) - {"loss", "agreement"} == terms


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


def _batch(context, rows: list[int]) -> Batch:
    numbers = torch.tensor(rows)
    return Batch(numbers, context.engine.rows.gather(numbers))


def test_networks_are_fresh_for_every_place_and_the_same_for_the_same() -> None:
    data, _ = mixture()
    context = open_context(data, prior=0.5, config=configured(), device="cpu", seed=4)
    one, again, other = (context.fresh_network(place) for place in ("a", "a", "b"))
    first = build_network("mlp", (6,)).state_dict()
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in one.state_dict().items())
    assert not torch.equal(one.state_dict()["head.weight"], other.state_dict()["head.weight"])
    assert first.keys() == one.state_dict().keys()


class TestStudentThatLearnsNothing:
    """Positives alone, weighed heavily, pull every logit up to where the bounded easy loss has no gradient."""

    ALL_POSITIVE = ("student.positive_weight=100", "student.positives_per_batch=16", "rounds=1")

    def test_it_is_trained_again_with_smaller_steps_and_says_so(self) -> None:
        data, _ = mixture()
        config = configured("student.optimiser.rate=0.3", *self.ALL_POSITIVE)
        with pytest.warns(SplitPUWarning, match=r"round1\.student: .* again with smaller steps .* = 0\.1\)"):
            result = train(data, prior=0.5, config=config, device="cpu").result
        assert {record.stage for record in result.history} >= {"round1.student", "round1.student.again1"}

    def test_when_smaller_steps_do_not_help_it_is_said(self) -> None:
        data, _ = mixture()
        config = configured("student.optimiser.rate=0.3", *self.ALL_POSITIVE)
        with pytest.warns(SplitPUWarning) as said:
            result = train(data, prior=0.5, config=config, device="cpu").result
        assert "round1.student.again2" in {record.stage for record in result.history}
        sentences = [str(warning.message) for warning in said if "says the same" in str(warning.message)]
        assert len(sentences) == 3 and "after 3 attempts" in sentences[-1] and "lower student." in sentences[-1]

    def test_then_the_base_stays_teacher_and_model(self) -> None:
        data, _ = mixture()
        config = configured("student.optimiser.rate=0.1", *self.ALL_POSITIVE[:2], "rounds=2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SplitPUWarning)
            training = train(data, prior=0.5, config=config, device="cpu")
        result, alone = training.result, run("rounds=0")
        assert [found.taken for found in result.rounds] == [False, False]
        assert result.final is result.base and training.model.final.threshold == alone.final.threshold
        expected = alone.base.network.state_dict()
        assert all(torch.equal(expected[name], w) for name, w in training.model.final.network.state_dict().items())
        of_base = alone.base.probabilities[torch.from_numpy(data.unlabelled)].double().numpy()
        for found in result.rounds:
            assert np.array_equal(found.split.teacher_probability, of_base)
            assert found.student.probabilities.numpy().std() > 0  # its figures can still be listed
        assert result.rounds[0].split.key != result.rounds[1].split.key  # the second round tries another split

    def test_an_earlier_student_stays_if_only_a_later_one_learned_nothing(self, monkeypatch, usual) -> None:
        self.forget(monkeypatch, "round2.student")
        result = run()
        assert [found.taken for found in result.rounds] == [True, False]
        assert result.final is result.rounds[0].student
        assert torch.equal(result.final.logits, usual.rounds[0].student.logits)
        assert result.final.key == usual.rounds[0].student.key  # finding students out changes no stage

    def test_a_member_that_learned_nothing_is_left_out(self, monkeypatch) -> None:
        self.forget(monkeypatch, "round1.student")
        data, _ = mixture()
        config = configured("members=2", "rounds=1")
        with pytest.warns(SplitPUWarning, match=r"round1\.student: .* this member .* made of the other members"):
            result = train(data, prior=0.5, config=config, device="cpu").result
        assert result.final is result.rounds[0].student
        monkeypatch.undo()
        both = run("members=2", "rounds=1").final.network.members
        kept = result.final.network.state_dict()
        assert all(torch.equal(kept[name], weights) for name, weights in both[1].state_dict().items())

    @staticmethod
    def forget(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
        """Have the student of a stage, and every further attempt at it, taken for one that learned nothing."""
        learned = student._learned

        def pretended(context, *more) -> bool:
            last = context.engine.history[-1].stage
            return learned(context, *more) and last != stage and not last.startswith(f"{stage}.again")

        monkeypatch.setattr(student, "_learned", pretended)

    def test_a_student_that_learns_its_labels_is_trained_once(self, usual) -> None:
        assert not any("again" in record.stage for record in usual.history)
        assert all(found.taken for found in usual.rounds)
