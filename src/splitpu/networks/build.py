"""From a name, a user's network or a file of weights to fresh networks; seed torch's generator before."""

import copy
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from splitpu.config.parse import unknown_name
from splitpu.data.preprocessing import Preprocessing
from splitpu.errors import InputError
from splitpu.networks import pretrained
from splitpu.networks.backbones import CNN13, MLP, Backbone, ResNet18, SlicesResNet18, SmallCNN
from splitpu.networks.custom import as_backbone
from splitpu.networks.encoders import KINDS, TUNED, USUAL_ENCODER, encoder, is_encoder, is_tuned, weights_installed
from splitpu.networks.fine_tuning import TunedLite, tuned_maker
from splitpu.networks.pretrained import PretrainedWeights, pretrainable, read_pretrained
from splitpu.types import Array
from splitpu.utils.torch_state import float32_by_default, seeded, usual_torch

FEW_IMAGES = 2_000  # fewer than that are few
FEW_ON_CPU = 5_000  # fewer than that are few where the network to be trained would be a large one, and no GPU is there
SMALL_SIDE = 48  # pixels, up to which networks for small images are trained
_SMALLEST_SIDE = 24  # smaller images are drawn too coarsely for large networks

_BUILDERS: dict[str, Callable[[tuple[int, ...]], Backbone]] = {
    "mlp": MLP,
    "cnn-small": SmallCNN,
    "cnn13": CNN13,
    "resnet18": ResNet18,
    "slices-resnet18": SlicesResNet18,
}
OF_ANY_SIZE = ("cnn-small", "cnn13", "resnet18")  # these take images of other sides than they were built for
_VECTOR_NETWORKS, _VOLUME_NETWORKS = {"mlp"}, {"slices-resnet18"}


def network_names() -> tuple[str, ...]:
    """Return the names `build_network` knows besides "auto"."""
    return tuple(_BUILDERS)


def choose_network(input_shape: tuple[int, ...], rows: int = FEW_IMAGES, *, on_cpu: bool = False) -> str:
    """Return the network that "auto" stands for: by kind of sample and, for images, by side, number and hardware.

    From a few hundred images a large network learns no more than a small one, and takes ten times as long without a
    GPU, where thousands of small images would take it hours (docs/LOG.md)."""
    if len(input_shape) == 1:
        return "mlp"
    if len(input_shape) == 4:
        return "slices-resnet18"
    side = max(input_shape[:2])
    if side < _SMALLEST_SIDE or (side <= SMALL_SIDE and (on_cpu or rows < FEW_IMAGES)):
        return "cnn-small"
    return "cnn13" if side <= SMALL_SIDE else "resnet18"


def build_network(name: str, input_shape: tuple[int, ...]) -> Backbone:
    """Build a network by name for samples of one shape, (d,), (H, W, C) or (S, H, W, C), by which "auto" chooses."""
    if name == "auto":
        name = choose_network(input_shape)
    if is_tuned(name):
        return TunedLite(name, input_shape)
    if name not in _BUILDERS:
        raise unknown_name("network", name, ("auto", *_BUILDERS))
    if len(input_shape) == 1 and name not in _VECTOR_NETWORKS:
        raise InputError(f"network {name!r} needs images, but the data are vectors: use 'mlp' or 'auto'")
    if (len(input_shape) == 4) != (name in _VOLUME_NETWORKS):
        needed, given = ("volumes", "no volumes") if name in _VOLUME_NETWORKS else ("single samples", "volumes")
        raise InputError(f"network {name!r} is for {needed}, but the data are {given}: use 'auto'")
    with float32_by_default():
        return _BUILDERS[name](input_shape)


NetworkChoice = str | nn.Module | Callable[[], nn.Module]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the repr of an object, another one every time


@dataclass(frozen=True)
class NetworkRecipe:
    """How to make a fresh network, and its name in files; those of users say little, so a `mark` tells them apart."""

    name: str
    build: Callable[[], Backbone]
    mark: Callable[[], str] | None = None


def network_recipe(
    backbone: NetworkChoice,
    preprocessing: Preprocessing,
    layers: tuple[str, str] | None = None,
    weights: PretrainedWeights | None = None,
    *,
    rows: int = FEW_IMAGES,
    on_cpu: bool = False,
    features: Array | None = None,
) -> NetworkRecipe:
    """How to make a fresh network from what the user gave: a name, a network of their own, or a function making one.

    A network given as an object is copied as it is for every stage, weights included, so pretrained weights are kept;
    a function is called for every stage, so each starts anew. Weights from a file are for the ResNet-18, be it a whole
    network or the part of one that looks at slices. `features`, the rows, standardise what a pretrained network says.
    """
    shape = preprocessing.shape
    if layers is not None and (weights is not None or isinstance(backbone, str)):
        raise InputError(f"layers={layers!r} is for a network of your own; ours know their layers: leave layers out")
    if weights is not None:
        name = pretrainable(shape)
        return NetworkRecipe(name, lambda: _pretrained(weights, name, shape)[0])
    if isinstance(backbone, str):
        name = choose_network(shape, rows, on_cpu=on_cpu) if backbone == "auto" else backbone
        if is_encoder(name):
            return NetworkRecipe(name, lambda: _refuse_training(name))
        with torch.device("meta"):  # fail before anything is trained, at no cost and without drawing weights
            build_network(name, shape)
        if is_tuned(name):
            mark = cache(lambda: encoder(name.removeprefix(TUNED)).fingerprint)
            return NetworkRecipe(name, tuned_maker(name, preprocessing, features), mark)
        return NetworkRecipe(name, lambda: build_network(name, shape))
    named = isinstance(layers, tuple | list) and all(isinstance(name, str) for name in layers)
    if layers is not None and (not named or len(layers) != 2):
        wanted = 'give the names of the first block and of the last hidden layer, as in layers=("0", "3")'
        raise InputError(f"layers={layers!r} does not name two layers: {wanted}")
    low, high = layers or (None, None)
    if isinstance(backbone, nn.Module):
        own = as_backbone(backbone, shape, low=low, high=high)
        mark = cache(lambda: _digest(own, layers, with_weights=True))
        return NetworkRecipe(f"own:{type(backbone).__name__}", lambda: copy.deepcopy(own), mark)
    if not callable(backbone):
        known = f"a name (auto, {', '.join(network_names())})"
        raise InputError(f"backbone={backbone!r} is not a network: give {known}, a torch.nn.Module or what makes one")
    make = backbone

    def build() -> Backbone:
        with usual_torch():
            return as_backbone(make(), shape, low=low, high=high)

    @cache
    def structure() -> str:
        with seeded(0, "mark"):  # what it starts from follows from the run's own seed
            return _digest(build(), layers, with_weights=False)

    return NetworkRecipe(f"own:{getattr(make, '__name__', type(make).__name__)}", build, structure)


def _refuse_training(name: str) -> NoReturn:
    ours = f"choose a network of ours ({', '.join(network_names())})"
    raise InputError(f"{name} is an encoder whose weights stay as they are, and this is about to train it: {ours}")


def chosen_backbone(
    backbone: NetworkChoice, features: str | None, shape: tuple[int, ...], rows: int, *, on_cpu: bool
) -> NetworkChoice:
    """The backbone that is meant where the user said whether its features are trained or frozen, or nothing.

    Few images teach a network little that pretrained weights do not know already: their embeddings are the default, if
    the weights are there. On a CPU, where a training takes long, more images count as few. Images of fewer than 24
    pixels have no detail for them."""
    if features == "trained":
        if is_encoder(backbone):
            raise InputError(f"features of {backbone} are frozen or tuned, not trained: leave out one of the two")
        return backbone
    if features == "frozen":
        if len(shape) == 1:
            raise InputError("frozen features are for images, and the data are vectors: leave out 'frozen'")
        if backbone != "auto" and not is_encoder(backbone):
            raise InputError(f"{backbone} has no pretrained weights to freeze: give {KINDS}, or leave it to 'auto'")
        return USUAL_ENCODER if backbone == "auto" else backbone
    few = len(shape) == 3 and max(shape[:2]) >= _SMALLEST_SIDE and rows < few_to_embed(on_cpu=on_cpu)
    return USUAL_ENCODER if backbone == "auto" and few and weights_installed() else backbone


def few_to_embed(*, on_cpu: bool) -> int:
    """Of how many images fewer are embedded by default."""
    return FEW_ON_CPU if on_cpu else FEW_IMAGES


def refuse_frozen(network: nn.Module) -> None:
    """Refuse a network that no training could change."""
    weights = list(network.parameters())
    if any(one.requires_grad for one in weights):
        return
    wrong = "has all its weights frozen" if weights else "has no weights"
    wanted = "give it layers whose weights require gradients (requires_grad_(True))"
    raise InputError(f"your network {wrong}, so there is nothing to train: {wanted}")


def _digest(network: nn.Module, layers: Any, *, with_weights: bool) -> str:
    """A checksum of the layers a network is made of and, where they are its own, of the weights it starts from."""
    words = f"{layers!r} {_ADDRESS.sub('', repr(network))}"
    digest = hashlib.sha256(words.encode())
    for name, value in network.state_dict().items() if with_weights else ():
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _pretrained(weights: PretrainedWeights, name: str, shape: tuple[int, ...]) -> tuple[Backbone, str]:
    """A network whose ResNet-18, itself or the part that looks at slices, has these weights; and what was done."""
    network = build_network(name, shape)
    part = next(part for part in network.modules() if isinstance(part, ResNet18))
    return network, pretrained.transfer(weights, part)[1]


def weights_file(given: Path | None) -> Path | None:
    """The file that was given, or the one that a word stands for: found out before anything that takes long."""
    is_word = given is not None and str(given) == pretrained.WORD and not given.exists()
    return pretrained.imagenet_weights() if is_word else given


def check_weights(path: Path, backbone: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Try the weights on a network for these data; gives what the request remembers of them."""
    name = pretrainable(shape)
    if backbone not in ("auto", name):
        raise InputError(f"--weights are for {name}, not for {backbone}; leave out one of the two options.")
    if len(shape) == 1:
        raise InputError("--weights are for images, but the data are vectors; leave the option out.")
    weights = read_pretrained(path)
    _, in_words = _pretrained(weights, name, shape)
    return {"path": str(path.resolve()), "checksum": weights.checksum, "in_words": in_words}


def same_weights(remembered: dict[str, Any]) -> PretrainedWeights:
    """The weights of the run, refused if the file changed since."""
    weights = read_pretrained(Path(remembered["path"]))
    if weights.checksum != remembered["checksum"]:
        raise InputError(f"the weights in {weights.path} changed since the run began; restore them or start a new run.")
    return weights
