"""The warm-up: features learned from all rows by SimCLR without any label, for the other stages to start from.

Labels, prior and scenario are no part of its identity: one warm-up serves every draw of labelled rows of the data."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.config.schema import ViewsConfig, WarmupConfig
from splitpu.engine.stage import Batch, Pool, Stage
from splitpu.losses import nt_xent
from splitpu.methods.common import two_layers
from splitpu.methods.context import Context, WarmStart
from splitpu.networks.backbones import Backbone
from splitpu.views import Views

STAGE = "warmup"
# What is done with the weights afterwards, which does not change them, and the views, as they are in the end.
_ELSEWHERE = ("base", "split", "student", "views")


class ContrastiveTask:
    """Bring two views of one row together, and those of different rows apart."""

    def __init__(self, network: Backbone, projection: nn.Module, views: Views, config: WarmupConfig) -> None:
        self.module = nn.ModuleDict({"network": network, "projection": projection})
        self.network, self.projection = network, projection
        self.views, self.config = views, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for both views, made with the warm-up's own settings, not with those of the other stages."""
        raw = batch["rows"].raw
        seen = self.views.strong(torch.cat([raw, raw]), generator)
        first, second = self.projection(self.network(seen).high).chunk(2)
        loss = nt_xent(first, second, self.config.temperature, decoupled=self.config.decoupled)
        with torch.no_grad():
            alignment = functional.cosine_similarity(first.float(), second.float()).mean()
        return {"loss": loss, "alignment": alignment}


def warmed_up(context: Context) -> Context:
    """The context with weights to start from, if the configuration asks for a warm-up; otherwise as it is."""
    config = context.config.warmup
    if config.name == "none" or context.warm_start is not None:
        return context
    network = context.fresh_network(STAGE)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    views, width = warmup_views(context), network.feature_dim
    engine, rows = context.engine, context.data.taught
    stage = Stage(
        name=STAGE,
        task=ContrastiveTask(
            network,
            # Views are compared by its output. It is thrown away: the features before it say more about a row.
            context.fresh_head(lambda: two_layers(width, width, config.projection), STAGE),
            Views(context.preprocessing, views, engine.hardware.device, kernels=engine.hardware.kernels),
            config,
        ),
        pools={"rows": Pool(rows, min(config.batch_size, len(rows)))},
        leading="rows",
        epochs=config.epochs,
        optimiser=config.optimiser,
        identity={
            **context.surroundings(STAGE),
            "data": context.rows_key,
            "warmup": {name: one for name, one in dataclasses.asdict(config).items() if name not in _ELSEWHERE},
            "views": dataclasses.asdict(views),
        },
    )
    engine.run(stage)
    # The weights that the warm-up changed. It never reached the network's head, which each stage draws for itself.
    after = network.state_dict().items()
    moved = {name: one.detach().clone() for name, one in after if not torch.equal(one, before[name])}
    return dataclasses.replace(context, warm_start=WarmStart(stage.key, moved))


def warmup_views(context: Context) -> ViewsConfig:
    """The warm-up's own view settings. What may not be mirrored elsewhere, such as digits, is not mirrored here."""
    views = context.config.warmup.views
    return dataclasses.replace(views, flip=views.flip and context.config.views.flip)
