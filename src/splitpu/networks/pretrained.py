"""Weights trained elsewhere, in torchvision's format for ResNet-18 -> a start for ours. Kept without pickle."""

import hashlib
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from splitpu.data.public.download import cache_folder
from splitpu.errors import InputError
from splitpu.networks.backbones import ResNet18
from splitpu.utils.files import ends_in, replacing
from splitpu.utils.reading import most_unpacked, too_much_unpacked

HEAD, STEM = "fc.", "conv1.weight"
IMAGENET_ADVICE = (
    "save them where torchvision is installed, with torch.save(torchvision.models.resnet18(weights='DEFAULT')"
    ".state_dict(), 'resnet18.pth'), and give that file"
)


@dataclass(frozen=True)
class PretrainedWeights:
    """The tensors of a file, and its checksum, by which a resumed run knows it again."""

    path: Path
    checksum: str
    tensors: Mapping[str, Tensor]


def read_pretrained(path: Path) -> PretrainedWeights:
    """Read a .safetensors file, or a torch file of nothing but tensors; code inside a file is never run."""
    if not path.is_file():
        raise InputError(f"there is no file {path} to take weights from; for ImageNet weights {IMAGENET_ADVICE}.")
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        safe = ends_in(path, ".safetensors")
        if zipfile.is_zipfile(path):  # as torch writes them; nothing in one is compressed
            with zipfile.ZipFile(path) as archive:
                _refuse_too_large(path, sum(one.file_size for one in archive.infolist()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is refused here
            stored: Any = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except pickle.UnpicklingError as error:  # torch's own words are several lines of advice to trust the file
        wrong = "is not a file of weights, or holds more than tensors, which is not read for safety"
        advice = "save the network's state_dict() alone, with torch.save or as .safetensors"
        raise InputError(f"{path} {wrong}: {advice}.") from error
    except Exception as error:  # a damaged file may make torch's reader raise anything
        raise InputError(f"{path} cannot be read as a file of weights ({first_line(error)}): save it again.") from error
    if isinstance(stored, dict) and isinstance(stored.get("state_dict"), dict):
        stored = stored["state_dict"]
    if not isinstance(stored, dict) or not all(isinstance(tensor, Tensor) for tensor in stored.values()):
        raise InputError(f"{path} holds something other than named tensors: save the network's state_dict().")
    tensors = {str(name).removeprefix("module."): tensor for name, tensor in stored.items()}
    _refuse_too_large(path, sum(one.numel() * one.element_size() for one in tensors.values()))
    return PretrainedWeights(path, checksum, tensors)


def _refuse_too_large(path: Path, size: int) -> None:
    """Before it is allocated: weights are numbers that hardly anything makes smaller."""
    if size > most_unpacked(path.stat().st_size):
        raise InputError(f"{path} {too_much_unpacked(size)}.")


def transfer(weights: PretrainedWeights, network: ResNet18) -> tuple[list[str], str]:
    """Fill the network but for the head, its first layer fitted to the channels; gives the names, and a sentence."""
    own, other = network.state_dict(), f"{weights.path} is not a ResNet-18 in torchvision's format"
    loaded, adapted, left_out = [], [], {f"{HEAD}*": "the head is trained anew"}
    for name, place in own.items():
        if name.startswith(HEAD):
            continue
        if name not in weights.tensors:
            if name.endswith("num_batches_tracked"):
                continue
            raise InputError(f"{other}: it has no {name!r}.")
        tensor = weights.tensors[name]
        if name == STEM and tensor.shape != place.shape:
            if tensor.shape[2:] != place.shape[2:]:
                sides = "x".join(str(side) for side in place.shape[2:])
                left_out[name] = f"for images this small the first layer is {sides}"
                continue
            adapted = [f"{name} fitted from {tensor.shape[1]} to {place.shape[1]} channels"]
            tensor = fitted_to_channels(tensor, place.shape[1])
        if tensor.shape != place.shape:
            raise InputError(f"{other}: {name!r} has the shape {tuple(tensor.shape)} instead of {tuple(place.shape)}.")
        place.copy_(tensor)
        loaded.append(name)
    unknown = [name for name in weights.tensors if name not in own and not name.startswith(HEAD)]
    left_out |= dict.fromkeys(unknown, "there is no such layer")
    without = [f"{name} not loaded: {why}" for name, why in left_out.items()]
    return loaded, "; ".join([f"{len(loaded)} tensors loaded", *adapted, *without])


def pretrainable(shape: tuple[int, ...]) -> str:
    """The network that can start from weights of a ResNet-18, for samples of this shape."""
    return "slices-resnet18" if len(shape) == 4 else "resnet18"


def fitted_to_channels(kernel: Tensor, channels: int) -> Tensor:
    """Weights of the first layer for another number of channels, such that a grey picture excites them as before."""
    total = kernel.sum(dim=1, keepdim=True)
    return (total / channels).expand(-1, channels, -1, -1).contiguous()


def first_line(error: Exception) -> str:
    """An error of another package's in a few words."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


WORD = "imagenet"  # what stands for these weights where a file could be given


def imagenet_weights() -> Path:
    """The file of weights in the cache; fetched where it is not there yet, torchvision is, and there is a network."""
    path = cache_folder() / "weights" / "resnet18-imagenet.safetensors"
    if path.is_file():
        return path
    try:
        import torchvision.models as models
    except Exception as error:  # built for another torch, it fails in ways of its own
        why = "is not installed here" if isinstance(error, ImportError) else f"does not load here ({first_line(error)})"
        raise InputError(f"--weights {WORD} uses torchvision, which {why}: elsewhere {IMAGENET_ADVICE}.") from error
    try:
        tensors: dict[str, Any] = models.ResNet18_Weights.DEFAULT.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:  # no network, or what came is not what was published
        why = f"the ImageNet weights cannot be fetched ({first_line(error)})"
        raise InputError(f"{why}: where there is a network, {IMAGENET_ADVICE}.") from error
    with replacing(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
    return path
