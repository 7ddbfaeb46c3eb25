"""DAN: a discriminator picks positives out of the population so that an adversary cannot tell them from P."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from splitpu.config.schema import DANConfig
from splitpu.engine.stage import Batch
from splitpu.losses import soft_cross_entropy
from splitpu.methods.common import Carrier, half_of_largest, positives_first, two_pool_stage, viewed
from splitpu.methods.context import Context, Teacher
from splitpu.networks.backbones import Backbone
from splitpu.views import Views


def adversarial_value(adversary_on_positives: Tensor, adversary_on_population: Tensor, logit: Tensor) -> Tensor:
    """Return `E_P log D + E_U[Phi log(1 - D)] / E_U Phi`, which the adversary D raises and the discriminator lowers.

    All three are logits: D = sigmoid of the first two, Phi = sigmoid of the last."""
    # Shares of Phi, taken as a softmax of its logarithm, survive where every Phi is tiny.
    shares = torch.softmax(functional.logsigmoid(logit), 0)
    taken_for_others = (shares * functional.logsigmoid(-adversary_on_population)).sum()
    return functional.logsigmoid(adversary_on_positives).mean() + taken_for_others


class DANTask:
    """Both sides of the game in one step: each sees the other as a constant."""

    def __init__(self, network: Backbone, adversary: Backbone, config: DANConfig) -> None:
        self.module = Carrier({"network": network, "adversary": adversary})
        self.network, self.adversary, self.config = network, adversary, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Minimise the value for the discriminator and its negative for the adversary."""
        joined, count = positives_first(batch)
        inputs = viewed(joined.raw, views, generator, augment=self.config.augment)
        logit, opposed = self.network(inputs).logit.float(), self.adversary(inputs).logit.float()
        frozen = opposed.detach()
        lowered = adversarial_value(frozen[:count], frozen[count:], logit[count:])
        raised = adversarial_value(opposed[:count], opposed[count:], logit[count:].detach())
        # The value does not change when all Phi are multiplied by a factor; known positives fix it. Before the
        # adversary knows anything all Phi rise together, and where they are nearly one the value has hardly any slope.
        anchor = soft_cross_entropy(logit[:count], torch.full_like(logit[:count], self.config.anchor_level))
        return {
            "loss": lowered - raised + self.config.anchor * anchor,
            "value": raised,
            "anchor": anchor,
            "recall": (logit[:count] > 0).float().mean(),
        }


def train_dan(context: Context) -> Teacher:
    """Train both networks; only the discriminator is kept."""
    config = context.config.dan
    network, adversary = context.fresh_network("dan"), context.fresh_network("dan.adversary")
    stage = two_pool_stage(context, "dan", DANTask(network, adversary, config), "dan", config)
    context.engine.run(stage)
    return context.as_teacher(network, stage.key, half_of_largest)
