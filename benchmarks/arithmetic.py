"""How much arithmetic a step needs, counted from the network itself, and how fast the device does matrix products."""

import math
import time
from collections.abc import Mapping

import torch
from torch import nn

from splitpu.engine.stage import kind_of
from splitpu.networks.backbones import network_input_shape
from splitpu.networks.build import build_network


def forward_operations(network: nn.Module, inputs: torch.Tensor) -> list[int]:
    """Multiplications and additions of every convolution and matrix product in one forward pass, in their order."""
    counted: list[int] = []

    def count(layer: nn.Module, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        values = math.prod(output.shape)
        if isinstance(layer, nn.Conv2d):
            counted.append(2 * values * layer.in_channels // layer.groups * math.prod(layer.kernel_size))
        elif isinstance(layer, nn.Linear):
            counted.append(2 * values * layer.in_features)

    handles = [
        layer.register_forward_hook(count) for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    with torch.no_grad():
        network.eval()(inputs)
    for handle in handles:
        handle.remove()
    return counted


class Arithmetic:
    """Operations an image, of one network: forwards, and forwards and backwards."""

    def __init__(self, backbone: str, shape: tuple[int, ...]) -> None:
        network = build_network(backbone, shape)
        layers = forward_operations(network, torch.zeros(1, *network_input_shape(shape)))
        self.forward, self.low = sum(layers), layers[0]
        # Backwards as much for the weights and as much for the inputs of a layer; the images need no gradient.
        self.training = 3 * sum(layers) - layers[0]
        width = network.feature_dim
        self.predictor = 3 * 2 * 2 * width * 512

    def step(self, stage: str, counts: Mapping[str, int]) -> int:
        """Operations of a step of a stage that takes so many rows of each pool."""
        rows = sum(counts.values())
        if kind_of(stage) != "student":
            return rows * self.training
        agreeing = ("easy", "rest") if "rest" in counts else ("consistent",)
        views = 2 * sum(counts.get(name, 0) for name in agreeing)
        # Every consistent row is seen twice, goes through the predictor, and through the teacher's first layer.
        return (rows + views // 2) * self.training + views * (self.predictor + self.low)

    def schedule(self, stages: Mapping[str, Mapping[str, object]], rows: int) -> int:
        """Operations of all steps of all stages, and of scoring all rows after each epoch of a split and each stage."""
        total = 0
        for name, stage in stages.items():
            epochs, steps = int(stage["epochs"]), int(stage["steps"])  # type: ignore[call-overload]
            total += epochs * steps * self.step(name, stage["counts"])  # type: ignore[arg-type]
            total += (epochs if kind_of(name) == "split" else 1) * rows * self.forward
        return total


def matrix_rate(device: torch.device, side: int, times: int = 30) -> float:
    """Operations a second in bf16 products of square matrices."""
    first, second = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        first @ second
    _wait(device)
    started = time.perf_counter()
    for _ in range(times):
        first @ second
    _wait(device)
    return times * 2 * side**3 / (time.perf_counter() - started)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
