"""Whether a network may use the kernels: a mark on its layers, so that runs in one process do not disturb another."""

from torch import nn

_MARK = "may_use_kernels"
_KINDS = (nn.BatchNorm2d, nn.Conv2d)


def allow_kernels(module: nn.Module, allowed: bool) -> None:
    """Mark every layer that there is a kernel for, and the module itself, for what is done with its outputs.

    What has no mark is computed by torch.

    >>> layer = nn.BatchNorm2d(3)
    >>> allow_kernels(layer, True)
    >>> kernels_allowed(layer)
    True
    """
    for layer in module.modules():
        if layer is module or isinstance(layer, _KINDS):
            layer.__dict__[_MARK] = allowed


def kernels_allowed(layer: nn.Module) -> bool:
    """Whether this layer, or a module as a whole, has been marked."""
    return bool(layer.__dict__.get(_MARK, False))
