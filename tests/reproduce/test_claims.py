"""Claims of the paper: what judges them, Holm's adjustment, and that no verdict is surer than its runs."""

from pathlib import Path

import pytest
from scipy.stats import ttest_1samp

from splitpu.reproduce.claims import MEASURES, Claim, claims, claims_blocks, differences, holm, judged, p_value
from splitpu.reproduce.declared import experiments
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.summary import Grid

RESULTS = Path(__file__).parents[2] / "results"


def claim(expect: str) -> Claim:
    return Claim(says="it is so", table="rounds", row="2", against="1", expect=expect)  # type: ignore[arg-type]


@pytest.mark.parametrize("one", claims(), ids=lambda one: one.says)
def test_every_claim_names_rows_or_a_measure_that_exist(one: Claim) -> None:
    labels = {row.label for row in experiments()[one.table].rows}
    assert one.measure in MEASURES if one.measure else {one.row, one.against} <= labels


def test_holm_is_the_textbook_example() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, never falling.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_the_p_value_is_that_of_a_paired_t_test_and_two_runs_have_none() -> None:
    assert p_value([0.3, 0.5, 0.1]) == pytest.approx(float(ttest_1samp([0.3, 0.5, 0.1], 0).pvalue))
    assert p_value([0.3, 0.5]) is None


@pytest.mark.parametrize(
    ("expect", "gains", "p", "verdict"),
    [
        ("more", [1.0, 1.1, 0.9], 0.01, "holds"),
        ("more", [1.0, 1.1, 0.9], 0.2, "same sign"),
        ("more", [-1.0, -1.1, -0.9], 0.2, "not seen"),
        ("more", [-1.0, -1.1, -0.9], 0.01, "contradicted"),
        ("less", [-1.0, -1.1, -0.9], 0.01, "holds"),
        ("none", [0.1, 0.12, 0.11], 0.01, "holds"),
        ("none", [0.1, -0.9, 0.7], 0.9, "same sign"),
        ("none", [2.0, 2.1, 1.9], 0.2, "not seen"),
        ("none", [2.0, 2.1, 1.9], 0.01, "contradicted"),
        ("more", [], None, "not run"),
    ],
)
def test_verdicts(expect: str, gains: list[float], p: float | None, verdict: str) -> None:
    assert judged(claim(expect), gains, p) == verdict


def test_differences_are_paired_by_seed_and_size_and_the_page_shows_each_claim_that_was_run() -> None:
    store = ResultStore(RESULTS)
    gains = differences(claims()[0], "default", store)
    assert len(gains) == 15  # three sizes of five seeds
    table = next(block for block in claims_blocks(store) if isinstance(block, Grid))
    assert {"holds", "contradicted"} <= {row[-1] for row in table.rows}
    assert all(row[-1] != "not run" for row in table.rows)


def test_differences_in_short() -> None:
    assert differences(claims()[0], "default", ResultStore(Path("nowhere"))) == []


def test_holm_in_short() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == [0.03, None, 0.06, 0.06]


def test_judged_in_short() -> None:
    assert (
        judged(claims()[0], [1.1, 1.2, 1.3], 0.001),
        judged(claims()[0], [-0.2], None),
        judged(claims()[0], [0.3], None),
    ) == ("holds", "not seen", "same sign")
