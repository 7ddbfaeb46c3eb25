"""Batch normalisation folded into the layer before it: outside training both are linear, so one layer does for two."""

import copy
import itertools

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from splitpu.networks.cnn import ConvolutionBlock
from splitpu.networks.resnet import BasicBlock, ResNet18

_IN_ORDER = (nn.Sequential.forward, ConvolutionBlock.forward)  # forward passes that run their layers one by one


def folded(network: nn.Module) -> nn.Module:
    """A copy in eval mode with every batch norm folded away that directly follows a convolution or a linear layer.

    Only where the order is certain: inside an `nn.Sequential`, and in our own residual network. Elsewhere a module's
    forward pass may do anything between two layers, and the batch norm stays. So it does where weights are used twice.
    """
    copied = copy.deepcopy(network).eval()
    if _uses_weights_twice(copied):
        return copied
    for module in copied.modules():
        if isinstance(module, nn.Sequential) and type(module).forward in _IN_ORDER:
            names = list(module._modules)
            for first, second in itertools.pairwise(names):
                _fold_pair(module, first, second)
        elif isinstance(module, ResNet18):
            _fold_pair(module, "conv1", "bn1")
        elif isinstance(module, BasicBlock):
            _fold_pair(module, "conv1", "bn1")
            _fold_pair(module, "conv2", "bn2")
    return copied


def _uses_weights_twice(network: nn.Module) -> bool:
    every, single = network.named_parameters(remove_duplicate=False), network.named_parameters()
    return len(list(every)) != len(list(single))


@torch.no_grad()
def _fold_pair(parent: nn.Module, first: str, second: str) -> None:
    layer, norm = getattr(parent, first), getattr(parent, second)
    if not isinstance(layer, nn.Conv2d | nn.Linear) or not isinstance(norm, _BatchNorm):
        return
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None or layer._forward_hooks or norm._forward_hooks:
        return
    if layer.weight.shape[0] != norm.num_features:  # a batch norm of rows of vectors counts another axis
        return
    # In double precision: the quotient multiplies whole weights, so its rounding would be in every output.
    scale = torch.rsqrt(variance.double() + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    bias = torch.zeros_like(mean) if layer.bias is None else layer.bias
    shift = (bias.double() - mean.double()) * scale
    if norm.bias is not None:
        shift = shift + norm.bias.double()
    weight = layer.weight.double() * scale.view(-1, *(1 for _ in layer.weight.shape[1:]))
    layer.weight = nn.Parameter(weight.to(layer.weight.dtype), requires_grad=False)
    layer.bias = nn.Parameter(shift.to(layer.weight.dtype), requires_grad=False)
    setattr(parent, second, nn.Identity())
