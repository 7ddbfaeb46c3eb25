"""P against U through the engine and the package's own networks: for images that simple features do not describe."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, softplus

from splitpu.config.schema import Config, EngineConfig, OptimiserConfig
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.engine.rows import joined
from splitpu.engine.stage import AfterEpoch, Batch, EpochRecord, Observer, Pool, Stage
from splitpu.methods.common import Carrier
from splitpu.methods.context import Context
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.prior.algorithms import bbe
from splitpu.prior.scores import APART, CROSS_FITTINGS, CrossFitted, mean_scores, without_likely_positives
from splitpu.training import Runtime, TrainSpec, open_context
from splitpu.types import Floats, Indices, Rows
from splitpu.utils.arrays import sklearn_seed
from splitpu.utils.torch_state import usual_torch
from splitpu.views import Views

FOLDS = 2  # four, with half as many positives again to learn from, ranked no better
# Epochs of P against all of U, then against U without its likely positives; more of them where an epoch has few steps.
WARM_UP, CLEANED = 10, 20
FEWEST_STEPS = 1000  # of both together, as far as MOST_TIMES as many epochs allow
MOST_TIMES = 4
LARGEST_SIDE_ON_CPU = 32  # of an image, in pixels
_BATCH, _SMALLEST_BATCH = 256, 16  # images a step; of volumes fewer, as each is many images
_UNLABELLED_EACH = 8  # in a batch for every positive: seen less often, those are less learned by heart
_OPTIMISER = OptimiserConfig(name="adamw", rate=1e-3, weight_decay=5e-3, schedule="cosine", average=0.99)


class ContrastTask:
    """Tell labelled rows from the unlabelled ones that still count; both kinds weigh the same."""

    def __init__(self, module: Carrier) -> None:
        self.module, self.network, self.kept = module, module.networks["network"], module.state("kept")

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for both kinds, so that they share their batch-norm statistics."""
        positives = len(batch["positives"].rows)
        raw = joined([batch["positives"].raw, batch["unlabelled"].raw])
        logit = self.network(views.weak(raw, generator)).logit.float()
        weight = self.kept[batch["unlabelled"].rows]
        against = (softplus(logit[positives:]) * weight).sum() / weight.sum().clamp(min=1)
        return {"loss": softplus(-logit[:positives]).mean() + against}


class Mirrored(nn.Module):
    """A network that looks at every image, or slice, from both sides; for data whose views are mirrored as well."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.train(network.training)  # whoever scores with it puts that back afterwards

    def forward(self, batch: Tensor) -> Outputs:
        """The mean of both logits; the features are those of the image as it is."""
        as_it_is, turned = self.network(batch), self.network(batch.flip(-1))
        return Outputs(as_it_is.low, as_it_is.high, (as_it_is.logit + turned.logit) / 2)


def affordable_scores(data: PUData, rows: Indices, *, device: str = "auto", **how: Any) -> CrossFitted:
    """Scores of these rows, by networks that fit the machine; the rest is as `network_scores` takes it.

    On a GPU all rows train and judge, and the estimators are given some of them, which are enough. On a CPU that would
    take hours for photographs of usual sizes; there a small network sees only these rows, made small."""
    if data.kind == "images" and Hardware.choose(device, EngineConfig()).device.type == "cpu":
        return network_scores(_made_small(data, rows), device=device, network="cnn-small", **how)
    found = network_scores(data, device=device, **how)
    return CrossFitted(found.plain[rows], found.cleaned[rows])


def _made_small(data: PUData, rows: Indices) -> PUData:
    """Some rows as images with no side above a limit, whose pixels are means over those of the large ones."""
    height, width = data.features.shape[1:3]
    scale = min(1.0, LARGEST_SIDE_ON_CPU / max(height, width))
    size = tuple(max(1, round(side * scale)) for side in (height, width))
    small = np.empty((len(rows), *size, data.features.shape[3]), dtype=data.features.dtype)
    for place, row in enumerate(rows.tolist()):
        # A copy: rows that are mapped from a file cannot be written to, of which torch warns.
        image = torch.from_numpy(np.array(data.features[row], dtype=np.float32)).permute(2, 0, 1)
        pooled = adaptive_avg_pool2d(image, size).permute(1, 2, 0).numpy()
        small[place] = pooled.round() if small.dtype == np.uint8 else pooled
    return PUData(small, data.labelled[rows], data.scenario)


@usual_torch()
def network_scores(
    data: PUData,
    *,
    seed: int,
    device: str = "auto",
    network: str = "auto",
    observer: Observer | None = None,
    checkpoints: Path | None = None,
) -> CrossFitted:
    """Scores of every row by networks that were trained on another half of the rows.

    A network learns the rows it is trained on by heart, so only the scores of the other half are worth anything. Two
    networks on different halves rank better together than either alone. With checkpoints, what was interrupted goes on.
    """
    from sklearn.model_selection import StratifiedKFold

    spec = TrainSpec(config=Config(), prior=None, backbone=network, seed=seed)
    context = open_context(data, spec, Runtime(device=device, checkpoints=checkpoints, observer=observer))
    labelled, every = context.data.labelled, []
    for number in range(CROSS_FITTINGS):
        found = CrossFitted(np.empty(len(labelled)), np.empty(len(labelled)))
        splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=sklearn_seed(seed + APART * number))
        for fold, (training, held_out) in enumerate(splitter.split(np.zeros(len(labelled)), labelled), start=1):
            name = f"prior.fold{number * FOLDS + fold}"
            found.plain[held_out], found.cleaned[held_out] = _Fold(context, training, held_out, name).scores()
        every.append(found)
    return mean_scores(every)


class _Fold:
    """One network, trained on a part of the rows first as it is and then against a cleaned U; scores the other part."""

    def __init__(self, context: Context, training: Rows, held_out: Rows, name: str) -> None:
        self.context, self.training, self.held_out, self.name = context, training, held_out, name
        self.network: Backbone = context.fresh_network(name)
        labelled = context.data.labelled[training]
        self.positives, self.unlabelled = training[labelled], training[~labelled]
        images = context.data.features.shape[1] if context.data.kind == "volumes" else 1
        self.batch = max(_SMALLEST_BATCH, _BATCH // images)
        kept = torch.ones(len(context.data), device=context.engine.hardware.device)
        self.task = ContrastTask(Carrier({"network": self.network}, kept=kept))

    def scores(self) -> CrossFitted:
        """Of the held-out rows, before and after the cleaning."""
        steps = -(-len(self.unlabelled) // min(self.batch, len(self.unlabelled)))
        times = min(max(1, math.ceil(FEWEST_STEPS / (steps * (WARM_UP + CLEANED)))), MOST_TIMES)
        self._train("plain", WARM_UP * times)
        plain = self._held_out_scores()
        self._clean()
        self._train("cleaned", CLEANED * times, after_epoch=self._after_epoch)
        return CrossFitted(plain, self._held_out_scores())

    def _train(self, part: str, epochs: int, after_epoch: AfterEpoch | None = None) -> None:
        stage = Stage(
            name=f"{self.name}.{part}",
            task=self.task,
            pools={
                "positives": Pool(self.positives, min(self.batch // _UNLABELLED_EACH, len(self.positives))),
                "unlabelled": Pool(self.unlabelled, min(self.batch, len(self.unlabelled))),
            },
            leading="unlabelled",
            epochs=epochs,
            optimiser=_OPTIMISER,
            identity={
                **self.context.surroundings(f"{self.name}.{part}"),
                "data": self.context.data_key,
                "epochs": epochs,
                "batch": self.batch,
                "optimiser": dataclasses.asdict(_OPTIMISER),
            },
            after_epoch=after_epoch,
        )
        self.context.engine.run(stage)

    def _after_epoch(self, record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        self._clean()
        return False

    def _clean(self) -> None:
        """Take the likely positives out of U, as many as the held-out rows say there are."""
        logits = self._logits(self.network)
        labelled = self.context.data.labelled
        aside = labelled[self.held_out]
        share = bbe(logits[self.held_out][aside], logits[self.held_out][~aside])
        still = without_likely_positives(labelled[self.training], logits[self.training], share)
        # In place: a captured step reads this very tensor.
        kept = self.task.kept
        kept[self.context.rows(self.training)] = torch.as_tensor(still, dtype=kept.dtype, device=kept.device)

    def _logits(self, network: nn.Module) -> Floats:
        logits: Floats = self.context.logits_of(network).double().cpu().numpy()
        return logits

    def _held_out_scores(self) -> Floats:
        """On the scale of the unlabelled rows among them, since the networks of two folds need not share one."""
        mirrored = self.context.data.kind != "vectors" and self.context.config.views.flip
        own = self._logits(Mirrored(self.network) if mirrored else self.network)[self.held_out]
        usual = own[~self.context.data.labelled[self.held_out]]
        scaled: Floats = (own - usual.mean()) / (usual.std() or 1.0)
        return scaled
