"""A plain network for vectors; images are flattened."""

from torch import Tensor, nn

from splitpu.networks.backbone import Backbone, Outputs, flat_size

WIDTH = 256


class MLP(Backbone):
    """Three hidden layers of one width, each with batch normalisation; low = the first, high = the last."""

    reads_weights_when_called = True

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        """Build for samples of this shape."""
        super().__init__()
        self.feature_dim = WIDTH
        self.first = _hidden_layer(flat_size(input_shape), WIDTH)
        self.rest = nn.Sequential(_hidden_layer(WIDTH, WIDTH), _hidden_layer(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 1)

    def low_features(self, batch: Tensor) -> Tensor:
        """The first block alone."""
        low: Tensor = self.first(batch.flatten(1))
        return low

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs for a batch of vectors or images."""
        low = self.low_features(batch)
        high = self.rest(low)
        return Outputs(low, high, self.head(high).squeeze(1))


def _hidden_layer(inputs: int, outputs: int) -> nn.Sequential:
    # No bias: the batch normalisation that follows would take it away again.
    return nn.Sequential(nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU())
