"""The file of weights that a run starts from: checked before the run, and again when it is resumed."""

from pathlib import Path
from typing import Any

from splitpu.errors import InputError
from splitpu.networks import build_network
from splitpu.networks.imagenet import WORD, imagenet_weights
from splitpu.networks.pretrained import PretrainedWeights, pretrainable, read_pretrained, resnet_inside, transfer


def weights_file(given: Path | None) -> Path | None:
    """The file that was given, or the one that a word stands for: found out before anything that takes long."""
    return imagenet_weights() if given is not None and str(given) == WORD and not given.exists() else given


def check_weights(path: Path, backbone: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Try the weights on a network for these data; gives what the request remembers of them."""
    name = pretrainable(shape)
    if backbone not in ("auto", name):
        raise InputError(f"--weights are for {name}, not for {backbone}; leave out one of the two options.")
    if len(shape) == 1:
        raise InputError("--weights are for images, but the data are vectors; leave the option out.")
    weights = read_pretrained(path)
    done = transfer(weights, resnet_inside(build_network(name, shape)))
    return {"path": str(path.resolve()), "checksum": weights.checksum, "in_words": done.in_words()}


def same_weights(remembered: dict[str, Any]) -> PretrainedWeights:
    """The weights of the run, refused if the file changed since."""
    weights = read_pretrained(Path(remembered["path"]))
    if weights.checksum != remembered["checksum"]:
        raise InputError(f"the weights in {weights.path} changed since the run began; restore them or start a new run.")
    return weights
