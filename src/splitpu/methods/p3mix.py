"""P3MIX-C: doubtful rows are mixed with positives near the border, and rows that look positive become so."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from splitpu.config.schema import P3MixConfig
from splitpu.engine.rows import RowStore
from splitpu.engine.stage import Batch, EpochRecord
from splitpu.losses import prediction_entropy, soft_cross_entropy
from splitpu.methods import common
from splitpu.methods.context import Context, Teacher
from splitpu.networks.backbones import Backbone
from splitpu.views import Views


class P3MixTask:
    """Cross-entropy on mixed rows; labels, doubts and the pool of border positives change from epoch to epoch.

    What they change to is decided by a teacher, an average of the network's weights that is shown rows unmixed: the
    network itself changes its mind from one epoch to the next, and its batch-norm statistics are those of mixtures."""

    def __init__(
        self, network: Backbone, context: Context, mixing: common.MixingWeights, rows: RowStore, config: P3MixConfig
    ) -> None:
        labels = common.labelled_as_numbers(context)
        self.teacher = copy.deepcopy(network).requires_grad_(False)
        self.module = common.Carrier(
            {"network": network, "teacher": self.teacher},
            averaged=torch.zeros((), device=labels.device),  # steps
            labels=labels,
            doubtful=torch.zeros_like(labels, dtype=torch.bool),  # until the end of the warm-up nothing is
            pool=context.rows(context.data.positives[: config.pool]),
        )
        self.network, self.mixing, self.rows, self.config = network, mixing, rows, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for all rows, each mixed with its partner, and one of the teacher for the rows as they are."""
        augment = self.config.augment
        joined, count = common.positives_first(batch)
        # The partner of a doubtful row is a border positive, that of another any row of the batch.
        rows, pool = joined.rows, self.module.state("pool")
        drawn = pool[torch.randint(len(pool), rows.shape, device=rows.device, generator=generator)]
        anyone = rows[common.shuffled(len(rows), rows.device, generator)]
        partners = torch.where(self.module.state("doubtful")[rows], drawn, anyone)
        labels = self.module.state("labels")
        # The row itself always has the larger part.
        weight = self.mixing.draw(len(joined.rows))
        weight = torch.maximum(weight, 1 - weight)
        inputs = common.viewed(joined.raw, views, generator, augment=augment)
        others = common.viewed(self.rows.gather(partners), views, generator, augment=augment)
        with torch.no_grad():  # the teacher follows the network, and sees rows that are not mixed
            steps = self.module.state("averaged")
            common.follow(self.teacher, self.network, steps, self.config.teacher_average)
            steps.add_(1)
            self.teacher(inputs)
        target = common.mixed(labels[joined.rows], labels[partners], weight)
        logit = self.network(common.mixed(inputs, others, weight)).logit.float()
        terms = {
            "positive": soft_cross_entropy(logit[:count], target[:count]),
            "unlabelled": soft_cross_entropy(logit[count:], target[count:]),
            "entropy": prediction_entropy(logit[count:]),
        }
        loss = terms["positive"] + terms["unlabelled"] + self.config.entropy_weight * terms["entropy"]
        return {"loss": loss, **terms, "corrected": labels[joined.rows[count:]].mean()}


def train_p3mix(context: Context) -> Teacher:
    """Train the network, looking at its teacher's predictions after every epoch; the teacher is the model."""
    config, device = context.config.p3mix, context.engine.hardware.device
    network = context.fresh_network("p3mix")
    mixing = common.MixingWeights(config.mix_concentration, device)
    task = P3MixTask(network, context, mixing, context.engine.rows, config)
    positives, known = context.rows(context.data.positives), common.labelled_as_numbers(context)

    def renew(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        probability = torch.sigmoid(context.logits_of(task.teacher))
        pool = task.module.state("pool")
        # The most undecided of the labelled positives: entropy is highest where a probability is nearest to a half.
        nearest = (probability[positives] - 0.5).abs().argsort(stable=True)[: len(pool)]
        pool.copy_(positives[nearest])
        if record.epoch >= config.warmup * record.epochs:
            labels = task.module.state("labels")
            # A label is set above one border and taken back below a lower one: a row that became negative again at the
            # first doubt would be learned by heart as negative.
            needed = torch.where(labels > 0, config.taken_back, config.confident)
            labels.copy_(torch.maximum(known, (probability >= needed).float()))
            task.module.state("doubtful").copy_((probability > 1 - config.confident) & (labels == 0))
        return False

    unlabelled = context.data.unlabelled
    stage = common.two_pool_stage(context, "p3mix", task, "p3mix", config, population=unlabelled, after_epoch=renew)
    context.engine.run(stage)
    return context.as_teacher(task.teacher, stage.key)
