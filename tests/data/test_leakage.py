"""Which rows are both trained on and tested with: told where that is more than tables have of doubles anyway."""

import numpy as np

from splitpu.data.leakage import rows_seen


def test_a_few_doubles_are_what_any_table_has() -> None:
    random = np.random.default_rng(0)
    training, given = random.normal(size=(3_000, 4)), random.normal(size=(1_337, 4))
    given[:3] = training[:3]
    assert not rows_seen(training, given).any()
    given[:40] = training[:40]
    assert rows_seen(training, given).sum() == 40
    assert rows_seen(training[:60], given[:30]).sum() == 30  # of few rows one in a hundred is none
