"""The paper's network for volumes: every slice through one ResNet-18, then attention among the slices of a patient."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.networks.backbone import Backbone, Outputs
from splitpu.networks.resnet import ResNet18

HEADS = 8


class SlicesResNet18(Backbone):
    """A shared ResNet-18, multi-head attention over the slices, their mean, a classifier.

    low = the first block of every slice (B, S, 64, H', W'), 0 for slices that are not there; high = the pooled 512.

    Slices that only fill up a shorter volume change nothing: attention and mean leave them out. Their places in the
    batch that goes through the ResNet are taken by slices of the same patient, in turn. So all shapes are the same at
    every step, which a captured CUDA graph needs, and batch normalisation never sees a slice that does not exist; in
    its statistics every patient weighs the same, however many slices it has.
    """

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        """Build for volumes of shape (S, H, W, C); the number of slices may be another at every call."""
        super().__init__()
        self.encoder = ResNet18(input_shape[1:])
        self.feature_dim = self.encoder.feature_dim
        del self.encoder.fc  # one decision a patient, not one a slice
        self.attention = SliceAttention(self.feature_dim, HEADS)
        self.head = nn.Linear(self.feature_dim, 1)

    def low_features(self, batch: Tensor) -> Tensor:
        """The first block of every slice alone."""
        slices, there = _slices_and_presence(batch)
        return self._low_of_patients(self.encoder.low_features(slices), there)

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs for volumes as views give them: (B, S, C + 1, H, W), the last channel for presence."""
        slices, there = _slices_and_presence(batch)
        low, described = self.encoder.features(slices)
        high = masked_mean(self.attention(described.view(*there.shape, -1), there), there)
        return Outputs(self._low_of_patients(low, there), high, self.head(high).squeeze(1))

    def _low_of_patients(self, low: Tensor, there: Tensor) -> Tensor:
        stacked = low.reshape(*there.shape, *low.shape[1:])
        return stacked * there[:, :, None, None, None].to(low.dtype)


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


def masked_mean(slices: Tensor, there: Tensor) -> Tensor:
    """The mean over the slices (B, S, width) that are there.

    >>> masked_mean(torch.tensor([[[2.0], [4.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[3.]])
    """
    weight = there.to(slices.dtype).unsqueeze(2)
    return (slices * weight).sum(dim=1) / weight.sum(dim=1)


def stand_ins(there: Tensor) -> Tensor:
    """For every place (B, S) the slice of its patient to use there: itself, or another in turn where there is none.

    >>> stand_ins(torch.tensor([[True, False, True, False, False]])).tolist()
    [[0, 2, 2, 2, 0]]
    """
    places = torch.arange(there.shape[1], device=there.device).expand_as(there)
    numbered = there.cumsum(dim=1)
    wanted = places % numbered[:, -1:] + 1
    # The wanted-th slice that is there comes after as many places as have seen fewer; no sort, nothing of free length.
    found = (numbered[:, None, :] < wanted[:, :, None]).sum(dim=2)
    return torch.where(there, places, found)


def _slices_and_presence(batch: Tensor) -> tuple[Tensor, Tensor]:
    """All slices of all patients (B * S, C, H, W), with stand-ins, and which of them are there (B, S)."""
    patients, count = batch.shape[:2]
    there = batch[:, :, -1, 0, 0] > 0
    # A volume of zeros alone has one slice, which is blank: nothing here may divide by zero.
    first = torch.arange(count, device=batch.device) == 0
    there = there | (first & ~there.any(dim=1, keepdim=True))
    rows = torch.arange(patients, device=batch.device)[:, None] * count + stand_ins(there)
    slices = batch[:, :, :-1].flatten(0, 1).index_select(0, rows.flatten())
    return slices.contiguous(memory_format=torch.channels_last), there
