"""Does the check for random labelling notice labels that prefer clear positives, and what becomes of the prior?

python benchmarks/biased_labels.py          three minutes on one core

600 positives and 700 negatives in five dimensions, N(1.2, 1) and N(-1.2, 1) in each; 200 positives are labelled, drawn
with weights sigmoid(2 k (x0 - 1.2)), so k = 0 is at random. All is made up, and the true prior is 0.46.
"""

import numpy as np
from case_runner import table

from splitpu.data import PUData
from splitpu.evaluation import check_random_labelling
from splitpu.prior import estimate_prior

POSITIVES, NEGATIVES, LABELLED, DIMENSIONS, FROM_NOUGHT = 600, 700, 200, 5, 1.2
PREFERENCES, SEEDS = (0.0, 0.5, 1.0, 2.0, 4.0), range(4)


def drawn(preference: float, seed: int) -> PUData:
    """Rows of which the clearest positives are the likeliest to be labelled."""
    random = np.random.default_rng(seed)
    truth = np.arange(POSITIVES + NEGATIVES) < POSITIVES
    rows = random.normal(size=(len(truth), DIMENSIONS)) + np.where(truth, FROM_NOUGHT, -FROM_NOUGHT)[:, None]
    weights = 1 / (1 + np.exp(-2 * preference * (rows[:POSITIVES, 0] - FROM_NOUGHT)))
    labelled = np.zeros(len(truth), dtype=bool)
    labelled[random.choice(POSITIVES, LABELLED, replace=False, p=weights / weights.sum())] = True
    return PUData.from_arrays(rows, labelled)


def main() -> None:
    """One line for each strength of the preference."""
    lines = []
    for preference in PREFERENCES:
        draws = [drawn(preference, seed) for seed in SEEDS]
        found = [estimate_prior(data, seed=seed).value for seed, data in zip(SEEDS, draws, strict=True)]
        doubted = sum(check_random_labelling(data, seed=seed).doubtful for seed, data in zip(SEEDS, draws, strict=True))
        lines.append([f"{preference:g}", f"{min(found):.3f} to {max(found):.3f}", f"{doubted} of {len(draws)}"])
    table("labels that prefer clear positives; true prior 0.46", ["k", "estimates", "doubted"], lines)


if __name__ == "__main__":
    main()
