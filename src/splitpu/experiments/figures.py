"""What each figure of the paper is drawn from: a part of the method is run and looked at, with the truth at hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from splitpu.engine.inference import training_logits
from splitpu.experiments.noise_detection import (
    coherence,
    first_convolution_gradients,
    penalised_regression_suspicion,
)
from splitpu.experiments.watching import WatchingEngine
from splitpu.methods.base import train_base
from splitpu.methods.context import Context, Student, Teacher
from splitpu.methods.split import SplitResult, split_unlabelled
from splitpu.methods.student import train_student

Series = dict[str, Any]
Bools = npt.NDArray[np.bool_]

LOOK_EVERY = 10  # epochs between two regressions of SPR
MOST_SAMPLES = 12_000  # of the easy set that a detector sees
SUSPECTED_SHARE = 0.1
SHOWN_EACH = 10  # samples in a group of the gallery
_CHUNK = 256
_STUDENT = "round1.student"


@dataclass(frozen=True)
class Found:
    """A figure's data, and the models that were trained for it."""

    series: Series
    base: Teacher
    student: Student | None = None
    split: SplitResult | None = None


def noise_by_tau(context: Context, engine: WatchingEngine) -> Found:
    """Size and noise of easy and hard samples after every epoch of a temporary network that is not stopped."""
    base = train_base(context)
    rows = context.rows(context.data.unlabelled)
    decision = base.probabilities[rows] > 0.5
    noisy = decision != _truth(context)[rows]
    name = "round1.split"
    engine.watch(name, noise=lambda network, _: _split_figures(context, network, rows, decision, noisy))
    split = split_unlabelled(context, base, 1)
    columns = ("epoch", "agreement", "easy", "hard", "noisy_easy", "noisy_hard")
    series = _columns(columns, engine.seen(name, "noise"))
    return Found({**series, "noise_all": float(noisy.double().mean())}, base, split=split)


def _split_figures(
    context: Context, network: torch.nn.Module, rows: Tensor, decision: Tensor, noisy: Tensor
) -> list[float]:
    engine = context.engine
    logits = training_logits(network, engine.rows, engine.views, engine.hardware)
    easy = (logits[rows] > 0) == decision
    counts = (easy.sum(), (~easy).sum(), (easy & noisy).sum(), (~easy & noisy).sum())
    return [float(easy.double().mean()), *(float(count) for count in counts)]


def learning_of_noise(context: Context, engine: WatchingEngine) -> Found:
    """How many clean and noisy easy samples the student decides as their pseudo-labels say, epoch by epoch."""
    first = _first_round(context, engine)
    columns = ("epoch", "clean", "noisy", "clean_missed", "noisy_missed")
    series = _columns(columns, engine.seen(_STUDENT, "learning"))
    sizes = {"clean_size": int((~first.noisy).sum()), "noisy_size": int(first.noisy.sum())}
    return first.found({**series, **sizes})


def spr(context: Context, engine: WatchingEngine) -> Found:
    """Rank easy samples by SPR on the student's features every few epochs, and compare with the truth."""
    first = _first_round(context, engine)
    _, _, noisy = first.some(context)
    series = _columns(("epoch", "selected", "selected_noisy", "auc"), engine.seen(_STUDENT, "spr"))
    return first.found({**series, "noise_easy": float(noisy.double().mean()), "samples": len(noisy)})


def cgh(context: Context, engine: WatchingEngine) -> Found:
    """Gradients of single easy samples at the end of the first round, for clean and noisy ones."""
    first = _first_round(context, engine)
    easy, labels, noisy = first.some(context)
    gradients = torch.cat(
        [
            first_convolution_gradients(first.student.network, engine.views.plain(engine.rows.gather(rows)), target)
            for rows, target in zip(torch.split(easy, _CHUNK), torch.split(labels, _CHUNK), strict=True)
        ]
    )
    weight = gradients.flatten(1)[:, 0].double()
    agreement = coherence(gradients)
    selected, selected_noisy, auc = _detection(-agreement, noisy)
    series = {
        **_histograms(weight[~noisy].cpu().numpy(), weight[noisy].cpu().numpy()),
        "statistics": {"clean": _statistics(weight[~noisy]), "noisy": _statistics(weight[noisy])},
        "coherence": {"clean": _statistics(agreement[~noisy]), "noisy": _statistics(agreement[noisy])},
        "selected": selected,
        "selected_noisy": selected_noisy,
        "auc": auc,
        "noise_easy": float(noisy.double().mean()),
        "samples": len(easy),
    }
    return first.found(series)


def gallery(context: Context, engine: WatchingEngine) -> Found:
    """Pictures of easy and hard samples of both true classes."""
    from splitpu.evaluation.doubtful import most_doubtful
    from splitpu.report.png import png_address
    from splitpu.runs.page import surest

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


FIGURES: dict[str, Callable[[Context, WatchingEngine], Found]] = {
    "noise-by-tau": noise_by_tau,
    "learning-of-noise": learning_of_noise,
    "spr": spr,
    "cgh": cgh,
    "gallery": gallery,
}


@dataclass(frozen=True)
class _FirstRound:
    """Models and split of the first round, and of the easy samples: rows, hard pseudo-labels, whether wrong."""

    base: Teacher
    split: SplitResult
    student: Student
    easy: Tensor
    labels: Tensor
    noisy: Tensor

    def found(self, series: Series) -> Found:
        """A figure that was made of it."""
        return Found(series, self.base, self.student, self.split)

    def some(self, context: Context) -> tuple[Tensor, ...]:
        """As many of the easy samples as a detector sees."""
        return _some(context, self.easy, self.labels, self.noisy)


def _first_round(context: Context, engine: WatchingEngine) -> _FirstRound:
    """Trained for all figures at once: whichever is made first, the others find base, split and student."""
    base = train_base(context)
    split = split_unlabelled(context, base, 1)
    easy = context.rows(split.rows[split.easy])
    labels = base.probabilities[easy] > 0.5
    noisy = labels != _truth(context)[easy]
    some, some_labels, some_noisy = _some(context, easy, labels, noisy)

    def learning(network: torch.nn.Module) -> list[float]:
        learned = (training_logits(network, engine.rows, engine.views, engine.hardware)[easy] > 0) == labels
        clean_missed, noisy_missed = (~learned & ~noisy).sum(), (~learned & noisy).sum()
        shares = [float(learned[part].double().mean()) if part.any() else float("nan") for part in (~noisy, noisy)]
        return [*shares, float(clean_missed), float(noisy_missed)]

    def suspected(network: torch.nn.Module, epoch: int) -> list[float]:
        if epoch % LOOK_EVERY and epoch != context.config.student.epochs:
            return []
        suspicion = penalised_regression_suspicion(_features(context, network, some), some_labels, engine.seed)
        return _detection(suspicion, some_noisy)

    engine.watch(
        _STUDENT,
        learning=lambda module, _: learning(module["network"]),
        spr=lambda module, epoch: suspected(module["network"], epoch),
    )
    student = train_student(context, base, split, 1)
    return _FirstRound(base, split, student, easy, labels, noisy)


def _truth(context: Context) -> Tensor:
    truth = context.data.truth
    if truth is None:
        raise ValueError("figures about noise need data with known truth")
    return context.rows(truth)


def _some(context: Context, *of_samples: Tensor) -> tuple[Tensor, ...]:
    """The same few of each, in their order."""
    count = len(of_samples[0])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(context.engine.seed))
    chosen = order[:MOST_SAMPLES].sort().values.to(of_samples[0].device)
    return tuple(one[chosen] for one in of_samples)


@torch.no_grad()
def _features(context: Context, network: torch.nn.Module, rows: Tensor) -> Tensor:
    engine = context.engine
    with engine.hardware.autocast():
        parts = [
            network(engine.views.plain(engine.rows.gather(some))).high.float() for some in torch.split(rows, 4 * _CHUNK)
        ]
    return torch.cat(parts)


def _detection(suspicion: Tensor, noisy: Tensor) -> list[float]:
    """Size of the most suspected share, the noise in it, and how well the whole ranking tells noisy from clean."""
    count = max(1, round(SUSPECTED_SHARE * len(noisy)))
    suspected = suspicion.argsort(descending=True, stable=True)[:count]
    return [float(count), float(noisy[suspected].sum()), _ranking_quality(suspicion, noisy)]


def _ranking_quality(suspicion: Tensor, noisy: Tensor) -> float:
    from sklearn.metrics import roc_auc_score

    if noisy.all() or not noisy.any():
        return float("nan")
    return float(roc_auc_score(noisy.cpu().numpy(), suspicion.double().cpu().numpy()))


def _histograms(clean: npt.NDArray[np.float64], noisy: npt.NDArray[np.float64], bins: int = 41) -> Series:
    """Shares in shared bins; the end ones gather the outermost hundredth, which would squeeze everything else."""
    widest = float(np.quantile(np.abs(np.concatenate([clean, noisy])), 0.99)) or 1.0
    edges = np.linspace(-widest, widest, bins + 1)
    shares = {
        name: (np.histogram(np.clip(values, -widest, widest), edges)[0] / max(len(values), 1)).tolist()
        for name, values in (("clean_share", clean), ("noisy_share", noisy))
    }
    return {"middle": ((edges[:-1] + edges[1:]) / 2).tolist(), **shares}


def _statistics(values: Tensor) -> dict[str, float]:
    if len(values) == 0:
        return {"count": 0}
    quarter, median, three_quarters = torch.quantile(values, torch.tensor([0.25, 0.5, 0.75]).to(values)).tolist()
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "sd": float(values.std(correction=0)),
        "quarter": quarter,
        "median": median,
        "three_quarters": three_quarters,
    }


def _columns(names: tuple[str, ...], rows: list[list[float]]) -> Series:
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}
