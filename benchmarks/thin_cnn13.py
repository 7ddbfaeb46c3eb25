"""The 13-layer network with few of its channels: as deep, and the same hidden layers without batch norm."""

from torch import nn

from splitpu.networks.backbones import ConvolutionBlock, PlainNetwork

CHANNELS = 12  # in place of 96; in the second half twice as many
HIDDEN = 1000


class ThinCNN13(PlainNetwork):
    """What `cnn13` does on a GPU can be watched with it on a core in a minute."""

    def __init__(self, side: int, colours: int, channels: int = CHANNELS) -> None:
        super().__init__()
        few, more = channels, 2 * channels
        self.feature_dim = HIDDEN
        self.first = ConvolutionBlock(colours, few)
        self.rest = nn.Sequential(
            ConvolutionBlock(few, few),
            ConvolutionBlock(few, few, stride=2),
            ConvolutionBlock(few, more),
            ConvolutionBlock(more, more),
            ConvolutionBlock(more, more, stride=2),
            ConvolutionBlock(more, more),
            ConvolutionBlock(more, more, kernel=1),
            ConvolutionBlock(more, 10, kernel=1),
        )
        quarter = -(-side // 4)
        self.hidden = nn.Sequential(nn.Linear(10 * quarter**2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.head = nn.Linear(HIDDEN, 1)
