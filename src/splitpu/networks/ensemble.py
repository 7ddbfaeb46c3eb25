"""Several networks that speak as one."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.networks.backbone import Backbone, Outputs


class Ensemble(Backbone):
    """Its probability is the mean of its members'; its features are those of the first member."""

    def __init__(self, members: list[Backbone]) -> None:
        """Join networks of one kind; their weights stay their own."""
        super().__init__()
        self.members = nn.ModuleList(members)
        self.feature_dim = members[0].feature_dim

    def low_features(self, batch: Tensor) -> Tensor:
        """The first member's."""
        first: Backbone = self.members[0]  # type: ignore[assignment]
        return first.low_features(batch)

    def forward(self, batch: Tensor) -> Outputs:
        """Return the logit of the mean probability."""
        outputs: list[Outputs] = [member(batch) for member in self.members]
        logits = torch.stack([one.logit if one.logit.dtype == torch.float64 else one.logit.float() for one in outputs])
        return Outputs(outputs[0].low, outputs[0].high, mean_probability_logit(logits))


def mean_probability_logit(logits: Tensor) -> Tensor:
    """The logit of the mean probability, over the first axis; exact where every probability rounds to zero or one.

    >>> mean_probability_logit(torch.tensor([[50.0, 0.0], [50.0, 0.0]]))
    tensor([50.,  0.])
    """
    positive = torch.logsumexp(functional.logsigmoid(logits), 0)
    return positive - torch.logsumexp(functional.logsigmoid(-logits), 0)


def member_count(names: list[str]) -> int:
    """How many members the names of stored weights tell of; 0 = these are no ensemble's.

    >>> member_count(["members.0.head.weight", "members.1.head.weight"]), member_count(["head.weight"])
    (2, 0)
    """
    return len({name.split(".")[1] for name in names if name.startswith("members.")})
