r"""PUbN\N: a first network finds where negatives are certain, the second one takes its negatives from there."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from splitpu.config.schema import BaseConfig, PUbNConfig
from splitpu.engine.stage import Batch
from splitpu.losses import logistic_loss
from splitpu.methods.base_model import BaseTask
from splitpu.methods.common import positives_first, two_pool_stage, viewed
from splitpu.methods.context import Context, Teacher
from splitpu.views import Views

_SMALLEST_SCORE = 1e-3  # a score that rounds to zero must not become an endless weight


def pubn_risk(
    positive_logit: Tensor,
    population_logit: Tensor,
    positive_score: Tensor,
    population_score: Tensor,
    prior: float,
    border: float,
) -> tuple[Tensor, Tensor]:
    """Return the risks on positives and on negatives with the logistic loss; scores are the first network's.

    `prior * E_P l(z, +1)`, and `prior * E_P[1{score > border} (1 - score) / score * l(z, -1)]
    + E_U[1{score <= border} (1 - score) l(z, -1)]`: below the border negatives are seen among the population, above it
    their share is made up for by labelled positives of the same score."""
    weight = (positive_score > border) * (1 - positive_score) / positive_score.clamp_min(_SMALLEST_SCORE)
    above = prior * (weight * logistic_loss(positive_logit, -1)).mean()
    below = ((population_score <= border) * (1 - population_score) * logistic_loss(population_logit, -1)).mean()
    return prior * logistic_loss(positive_logit, +1).mean(), above + below


class PUbNTask:
    """Minimise the risk above with the scores of every training row at hand."""

    def __init__(self, network: nn.Module, scores: Tensor, border: float, prior: float, config: PUbNConfig) -> None:
        self.module, self.scores, self.border, self.prior, self.config = network, scores, border, prior, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        joined, count = positives_first(batch)
        logit = self.module(viewed(joined.raw, views, generator, augment=self.config.augment)).logit.float()
        score = self.scores[joined.rows]
        positive, negative = pubn_risk(
            logit[:count], logit[count:], score[:count], score[count:], self.prior, self.border
        )
        recall = (logit[:count] > 0).float().mean()
        return {"loss": positive + negative, "positive": positive, "negative": negative, "recall": recall}


def train_pubn(context: Context) -> Teacher:
    """Train the two networks one after the other."""
    config, prior = context.config.pubn, context.known_prior
    scorer = context.fresh_network("pubn.score")
    # The scores are used as probabilities, hence the logistic loss.
    first = BaseTask(scorer, prior, BaseConfig(augment=config.augment), surrogate=logistic_loss)
    scoring = two_pool_stage(context, "pubn.score", first, "pubn", replace(config, epochs=config.score_epochs))
    context.engine.run(scoring)
    scores = torch.sigmoid(context.logits_of(scorer))
    network = context.fresh_network("pubn")
    # The score below which that share of the expected negatives lies.
    ordered = scores[context.rows(context.data.population)].double().sort().values
    border = float(ordered[min(int(config.certain_share * (1 - prior) * len(ordered)), len(ordered) - 1)])
    second = PUbNTask(network, scores, border, prior, config)
    stage = two_pool_stage(context, "pubn", second, "pubn", config, scores=scoring.key)
    context.engine.run(stage)
    return context.as_teacher(network, stage.key)
