"""Small answers about seeds, scores and tensors."""

import torch

from splitpu.utils.arrays import checked_scores, checked_seed, readable_tensor, sklearn_seed


def test_readable_tensor_in_short() -> None:
    made = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    assert readable_tensor(made).numpy().tolist() == [1.0, 1.0] and readable_tensor(made).dtype == torch.float32


def test_sklearn_seed_in_short() -> None:
    assert (sklearn_seed(7), sklearn_seed(2**32 + 7)) == (7, 7)


def test_checked_seed_in_short() -> None:
    assert (checked_seed(True), checked_seed(2**40)) == (1, 1099511627776)


def test_checked_scores_in_short() -> None:
    assert checked_scores([1, -2], "positives").tolist() == [1.0, -2.0]
