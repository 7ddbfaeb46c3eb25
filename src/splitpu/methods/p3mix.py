"""P3MIX-C: doubtful rows are mixed with positives near the border, and rows that look positive become so."""

from collections.abc import Mapping

import torch
from torch import Tensor

from splitpu.config.methods import P3MixConfig
from splitpu.engine.rows import RowStore
from splitpu.engine.stage import Batch, EpochRecord, Stage
from splitpu.losses import prediction_entropy, soft_cross_entropy
from splitpu.methods.context import Context, Teacher
from splitpu.methods.parts import (
    Carrier,
    MixingWeights,
    labelled_as_numbers,
    mixed,
    positives_first,
    seen,
    shuffled,
    two_pools,
)
from splitpu.networks import Backbone
from splitpu.views import Views


class P3MixTask:
    """Cross-entropy on mixed rows; labels, doubts and the pool of border positives change from epoch to epoch."""

    def __init__(
        self, network: Backbone, context: Context, mixing: MixingWeights, rows: RowStore, config: P3MixConfig
    ) -> None:
        labels = labelled_as_numbers(context)
        self.module = Carrier(
            {"network": network},
            labels=labels,
            doubtful=torch.zeros_like(labels, dtype=torch.bool),  # until the end of the warm-up nothing is
            pool=context.rows(context.data.positives[: config.pool]),
        )
        self.network, self.mixing, self.rows, self.config = network, mixing, rows, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for all rows, each mixed with its partner."""
        augment = self.config.augment
        joined, count = positives_first(batch)
        partners = self._partners(joined.rows, generator)
        labels = self.module.state("labels")
        # The row itself always has the larger part.
        weight = self.mixing.draw(len(joined.rows))
        weight = torch.maximum(weight, 1 - weight)
        inputs = seen(joined.raw, views, generator, augment=augment)
        others = seen(self.rows.gather(partners), views, generator, augment=augment)
        target = mixed(labels[joined.rows], labels[partners], weight)
        logit = self.network(mixed(inputs, others, weight)).logit.float()
        terms = {
            "positive": soft_cross_entropy(logit[:count], target[:count]),
            "unlabelled": soft_cross_entropy(logit[count:], target[count:]),
            "entropy": prediction_entropy(logit[count:]),
        }
        loss = terms["positive"] + terms["unlabelled"] + self.config.entropy_weight * terms["entropy"]
        return {"loss": loss, **terms, "corrected": labels[joined.rows[count:]].mean()}

    def _partners(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """A border positive for a doubtful row, any row of the batch for another."""
        pool = self.module.state("pool")
        drawn = pool[torch.randint(len(pool), rows.shape, device=rows.device, generator=generator)]
        anyone = rows[shuffled(len(rows), rows.device, generator)]
        return torch.where(self.module.state("doubtful")[rows], drawn, anyone)


def train_p3mix(context: Context) -> Teacher:
    """Train the network, looking at its predictions after every epoch."""
    config, device = context.config.p3mix, context.engine.hardware.device
    network = context.fresh_network("p3mix")
    mixing = MixingWeights(config.mix_concentration, device)
    task = P3MixTask(network, context, mixing, context.engine.rows, config)
    positives = context.rows(context.data.positives)

    def look_again(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        probability = torch.sigmoid(context.logits_of(network))
        pool = task.module.state("pool")
        # The most undecided of the labelled positives: entropy is highest where a probability is nearest to a half.
        nearest = (probability[positives] - 0.5).abs().argsort(stable=True)[: len(pool)]
        pool.copy_(positives[nearest])
        if record.epoch >= config.warmup * record.epochs:
            labels, confident = task.module.state("labels"), probability >= config.confident
            # For good: a row that were negative again next time would be learned by heart as such.
            labels.copy_(torch.maximum(labels, confident.float()))
            task.module.state("doubtful").copy_((probability > 1 - config.confident) & (labels == 0))
        return False

    stage = Stage(
        name="p3mix",
        task=task,
        pools=two_pools(context, config, context.data.unlabelled),
        leading="population",
        epochs=config.epochs,
        optimiser=config.optimiser,
        identity=context.identity("p3mix", "p3mix", "views", corrected="for good"),  # it has not always been
        after_epoch=look_again,
    )
    context.engine.run(stage)
    return context.as_teacher(network, stage.key)
