"""P against U through the engine and the package's own networks: for images that simple features do not describe."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

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
MOST_TIMES, LEAST = 4, 0.2  # the second where the model itself is trained for few epochs
LARGEST_SIDE_ON_CPU = 32  # of an image, in pixels
DEARER = 1.75  # times what it costs to train a model is what a pixel costs here, as measured with images of that size
_BATCH, _SMALLEST_BATCH = 256, 16  # images a step; of volumes fewer, as each is many images
_FEW, _STEPS = 48, 4  # images a step, or steps an epoch, where time is short: a step costs what it sees
_FORWARD, _LOOKS = 1 / 3, 5  # of a step's work the way there; how often it is gone beside once a cleaned epoch
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


def affordable_scores(
    data: PUData, rows: Indices, *, device: str = "auto", most: float = math.inf, **how: Any
) -> CrossFitted:
    """Scores of these rows, by networks that fit the machine; the rest is as `network_scores` takes it.

    On a GPU all rows train and judge, whatever that takes, and the estimators are given some, which are enough. On a
    CPU that would take hours for photographs of usual sizes; there a small network sees only these rows, made small, so
    that more of them come to as many pixels. It is the smallest of ours: whichever is trained later costs as much."""
    on_cpu = Hardware.choose(device, EngineConfig()).device.type == "cpu"
    if data.kind == "images" and on_cpu:
        small = _made_small(data, rows)
        most *= math.prod(data.features.shape[1:3]) / math.prod(small.features.shape[1:3]) / DEARER
        return network_scores(small, device=device, network="cnn-small", most=most, **how)
    found = network_scores(data, device=device, most=most if on_cpu else math.inf, **how)
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
    most: float = math.inf,
    observer: Observer | None = None,
    checkpoints: Path | None = None,
) -> CrossFitted:
    """Scores of every row by networks that were trained on another half of the rows.

    A network learns the rows it is trained on by heart, so only the scores of the other half are worth anything. Two
    networks on different halves rank better together than either alone. With checkpoints, what was interrupted goes on.
    `most` is how many rows all of them may be trained on, one that is seen twice counting twice."""
    from sklearn.model_selection import StratifiedKFold

    spec = TrainSpec(config=Config(), prior=None, backbone=network, seed=seed)
    context = open_context(data, spec, Runtime(device=device, checkpoints=checkpoints, observer=observer))
    labelled, every = context.data.labelled, []
    schedule = Schedule.within(most, data)
    for number in range(schedule.fittings):
        found = CrossFitted(np.empty(len(labelled)), np.empty(len(labelled)))
        splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=sklearn_seed(seed + APART * number))
        for fold, (training, held_out) in enumerate(splitter.split(np.zeros(len(labelled)), labelled), start=1):
            name = f"prior.fold{number * FOLDS + fold}"
            found.plain[held_out], found.cleaned[held_out] = _Fold(context, schedule, training, held_out, name).scores()
        every.append(found)
    return mean_scores(every)


class Schedule(NamedTuple):
    """How long the networks learn; a rule of numbers, so the same on every machine."""

    batch: int
    warm_up: int  # epochs
    cleaned: int
    fittings: int

    @classmethod
    def within(cls, most: float, data: PUData) -> Self:
        """The usual one; where that is too much as many epochs as fit, of small batches, or of a single fitting."""
        half = max(1, len(data.unlabelled) // FOLDS)
        usual = max(_SMALLEST_BATCH, _BATCH // (data.features.shape[1] if data.kind == "volumes" else 1))
        small = min(usual, max(half // max(half // _FEW, _STEPS), _SMALLEST_BATCH))
        steps = math.ceil(half / min(usual, half)) * (WARM_UP + CLEANED)
        times = min(max(1, math.ceil(FEWEST_STEPS / steps)), MOST_TIMES)
        lengths = range(WARM_UP * times, max(0, int(WARM_UP * LEAST) - 1), -1)
        shorter = [(small, length, many) for many in range(CROSS_FITTINGS, 0, -1) for length in lengths]
        plans = [(usual, WARM_UP * times, CROSS_FITTINGS), *shorter]
        found = [cls(batch, length, max(1, length * CLEANED // WARM_UP), many) for batch, length, many in plans]
        return next((one for one in found if one.work(data) <= most), found[-1])

    def work(self, data: PUData) -> float:
        """Rows that are trained on, and a third of one for each that is only scored."""
        half = max(1, len(data.unlabelled) // FOLDS)
        step = min(self.batch, half) + min(self.batch // _UNLABELLED_EACH, len(data.positives) // FOLDS)
        trained = (self.warm_up + self.cleaned) * (half // min(self.batch, half)) * step
        return FOLDS * self.fittings * (trained + _FORWARD * (self.cleaned + _LOOKS) * len(data))


class _Fold:
    """One network, trained on a part of the rows first as it is and then against a cleaned U; scores the other part."""

    def __init__(self, context: Context, schedule: Schedule, training: Rows, held_out: Rows, name: str) -> None:
        self.context, self.training, self.held_out, self.name = context, training, held_out, name
        self.network: Backbone = context.fresh_network(name)
        labelled = context.data.labelled[training]
        self.positives, self.unlabelled = training[labelled], training[~labelled]
        self.schedule = schedule
        kept = torch.ones(len(context.data), device=context.engine.hardware.device)
        self.task = ContrastTask(Carrier({"network": self.network}, kept=kept))

    def scores(self) -> CrossFitted:
        """Of the held-out rows, before and after the cleaning."""
        self._train("plain", self.schedule.warm_up)
        plain = self._held_out_scores()
        self._clean()
        self._train("cleaned", self.schedule.cleaned, after_epoch=self._after_epoch)
        return CrossFitted(plain, self._held_out_scores())

    def _train(self, part: str, epochs: int, after_epoch: AfterEpoch | None = None) -> None:
        batch = self.schedule.batch
        stage = Stage(
            name=f"{self.name}.{part}",
            task=self.task,
            pools={
                "positives": Pool(self.positives, min(batch // _UNLABELLED_EACH, len(self.positives))),
                "unlabelled": Pool(self.unlabelled, min(batch, len(self.unlabelled))),
            },
            leading="unlabelled",
            epochs=epochs,
            optimiser=_OPTIMISER,
            identity={
                **self.context.surroundings(f"{self.name}.{part}"),
                "data": self.context.data_key,
                "epochs": epochs,
                "batch": batch,
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
