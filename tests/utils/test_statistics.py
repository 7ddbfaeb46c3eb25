"""Means and errors of few numbers."""

from splitpu.utils.statistics import mean, paired_difference, paired_gains, standard_deviation, standard_error


def test_mean_in_short() -> None:
    assert (mean([1.0, None, 3.0]), mean([])) == (2.0, None)


def test_standard_deviation_in_short() -> None:
    assert (standard_deviation([1.0, None, 3.0, 5.0]), standard_deviation([1.0])) == (2.0, None)


def test_standard_error_in_short() -> None:
    assert (standard_error([0.25, 0.75]), standard_error([0.25, 0.75], at_least=3)) == (0.25, None)


def test_paired_gains_in_short() -> None:
    assert paired_gains({0: 0.5, 1: 1.0, 2: 0.0}, {0: 0.25, 1: 0.25}) == [0.25, 0.75]


def test_paired_difference_in_short() -> None:
    assert paired_difference({"0": 0.5, "1": 1.0}, {"0": 0.25, "1": 0.25}) == {"mean": 0.5, "standard_error": 0.25}
