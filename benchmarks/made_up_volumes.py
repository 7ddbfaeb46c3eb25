"""Whether the default settings for volumes learn at all, on made-up patients in whom the answer is easy to see.

    python benchmarks/made_up_volumes.py [--rate 1e-3] [--batch 32] [--epochs 40] [--seeds 0,1,2]

A positive has a bright square in one of its two or three slices of noise. The base model alone is trained, with the
settings of the `default` preset unless told otherwise. What may decide between settings is printed first: the estimated
accuracy from held-out positives and population rows. The true ROC-AUC on other patients is a diagnosis.
"""

import argparse
import time

import numpy as np
from sklearn.metrics import roc_auc_score

from splitpu import SplitPUClassifier
from splitpu.evaluation.held_out import pu_criterion

PATIENTS, LABELLED, SLICES, SIDE = 100, 30, 3, 8
PRIOR = 0.5


def patients(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Volumes and the truth; every other patient is positive, every third has a slice less."""
    random = np.random.default_rng(seed)
    truth = np.arange(count) % 2 == 0
    made = random.integers(1, 120, (count, SLICES, SIDE, SIDE, 1)).astype(np.uint8)
    lengths = np.where(np.arange(count) % 3 == 0, SLICES - 1, SLICES)
    for volume, positive, length in zip(made, truth, lengths, strict=True):
        volume[length:] = 0
        if positive:
            row, column = random.integers(0, SIDE // 2 + 1, 2)
            volume[random.integers(length), row : row + SIDE // 2, column : column + SIDE // 2] += 100
    return made, truth


def main() -> None:
    """Train once a seed and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rate", type=float)
    asked.add_argument("--batch", type=int)
    asked.add_argument("--epochs", type=int)
    asked.add_argument("--seeds", default="0")
    words = asked.parse_args()
    given = {"base.optimiser.rate": words.rate, "base.batch_size": words.batch, "base.epochs": words.epochs}
    settings = {key: value for key, value in given.items() if value is not None}
    for seed in map(int, words.seeds.split(",")):
        features, truth = patients(PATIENTS, seed)
        labelled = np.zeros(PATIENTS, np.int64)
        labelled[np.flatnonzero(truth)[:LABELLED]] = 1
        started = time.process_time()
        model = SplitPUClassifier(prior=PRIOR, rounds=0, config=settings, random_state=seed, device="cpu")
        model.fit(features, labelled)
        seconds = time.process_time() - started
        held_out, held_out_truth = patients(PATIENTS, seed + 1000)
        scores = model.decision_function(held_out)
        known = np.flatnonzero(held_out_truth)[:LABELLED]  # of these alone the label is looked at
        estimate = pu_criterion(scores[known], scores, PRIOR)
        others, others_truth = patients(2 * PATIENTS, seed + 2000)
        area = roc_auc_score(others_truth, model.decision_function(others))
        print(
            f"seed {seed}: estimated accuracy {estimate:.3f} from held-out P and U; ROC-AUC {area:.3f} on others; "
            f"{seconds:.0f} s of processor time",
            flush=True,
        )


if __name__ == "__main__":
    main()
