"""What every network has in common: three outputs and a known feature size."""

import math
from typing import NamedTuple

from torch import Tensor, nn


class Outputs(NamedTuple):
    """What a network says about a batch of B samples."""

    low: Tensor  # the first block's activation, compared between teacher and student
    high: Tensor  # (B, feature_dim): the last hidden vector, compared between views
    logit: Tensor  # (B,): above zero means positive


class Backbone(nn.Module):
    """A network whose `forward` returns `Outputs` and whose `high` is `feature_dim` wide."""

    feature_dim: int
    # Whether the gradient that `forward` sends back to `low` is a tensor that no other layer is given, too. It is where
    # `low` goes into a convolution, or into several layers; not where it is only added to something.
    low_gradient_is_own = False
    # Whether its convolutions and linear layers look at their weights only when they are called: then copies in half
    # precision can stand in for them during `forward`.
    reads_weights_when_called = False

    def low_features(self, batch: Tensor) -> Tensor:
        """The `low` output alone. Networks that can stop after their first block override this."""
        low: Tensor = self(batch).low
        return low


def flat_size(input_shape: tuple[int, ...]) -> int:
    """Return how many numbers one sample holds."""
    return math.prod(input_shape)


def network_input_shape(input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one sample as a network sees it: (H, W, C) becomes (C, H, W).

    Slices of a volume have one channel more, which says whether they are there: (S, H, W, C) becomes (S, C + 1, H, W).

    >>> network_input_shape((32, 48, 3))
    (3, 32, 48)
    >>> network_input_shape((20,))
    (20,)
    """
    if len(input_shape) == 1:
        return input_shape
    height, width, channels = input_shape[-3:]
    if len(input_shape) == 4:
        return input_shape[0], channels + 1, height, width
    return channels, height, width
