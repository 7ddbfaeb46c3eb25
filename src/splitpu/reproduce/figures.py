"""What each figure of the paper is drawn from: a part of the method is run and looked at, with the truth at hand."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.engine.inference import training_logits
from splitpu.engine.loop import Engine
from splitpu.engine.stage import EpochRecord, Stage, StageOutcome
from splitpu.errors import InputError
from splitpu.methods.base_model import train_base
from splitpu.methods.context import Context, Student, Teacher
from splitpu.methods.split import SplitResult, split_unlabelled
from splitpu.methods.split_pu import train_student

COMPONENTS = 64  # principal components that the penalised regression sees of a feature
PIECE = 4000  # samples that are regressed together
_PATH_STEPS = 40
_PATH_END = 0.05  # the path ends at this share of the penalty at which the first sample enters
_SWEEPS = 25  # proximal steps at each penalty, each path point starting from the one before
# Figures of one epoch, given the stage's module and the epoch's number; an empty list leaves the epoch out.
Look = Callable[[Any, int], list[float]]
Series = dict[str, Any]

LOOK_EVERY = 10  # epochs between two regressions of SPR
MOST_SAMPLES = 12_000  # of the easy set that a detector sees
SUSPECTED_SHARE = 0.1
SHOWN_EACH = 10  # samples in a group of the gallery
_CHUNK = 256
_BINS = 41
_STUDENT = "round1.student"


def penalised_regression_suspicion(features: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """Give every sample the penalty at which SPR first takes its label for noise: the larger, the more suspect.

    A linear model explains one-hot labels by features, and each sample may deviate from it by a shift of its own that
    costs its length: `min |Y - X B - S|^2 / 2 + penalty * sum |S_i|`. From a high penalty downwards, the samples whose
    shift leaves zero first fit their label worst. Many samples are regressed in random pieces."""
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(seed)).to(features.device)
    centred = features.double() - features.double().mean(0)
    directions: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
    reduced = centred @ directions[:, -min(COMPONENTS, features.shape[1]) :]
    suspicion = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    for rows in order.chunk(max(1, round(len(features) / PIECE))):
        suspicion[rows] = _entry_penalties(reduced[rows], labels[rows])
    return suspicion


def _entry_penalties(features: Tensor, labels: Tensor) -> Tensor:
    """Follow the regularisation path of one piece by proximal gradient steps, warm-started from point to point."""
    constant = torch.ones(len(features), 1, dtype=features.dtype, device=features.device)
    # Only the space that the features span matters; an orthonormal basis of it makes every step one of length 1.
    basis, sizes, _ = torch.linalg.svd(torch.cat([features, constant], 1), full_matrices=False)
    basis = basis[:, sizes > 1e-9 * sizes[0]]
    targets = functional.one_hot(labels.long(), 2).to(features.dtype)
    unexplained = targets - basis @ (basis.T @ targets)
    highest = float(unexplained.norm(dim=1).max())
    entered = torch.zeros(len(features), dtype=features.dtype, device=features.device)
    shifts = torch.zeros_like(targets)
    for step in range(_PATH_STEPS):
        penalty = highest * _PATH_END ** (step / (_PATH_STEPS - 1))
        for _ in range(_SWEEPS):
            # A step down the gradient (I - H)(S - Y) of the squared error, H the projection on the features' span.
            moved = basis @ (basis.T @ shifts) + unexplained
            length = moved.norm(dim=1, keepdim=True).clamp_min(1e-300)
            shifts = moved * (1 - penalty / length).clamp_min(0)
        entered[(shifts.norm(dim=1) > 0) & (entered == 0)] = penalty
    return entered


def first_convolution_gradients(network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy's gradient with respect to the first convolution's weights, sample by sample.

    In eval mode samples do not see one another, so that the gradient at the layer's output, taken for the whole batch
    at once, holds one gradient a sample; weights and patches of the input give the rest. Returns (B, *weight.shape)."""
    plain = (one for one in network.modules() if isinstance(one, nn.Conv2d) and one.groups == 1)
    layer = next((one for one in plain if isinstance(one.padding, tuple)), None)
    if layer is None:
        raise InputError(f"{type(network).__name__} has no plain convolution; compare an image network instead")
    seen: list[Tensor] = []
    handle = layer.register_forward_hook(lambda _, arguments, output: seen.extend([arguments[0], output]))
    try:
        network.eval()
        with torch.enable_grad():
            # Where no weight asks for gradients, the input does, so that there is a graph at all.
            logit = network(inputs.detach().requires_grad_()).logit.float()
            loss = functional.binary_cross_entropy_with_logits(logit, targets.to(logit.dtype), reduction="sum")
            (at_output,) = torch.autograd.grad(loss, seen[1])
    finally:
        handle.remove()
    assert isinstance(layer.padding, tuple)  # as was asked for above
    patches = functional.unfold(seen[0].detach(), layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return torch.einsum("nol,npl->nop", at_output.flatten(2), patches).view(len(inputs), *layer.weight.shape)


def coherence(gradients: Tensor) -> Tensor:
    """Cosine between each sample's gradient and the mean gradient: a low one makes a sample suspect."""
    flat = gradients.flatten(1).double()
    return functional.cosine_similarity(flat, flat.mean(0, keepdim=True), dim=1)


class WatchingEngine(Engine):
    """An engine that takes figures after the epochs of chosen stages and keeps them with the stage's checkpoint."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._looks: dict[str, dict[str, Look]] = {}  # by stage and purpose
        self._seen: dict[tuple[str, str], list[list[float]]] = {}

    def watch(self, stage: str, **looks: Look) -> None:
        """Look at the stage of this name for these purposes, which become part of its checkpoint's name."""
        self._looks[stage] = looks

    def seen(self, stage: str, purpose: str, *columns: str) -> "Series":
        """What was seen, epoch by epoch: the number of the epoch, then what the look gave."""
        rows = self._seen[stage, purpose]
        return {name: [row[number] for row in rows] for number, name in enumerate(("epoch", *columns))}

    def run(self, stage: Stage) -> StageOutcome:
        """Train as always, with a look after each epoch that changes nothing in what is learned."""
        if stage.name not in self._looks:
            return super().run(stage)
        looks, before = self._looks[stage.name], stage.after_epoch

        def after_epoch(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
            stopped = before(record, memory) if before is not None else False
            for purpose, look in looks.items():
                row, place = look(stage.task.module, record.epoch), f"seen {purpose}"
                if row:
                    new = torch.tensor([[float(record.epoch), *row]], dtype=torch.float64)
                    memory[place] = torch.cat([memory[place].cpu(), new]) if place in memory else new
            return stopped

        # Under a name of its own: a checkpoint of the same stage that nobody watched holds no figures.
        stage.identity = {**stage.identity, "watched for": ", ".join(sorted(looks))}
        stage.after_epoch = after_epoch
        outcome = super().run(stage)
        for purpose in looks:
            self._seen[stage.name, purpose] = outcome.memory[f"seen {purpose}"].tolist()
        return outcome


@dataclass(frozen=True)
class Found:
    """A figure's data, and the models that were trained for it."""

    series: Series
    base: Teacher
    student: Student | None = None
    split: SplitResult | None = None


def noise_by_tau(context: Context, engine: WatchingEngine) -> Found:
    """Size and noise of easy and hard samples after every epoch of a temporary network that is not stopped."""
    base, name = train_base(context), "round1.split"
    rows = context.rows(context.data.unlabelled)
    decision = base.probabilities[rows] > 0.5
    noisy = decision != _truth(context)[rows]

    def look(network: nn.Module, _: int) -> list[float]:
        easy = (training_logits(network, engine.rows, engine.views, engine.hardware)[rows] > 0) == decision
        counts = (easy.sum(), (~easy).sum(), (easy & noisy).sum(), (~easy & noisy).sum())
        return [float(easy.double().mean()), *(float(count) for count in counts)]

    engine.watch(name, noise=look)
    split = split_unlabelled(context, base, 1)
    series = engine.seen(name, "noise", "agreement", "easy", "hard", "noisy_easy", "noisy_hard")
    return Found({**series, "noise_all": float(noisy.double().mean())}, base, split=split)


def learning_of_noise(context: Context, engine: WatchingEngine) -> Found:
    """How many clean and noisy easy samples the student decides as their pseudo-labels say, epoch by epoch."""
    first = _first_round(context, engine)
    series = engine.seen(_STUDENT, "learning", "clean", "noisy", "clean_missed", "noisy_missed")
    sizes = {"clean_size": int((~first.noisy).sum()), "noisy_size": int(first.noisy.sum())}
    return first.found({**series, **sizes})


def spr(context: Context, engine: WatchingEngine) -> Found:
    """Rank easy samples by SPR on the student's features every few epochs, and compare with the truth."""
    first = _first_round(context, engine)
    _, _, noisy = first.some
    series = engine.seen(_STUDENT, "spr", "selected", "selected_noisy", "auc")
    return first.found({**series, "noise_easy": float(noisy.double().mean()), "samples": len(noisy)})


def cgh(context: Context, engine: WatchingEngine) -> Found:
    """Gradients of single easy samples at the end of the first round, for clean and noisy ones."""
    first = _first_round(context, engine)
    easy, labels, noisy = first.some
    gradients = torch.cat(
        [
            first_convolution_gradients(first.student.network, engine.views.plain(engine.rows.gather(rows)), target)
            for rows, target in zip(torch.split(easy, _CHUNK), torch.split(labels, _CHUNK), strict=True)
        ]
    )
    weight, agreement = gradients.flatten(1)[:, 0].double(), coherence(gradients)
    # Shares in shared bins; the end ones gather the outermost hundredth, which would squeeze everything else.
    parts = {"clean": weight[~noisy].cpu().numpy(), "noisy": weight[noisy].cpu().numpy()}
    widest = float(np.quantile(np.abs(np.concatenate(list(parts.values()))), 0.99)) or 1.0
    edges = np.linspace(-widest, widest, _BINS + 1)
    shares = {
        f"{part}_share": (np.histogram(np.clip(own, -widest, widest), edges)[0] / max(len(own), 1)).tolist()
        for part, own in parts.items()
    }
    series = {
        "middle": ((edges[:-1] + edges[1:]) / 2).tolist(),
        **shares,
        "statistics": {"clean": _statistics(weight[~noisy]), "noisy": _statistics(weight[noisy])},
        "coherence": {"clean": _statistics(agreement[~noisy]), "noisy": _statistics(agreement[noisy])},
        **dict(zip(("selected", "selected_noisy", "auc"), _detection(-agreement, noisy), strict=True)),
        "noise_easy": float(noisy.double().mean()),
        "samples": len(easy),
    }
    return first.found(series)


def gallery(context: Context, engine: WatchingEngine) -> Found:
    """Pictures of easy and hard samples of both true classes."""
    from splitpu.evaluation.metrics import most_doubtful
    from splitpu.report.charts import png_address
    from splitpu.runs.report_data import surest

    first = _first_round(context, engine)
    split = first.split
    truth = _truth(context).cpu().numpy()[split.rows]
    said = first.student.probabilities.double().cpu().numpy()[split.rows]
    groups = {}
    for meaning, is_class in (("positive", truth), ("negative", ~truth)):
        groups[f"easy, truly {meaning}"] = surest(said, split.easy & is_class, SHOWN_EACH)
        hard = ~split.easy & is_class
        groups[f"hard, truly {meaning}"] = most_doubtful(split.teacher_probability, said, hard, SHOWN_EACH)
    series = {
        group: [
            {
                "row": int(split.rows[i]),
                "png": png_address(context.preprocessing.pixels(context.data.features[split.rows[i]])),
                "teacher": round(float(split.teacher_probability[i]), 4),
                "student": round(float(said[i]), 4),
            }
            for i in positions
        ]
        for group, positions in groups.items()
    }
    return first.found(series)


_MADE = (noise_by_tau, learning_of_noise, spr, cgh, gallery)
FIGURES = {figure.__name__.replace("_", "-"): figure for figure in _MADE}


@dataclass(frozen=True)
class _FirstRound:
    """Models and split of the first round, and which of its easy samples have wrong labels."""

    base: Teacher
    split: SplitResult
    student: Student
    noisy: Tensor
    some: tuple[Tensor, Tensor, Tensor]  # easy samples that a detector sees: rows, hard pseudo-labels, whether wrong

    def found(self, series: Series) -> Found:
        return Found(series, self.base, self.student, self.split)


def _first_round(context: Context, engine: WatchingEngine) -> _FirstRound:
    """Trained for all figures at once: whichever is made first, the others find base, split and student."""
    base = train_base(context)
    split = split_unlabelled(context, base, 1)
    easy = context.rows(split.rows[split.easy])
    labels = base.probabilities[easy] > 0.5
    noisy = labels != _truth(context)[easy]
    order = torch.randperm(len(easy), generator=torch.Generator().manual_seed(engine.seed))
    chosen = order[:MOST_SAMPLES].sort().values.to(easy.device)
    some, some_labels, some_noisy = easy[chosen], labels[chosen], noisy[chosen]

    def learning(module: Any, _: int) -> list[float]:
        logits = training_logits(module["network"], engine.rows, engine.views, engine.hardware)
        learned = (logits[easy] > 0) == labels
        parts = (~noisy, noisy)
        shares = [float(learned[part].double().mean()) if part.any() else math.nan for part in parts]
        return [*shares, *(float((~learned & part).sum()) for part in parts)]

    @torch.no_grad()
    def suspected(module: Any, epoch: int) -> list[float]:
        if epoch % LOOK_EVERY and epoch != context.config.student.epochs:
            return []
        with engine.hardware.autocast():
            inputs = (engine.views.plain(engine.rows.gather(rows)) for rows in torch.split(some, 4 * _CHUNK))
            features = torch.cat([module["network"](one).high.float() for one in inputs])
        return _detection(penalised_regression_suspicion(features, some_labels, engine.seed), some_noisy)

    engine.watch(_STUDENT, learning=learning, spr=suspected)
    student = train_student(context, base, split, 1)
    return _FirstRound(base, split, student, noisy, (some, some_labels, some_noisy))


def _truth(context: Context) -> Tensor:
    assert context.data.truth is not None  # as of all named sets
    return context.rows(context.data.truth)


def _detection(suspicion: Tensor, noisy: Tensor) -> list[float]:
    """Size of the most suspected share, the noise in it, and how well the whole ranking tells noisy from clean."""
    from sklearn.metrics import roc_auc_score

    count = max(1, round(SUSPECTED_SHARE * len(noisy)))
    suspected = suspicion.argsort(descending=True, stable=True)[:count]
    mixed = bool(noisy.any()) and not noisy.all()
    auc = roc_auc_score(noisy.cpu().numpy(), suspicion.double().cpu().numpy()) if mixed else math.nan
    return [float(count), float(noisy[suspected].sum()), float(auc)]


def _statistics(values: Tensor) -> dict[str, float]:
    if len(values) == 0:
        return {"count": 0}
    parts = torch.quantile(values, torch.tensor([0.25, 0.5, 0.75]).to(values)).tolist()
    found = {"count": len(values), "mean": float(values.mean()), "sd": float(values.std(correction=0))}
    return found | dict(zip(("quarter", "median", "three_quarters"), parts, strict=True))
