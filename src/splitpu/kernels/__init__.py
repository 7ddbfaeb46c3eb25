"""Layers, views, losses and optimisers that a GPU computes faster when written for it; elsewhere torch's own run.

Each function computes what torch's operations would, and its caller falls back to them where it does not apply.
Weights, names and checkpoints know nothing of it.
"""

from splitpu.kernels.consistency import feature_term, fused_consistency_applies, low_level_term
from splitpu.kernels.logit_terms import fused_terms_apply, label_terms, pu_risk
from splitpu.kernels.move_weights import Moved, Rule, WeightMover, can_be_moved, weights_can_be_moved_on
from splitpu.kernels.norm_relu import normalise
from splitpu.kernels.switch import allow_kernels, kernels_allowed
from splitpu.kernels.tail import last_rows
from splitpu.kernels.thin_convolution import convolve, is_thin
from splitpu.kernels.trial import any_kernel_runs_on, give_up_kernels, prepare, without_waiting

__all__ = [
    "Moved",
    "Rule",
    "WeightMover",
    "allow_kernels",
    "any_kernel_runs_on",
    "can_be_moved",
    "convolve",
    "feature_term",
    "fused_consistency_applies",
    "fused_terms_apply",
    "give_up_kernels",
    "is_thin",
    "kernels_allowed",
    "label_terms",
    "last_rows",
    "low_level_term",
    "normalise",
    "prepare",
    "pu_risk",
    "weights_can_be_moved_on",
    "without_waiting",
]
