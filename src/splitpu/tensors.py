"""Tensors of torch in a form that numpy can read."""

from typing import Any


def readable_tensor(given: Any) -> Any:
    """A tensor without its gradient and on the CPU, where numpy can read it; everything else as it is.

    Numpy has no bfloat16, so such numbers become float32, which holds all of them.

    >>> import torch
    >>> readable_tensor(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)).numpy()
    array([1., 1.], dtype=float32)
    """
    if not (hasattr(given, "detach") and hasattr(given, "cpu")):
        return given
    plain = given.detach().cpu()
    return plain.float() if str(plain.dtype) == "torch.bfloat16" else plain
