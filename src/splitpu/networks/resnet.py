"""ResNet-18, with the weight names everybody uses, so that weights trained elsewhere fit in (all but the head)."""

from torch import Tensor, nn

from splitpu.kernels import convolve, normalise
from splitpu.networks.backbone import Backbone, Outputs

SMALL_IMAGE_BELOW = 64  # pixels of the shorter side


class ResNet18(Backbone):
    """Eight residual blocks in four layers; low = the first convolution's block, high = the pooled 512 channels."""

    low_gradient_is_own = True
    reads_weights_when_called = True

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        """Build for images of shape (H, W, C); small ones keep their resolution through the stem."""
        super().__init__()
        height, width, channels = input_shape
        self.feature_dim = 512
        self.is_small = min(height, width) < SMALL_IMAGE_BELOW
        if self.is_small:
            self.conv1 = nn.Conv2d(channels, 64, 3, stride=1, padding=1, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _layer(64, 64, stride=1)
        self.layer2 = _layer(64, 128, stride=2)
        self.layer3 = _layer(128, 256, stride=2)
        self.layer4 = _layer(256, 512, stride=2)
        self.fc = nn.Linear(self.feature_dim, 1)
        self._initialise()

    def low_features(self, batch: Tensor) -> Tensor:
        """The first convolution's block alone."""
        return normalise(self.bn1, convolve(self.conv1, batch))

    def features(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """The low and the high features, for whoever has a head of its own."""
        low = self.low_features(batch)
        hidden = low if self.is_small else nn.functional.max_pool2d(low, 3, stride=2, padding=1)
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        return low, hidden.mean(dim=(2, 3))

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs for a batch of images."""
        low, high = self.features(batch)
        return Outputs(low, high, self.fc(high).squeeze(1))

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


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
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, batch: Tensor) -> Tensor:
        """Return the block's output."""
        straight = batch
        if self.downsample is not None:
            convolution, norm = self.downsample
            assert isinstance(convolution, nn.Conv2d)
            straight = normalise(norm, convolve(convolution, batch), relu=False)
        hidden = normalise(self.bn1, convolve(self.conv1, batch))
        return normalise(self.bn2, convolve(self.conv2, hidden), added=straight)


def _layer(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))
