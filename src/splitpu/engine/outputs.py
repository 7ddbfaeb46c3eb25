"""Networks whose batch is split up, and their outputs, put together when somebody asks for them."""

from collections.abc import Callable

from torch import Tensor, nn

from splitpu.networks.backbone import Backbone
from splitpu.networks.ensemble import Ensemble


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
