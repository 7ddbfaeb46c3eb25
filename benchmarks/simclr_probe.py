"""How fast a warm-up is, and how much of the classes its features tell.

    python benchmarks/simclr_probe.py cifar10 --backbone resnet18 --epochs 5 [--set warmup.temperature=0.2]

Trains the warm-up of the `record` preset for so many epochs, without labels, and prints the seconds of each epoch. Then
a diagnosis that chooses nothing: how well neighbours, and a linear model fitted to one half of the training rows, tell
the true classes of the other half. Test rows are never touched. Needs no command-line library.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch
from torch import Tensor

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.engine.stage import EpochRecord, Observer
from splitpu.methods.context import Context
from splitpu.methods.warmup import warmed_up
from splitpu.training import Runtime, TrainSpec, open_context, profile_of

ANY_LABELLED = 20  # the data are PU data; which rows are labelled makes no difference here
CHUNK = 1000
NEIGHBOURS = 20
RIDGE = 1.0


class Printer(Observer):
    """One line an epoch, at once."""

    def epoch_done(self, record: EpochRecord) -> None:
        """Print it."""
        terms = "  ".join(f"{name} {value:.4f}" for name, value in record.terms.items())
        print(f"epoch {record.epoch}/{record.epochs}  {record.seconds:.2f} s  {terms}", flush=True)


@torch.no_grad()
def unit_features(context: Context) -> Tensor:
    """The features of all training rows, each of length one."""
    network, engine = context.fresh_network("base").eval(), context.engine
    found = []
    for rows in torch.arange(len(context.data), device=engine.hardware.device).split(CHUNK):
        with engine.hardware.autocast():
            found.append(network(engine.views.plain(engine.rows.gather(rows))).high.float())
    return torch.nn.functional.normalize(torch.cat(found))


def by_neighbours(features: Tensor, truth: Tensor) -> float:
    """Accuracy on the second half of the majority of the nearest rows of the first."""
    half = len(features) // 2
    known, labels = features[:half], truth[:half]
    right = 0
    for some, true in zip(features[half:].split(CHUNK), truth[half:].split(CHUNK), strict=True):
        nearest = (some @ known.T).topk(min(NEIGHBOURS, half), dim=1).indices
        right += int(((labels[nearest].float().mean(dim=1) > 0.5) == true).sum())
    return right / (len(features) - half)


def by_linear_model(features: Tensor, truth: Tensor) -> float:
    """Accuracy on the second half of a ridge regression on the first."""
    half = len(features) // 2
    inputs = torch.cat([features, torch.ones_like(features[:, :1])], dim=1).double()
    known, targets = inputs[:half], truth[:half].double() * 2 - 1
    ridge = RIDGE * torch.eye(known.shape[1], dtype=known.dtype, device=known.device)
    weights = torch.linalg.solve(known.T @ known + ridge, known.T @ targets)
    return float(((inputs[half:] @ weights > 0) == truth[half:]).double().mean())


def main() -> None:
    """Train, time, diagnose."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", help="such as cifar10 or digits")
    parser.add_argument("--backbone", default="auto")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--cache", type=Path, help="folder of finished stages; the warm-up is kept there")
    parser.add_argument("--datasets", type=Path, help="cache of the data sets")
    options = parser.parse_args()
    named = load_named(options.set, options.datasets)
    data, _ = make_pu(named, ANY_LABELLED, options.seed)
    config = apply_overrides(
        preset("record", profile_of(data)),
        ["engine.checkpoint_every=10", *options.settings, f"warmup.epochs={options.epochs}"],
    )
    context = open_context(
        data,
        TrainSpec(prior=true_prior(named), config=config, backbone=options.backbone, seed=options.seed),
        Runtime(device=options.device, checkpoints=options.cache, observer=Printer()),
    )
    before, warm = unit_features(context), warmed_up(context)
    truth = torch.as_tensor(named.truth_train, device=context.engine.hardware.device)
    seconds = [record.seconds for record in context.engine.history]
    diagnosis = {
        name: {"neighbours": by_neighbours(features, truth), "linear": by_linear_model(features, truth)}
        for name, features in (("random weights", before), ("warmed up", unit_features(warm)))
    }
    summary = {
        "set": options.set,
        "network": context.recipe.name,
        "epochs": options.epochs,
        "settings": options.settings,
        "seconds_an_epoch": round(statistics.median(seconds), 3),
        "seconds": round(sum(seconds), 1),
        "engine": context.engine.describe(),
        "device": context.engine.hardware.describe(),
        "diagnosis, chooses nothing": diagnosis,
    }
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
