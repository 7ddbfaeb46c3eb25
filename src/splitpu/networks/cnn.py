"""Plain convolutional networks: a small one for images like 8x8 digits and the 13-layer one of the Split-PU paper."""

from torch import Tensor, nn

from splitpu.kernels import convolve, normalise
from splitpu.networks.backbone import Backbone, Outputs


class PlainCNN(Backbone):
    """Convolutions one after the other, then hidden layers on the flattened map; low = the first block."""

    low_gradient_is_own = True
    reads_weights_when_called = True

    first: nn.Module
    rest: nn.Module
    hidden: nn.Module
    head: nn.Module

    def low_features(self, batch: Tensor) -> Tensor:
        """The first block alone."""
        low: Tensor = self.first(batch)
        return low

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs for a batch of images."""
        low = self.low_features(batch)
        high = self.hidden(self.rest(low).flatten(1))
        return Outputs(low, high, self.head(high).squeeze(1))


class SmallCNN(PlainCNN):
    """Three convolutions and a hidden layer. Flattened rather than pooled: in a tiny image, where matters."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        """Build for images of shape (H, W, C)."""
        super().__init__()
        height, width, channels = input_shape
        self.feature_dim = 128
        self.first = ConvolutionBlock(channels, 32)
        self.rest = nn.Sequential(ConvolutionBlock(32, 64, stride=2), ConvolutionBlock(64, 64))
        self.hidden = nn.Sequential(
            nn.Linear(64 * _halved(height) * _halved(width), self.feature_dim, bias=False),
            nn.BatchNorm1d(self.feature_dim),
            nn.ReLU(),
        )
        self.head = nn.Linear(self.feature_dim, 1)


class CNN13(PlainCNN):
    """The paper's network: nine convolutions, two hidden layers of 1000; low = the first convolution's block."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        """Build for images of shape (H, W, C)."""
        super().__init__()
        height, width, channels = input_shape
        self.feature_dim = 1000
        self.first = ConvolutionBlock(channels, 96)
        self.rest = nn.Sequential(
            ConvolutionBlock(96, 96),
            ConvolutionBlock(96, 96, stride=2),
            ConvolutionBlock(96, 192),
            ConvolutionBlock(192, 192),
            ConvolutionBlock(192, 192, stride=2),
            ConvolutionBlock(192, 192),
            ConvolutionBlock(192, 192, kernel=1),
            ConvolutionBlock(192, 10, kernel=1),
        )
        flattened = 10 * _halved(_halved(height)) * _halved(_halved(width))
        self.hidden = nn.Sequential(
            nn.Linear(flattened, self.feature_dim),
            nn.ReLU(),
            nn.Linear(self.feature_dim, self.feature_dim),
            nn.ReLU(),
        )
        self.head = nn.Linear(self.feature_dim, 1)


class ConvolutionBlock(nn.Sequential):
    """Convolution, batch normalisation, ReLU, one after the other; on a GPU the last two are one."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> None:
        """Build; without a bias, which the batch normalisation would take away again."""
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    def forward(self, batch: Tensor) -> Tensor:
        """Return the block's output."""
        convolution, norm, _ = self
        assert isinstance(convolution, nn.Conv2d)
        return normalise(norm, convolve(convolution, batch))


def _halved(side: int) -> int:
    """The side of an image after a padded 3x3 convolution of stride 2."""
    return (side + 1) // 2
