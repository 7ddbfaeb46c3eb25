"""What a label-free warm-up is worth where images are few: digits, in groupings that no setting was chosen on.

OMP_NUM_THREADS=1 python benchmarks/warmup_digits.py                    four draws, about six minutes on one thread
OMP_NUM_THREADS=1 python benchmarks/warmup_digits.py --draws 1          one

Accuracy on the test rows of the base model and of every student, with preset `default` and with `record`, which has the
warm-up. Test labels are only reported.
"""

import argparse
import itertools
import warnings

import numpy as np
from sklearn.datasets import load_digits

from splitpu.config.presets import preset
from splitpu.data.pudata import PUData
from splitpu.engine.inference import predict_logits
from splitpu.training import Runtime, TrainSpec, profile_of, train
from splitpu.views import Views

GROUPINGS, SEEDS = ((0, 1, 2, 3, 4), (0, 1, 4, 7, 9)), (100, 101)
LABELLED, TRAINING_ROWS = 50, 1347


def accuracies(positives: tuple[int, ...], seed: int, name: str) -> list[float]:
    """Percent of the test rows that base model and students get right."""
    digits = load_digits()
    images = (digits.images * 255 / 16).astype(np.uint8)[..., None]
    truth = np.isin(digits.target, positives)
    random = np.random.default_rng(seed)
    order = random.permutation(len(images))
    training, test = order[:TRAINING_ROWS], order[TRAINING_ROWS:]
    labelled = np.zeros(len(training), dtype=bool)
    labelled[random.choice(np.flatnonzero(truth[training]), LABELLED, replace=False)] = True
    data = PUData.from_arrays(images[training], labelled, channels="last")
    prior = float(truth[training].mean())
    done = train(data, TrainSpec(prior=prior, config=preset(name, profile_of(data)), seed=seed), Runtime(device="cpu"))
    views = Views(done.model.preprocessing, done.model.config.views, done.hardware.device)
    found = []
    for teacher in (done.result.base, *(one.student for one in done.result.rounds)):
        decision = predict_logits(teacher.network, images[test], views, done.hardware) - teacher.threshold
        found.append(round(100 * float(((decision > 0) == truth[test]).mean()), 2))
    return found


def main() -> None:
    """Print a line a draw and preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4, help="how many of the four")
    warnings.simplefilter("ignore")  # whether a split reached tau is not the question
    for positives, seed in list(itertools.product(GROUPINGS, SEEDS))[: parser.parse_args().draws]:
        for name in ("default", "record"):
            print(positives, seed, name, accuracies(positives, seed, name), flush=True)


if __name__ == "__main__":
    main()
