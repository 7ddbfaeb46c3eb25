"""One training step in several processes that computes what one process would (docs/MECHANISMS.md).

DDP takes the mean over processes, which changes nothing of what all compute in full and lets no rounding drive them
apart. What comes back to a network's own part is multiplied by their number, so that its mean is the sum."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel import DistributedDataParallel

from splitpu.engine.distributed import World, together
from splitpu.engine.stage import Batch, Task
from splitpu.errors import InputError
from splitpu.networks.backbones import Backbone, Ensemble, Outputs
from splitpu.views import Views

_Part = TypeVar("_Part", bound=nn.Module)
_Call = Callable[..., Any]
_GRAPH_CHANGED = "training graph has changed"  # in what torch says of it


class _GlobalNormalise(torch.autograd.Function):
    """Normalise with statistics that depend on the rows of all processes; the backward pass knows that they do.

    Torch has this for GPUs (`SyncBatchNorm`), which is used there; this is for the CPU."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, count: Tensor, layer: Any
    ) -> Tensor:
        ctx.save_for_backward(rows, weight, mean, variance, count)
        ctx.layer = layer
        return functional.batch_norm(rows, mean, variance, weight, bias, training=False, eps=layer.eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        rows, weight, mean, variance, count = ctx.saved_tensors
        layer = ctx.layer
        # With constant statistics; those of weight and bias are also the sums over our own rows that others need.
        direct, for_weight, for_bias = torch.zeros_like(rows), torch.zeros_like(weight), torch.zeros_like(weight)
        if len(rows):  # fewer rows than processes: torch would divide by their number, which ends the process
            direct, for_weight, for_bias = torch.ops.aten.native_batch_norm_backward(
                gradients[0], rows, weight, mean, variance, None, None, False, layer.eps, [True, True, True]
            )
        sums = layer.world.add_up(torch.stack([for_weight, for_bias]).to(mean)) / count
        # What mean and variance pass on to every row; linear in the row, so two numbers a channel are enough.
        inverse = torch.rsqrt(variance + layer.eps)
        slope = -weight * inverse * inverse * sums[0]
        shift = -weight * inverse * sums[1] - slope * mean
        for_rows = direct + torch.addcmul(_along(shift, rows), rows, _along(slope, rows))
        return for_rows.to(rows.dtype), for_weight, for_bias, None, None, None, None


class GlobalBatchNorm(_BatchNorm):
    """A batch-norm layer whose statistics in training are those of the rows of all processes."""

    world: World

    def forward(self, input: Tensor) -> Tensor:
        """Normalise; outside training as any batch-norm layer does."""
        if not self.training:
            return super().forward(input)
        count, mean, squares = self._statistics(input)
        weight = torch.ones_like(mean) if self.weight is None else self.weight
        bias = torch.zeros_like(mean) if self.bias is None else self.bias
        given = (input, weight, bias, mean, squares / count, count, self)
        normalised: Tensor = _GlobalNormalise.apply(*given)  # type: ignore[no-untyped-call]
        return normalised

    def _check_input_dim(self, input: Tensor) -> None:
        """Any shape with the channels second; the layer this one stands in for has been asked at the dry run."""

    @torch.no_grad()
    def _statistics(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values a channel has, their mean and squared distances from it, over all processes; remembered on the way."""
        dims = [dim for dim in range(rows.dim()) if dim != 1]
        exact = torch.promote_types(rows.dtype, torch.float32)  # half precision is too coarse for sums
        values = rows.numel() // rows.shape[1]
        if values:
            variance, mean = torch.var_mean(rows.to(exact), dims, correction=0)
        else:  # fewer rows than processes
            variance = mean = torch.zeros(rows.shape[1], dtype=exact, device=rows.device)
        counts = torch.full_like(mean, values)
        parts = self.world.gather(torch.stack([counts, mean, variance])[None], self.world.size)
        counts, means, variances = parts[:, 0], parts[:, 1], parts[:, 2]
        count = counts.sum(0)
        mean = (counts * means).sum(0) / count
        # Within and between the parts: as exact as two passes, in one exchange.
        squares = (counts * (variances + (means - mean) ** 2)).sum(0)
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            momentum = 1.0 / float(self.num_batches_tracked or 1) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(squares / (count - 1), momentum)
        return count, mean, squares


@contextmanager
def global_batch_norms(module: nn.Module, world: World) -> Iterator[None]:
    """Inside the block the module's batch-norm layers count the rows of all processes."""
    # Only the class of a layer changes: weights, statistics, names and whoever holds the layer stay as they are.
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    before = [layer.__class__ for layer in layers]
    try:
        for layer in layers:
            on_gpu = layer.weight is not None and layer.weight.is_cuda
            layer.__class__ = nn.SyncBatchNorm if on_gpu else GlobalBatchNorm
            layer.__dict__.update(process_group=None, world=world)  # None: all processes
        yield
    finally:
        for layer, kind in zip(layers, before, strict=True):
            layer.__class__ = kind
            for name in ("process_group", "world"):
                layer.__dict__.pop(name, None)


def _along(channels: Tensor, rows: Tensor) -> Tensor:
    return channels.view(1, -1, *(1 for _ in range(rows.dim() - 2)))


class LazyOutputs:
    """Looks like `Outputs`; each tensor is made when first asked for: `low` is large and few tasks need it."""

    low: Tensor
    high: Tensor
    logit: Tensor

    def __init__(self, make: Callable[[str], Tensor]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Tensor:
        if name not in Outputs._fields:
            raise AttributeError(name)
        self.__dict__[name] = self._make(name)  # so that this is not asked again
        made: Tensor = self.__dict__[name]
        return made


def networks_in(module: nn.Module) -> list[Backbone]:
    """The networks in a module that are called as a whole: not the parts of one, but the members of an ensemble."""
    if isinstance(module, Backbone) and not isinstance(module, Ensemble):
        return [module]
    return [network for child in module.children() for network in networks_in(child)]


@contextmanager
def called_through(parts: Iterable[_Part], wrapped: Callable[[_Part, _Call], _Call]) -> Iterator[None]:
    """Inside the block every part is called through what `wrapped` makes of it and its way of being called so far."""
    # Weights, names and whoever holds the part stay as they are, and blocks may be nested.
    before = [(part, part.__dict__.get("forward")) for part in parts]
    try:
        for part, _ in before:
            # On the object, not its class: found before the class's own method, and gone with the block.
            part.__dict__["forward"] = wrapped(part, part.forward)
        yield
    finally:
        for part, forward in before:
            part.__dict__.pop("forward", None)
            if forward is not None:
                part.__dict__["forward"] = forward


class _Gather(torch.autograd.Function):
    """All parts in order; back comes the gradient of our own part, times the processes of which DDP takes the mean."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, count: int, world: World) -> Tensor:
        ctx.own, ctx.processes = world.share(count), world.size
        return world.gather(part, count)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        first, end = ctx.own
        return gradients[0][first:end] * ctx.processes, None, None


def _gathered(own: Tensor, count: int, world: World) -> Tensor:
    # Images are stored channels-last; gathered along their memory nothing has to be rearranged.
    turned = own.dim() == 4 and own.is_contiguous(memory_format=torch.channels_last)
    own = own.permute(0, 2, 3, 1) if turned else own
    whole: Tensor = _Gather.apply(own.contiguous(), count, world)  # type: ignore[no-untyped-call]
    return whole.permute(0, 3, 1, 2) if turned else whole


@contextmanager
def shared_work(module: nn.Module, world: World) -> Iterator[None]:
    """Inside the block every network in the module works on this process's part of what it is given, in training."""
    if world.size == 1:
        yield
        return
    with ExitStack() as stack:
        for network in networks_in(module):
            stack.enter_context(global_batch_norms(network, world))
            stack.enter_context(_sharing(network, world))
        yield


class SharedStep:
    """A task's step whose way back leaves every process with the gradients of the whole batch."""

    @together
    def __init__(self, task: Task) -> None:
        """Inside `shared_work`, by all processes at once."""
        # Static: a task computes every step alike, as capturing one takes for granted. So torch finds out in the first
        # step which weights no loss reaches, and leaves them without a gradient: a decay must not move them.
        self._exchanging = DistributedDataParallel(_StepModule(task), static_graph=True, gradient_as_bucket_view=True)

    @together
    def terms(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """What the task's own step returns; only the loss can be followed back."""
        found: dict[str, Tensor] = self._exchanging(batch, views, generator)
        return found

    @together
    def backward(self, loss: Tensor) -> None:
        """Give every weight its gradient, exchanged on the way."""
        try:
            loss.backward()  # type: ignore[no-untyped-call]
            # Before the optimiser moves anything; torch by itself would say so in the next step.
            self._exchanging._check_reducer_finalized()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if _GRAPH_CHANGED not in str(error):
                raise
            wrong = "the network does not use the same weights in every step, which several processes cannot train"
            raise InputError(f"{wrong} together: run without torchrun.") from error


class _StepModule(nn.Module):
    """A task's step as the module that DDP asks for; without buffers, of which every process computes the same."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.weights = nn.ParameterList(p for p in task.module.parameters() if p.requires_grad)
        self._step = task.step

    def forward(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        terms = self._step(batch, views, generator)
        # Only the loss with its way back, so that torch does not look for gradients of the others.
        return {name: term if name == "loss" else term.detach() for name, term in terms.items()}


@contextmanager
def _sharing(network: Backbone, world: World) -> Iterator[None]:
    counts: list[int] = []
    draws = any(isinstance(layer, _DropoutNd) for layer in network.modules())
    forks: list[Any] = []

    def take_part(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor] | None:
        if not network.training:
            return None
        counts.append(len(given[0]))
        first, end = world.share(len(given[0]))
        if draws:
            forks.append(_own_draws(given[0].device, world))
            forks[-1].__enter__()
        return (given[0][first:end],)

    def gather(_: nn.Module, __: Any, part: Outputs) -> LazyOutputs | None:
        if not network.training:
            return None
        if draws:
            forks.pop().__exit__(None, None, None)
        count = counts.pop()
        return LazyOutputs(lambda name: _gathered(getattr(part, name), count, world))

    with network.register_forward_pre_hook(take_part), network.register_forward_hook(gather):
        yield


@contextmanager
def _own_draws(device: torch.device, world: World) -> Iterator[None]:
    """Let this process draw for itself, as dropout does, and then go on from the same state as the others."""
    # Parts of unequal length would else leave the processes' generators in different places; and with the same mask for
    # every part the parts of a batch would not be independent.
    seed = int(torch.randint(2**62, ()))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed + world.rank)
        yield
