"""Calling networks in another way than usual, and outputs that are put together only when somebody asks for them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

from splitpu.networks.backbone import Backbone
from splitpu.networks.ensemble import Ensemble

_Part = TypeVar("_Part", bound=nn.Module)


class LazyOutputs:
    """Looks like `Outputs`; each tensor is made when first asked for: `low` is large and few tasks need it."""

    def __init__(self, make: Callable[[str], Tensor]) -> None:
        self._make = make
        self._made: dict[str, Tensor] = {}

    @property
    def low(self) -> Tensor:
        """As in `Outputs`."""
        return self._get("low")

    @property
    def high(self) -> Tensor:
        """As in `Outputs`."""
        return self._get("high")

    @property
    def logit(self) -> Tensor:
        """As in `Outputs`."""
        return self._get("logit")

    def _get(self, name: str) -> Tensor:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]


def networks_in(module: nn.Module) -> list[Backbone]:
    """The networks in a module that are called as a whole: not the parts of one, but the members of an ensemble."""
    if isinstance(module, Backbone) and not isinstance(module, Ensemble):
        return [module]
    return [network for child in module.children() for network in networks_in(child)]


@contextmanager
def called_through(
    parts: Iterable[_Part], wrapped: Callable[[_Part, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Inside the block every part is called through what `wrapped` makes of it and its way of being called so far.

    Weights, names and whoever holds the part stay as they are, and blocks may be nested.
    """
    with ExitStack() as stack:
        for part in parts:
            stack.callback(_put_back, part, part.__dict__.get("forward"))
            # On the object, not its class: found before the class's own method, and gone with the block.
            part.__dict__["forward"] = wrapped(part, part.forward)
        yield


def _put_back(part: nn.Module, forward: Callable[..., Any] | None) -> None:
    if forward is None:
        part.__dict__.pop("forward", None)
    else:
        part.__dict__["forward"] = forward
