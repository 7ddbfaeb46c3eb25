"""What several processes compute together, as they are started by torchrun: see `test_shared_step.py`."""

import copy
import itertools
import json
import os
import signal
import sys
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.cli import main
from splitpu.engine.data_parallel import SharedStep, shared_work
from splitpu.engine.distributed import World
from splitpu.engine.rows import RowStore, all_stream, read_batches
from splitpu.engine.stage import Batch
from splitpu.errors import InputError, RankLost
from splitpu.losses import nnpu_risk
from splitpu.methods.base_model import BaseTask
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.networks.build import build_network

SHAPE = (8, 8, 3)


class TwiceTask:
    """A network called twice before one way back, a head beside it, a frozen teacher, and weights no loss reaches."""

    def __init__(self, dtype: torch.dtype, device: str = "cpu") -> None:
        self.network, self.teacher = (build_network("cnn-small", SHAPE) for _ in range(2))
        self.teacher.requires_grad_(False).eval()
        width = self.network.feature_dim
        self.predictor = nn.Sequential(nn.Linear(width, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, width))
        self.reported, unused = nn.Linear(width, 1), nn.Linear(3, 2)
        parts = {"network": self.network, "predictor": self.predictor, "reported": self.reported, "unused": unused}
        self.module = nn.ModuleDict(parts).to(device, dtype)
        self.teacher.to(device, dtype)

    def step(self, batch: Mapping[str, Batch], views: Any, generator: Any) -> dict[str, Tensor]:
        rows = batch["rows"].raw
        weak, strong = self.network(rows), self.network(rows.flip(3) + 0.1)
        count = max(1, len(rows) // 3)
        risk = nnpu_risk(weak.logit[:count], weak.logit[count:], 0.4)
        with torch.no_grad():
            taught = self.teacher.low_features(rows)
        low = (strong.low - taught).square().mean()
        feature = (self.predictor(strong.high) - weak.high.detach()).square().mean()
        reported = self.reported(strong.high).mean()  # with a way back that nobody takes
        return {"loss": risk.objective + low + 0.5 * feature, "risk": risk.value, "reported": reported}


def some_rows(count: int, dtype: torch.dtype, device: str = "cpu") -> dict[str, Batch]:
    return {"rows": Batch(torch.arange(count), torch.randn(count, 3, 8, 8).to(device, dtype))}


def take_plain_step(task: Any, batch: dict[str, Batch]) -> dict[str, Tensor]:
    """As one process does."""
    terms = task.step(batch, None, None)
    terms["loss"].backward()
    return terms


def take_shared_step(step: SharedStep, batch: dict[str, Batch]) -> dict[str, Tensor]:
    """As each of several processes does."""
    terms = step.terms(batch, None, None)
    step.backward(terms["loss"])
    return terms


def difference(one: TwiceTask, other: TwiceTask) -> float:
    """The largest of any gradient, weight or buffer; infinite if one has a gradient where the other has none."""
    first, second = (_all_tensors(task.module) for task in (one, other))
    if first.keys() != second.keys():
        return float("inf")
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def _all_tensors(module: nn.Module) -> dict[str, Tensor]:
    gradients = {f"gradient of {name}": p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {name: tensor.detach().double() for name, tensor in (module.state_dict() | gradients).items()}


@torch.no_grad()
def descend(task: TwiceTask) -> None:
    """Move the weights, and forget the gradients as the optimiser does."""
    for weight in task.module.parameters():
        if weight.grad is not None:
            weight -= 0.05 * weight.grad
        weight.grad = None


def exact(world: World) -> dict[str, Any]:
    """Two stages of three steps in double precision, where nothing hides behind rounding.

    13 rows: no even shares. 2 rows: fewer than processes.
    """
    torch.manual_seed(0)
    alone = TwiceTask(torch.float64)
    together = copy.deepcopy(alone)
    apart, kept = [], 0
    for _ in range(2):  # the second stage goes on with the weights of the first
        with shared_work(together.module, world):
            step = SharedStep(together)
            for count in (13, 2, 13):
                batch = some_rows(count, torch.float64)
                terms = take_plain_step(alone, batch), take_shared_step(step, batch)
                apart += [abs(terms[0][name].item() - terms[1][name].item()) for name in terms[0]]
                apart.append(difference(alone, together))
                without = [name for name, weight in together.module.named_parameters() if weight.grad is None]
                descend(alone)
                descend(together)
            left = weakref.ref(step._exchanging)
            del step
            kept += left() is not None
    largest = float(world.gather(torch.tensor([max(apart)]), world.size).max())
    return {"apart": largest, "without": without, "kept": kept}


class Wanderer(Backbone):
    """Goes past one of its layers in every other step: the even ones, or the odd ones."""

    feature_dim = 4

    def __init__(self, straight: int) -> None:
        super().__init__()
        self.straight = straight
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.calls = itertools.count()

    def forward(self, batch: Tensor) -> Outputs:
        low = self.first(batch)
        high = self.second(low) if next(self.calls) % 2 == self.straight else low
        return Outputs(low, high, self.head(high).squeeze(1))


def wandering(world: World) -> dict[str, Any]:
    """A weight that is left out later, and one that is taken in later."""
    said = []
    for straight in (0, 1):
        network = Wanderer(straight)
        with shared_work(network, world):
            step = SharedStep(MeanLogit(network))
            try:
                for _ in range(2):
                    take_shared_step(step, {"rows": Batch(torch.arange(6), torch.ones(6, 4))})
            except InputError as error:
                said.append(str(error))
    return {"said": said}


class MeanLogit:
    """A task of no use."""

    def __init__(self, network: Backbone) -> None:
        self.module = network

    def step(self, batch: Mapping[str, Batch], views: Any, generator: Any) -> dict[str, Tensor]:
        return {"loss": self.module(batch["rows"].raw).logit.mean()}


def reading(world: World) -> dict[str, Any]:
    """Pools of 7 rows and of 2, fewer than processes, in bytes and in floats; how often each row was read in all."""
    torch.manual_seed(0)
    plan = {"unlabelled": torch.randperm(28).view(4, 7), "positive": torch.arange(8).view(4, 2)}
    read: list[int] = []

    class Noted(RowStore):
        def _fetch_into(self, picked: Tensor, rows: Tensor) -> None:
            read.extend(rows.tolist())
            super()._fetch_into(picked, rows)

    whole = True
    for kind in (np.uint8, np.float32):
        features = np.arange(28 * 12).reshape(28, 2, 2, 3).astype(kind)
        read.clear()
        store = Noted(features, torch.device("cpu"), "host")
        for step, batch in enumerate(read_batches(store, plan, world)):
            whole &= all(torch.equal(batch[name], torch.from_numpy(features[plan[name][step]])) for name in plan)
    mixed = RowStore(features, torch.device("cpu"), "device" if world.writes else "host")
    return {
        "whole": not world.any(not whole),
        "read": [int(world.add_up(torch.tensor(read.count(row)))) for row in range(28)],
        "all stream": [all_stream(store, world), all_stream(mixed, world)],
    }


def dying(words: list[str]) -> int:
    """The command line, whose second process is killed when its third step is nearly back at the first layer."""
    if os.environ["RANK"] == "1":
        usual, number = BaseTask.step, itertools.count(1)

        def step(task: BaseTask, *given: Any) -> dict[str, Tensor]:
            if next(number) == 3:
                first = next(task.module.parameters())  # whose gradient is the last, after what batch norms exchange
                first.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
            return usual(task, *given)

        BaseTask.step = step  # type: ignore[method-assign]
    else:
        backward = SharedStep.backward

        def tells_where(shared: SharedStep, loss: Tensor) -> None:
            try:
                backward(shared, loss)
            except RankLost:
                print("lost on the way back", flush=True)
                raise

        SharedStep.backward = tells_where  # type: ignore[method-assign]
    return main(words)


if __name__ == "__main__":
    case, *words = sys.argv[1:]
    if case == "dying":
        code = dying(words)
    else:
        here, code = World.join(), 0
        found = exact(here) | wandering(here) | reading(here)
        if here.writes:
            print(json.dumps(found), flush=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as `python -m splitpu` does, and for the same reason
