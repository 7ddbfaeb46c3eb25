"""Networks: ours by name, the user's own, and pretrained ones."""

from splitpu.networks.backbones import Backbone, Outputs
from splitpu.networks.build import FEW_IMAGES, build_network, choose_network, network_names
from splitpu.networks.custom import LayerTap, as_backbone

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
