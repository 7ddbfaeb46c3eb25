"""How fresh networks are made from what the user gave, and what tells one such recipe from another."""

import copy
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.ambient import usual_torch
from splitpu.data.preprocess import Preprocessing
from splitpu.engine.seeds import seeded
from splitpu.errors import InputError
from splitpu.networks import FEW_IMAGES, as_backbone, build_network, choose_network, network_names
from splitpu.networks import Backbone as BackboneNetwork
from splitpu.networks.pretrained import PretrainedWeights, pretrainable, resnet_inside, transfer

Backbone = str | nn.Module | Callable[[], nn.Module]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the repr of an object, another one every time


@dataclass(frozen=True)
class NetworkRecipe:
    """How to make a fresh network, and the name that stands for it in files.

    Names of users' own networks say little: their `mark` tells two of one name apart.
    """

    name: str
    build: Callable[[], BackboneNetwork]
    mark: Callable[[], str] | None = None


def network_recipe(
    backbone: Backbone,
    preprocessing: Preprocessing,
    layers: tuple[str, str] | None = None,
    weights: PretrainedWeights | None = None,
    *,
    rows: int = FEW_IMAGES,
) -> NetworkRecipe:
    """How to make a fresh network from what the user gave: a name, a network of their own, or a function making one.

    A network given as an object is copied as it is for every stage, weights included, so pretrained weights are kept;
    a function is called for every stage, so each starts anew. Weights from a file are for the ResNet-18, be it a whole
    network or the part of one that looks at slices.
    """
    shape = preprocessing.shape
    if layers is not None and (weights is not None or isinstance(backbone, str)):
        raise InputError(
            f"layers={layers!r} is for a network of your own; a network of ours knows its layers: leave layers out"
        )
    if weights is not None:
        name = pretrainable(shape)
        return NetworkRecipe(name, lambda: _pretrained(weights, name, shape))
    if isinstance(backbone, str):
        name = choose_network(shape, rows) if backbone == "auto" else backbone
        with torch.device("meta"):  # fail before anything is trained, at no cost and without drawing weights
            build_network(name, shape)
        return NetworkRecipe(name, lambda: build_network(name, shape))
    low, high = _two_layers(layers)
    if isinstance(backbone, nn.Module):
        own = as_backbone(backbone, shape, low=low, high=high)
        mark = cache(lambda: _digest(own, layers, with_weights=True))
        return NetworkRecipe(f"own:{type(backbone).__name__}", lambda: copy.deepcopy(own), mark)
    if not callable(backbone):
        raise InputError(
            f"backbone={backbone!r} is not a network: give a name (auto, {', '.join(network_names())}), a "
            "torch.nn.Module or a function that makes one"
        )
    make = backbone

    def build() -> BackboneNetwork:
        with usual_torch():
            return as_backbone(make(), shape, low=low, high=high)

    def structure() -> str:
        with seeded(0, "mark"):  # what it starts from follows from the run's own seed
            return _digest(build(), layers, with_weights=False)

    label = getattr(make, "__name__", type(make).__name__)
    return NetworkRecipe(f"own:{label}", build, cache(structure))


def refuse_frozen(network: nn.Module) -> None:
    """Refuse a network that no training could change."""
    weights = list(network.parameters())
    if any(one.requires_grad for one in weights):
        return
    wrong = "has all its weights frozen" if weights else "has no weights"
    raise InputError(
        f"your network {wrong}, so there is nothing to train: give it layers whose weights require gradients "
        "(requires_grad_(True))"
    )


def _two_layers(layers: Any) -> tuple[str, str] | tuple[None, None]:
    if layers is None:
        return None, None
    named = isinstance(layers, tuple | list) and all(isinstance(name, str) for name in layers)
    if not named or len(layers) != 2:
        raise InputError(
            f"layers={layers!r} does not name two layers: give the names of the first block and of the last hidden "
            'layer, as in layers=("0", "3")'
        )
    return layers[0], layers[1]


def _digest(network: nn.Module, layers: Any, *, with_weights: bool) -> str:
    """A checksum of the layers a network is made of and, where they are its own, of the weights it starts from."""
    words = f"{layers!r} {_ADDRESS.sub('', repr(network))}"
    digest = hashlib.sha256(words.encode())
    for name, value in network.state_dict().items() if with_weights else ():
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _pretrained(weights: PretrainedWeights, name: str, shape: tuple[int, ...]) -> BackboneNetwork:
    network = build_network(name, shape)
    transfer(weights, resnet_inside(network))
    return network
