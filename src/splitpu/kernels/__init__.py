"""Layers, views and losses that a GPU computes faster when written for it; elsewhere torch's own run.

Each function computes what torch's operations would, and its caller falls back to them where it does not apply.
Weights, names and checkpoints know nothing of it.
"""

from splitpu.kernels.batch_norm import normalise
from splitpu.kernels.convolution import convolve, is_thin
from splitpu.kernels.dispatch import (
    allow_kernels,
    any_kernel_runs_on,
    give_up_kernels,
    kernels_allowed,
    last_rows,
    prepare,
    without_waiting,
)
from splitpu.kernels.loss_terms import (
    feature_term,
    fused_consistency_applies,
    fused_terms_apply,
    label_terms,
    low_level_term,
    pu_risk,
)

__all__ = [
    "allow_kernels",
    "any_kernel_runs_on",
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
    "without_waiting",
]
