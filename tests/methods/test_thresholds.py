"""Where logits are cut: at a prior that is known, and near one that is an estimate."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_tools import TINY, run_cli, write_npz
from splitpu_tools import configured, mixture

from splitpu.methods import thresholds
from splitpu.methods.thresholds import matched_threshold, second_opinion, threshold_near
from splitpu.report.contents import percent
from splitpu.training import Runtime, TrainSpec, train


class TestThreshold:
    def test_a_share_equal_to_the_prior_lies_above(self) -> None:
        logits = torch.randn(1000, generator=torch.Generator().manual_seed(0))
        for prior in (0.1, 0.37, 0.9):
            assert (logits > matched_threshold(logits, prior)).double().mean() == pytest.approx(prior)

    def test_extremes_keep_one_on_each_side(self) -> None:
        logits = torch.tensor([1.0, 2.0, 3.0])
        assert (logits > matched_threshold(logits, 0.001)).sum() == 1
        assert (logits > matched_threshold(logits, 0.999)).sum() == 2

    def test_one_row_is_enough(self) -> None:
        assert matched_threshold(torch.tensor([0.7]), 0.5) == pytest.approx(0.7)


class TestEqualLogits:
    """A cut through equal logits would leave it to rounding which of them lie above."""

    steps = torch.tensor([3.0] * 2 + [1.0] * 5 + [-1.0] * 3)

    @pytest.mark.parametrize(("prior", "cut"), [(0.1, 2.0), (0.2, 2.0), (0.4, 2.0), (0.5, 0.0), (0.7, 0.0), (0.9, 0.0)])
    def test_they_stay_together_on_the_nearer_side(self, prior: float, cut: float) -> None:
        shuffled = self.steps[torch.randperm(10, generator=torch.Generator().manual_seed(0))]
        assert matched_threshold(shuffled, prior) == cut

    def test_those_that_rounding_made_differ_stay_with_them(self) -> None:
        logits = self.steps.clone()
        logits[[2, 6]] += torch.tensor([1.2e-7, -6e-8])
        assert [(logits > matched_threshold(logits, prior)).sum() for prior in (0.4, 0.5)] == [2, 7]
        assert (logits[2:7] > matched_threshold(logits[2:7], 0.5)).sum() == 1  # here they are all that differs

    def test_half_way_fewer_are_above(self) -> None:
        assert matched_threshold(torch.tensor([2.0, 1.0, 1.0, 0.0]), 0.5) == 1.5

    def test_where_no_two_are_equal_the_cut_is_half_way_as_ever(self) -> None:
        logits = torch.randn(500, generator=torch.Generator().manual_seed(1))
        ordered = logits.double().sort(descending=True).values
        for above in (1, 150, 499):
            assert matched_threshold(logits, above / 500) == float((ordered[above - 1] + ordered[above]) / 2)

    def test_of_numbers_with_none_between_them_the_higher_is_above(self) -> None:
        first = 1 + 2**-52  # half way to the next one is rounded to the next one
        neighbours = torch.tensor([first, math.nextafter(first, 2)], dtype=torch.float64)
        assert (neighbours > matched_threshold(neighbours, 0.5)).tolist() == [False, True]

    def test_near_an_estimate_they_stay_together_as_well(self) -> None:
        cut = threshold_near(self.steps.repeat(40), 0.45, (0.35, 0.55))
        assert cut in (2.0, 0.0)

    def test_all_equal_none_is_above(self) -> None:
        assert matched_threshold(torch.full((9,), 0.7, dtype=torch.float64), 0.4) == 0.7

    def test_scores_report_and_predict_agree(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Rows of few values are many times the same, so wherever it is cut, equal ones are nearby."""
        draw = np.random.default_rng(0)
        truth = draw.uniform(size=303) < 0.4
        features = np.stack([draw.integers(0, 3, 303) + truth, draw.uniform(size=303) < 0.3 + 0.5 * truth], axis=1)
        arrays = {"X": features.astype(float), "s": (truth & (np.arange(303) < 90)).astype(int), "truth": truth}
        data = write_npz(tmp_path / "pu.npz", **arrays, X_test=None, y_test=None, names=None)
        for prior in (0.35, 0.4, 0.45):
            folder = tmp_path / str(prior)
            words = ["--prior", prior, "--rounds", 1, "--json", "--quiet", "--out", folder, *TINY]
            code, out, _ = run_cli(capsys, "fit", data, *words)
            with (folder / "scores.csv").open() as file:
                scored = [row["decision"] == "1" for row in csv.DictReader(file)]
            predicted = json.loads(run_cli(capsys, "predict", folder, data, "--json")[1])["scores"]
            assert code == 0 and 0 < sum(scored) < 303
            assert scored == [row["decision"] == 1 for row in predicted]
            share = json.loads(out)["models"][-1]["positive_rate_unlabelled"]
            assert f"calls <strong>{percent(share)}</strong> of the unlabelled" in (folder / "report.html").read_text()


class TestThresholdOfAnEstimatedPrior:
    apart = torch.cat([torch.linspace(3, 6, 400), torch.linspace(-6, -3, 600)])

    @pytest.mark.parametrize("prior", [0.37, 0.385, 0.4, 0.42, 0.43])
    def test_a_gap_within_reach_is_where_it_is_cut(self, prior: float) -> None:
        cut = threshold_near(self.apart, prior, (prior - 0.04, prior + 0.04))
        assert -3 < cut < 3

    def test_a_gap_out_of_reach_is_left_alone(self) -> None:
        cut = threshold_near(self.apart, 0.5, (0.46, 0.54))
        assert (self.apart > cut).double().mean() == pytest.approx(0.5, abs=0.04)

    def test_among_even_logits_it_is_the_matched_one(self) -> None:
        even = torch.linspace(-3, 3, 2000)
        assert threshold_near(even, 0.3, (0.2, 0.4)) == pytest.approx(matched_threshold(even, 0.3), abs=0.02)

    @pytest.mark.parametrize("count", [1, 2, 5, 7, 8, 30])
    def test_few_rows_and_narrow_intervals_fall_back_to_the_matched_one(self, count: int) -> None:
        logits = torch.linspace(-2, 2, count)
        assert threshold_near(logits, 0.4, (0.4, 0.4)) == matched_threshold(logits, 0.4)
        assert np.isfinite(threshold_near(logits, 0.4, (0.1, 0.9)))

    def test_equal_logits_are_no_problem(self) -> None:
        assert threshold_near(torch.zeros(100), 0.4, (0.2, 0.6)) == 0.0

    def test_a_training_takes_it_and_keeps_its_checkpoints_apart(self, tmp_path: Path) -> None:
        data, _ = mixture()
        quick = configured("method=nnpu", "base.epochs=3")
        found = [
            train(
                data,
                TrainSpec(prior=0.45, prior_interval=interval, config=quick, seed=0),
                Runtime(checkpoints=tmp_path),
            ).model.final
            for interval in (None, (0.35, 0.55))
        ]
        assert found[0].threshold != found[1].threshold
        assert len(list(tmp_path.glob("base*"))) == 2


class TestRuleOfAnEstimatedPrior:
    def test_a_change_of_the_rule_is_a_change_of_its_version(self) -> None:
        """Where one of these numbers changes, thresholds.RULE has to be raised: see there. Then write all down anew."""
        logits = torch.linspace(-3, 3, 500, dtype=torch.float64) ** 3
        found = [round(threshold_near(logits, share, (share - 0.05, share + 0.05)), 4) for share in (0.3, 0.7)]
        opinions = [round(second_opinion(0.4, (0.3, 0.5), share), 4) for share in (0.2, 0.44, 0.9)]
        found.append(threshold_near(TestEqualLogits.steps.repeat(50), 0.45, (0.35, 0.55)))
        assert (thresholds.RULE, found, opinions) == (2, [1.8997, -1.8997, 2.0], [0.35, 0.42, 0.45])

    def test_a_run_that_is_continued_under_another_rule_trains_anew(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A split keeps which rows agreed with the teacher's decisions, hence with its threshold."""
        data, _ = mixture()
        quick = configured("base.epochs=2", "student.epochs=1", "split.max_epochs=1", "rounds=1")
        kept: dict[str, list[set[str]]] = {"given": [], "estimated": []}
        for rule in (1, 1, 2):
            monkeypatch.setattr(thresholds, "RULE", rule)
            for kind, interval in (("given", None), ("estimated", (0.35, 0.55))):
                place = tmp_path / kind
                train(
                    data,
                    TrainSpec(prior=0.45, prior_interval=interval, config=quick, seed=0),
                    Runtime(checkpoints=place),
                )
                kept[kind].append({path.name for path in place.iterdir()})
        assert kept["given"][0] == kept["given"][1] == kept["given"][2] and len(kept["given"][0]) == 3
        first, again, other = kept["estimated"]
        assert first == again and len(other) == 2 * len(first) == 6


class TestSecondOpinion:
    @pytest.mark.parametrize(("own", "expected"), [(0.40, 0.41), (0.42, 0.42), (0.45, 0.435), (0.0, 0.40), (1.0, 0.44)])
    def test_it_goes_half_way_and_stays_inside(self, own: float, expected: float) -> None:
        assert second_opinion(0.42, (0.38, 0.46), own) == pytest.approx(expected)

    def test_base_and_student_are_both_cut_near_it(self) -> None:
        """The estimate and what the base calls positive meet half way, for every model of the run."""
        data, _ = mixture()
        quick = configured("base.epochs=3", "student.epochs=2", "split.max_epochs=2", "rounds=1")
        interval = (0.6, 0.8)
        result = train(data, TrainSpec(prior=0.7, prior_interval=interval, config=quick, seed=0)).result
        population = torch.as_tensor(data.population)
        own = float((result.base.logits[population] > 0).double().mean())
        share = second_opinion(0.7, interval, own)
        assert abs(share - 0.7) > 0.01
        for model in (result.base, result.rounds[0].student):
            logits = model.logits[population]
            assert model.threshold == threshold_near(logits, share, interval)

    def test_a_prior_that_is_given_is_matched_whatever_the_base_says(self) -> None:
        data, _ = mixture()
        result = train(data, TrainSpec(prior=0.7, config=configured("method=nnpu", "base.epochs=3"), seed=0)).result
        logits = result.base.logits[torch.as_tensor(data.population)]
        assert result.base.threshold == matched_threshold(logits, 0.7)


def test_threshold_near_in_short() -> None:
    logits = torch.cat([torch.linspace(4, 6, 40), torch.linspace(-6, -4, 60)])
    assert matched_threshold(logits, 0.43) < -4 < threshold_near(logits, 0.43, (0.37, 0.49)) < 4
