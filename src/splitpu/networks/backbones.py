"""The networks: each gives three outputs and knows the size of its features. Several can speak as one, and outside
training batch norms can be folded into the layers before them."""

import copy
import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_weights

from splitpu.kernels.batch_norm import normalise
from splitpu.kernels.convolution import convolve


class Outputs(NamedTuple):
    """What a network says about a batch of B samples."""

    low: Tensor  # the first block's activation, compared between teacher and student
    high: Tensor  # (B, feature_dim): the last hidden vector, compared between views
    logit: Tensor  # (B,): above zero means positive


class Backbone(nn.Module):
    """A network whose `forward` returns `Outputs` and whose `high` is `feature_dim` wide."""

    feature_dim: int
    # Whether the gradient that `forward` sends back to `low` is a tensor that no other layer is given, too. It is where
    # `low` goes into a convolution, or into several layers; not where it is only added to something.
    low_gradient_is_own = False

    def low_features(self, batch: Tensor) -> Tensor:
        """The `low` output alone. Networks that can stop after their first block override this."""
        low: Tensor = self(batch).low
        return low


def network_input_shape(input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one sample as a network sees it, with one channel more that says which slices are there."""
    if len(input_shape) == 1:
        return input_shape
    height, width, channels = input_shape[-3:]
    if len(input_shape) == 4:
        return input_shape[0], channels + 1, height, width
    return channels, height, width


class PlainNetwork(Backbone):
    """Layers one after the other: the first block, which is low, the rest, and hidden layers on what is flattened."""

    low_gradient_is_own = True

    first: nn.Module
    rest: nn.Module
    hidden: nn.Module
    head: nn.Module
    map_sides: tuple[int, int] | None = None  # of what is flattened, where it is made of maps

    def low_features(self, batch: Tensor) -> Tensor:
        low: Tensor = self.first(batch)
        return low

    def forward(self, batch: Tensor) -> Outputs:
        low = self.low_features(batch)
        maps = self.rest(low)
        if self.map_sides is not None and maps.shape[2:] != self.map_sides:  # of images at half their size
            maps = functional.interpolate(maps, self.map_sides)
        high = self.hidden(maps.flatten(1))
        return Outputs(low, high, self.head(high).squeeze(1))


class SmallCNN(PlainNetwork):
    """Three convolutions and a hidden layer. Flattened rather than pooled: in a tiny image, where matters."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        height, width, channels = input_shape
        self.feature_dim = 128
        self.first = ConvolutionBlock(channels, 32)
        self.rest = nn.Sequential(ConvolutionBlock(32, 64, stride=2), ConvolutionBlock(64, 64))
        self.map_sides = _halved(height), _halved(width)
        self.hidden = _hidden_layer(64 * math.prod(self.map_sides), self.feature_dim)
        self.head = nn.Linear(self.feature_dim, 1)


class CNN13(PlainNetwork):
    """The paper's network: nine convolutions, two hidden layers of 1000; low = the first convolution's block."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        height, width, channels = input_shape
        self.feature_dim = 1000
        self.first = ConvolutionBlock(channels, 96)
        sizes = ((96, 3, 1), (96, 3, 2), (192, 3, 1), (192, 3, 1), (192, 3, 2), (192, 3, 1), (192, 1, 1), (10, 1, 1))
        blocks, inputs = [], 96
        for outputs, kernel, stride in sizes:
            blocks.append(ConvolutionBlock(inputs, outputs, kernel=kernel, stride=stride))
            inputs = outputs
        self.rest = nn.Sequential(*blocks)
        self.map_sides = _halved(_halved(height)), _halved(_halved(width))
        flat, wide = 10 * math.prod(self.map_sides), self.feature_dim
        self.hidden = nn.Sequential(nn.Linear(flat, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU())
        self.head = nn.Linear(wide, 1)


class ConvolutionBlock(nn.Sequential):
    """Convolution, batch normalisation, ReLU, one after the other; on a GPU the last two are one."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> None:
        """Build; without a bias, which the batch normalisation would take away again."""
        convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, batch: Tensor) -> Tensor:
        convolution, norm, _ = self
        assert isinstance(convolution, nn.Conv2d)
        return normalise(norm, convolve(convolution, batch))


def _halved(side: int) -> int:
    """The side of an image after a padded 3x3 convolution of stride 2."""
    return (side + 1) // 2


WIDTH = 256


class MLP(PlainNetwork):
    """Three hidden layers of one width, each with batch normalisation, for vectors; images are flattened."""

    low_gradient_is_own = False

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.feature_dim = WIDTH
        self.first = _hidden_layer(math.prod(input_shape), WIDTH)
        self.rest = nn.Sequential(_hidden_layer(WIDTH, WIDTH), _hidden_layer(WIDTH, WIDTH))
        self.hidden = nn.Identity()
        self.head = nn.Linear(WIDTH, 1)

    def low_features(self, batch: Tensor) -> Tensor:
        return super().low_features(batch.flatten(1))


def _hidden_layer(inputs: int, outputs: int) -> nn.Sequential:
    # No bias: the batch normalisation that follows would take it away again.
    return nn.Sequential(nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU())


SMALL_IMAGE_BELOW = 64  # pixels of the shorter side


class ResNet18(Backbone):
    """Eight residual blocks in four layers; low = the first convolution's block, high = the pooled 512 channels."""

    low_gradient_is_own = True

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        """Build for images of shape (H, W, C); small ones keep their resolution through the stem."""
        super().__init__()
        height, width, channels = input_shape
        self.feature_dim = 512
        self.is_small = min(height, width) < SMALL_IMAGE_BELOW
        side, stride = (3, 1) if self.is_small else (7, 2)
        self.conv1 = nn.Conv2d(channels, 64, side, stride=stride, padding=side // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _layer(64, 64, stride=1)
        self.layer2 = _layer(64, 128, stride=2)
        self.layer3 = _layer(128, 256, stride=2)
        self.layer4 = _layer(256, 512, stride=2)
        self.fc = nn.Linear(self.feature_dim, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def low_features(self, batch: Tensor) -> Tensor:
        return normalise(self.bn1, convolve(self.conv1, batch))

    def features(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """The low and the high features, for whoever has a head of its own."""
        low = self.low_features(batch)
        hidden = low if self.is_small else nn.functional.max_pool2d(low, 3, stride=2, padding=1)
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        return low, hidden.mean(dim=(2, 3))

    def forward(self, batch: Tensor) -> Outputs:
        low, high = self.features(batch)
        return Outputs(low, high, self.fc(high).squeeze(1))


@torch.no_grad()
def draw_kaiming_weights(network: nn.Module) -> None:
    """Draw weights as the released code does: normal with variance 2 / inputs (2.45 times torch's), biases 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a way round them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Build; the way round is a 1x1 convolution where the shape changes."""
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, batch: Tensor) -> Tensor:
        straight = batch
        if self.downsample is not None:
            convolution, norm = self.downsample
            assert isinstance(convolution, nn.Conv2d)
            straight = normalise(norm, convolve(convolution, batch), relu=False)
        hidden = normalise(self.bn1, convolve(self.conv1, batch))
        return normalise(self.bn2, convolve(self.conv2, hidden), added=straight)


def _layer(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))


_IN_ORDER = (nn.Sequential.forward, ConvolutionBlock.forward)  # forward passes that run their layers one by one


def folded(network: nn.Module) -> nn.Module:
    """A copy in eval mode with every batch norm folded away that directly follows a convolution or a linear layer."""
    # Only where the order is certain: inside an `nn.Sequential`, and in our own residual network. Elsewhere a module's
    # forward pass may do anything between two layers, and the batch norm stays. So it does where weights are used
    # twice.
    copied = copy.deepcopy(network).eval()
    every, single = copied.named_parameters(remove_duplicate=False), copied.named_parameters()
    if len(list(every)) != len(list(single)):
        return copied
    for module in copied.modules():
        pairs: Iterable[tuple[str, str]] = ()
        if isinstance(module, nn.Sequential) and type(module).forward in _IN_ORDER:
            pairs = itertools.pairwise(list(module._modules))
        elif isinstance(module, ResNet18):
            pairs = [("conv1", "bn1")]
        elif isinstance(module, BasicBlock):
            pairs = [("conv1", "bn1"), ("conv2", "bn2")]
        for first, second in pairs:
            _fold_pair(module, first, second)
    return copied


@torch.no_grad()
def _fold_pair(parent: nn.Module, first: str, second: str) -> None:
    layer, norm = getattr(parent, first), getattr(parent, second)
    if not isinstance(layer, nn.Conv2d | nn.Linear) or not isinstance(norm, _BatchNorm):
        return
    mean, variance = norm.running_mean, norm.running_var
    other_axis = layer.weight.shape[0] != norm.num_features  # as a batch norm of rows of vectors counts
    if mean is None or variance is None or layer._forward_hooks or norm._forward_hooks or other_axis:
        return
    # In double precision: the quotient multiplies whole weights, so its rounding would be in every output.
    given = (layer.weight, layer.bias, mean, variance, norm.eps, norm.weight, norm.bias)
    exact: Any = [one.double() if isinstance(one, Tensor) else one for one in given]
    fused = fuse_conv_bn_weights(*exact)
    layer.weight, layer.bias = (nn.Parameter(one.to(layer.weight.dtype), requires_grad=False) for one in fused)
    setattr(parent, second, nn.Identity())


class Ensemble(Backbone):
    """Its probability is the mean of its members'; its features are those of the first member."""

    def __init__(self, members: list[Backbone]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.feature_dim = members[0].feature_dim

    def low_features(self, batch: Tensor) -> Tensor:
        first: Backbone = self.members[0]  # type: ignore[assignment]
        return first.low_features(batch)

    def forward(self, batch: Tensor) -> Outputs:
        """Return the logit of the mean probability."""
        outputs: list[Outputs] = [member(batch) for member in self.members]
        logits = torch.stack([one.logit if one.logit.dtype == torch.float64 else one.logit.float() for one in outputs])
        return Outputs(outputs[0].low, outputs[0].high, mean_probability_logit(logits))


def mean_probability_logit(logits: Tensor) -> Tensor:
    """The logit of the mean probability, over the first axis; exact where every probability rounds to zero or one."""
    positive = torch.logsumexp(functional.logsigmoid(logits), 0)
    return positive - torch.logsumexp(functional.logsigmoid(-logits), 0)


def member_count(names: list[str]) -> int:
    """How many members the names of stored weights tell of; 0 = these are no ensemble's."""
    return len({name.split(".")[1] for name in names if name.startswith("members.")})


HEADS = 8


class SlicesResNet18(Backbone):
    """A shared ResNet-18, multi-head attention over the slices, their mean, a classifier.

    low = the first block of every slice (B, S, 64, H', W'), 0 for slices that are not there; high = the pooled 512.

    Slices that only fill up a shorter volume change nothing: attention and mean leave them out. Their places in the
    batch that goes through the ResNet are taken by slices of the same patient, in turn. So all shapes are the same at
    every step, which a captured CUDA graph needs, and batch normalisation never sees a slice that does not exist; in
    its statistics every patient weighs the same, however many slices it has."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        """Build for volumes of shape (S, H, W, C); the number of slices may be another at every call."""
        super().__init__()
        self.encoder = ResNet18(input_shape[1:])
        self.feature_dim = self.encoder.feature_dim
        del self.encoder.fc  # one decision a patient, not one a slice
        self.attention = SliceAttention(self.feature_dim, HEADS)
        self.head = nn.Linear(self.feature_dim, 1)

    def low_features(self, batch: Tensor) -> Tensor:
        slices, there = slices_and_presence(batch)
        return low_of_patients(self.encoder.low_features(slices), there)

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs for volumes as views give them: (B, S, C + 1, H, W), the last channel for presence."""
        slices, there = slices_and_presence(batch)
        low, described = self.encoder.features(slices)
        high = masked_mean(self.attention(described.view(*there.shape, -1), there), there)
        return Outputs(low_of_patients(low, there), high, self.head(high).squeeze(1))


class SliceAttention(nn.Module):
    """Every slice looks at all slices of its patient and adds what it finds to itself."""

    def __init__(self, width: int, heads: int) -> None:
        """Build; the last layer starts small, so that at first a patient is little more than the mean of its slices."""
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.question_key_value = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.question_key_value.weight)
        nn.init.xavier_uniform_(self.answer.weight, gain=0.1)
        for layer in (self.question_key_value, self.answer):
            nn.init.zeros_(layer.bias)

    def forward(self, slices: Tensor, there: Tensor) -> Tensor:
        """Slices (B, S, width) -> the same, each knowing the others; those that are not there are not looked at."""
        patients, count, width = slices.shape
        joined = self.question_key_value(self.norm(slices)).view(patients, count, 3, self.heads, width // self.heads)
        question, key, value = joined.permute(2, 0, 3, 1, 4)  # (B, heads, S, width / heads) each
        found = functional.scaled_dot_product_attention(question, key, value, attn_mask=there[:, None, None, :])
        answer: Tensor = self.answer(found.transpose(1, 2).flatten(2))
        return slices + answer


def low_of_patients(low: Tensor, there: Tensor) -> Tensor:
    """Low features of all slices as those of their patients, 0 for slices that are not there."""
    stacked = low.reshape(*there.shape, *low.shape[1:])
    return stacked * there[:, :, None, None, None].to(low.dtype)


def masked_mean(slices: Tensor, there: Tensor) -> Tensor:
    """The mean over the slices (B, S, width) that are there."""
    weight = there.to(slices.dtype).unsqueeze(2)
    return (slices * weight).sum(dim=1) / weight.sum(dim=1)


def stand_ins(there: Tensor) -> Tensor:
    """For every place (B, S) the slice of its patient to use there: itself, or another in turn where there is none."""
    places = torch.arange(there.shape[1], device=there.device).expand_as(there)
    numbered = there.cumsum(dim=1)
    wanted = places % numbered[:, -1:] + 1
    # The wanted-th slice that is there comes after as many places as have seen fewer; no sort, nothing of free length.
    found = (numbered[:, None, :] < wanted[:, :, None]).sum(dim=2)
    return torch.where(there, places, found)


def slices_and_presence(batch: Tensor) -> tuple[Tensor, Tensor]:
    """All slices of all patients (B * S, C, H, W), with stand-ins, and which of them are there (B, S)."""
    patients, count = batch.shape[:2]
    there = batch[:, :, -1, 0, 0] > 0
    # A volume of zeros alone has one slice, which is blank: nothing here may divide by zero.
    first = torch.arange(count, device=batch.device) == 0
    there = there | (first & ~there.any(dim=1, keepdim=True))
    rows = torch.arange(patients, device=batch.device)[:, None] * count + stand_ins(there)
    slices = batch[:, :, :-1].flatten(0, 1).index_select(0, rows.flatten())
    return slices.contiguous(memory_format=torch.channels_last), there
