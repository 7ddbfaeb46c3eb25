"""P against U through the engine and the package's own networks: for images that simple features do not describe."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from splitpu.config.schema import Config, OptimiserConfig
from splitpu.data.pudata import PUData
from splitpu.engine.batches import Pool
from splitpu.engine.inference import training_logits
from splitpu.engine.stage import Batch, EpochRecord, Observer, Stage
from splitpu.methods.context import Context
from splitpu.prior.bbe import bbe
from splitpu.prior.learners import Floats, Rows
from splitpu.prior.tedn import CrossFitted, without_likely_positives
from splitpu.training import open_context
from splitpu.views import Views

FOLDS = 2
WARM_UP, CLEANED = 10, 20  # epochs of P against all of U, then against U without its likely positives
_BATCH, _SMALLEST_BATCH = 256, 16  # images a step; of volumes fewer, as each is many images
_OPTIMISER = OptimiserConfig(name="adamw", rate=1e-3, weight_decay=5e-3, schedule="cosine", average=0.99)


class ContrastTask:
    """Tell labelled rows from the unlabelled ones that still count; both kinds weigh the same."""

    def __init__(self, network: nn.Module, kept: Tensor) -> None:
        self.module, self.kept = network, kept

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for both kinds, so that they share their batch-norm statistics."""
        positives = len(batch["positives"].rows)
        raw = torch.cat([batch["positives"].raw, batch["unlabelled"].raw])
        logit = self.module(views.weak(raw, generator)).logit.float()
        weight = self.kept[batch["unlabelled"].rows]
        against = (softplus(logit[positives:]) * weight).sum() / weight.sum().clamp(min=1)
        return {"loss": softplus(-logit[:positives]).mean() + against}


def network_scores(
    data: PUData, *, seed: int, device: str = "auto", network: str = "auto", observer: Observer | None = None
) -> CrossFitted:
    """Scores of every row by a network that was trained on the other half of the rows."""
    from sklearn.model_selection import StratifiedKFold

    context = open_context(
        data, prior=None, config=Config(), backbone=network, seed=seed, device=device, observer=observer
    )
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    plain, cleaned = np.empty(len(data)), np.empty(len(data))
    for fold, (training, held_out) in enumerate(splitter.split(np.zeros(len(data)), data.labelled)):
        found = _trained_on(context, training, held_out, f"prior.fold{fold + 1}")
        plain[held_out], cleaned[held_out] = found.plain[held_out], found.cleaned[held_out]
    return CrossFitted(plain, cleaned)


def _trained_on(context: Context, training: Rows, held_out: Rows, name: str) -> CrossFitted:
    data, engine = context.data, context.engine
    network = context.fresh_network(name)
    kept = torch.ones(len(data), device=engine.hardware.device)
    latest: dict[str, Floats] = {}

    def after_epoch(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        if record.epoch < WARM_UP:
            return False
        logits = training_logits(network, engine.rows, engine.views, engine.hardware).double().cpu().numpy()
        if record.epoch == WARM_UP:
            latest["plain"] = logits
        aside = data.labelled[held_out]
        share = bbe(logits[held_out][aside], logits[held_out][~aside])
        still = without_likely_positives(data.labelled[training], logits[training], share)
        # In place: a captured step reads this very tensor.
        kept[context.rows(training)] = torch.as_tensor(still, dtype=kept.dtype, device=kept.device)
        return False

    images = data.features.shape[1] if data.kind == "volumes" else 1
    batch = max(_SMALLEST_BATCH, _BATCH // images)
    positives, unlabelled = training[data.labelled[training]], training[~data.labelled[training]]
    stage = Stage(
        name=name,
        task=ContrastTask(network, kept),
        pools={
            "positives": Pool(positives, min(batch // 2, len(positives))),
            "unlabelled": Pool(unlabelled, min(batch, len(unlabelled))),
        },
        leading="unlabelled",
        epochs=WARM_UP + CLEANED,
        optimiser=_OPTIMISER,
        identity={"stage": name},
        after_epoch=after_epoch,
    )
    engine.run(stage)
    final = training_logits(network, engine.rows, engine.views, engine.hardware).double().cpu().numpy()
    return CrossFitted(latest["plain"], final)
