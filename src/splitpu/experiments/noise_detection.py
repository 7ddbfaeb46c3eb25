"""Two detectors of wrong labels, to show what they can and cannot find among easy samples."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.errors import InputError

COMPONENTS = 64  # principal components that the penalised regression sees of a feature
PIECE = 4000  # samples that are regressed together
_PATH_STEPS = 40
_PATH_END = 0.05  # the path ends at this share of the penalty at which the first sample enters
_SWEEPS = 25  # proximal steps at each penalty, each path point starting from the one before


def penalised_regression_suspicion(features: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """Give every sample the penalty at which SPR first takes its label for noise: the larger, the more suspect.

    A linear model explains one-hot labels by features, and each sample may deviate from it by a shift of its own that
    costs its length: `min |Y - X B - S|^2 / 2 + penalty * sum |S_i|`. From a high penalty downwards, the samples whose
    shift leaves zero first fit their label worst. Many samples are regressed in random pieces.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(features), generator=generator).to(features.device)
    pieces = order.chunk(max(1, round(len(features) / PIECE)))
    suspicion = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    reduced = _principal_components(features.double(), min(COMPONENTS, features.shape[1]))
    for rows in pieces:
        suspicion[rows] = _entry_penalties(reduced[rows], labels[rows])
    return suspicion


def _principal_components(features: Tensor, count: int) -> Tensor:
    centred = features - features.mean(0)
    directions: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
    return centred @ directions[:, -count:]


def _entry_penalties(features: Tensor, labels: Tensor) -> Tensor:
    """Follow the regularisation path of one piece by proximal gradient steps, warm-started from point to point."""
    constant = torch.ones(len(features), 1, dtype=features.dtype, device=features.device)
    # Only the space that the features span matters; an orthonormal basis of it makes every step one of length 1.
    basis, sizes, _ = torch.linalg.svd(torch.cat([features, constant], 1), full_matrices=False)
    basis = basis[:, sizes > 1e-9 * sizes[0]]
    targets = functional.one_hot(labels.long(), 2).to(features.dtype)
    unexplained = targets - basis @ (basis.T @ targets)
    highest = float(unexplained.norm(dim=1).max())
    entered = torch.zeros(len(features), dtype=features.dtype, device=features.device)
    shifts = torch.zeros_like(targets)
    for step in range(_PATH_STEPS):
        penalty = highest * _PATH_END ** (step / (_PATH_STEPS - 1))
        for _ in range(_SWEEPS):
            # A step down the gradient (I - H)(S - Y) of the squared error, H the projection on the features' span.
            moved = basis @ (basis.T @ shifts) + unexplained
            length = moved.norm(dim=1, keepdim=True).clamp_min(1e-300)
            shifts = moved * (1 - penalty / length).clamp_min(0)
        newly = (shifts.norm(dim=1) > 0) & (entered == 0)
        entered[newly] = penalty
    return entered


def first_convolution(network: nn.Module) -> nn.Conv2d:
    """The layer whose gradients are looked at."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d) and layer.groups == 1 and isinstance(layer.padding, tuple):
            return layer
    raise InputError(f"{type(network).__name__} has no plain convolution; compare an image network instead")


def first_convolution_gradients(network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy's gradient with respect to the first convolution's weights, sample by sample.

    In eval mode samples do not see one another, so that the gradient at the layer's output, taken for the whole batch
    at once, holds one gradient a sample; weights and patches of the input give the rest. Returns (B, *weight.shape).
    """
    layer = first_convolution(network)
    seen: list[Tensor] = []
    handle = layer.register_forward_hook(lambda _, arguments, output: seen.extend([arguments[0], output]))
    try:
        network.eval()
        with torch.enable_grad():
            # Where no weight asks for gradients, the input does, so that there is a graph at all.
            logit = network(inputs.detach().requires_grad_()).logit.float()
            loss = functional.binary_cross_entropy_with_logits(logit, targets.to(logit.dtype), reduction="sum")
            (at_output,) = torch.autograd.grad(loss, seen[1])
    finally:
        handle.remove()
    padding = layer.padding if isinstance(layer.padding, tuple) else (0, 0)  # as first_convolution made sure
    patches = functional.unfold(
        seen[0].detach(), layer.kernel_size, dilation=layer.dilation, padding=padding, stride=layer.stride
    )
    return torch.einsum("nol,npl->nop", at_output.flatten(2), patches).view(len(inputs), *layer.weight.shape)


def coherence(gradients: Tensor) -> Tensor:
    """Cosine between each sample's gradient and the mean gradient: a low one makes a sample suspect."""
    flat = gradients.flatten(1).double()
    return functional.cosine_similarity(flat, flat.mean(0, keepdim=True), dim=1)
