"""A user's own network, made to return `Outputs`."""

import difflib
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.errors import InputError
from splitpu.networks.backbones import Backbone, Outputs, network_input_shape
from splitpu.types import Shape

DRY_RUN_ROWS = 2  # not 1: a logit of shape (1,) would not tell whether it is one per sample


def as_backbone(module: nn.Module, input_shape: Shape, *, low: str | None = None, high: str | None = None) -> Backbone:
    """Return the user's network as one that gives `Outputs`, checked by one dry run in eval mode.

    Either the module returns a tuple (low, high, logit) itself, or it returns the logit alone and `low` and `high` name
    the two layers (as in `named_modules()`) whose outputs are the low and the high features. `input_shape` is that of
    one stored sample: (d,) or (H, W, C).

    >>> own = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> as_backbone(own, (4,), low="0", high="1").feature_dim
    8
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"your network is {_describe(module)}: give a torch.nn.Module, or a function that returns one")
    if isinstance(module, Backbone) and low is None and high is None:
        return module
    backbone: OwnBackbone
    if low is None and high is None:
        backbone = TupleBackbone(module)
    elif low is None or high is None:
        given, missing = ("high", "low") if low is None else ("low", "high")
        raise InputError(f"only the layer for {given}= was named for your network: name the one for {missing}= too")
    else:
        backbone = LayerTap(module, low, high)
    backbone.feature_dim = _dry_run(backbone, input_shape).high.shape[1]
    return backbone


class OwnBackbone(Backbone):
    """A module of the user's inside; when it is traced, checks and hooks are in the way, and the logit is enough."""

    logit_only = False  # see `without_features`
    module: nn.Module


def without_features(network: nn.Module) -> None:
    """Have users' networks inside give the logit alone, in place: it then stands for the features as well."""
    for part in network.modules():
        if isinstance(part, OwnBackbone):
            part.logit_only = True


class TupleBackbone(OwnBackbone):
    """A module that returns (low, high, logit) itself."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Tensor) -> Outputs:
        outputs = self.module(batch)
        if self.logit_only:
            return Outputs(*[outputs[2].flatten()] * 3)
        if not isinstance(outputs, tuple | list) or len(outputs) != 3:
            named = 'name its first block and its last hidden layer for the first two, as in layers=("0", "3")'
            returned = f"your network returns {_describe(outputs)}, not (low, high, logit)"
            raise InputError(f"{returned}: return these three, or {named}")
        return _checked_outputs(*outputs, rows=len(batch))


class LayerTap(OwnBackbone):
    """A module that returns the logit alone; low and high features are overheard from two of its layers.

    The hooks live only as long as one forward pass. So nothing has to be kept alive through copying or saving.
    One layer under two names is heard twice: what it gives first is low, what it gives last is high."""

    def __init__(self, module: nn.Module, low: str, high: str) -> None:
        super().__init__()
        names = [known for known, _ in module.named_modules(remove_duplicate=False) if known]  # one layer may have two
        for name in (low, high):
            if name not in names:
                nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
                none = "it has none inside, so return (low, high, logit) instead"
                advice = f"did you mean {nearest[0]!r}?" if nearest else none
                raise InputError(f"your network has no layer {name!r}: {advice}")
        self.module, self.low_layer, self.high_layer = module, low, high

    def forward(self, batch: Tensor) -> Outputs:
        if self.logit_only:
            return Outputs(*[self.module(batch).flatten()] * 3)
        low, high = (self.module.get_submodule(name) for name in (self.low_layer, self.high_layer))
        first_only = low is high and self.low_layer != self.high_layer
        heard: dict[str, Any] = {}

        def hear_low(layer: nn.Module, inputs: Any, output: Any) -> None:
            if not (first_only and "low" in heard):
                heard["low"] = output

        def hear_high(layer: nn.Module, inputs: Any, output: Any) -> None:
            heard["high"] = output

        with low.register_forward_hook(hear_low), high.register_forward_hook(hear_high):
            logit = self.module(batch)
        for role, name in (("low", self.low_layer), ("high", self.high_layer)):
            if role not in heard:
                raise InputError(f"layer {name!r} of your network takes no part in its forward pass: name another one")
        return _checked_outputs(heard["low"], heard["high"], logit, rows=len(batch))


def _checked_outputs(low: Any, high: Any, logit: Any, *, rows: int) -> Outputs:
    for name, value in (("low features", low), ("high features", high)):
        if not isinstance(value, Tensor) or value.ndim < 2 or len(value) != rows:
            wanted = f"for a batch of {rows}: return one tensor with a row for each sample"
            raise InputError(f"the {name} of your network are {_describe(value)} {wanted}")
    if not isinstance(logit, Tensor) or logit.shape not in {(rows,), (rows, 1)}:
        wanted = f"for a batch of {rows}: return one number per sample, of shape ({rows},) or ({rows}, 1)"
        raise InputError(f"the logit of your network is {_describe(logit)} {wanted}")
    return Outputs(low, high.flatten(1), logit.reshape(rows))


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _dry_run(backbone: Backbone, input_shape: tuple[int, ...]) -> Outputs:
    """Send two blank samples through, leaving every training flag as it was."""
    example = next(backbone.parameters(), torch.empty(0))
    shape = (DRY_RUN_ROWS, *network_input_shape(input_shape))
    batch = torch.zeros(shape, device=example.device, dtype=torch.float32)
    training_flags = {part: part.training for part in backbone.modules()}
    backbone.eval()
    try:
        with torch.no_grad():
            outputs: Outputs = backbone(batch)
    except InputError:
        raise
    except Exception as error:
        kinds = {p.dtype for p in backbone.parameters() if p.is_floating_point()} - {torch.float32}
        named = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        of_kind = f"its weights are {named}, but rows come as float32, so call .float() on it"
        advice = of_kind if kinds else "make it accept the shape of your data"
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"your network cannot process a batch of shape {shape} ({why}): {advice}") from error
    finally:
        for part, training in training_flags.items():
            part.training = training
    return outputs
