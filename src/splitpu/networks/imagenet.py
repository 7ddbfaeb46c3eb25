"""The ImageNet weights of ResNet-18, fetched once through torchvision and kept as tensors without pickle."""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from splitpu.data.cache import cache_folder
from splitpu.errors import InputError
from splitpu.files import replacing
from splitpu.networks.pretrained import IMAGENET_ADVICE

WORD = "imagenet"  # what stands for these weights where a file could be given


def imagenet_weights() -> Path:
    """The file of weights in the cache; fetched where it is not there yet, torchvision is, and there is a network."""
    path = cache_folder() / "weights" / "resnet18-imagenet.safetensors"
    if path.is_file():
        return path
    tensors = _fetched()
    with replacing(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
    return path


def _fetched() -> dict[str, Any]:
    try:
        # Not only ImportError: built for another torch, it fails in ways of its own.
        import torchvision.models as models
    except Exception as error:
        why = "is not installed here" if isinstance(error, ImportError) else f"does not load here ({_short(error)})"
        raise InputError(
            f"--weights {WORD} uses torchvision, which {why}: on another machine {IMAGENET_ADVICE}."
        ) from error
    try:
        tensors: dict[str, Any] = models.ResNet18_Weights.DEFAULT.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:  # no network, or what came is not what was published
        raise InputError(
            f"the ImageNet weights cannot be fetched ({_short(error)}): where there is a network, {IMAGENET_ADVICE}."
        ) from error
    return tensors


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
