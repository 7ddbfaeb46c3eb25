"""How the weights of one stage move; every method's section holds one of these."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """How one stage's weights move."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    rate: float = 1e-3
    weight_decay: float = 0.0  # coupled L2 for adam and sgd, decoupled for adamw
    momentum: float = 0.0  # sgd only
    beta1: float = 0.9  # adam and adamw: memory of the gradient
    beta2: float = 0.999  # adam and adamw: memory of its square
    schedule: Literal["constant", "cosine", "halving"] = "cosine"
    halvings: float = 2.5  # schedule "halving": how many halvings' distance the stage lasts, 2.5 = at 40 % and 80 %
    warmup: float = 0.0  # share of the steps over which the rate rises linearly from zero
    average: float = 0.0  # decay of the weight average per step; 0 = keep the last weights
