"""Layers of the networks that a GPU computes faster when they are written for it; everywhere else torch's own run.

Each function takes the layer's module, computes what that module would, and falls back to it where it has to. Weights,
names and checkpoints know nothing of it.
"""

from splitpu.kernels.norm_relu import normalise
from splitpu.kernels.switch import allow_kernels, kernels_allowed
from splitpu.kernels.tail import last_rows
from splitpu.kernels.thin_convolution import convolve

__all__ = ["allow_kernels", "convolve", "kernels_allowed", "last_rows", "normalise"]
