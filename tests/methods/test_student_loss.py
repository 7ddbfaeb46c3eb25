"""The student: what its loss is made of, and what becomes of one that learns nothing."""

import warnings

import numpy as np
import pytest
import torch
from splitpu_tools import configured, mixture, run

from splitpu.engine.stage import Batch
from splitpu.errors import SplitPUWarning
from splitpu.losses import generalised_jensen_shannon, soft_cross_entropy
from splitpu.methods import split_pu as student
from splitpu.methods.context import Teacher
from splitpu.methods.student_loss import StudentTask, feature_predictor
from splitpu.training import Runtime, TrainSpec, open_context, train


class TestStudent:
    def test_its_terms_are_the_losses_they_are_named_after(self) -> None:
        """One step by hand, without augmentation, against the loss functions on the same outputs."""
        data, _ = mixture()
        config = configured("views.noise=0", "views.dropout=0")
        context = open_context(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu"))
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

    def test_a_pooled_mean_lets_a_positive_weigh_as_much_as_an_easy_row(self) -> None:
        """As released: (sum of JS over easy rows + sum of cross-entropy over P) / (easy rows + positives)."""
        data, _ = mixture()
        config = configured("views.noise=0", "views.dropout=0", "student.label_mean=pooled", "student.hard_loss=none")
        context = open_context(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu"))
        teacher = Teacher(context.fresh_network("teacher").eval(), 0.3, torch.linspace(-3, 3, len(data)), "key")
        network = context.fresh_network("student").eval()
        task = StudentTask(network, feature_predictor(256).eval(), teacher, 0.5, config.student)
        batch = {"positives": _batch(context, [0, 2]), "easy": _batch(context, [31, 33, 35, 37, 39])}
        terms = task.step(batch, context.engine.views, torch.Generator())
        positive, easy = (network(context.engine.views.plain(batch[name].raw)).logit for name in ("positives", "easy"))
        target = torch.sigmoid(teacher.logits[batch["easy"].rows] - 0.3)
        sums = sum(generalised_jensen_shannon(z[None], q[None], 0.7) for z, q in zip(easy, target, strict=True))
        sums = sums + torch.nn.functional.softplus(-positive).sum()
        assert torch.allclose(terms["loss"], sums / 7, atol=1e-6)

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
            context = open_context(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu"))
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


def _batch(context, rows: list[int]) -> Batch:
    numbers = torch.tensor(rows)
    return Batch(numbers, context.engine.rows.gather(numbers))


class TestStudentThatLearnsNothing:
    """Positives alone, weighed heavily, pull every logit up to where the bounded easy loss has no gradient."""

    ALL_POSITIVE = ("student.positive_weight=100", "student.positives_per_batch=16", "rounds=1")

    def test_it_is_trained_again_with_smaller_steps_and_says_so(self) -> None:
        data, _ = mixture()
        config = configured("student.optimiser.rate=0.3", *self.ALL_POSITIVE)
        with pytest.warns(SplitPUWarning, match=r"round1\.student: .* again with smaller steps .* = 0\.1\)"):
            result = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
        assert {record.stage for record in result.history} >= {"round1.student", "round1.student.again1"}

    def test_when_smaller_steps_do_not_help_it_is_said(self) -> None:
        data, _ = mixture()
        config = configured("student.optimiser.rate=0.3", *self.ALL_POSITIVE)
        with pytest.warns(SplitPUWarning) as said:
            result = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
        assert "round1.student.again2" in {record.stage for record in result.history}
        sentences = [str(warning.message) for warning in said if "says the same" in str(warning.message)]
        assert len(sentences) == 3 and "after 3 attempts" in sentences[-1] and "lower student." in sentences[-1]

    def test_then_the_base_stays_teacher_and_model(self) -> None:
        data, _ = mixture()
        config = configured("student.optimiser.rate=0.1", *self.ALL_POSITIVE[:2], "rounds=2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SplitPUWarning)
            training = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu"))
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
            result = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu")).result
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
