"""Which samples are asked about, and what a random draw of answers says."""

from pathlib import Path

import numpy as np
import pytest

from splitpu.data.pudata import PUData
from splitpu.prior.estimate import PriorEstimate, within_answers
from splitpu.review.answers import Entry, Journal
from splitpu.review.order import Opinions, audit, in_order, share_of
from splitpu.review.server import audit_of


def opinions(probability) -> Opinions:
    said = np.asarray(probability, dtype=float)
    return Opinions(np.arange(len(said)) * 10, said)


def test_the_orders() -> None:
    found = opinions([0.9, 0.45, 0.1, 0.7])
    assert in_order(found, "likely").tolist() == [0, 30, 10, 20]
    assert in_order(found, "gain").tolist() == [10, 30, 0, 20]
    drawn = in_order(found, "random", seed=3)
    assert sorted(drawn.tolist()) == [0, 10, 20, 30] and drawn.tolist() == in_order(found, "random", seed=3).tolist()


def test_rows_that_are_alike_are_not_asked_about_one_after_the_other() -> None:
    found = opinions([0.5, 0.501, 0.499, 0.45, 0.9])
    features = np.array([[0.0, 0.0], [0.0, 0.001], [0.001, 0.0], [1.0, 1.0]])  # of the four most doubtful
    asked = in_order(found, "gain", features)
    assert asked[0] == 0 and asked[1] == 30 and sorted(asked.tolist()) == [0, 10, 20, 30, 40] and asked[-1] == 40


@pytest.mark.parametrize(("rows", "share"), [(500, 0.5), (2_000, 0.3), (20_000, 0.1)])
def test_audits_hold_the_truth_as_often_as_they_say(rows: int, share: float) -> None:
    """100 random answers, 200 simulations: accuracy and prior with intervals that hold in 90 to 98 % of them."""
    rng, held = np.random.default_rng(1), np.zeros(2)
    labelled = rows // 10
    truth = rng.random(rows) < share
    decisions = truth ^ (rng.random(rows) < 0.12)
    exact = (truth == decisions).mean(), (truth.sum() + labelled) / (rows + labelled)
    for _ in range(200):
        drawn = rng.permutation(rows)[:100]
        found = audit(truth[drawn], decisions[drawn], rows, (labelled, 0))
        assert found is not None and found["answered"] == 100
        for place, (value, low, high) in enumerate((found["accuracy"], found["prior"])):
            assert low <= value <= high
            held[place] += low <= exact[place] <= high
    assert (held >= 180).all() and (held <= 196).all()


def test_rows_answered_in_another_order_are_known_and_no_part_of_an_audit(tmp_path: Path) -> None:
    data = PUData.from_arrays(np.zeros((40, 1)), np.arange(40) < 10)
    journal = Journal(tmp_path)
    for row, word, order in [(10, "positive", "gain"), (11, "negative", "gain"), (12, "positive", "random")]:
        journal.add(Entry(row, "", word, "ann", order))
    for row in (13, 14, 15):
        journal.add(Entry(row, "", "negative", "ann", "random"))
    journal.add(Entry(16, "", "skip", "ann", "random"))
    found = audit_of(data, np.zeros(40, dtype=bool), journal.said())
    assert found is not None and (found["answered"], found["undecided"]) == (4, 1)
    assert found["accuracy"][0] == 0.75  # of the four, the positive one is missed
    assert found["prior"][0] == pytest.approx((11 + 28 / 4) / 40)  # ten labelled, one found, a quarter of 28
    assert audit_of(data, np.zeros(40, dtype=bool), {}) is None


def test_an_audit_is_believed_where_it_is_surer_or_contradicts_the_estimate() -> None:
    data = PUData.from_arrays(np.zeros((40, 1)), np.arange(40) < 10)
    estimate = PriorEstimate(0.4, (0.3, 0.5), "consensus", (), {}, ("doubtful",))

    def after(value: float, low: float, high: float) -> PriorEstimate:
        return within_answers(estimate, data, {"answered": 50, "prior": (value, low, high)})

    assert within_answers(estimate, data, None) == after(0.45, 0.3, 0.6) == estimate
    surer, other = after(0.45, 0.4, 0.55), after(0.6, 0.45, 0.8)
    assert (surer.value, surer.interval, surer.verdicts) == (0.45, (0.4, 0.55), ())
    assert other.value == 0.6 and other.source == "estimated by 50 answers in random order"


def test_what_everybody_was_asked_is_known() -> None:
    assert share_of(3, 10, 10) == pytest.approx((0.3, 0.3, 0.3))
    assert audit(np.zeros(0, dtype=bool), np.zeros(0, dtype=bool), 10) is None
