"""Layers, views and losses that a GPU computes faster when written for it; elsewhere torch's own operations run.

All families of kernels are imported here: they are tried out together when the first of them is asked for."""

from splitpu.kernels import batch_norm, convolution, loss_terms, view_kernels

__all__ = ["batch_norm", "convolution", "loss_terms", "view_kernels"]
