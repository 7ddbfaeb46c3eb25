"""What does a method make of 40 labelled images while it learns? BreastMNIST's training images, epoch by epoch.

python benchmarks/rivals_few.py p3mix --data-dir FOLDER --network cnn13 --seed 2
python benchmarks/rivals_few.py dan --data-dir FOLDER --set dan.anchor_level=1.0

Settings and draws are those of the table `competitors-breastmnist`. Printed are shares of P and U that are called
positive, and of U above 0.8: as the model is used, and with the statistics of plain batches in place of the running
ones, which are those of the views or mixtures that it was taught with. A fifth of U is positive. No test image is used.
"""

import argparse
import copy
from pathlib import Path

import torch
from thin_cnn13 import ThinCNN13
from torch import Tensor, nn

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import DataProfile, preset
from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.engine.stage import EpochRecord, Observer, Stage
from splitpu.methods.context import Context
from splitpu.methods.registry import find_method
from splitpu.training import Runtime, TrainSpec, open_context

LABELLED, BATCHES, CONFIDENT = 40, 4, 0.8


class Watching(Observer):
    """Looks at the stage's first network after every so many epochs."""

    context: Context
    stage: Stage

    def __init__(self, every: int) -> None:
        self.every = every

    def stage_started(self, stage: Stage, done: int) -> None:
        self.stage = stage

    def epoch_done(self, record: EpochRecord) -> None:
        if record.epoch % self.every and record.epoch != record.epochs:
            return
        task = self.stage.task
        network = getattr(task, "network", task.module)
        words = [f"as used: {self._said(self.context.logits_of(network))}"]
        words.append(f"by plain batches: {self._said(plain_batches(self.context, network))}")
        words += [f"{name} {value:.3f}" for name, value in record.terms.items()]
        print(f"epoch {record.epoch}: " + "; ".join(words), flush=True)

    def _said(self, logits: Tensor) -> str:
        data, probability = self.context.data, torch.sigmoid(logits)
        positives, unlabelled = (probability[self.context.rows(rows)] for rows in (data.positives, data.unlabelled))
        shares = [(positives > 0.5), (unlabelled > 0.5), (unlabelled >= CONFIDENT)]
        p, u, confident = (float(share.float().mean()) for share in shares)
        return f"P {p:.2f} U {u:.2f} U above {CONFIDENT} {confident:.2f}"


@torch.no_grad()
def plain_batches(context: Context, network: nn.Module) -> Tensor:
    """Logits of a copy that normalises each batch of plain views by itself."""
    engine, copied = context.engine, copy.deepcopy(network).train()
    logits = torch.empty(len(engine.rows))
    for rows in torch.randperm(len(logits), generator=torch.Generator().manual_seed(0)).tensor_split(BATCHES):
        logits[rows] = copied(engine.views.plain(engine.rows.gather(rows))).logit.float()
    return logits


def main() -> None:
    options = _options()
    named = load_named("breastmnist", folder=options.data_dir)
    data, _ = make_pu(named, LABELLED, options.seed)
    config = preset("default", DataProfile("images", len(data), LABELLED))
    wanted = [f"method={options.method}", "threshold=half", "views.flip=true", "engine.threads=1", *options.set]
    watching = Watching(options.every)
    context = open_context(
        data,
        TrainSpec(
            prior=true_prior(named),
            config=apply_overrides(config, wanted),
            backbone=_thin if options.network == "thin" else options.network,
            seed=options.seed,
        ),
        Runtime(device="cpu", observer=watching),
    )
    watching.context = context
    final = find_method(options.method).run(context).final
    called = (final.logits > final.threshold)[context.rows(data.unlabelled)].float().mean()
    print(f"{options.method}, {options.network}, seed {options.seed}: {100 * float(called):.1f} % of U called positive")


def _thin() -> nn.Module:
    return ThinCNN13(28, 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder that holds medmnist/breastmnist.npz")
    parser.add_argument("--network", default="thin", choices=("thin", "cnn-small", "cnn13"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
