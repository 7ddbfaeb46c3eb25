"""How do the other methods' settings behave on photographs? CIFAR-10 at 8 x 8 pixels: a minute or two of a core.

python benchmarks/rivals_tiny.py dan --set dan.anchor=0.1 --seeds 0,1 [--network thin]
python benchmarks/rivals_tiny.py self-pu --few --set self_pu.trust_from=0.4 --seeds 0,1
python benchmarks/rivals_tiny.py vpu --more --set vpu.epochs=25

The settings start from those for 50,000 images; 8,000 of the training images are learned from, 160 of them labelled, so
that steps see them as often as the table `competitors` does. With --few they are those for few images, 546 with 40
labelled, as in `competitors-breastmnist`. With --more 20,000 images of 16 x 16 pixels are learned from, 400 of them
labelled, by the 13-layer network with a quarter of its channels, which can learn labelled images by heart as the whole
one does on a GPU: some minutes of a core. Judged on other training images by P and U alone: the
accuracy that 2,000 more labelled images and 8,000 unlabelled ones estimate, at the method's own cut and at the prior,
and the ROC AUC.
No test image is opened.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
from thin_cnn13 import CHANNELS, ThinCNN13

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import SMALL, DataProfile, preset
from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import true_prior
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.evaluation.held_out import pu_criterion
from splitpu.evaluation.metrics import auc_against_unlabelled
from splitpu.methods.thresholds import matched_threshold
from splitpu.training import Runtime, TrainSpec, train

JUDGING_ROWS, JUDGING_POSITIVES = 8_000, 2_000


@dataclass(frozen=True)
class Size:
    """How much is learned from: images, how many of them are labelled, and by how much they are shrunk."""

    rows: int
    labelled: int
    shrunk: int = 4
    channels: int = CHANNELS  # of the thin network
    profile: int = 10 * SMALL  # the number of images whose settings are taken


MANY, FEW, MORE = Size(8_000, 160), Size(546, 40, profile=546), Size(20_000, 400, shrunk=2, channels=24)


def main() -> None:
    options = _options()
    size = FEW if options.few else MORE if options.more else MANY
    for seed in map(int, options.seeds.split(",")):
        began = time.perf_counter()
        found = judged(options.method, options.set, seed, options.network, size)
        words = ", ".join(f"{name} {100 * value:.1f}" for name, value in found.items())
        changed = " ".join(options.set) or "as it is"
        print(f"{options.method} ({changed}), seed {seed}: {words}; {time.perf_counter() - began:.0f} s", flush=True)


def judged(method: str, settings: list[str], seed: int, network: str, size: Size) -> dict[str, float]:
    """Train on some rows; estimate recall, rate and accuracy on others."""
    data, positives, population, prior = drawn(seed, size)
    config = preset("default", DataProfile("images", size.profile, size.labelled))
    overrides = [f"method={method}", "threshold=half", "engine.threads=1", *settings]

    def thin() -> ThinCNN13:
        return ThinCNN13(32 // size.shrunk, 3, size.channels)

    training = train(
        data,
        TrainSpec(
            prior=prior,
            config=apply_overrides(config, overrides),
            backbone=thin if network == "thin" or size is MORE else network,
            seed=seed,
        ),
        Runtime(device="cpu"),
    )
    hardware, model = Hardware.choose("cpu", training.model.config.engine), training.model
    on_positives, on_population = (model.decision(rows, hardware) for rows in (positives, population))
    cut = matched_threshold(training.result.final.logits, prior) - training.result.final.threshold
    return {
        "ROC AUC": (auc_against_unlabelled(on_positives, on_population)[0] - prior / 2) / (1 - prior),
        "accuracy": pu_criterion(on_positives, on_population, prior),
        "cut at the prior": pu_criterion(on_positives - cut, on_population - cut, prior),
        "recall": float((on_positives > 0).mean()),
        "called positive": float((on_population > 0).mean()),
    }


def drawn(seed: int, size: Size) -> tuple[PUData, np.ndarray, np.ndarray, float]:
    """PU data to learn from, and positives and population rows to judge by; none is among two of them."""
    named = load_named("cifar10")
    order = np.random.default_rng(seed).permutation(len(named.truth_train))
    learned, judging, rest = np.split(order, [size.rows, size.rows + JUDGING_ROWS])
    labelled = np.zeros(size.rows, dtype=bool)
    labelled[np.flatnonzero(named.truth_train[learned])[: size.labelled]] = True
    more = rest[named.truth_train[rest]][:JUDGING_POSITIVES]
    small, positives, population = (
        _shrunk(named.features_train[np.sort(rows)], size.shrunk) for rows in (learned, more, judging)
    )
    back = np.argsort(learned)
    truth = named.truth_train[learned][back]
    return (
        PUData.from_arrays(small, labelled[back], truth=truth, channels="last"),
        positives,
        population,
        true_prior(named),
    )


def _shrunk(images: np.ndarray, by: int) -> np.ndarray:
    """Means of little squares."""
    count, height, width, channels = images.shape
    squares = images.reshape(count, height // by, by, width // by, by, channels)
    return squares.mean(axis=(2, 4)).round().astype(np.uint8)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--few", action="store_true", help="learn from 546 images")
    parser.add_argument("--more", action="store_true", help="learn from 20,000 images with a wider network")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--network", default="cnn-small", choices=("cnn-small", "thin"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
