"""From a name to a network. Every network returns `Outputs(low, high, logit)` and knows its `feature_dim`.

Weights are drawn from torch's global generator when a network is built: seed it before.
"""

from collections.abc import Callable

from splitpu.ambient import float32_by_default
from splitpu.config.keys import unknown_name
from splitpu.errors import InputError
from splitpu.networks.backbone import Backbone, Outputs
from splitpu.networks.cnn import CNN13, SmallCNN
from splitpu.networks.custom import LayerTap, as_backbone
from splitpu.networks.mlp import MLP
from splitpu.networks.resnet import ResNet18
from splitpu.networks.slices import SlicesResNet18

__all__ = [
    "FEW_IMAGES",
    "Backbone",
    "LayerTap",
    "Outputs",
    "as_backbone",
    "build_network",
    "choose_network",
    "network_names",
]

FEW_IMAGES = 2_000  # fewer than that are few

_BUILDERS: dict[str, Callable[[tuple[int, ...]], Backbone]] = {
    "mlp": MLP,
    "cnn-small": SmallCNN,
    "cnn13": CNN13,
    "resnet18": ResNet18,
    "slices-resnet18": SlicesResNet18,
}
_VECTOR_NETWORKS, _VOLUME_NETWORKS = {"mlp"}, {"slices-resnet18"}


def network_names() -> tuple[str, ...]:
    """Return the names `build_network` knows besides "auto".

    >>> network_names()
    ('mlp', 'cnn-small', 'cnn13', 'resnet18', 'slices-resnet18')
    """
    return tuple(_BUILDERS)


def choose_network(input_shape: tuple[int, ...], rows: int = FEW_IMAGES) -> str:
    """Return the network that "auto" stands for: by kind of sample and, for images, by longer side and number.

    From a few hundred images a large network learns no more than a small one, and takes ten times as long without a
    GPU (docs/LOG.md).

    >>> choose_network((20,)), choose_network((8, 8, 1)), choose_network((32, 32, 3)), choose_network((224, 224, 3))
    ('mlp', 'cnn-small', 'cnn13', 'resnet18')
    >>> choose_network((32, 32, 3), rows=540)
    'cnn-small'
    """
    if len(input_shape) == 1:
        return "mlp"
    if len(input_shape) == 4:
        return "slices-resnet18"
    side = max(input_shape[:2])
    if side < 24 or (side <= 48 and rows < FEW_IMAGES):
        return "cnn-small"
    return "cnn13" if side <= 48 else "resnet18"


def build_network(name: str, input_shape: tuple[int, ...]) -> Backbone:
    """Build a network by name for samples of one shape, (d,), (H, W, C) or (S, H, W, C), by which "auto" chooses.

    >>> build_network("auto", (20,)).feature_dim
    256
    """
    if name == "auto":
        name = choose_network(input_shape)
    if name not in _BUILDERS:
        raise unknown_name("network", name, ("auto", *_BUILDERS))
    if len(input_shape) == 1 and name not in _VECTOR_NETWORKS:
        raise InputError(
            f"network {name!r} needs images, but the data are vectors of {input_shape[0]} features: use 'mlp' or 'auto'"
        )
    if (len(input_shape) == 4) != (name in _VOLUME_NETWORKS):
        needed, given = ("volumes", "no volumes") if name in _VOLUME_NETWORKS else ("single samples", "volumes")
        raise InputError(f"network {name!r} is for {needed}, but the data are {given}: use 'auto'")
    with float32_by_default():
        return _BUILDERS[name](input_shape)
