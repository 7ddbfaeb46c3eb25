"""Does the check for random labelling notice labels that prefer some positives, and what becomes of the prior?

python benchmarks/biased_labels.py          seven minutes on one core
python benchmarks/biased_labels.py --real   five minutes: digits and breast-cancer, k = 0 and 2
python benchmarks/biased_labels.py --draws 1         the first draw of each alone

600 positives and 700 negatives in six dimensions, N(1.2, 1) and N(-1.2, 1) in five, N(0, 1) in the last, which says
nothing about the class; 200 positives are labelled, drawn with weights sigmoid(2 k v), so k = 0 is at random. v is how
far a row lies on the clear side of the positives' centre, or on the side of the negatives, or the last dimension.
All is made up, and the true prior is 0.46. Of real sets v is the positives' first principal component.
"""

import argparse
import itertools

import numpy as np
from case_runner import table

from splitpu.data.public.datasets import load_named
from splitpu.data.pudata import PUData
from splitpu.evaluation.diagnostics import check_random_labelling
from splitpu.prior.estimate import estimate_prior

POSITIVES, NEGATIVES, LABELLED, TELLING, FROM_NOUGHT = 600, 700, 200, 5, 1.2
PREFERENCES, SEEDS = (0.0, 0.5, 1.0, 2.0), range(8)
REAL, REAL_SEEDS = (("digits", 50), ("digits", 150), ("breast-cancer", 40), ("breast-cancer", 80)), range(200, 212)
PREFERRED = {"clear": (0, 1.0), "near the negatives": (0, -1.0), "by what tells nothing": (TELLING, 1.0)}


def drawn(preferred: str, preference: float, seed: int) -> PUData:
    """Rows of which some positives are likelier to be labelled than others."""
    random = np.random.default_rng(seed)
    truth = np.arange(POSITIVES + NEGATIVES) < POSITIVES
    centres = np.zeros((len(truth), TELLING + 1))
    centres[:, :TELLING] = np.where(truth, FROM_NOUGHT, -FROM_NOUGHT)[:, None]
    noise = random.normal(size=centres.shape)
    dimension, sign = PREFERRED[preferred]
    weights = 1 / (1 + np.exp(-2 * preference * sign * noise[:POSITIVES, dimension]))
    labelled = np.zeros(len(truth), dtype=bool)
    labelled[random.choice(POSITIVES, LABELLED, replace=False, p=weights / weights.sum())] = True
    return PUData.from_arrays(centres + noise, labelled)


def drawn_real(name: str, labelled: int, preference: float, seed: int) -> PUData:
    """Training rows of a named set, some of whose positives are likelier to be labelled than others."""
    named, random = load_named(name), np.random.default_rng(seed)
    features, positives = np.asarray(named.features_train), np.flatnonzero(named.truth_train)
    flat = features[positives].reshape(len(positives), -1).astype(np.float64)
    flat = (flat - flat.mean(0)) / np.maximum(flat.std(0), 1e-9)
    along = flat @ np.linalg.svd(flat, full_matrices=False)[2][0]
    weights = 1 / (1 + np.exp(-2 * preference * along / along.std()))
    chosen = np.zeros(len(features), dtype=bool)
    chosen[random.choice(positives, labelled, replace=False, p=weights / weights.sum())] = True
    return PUData.from_arrays(features, chosen, channels="last" if features.ndim == 4 else "auto")


def real_sets(draws: int | None) -> None:
    """One line for each set, number of labels and strength."""
    lines, seeds = [], REAL_SEEDS[:draws]
    for (name, labelled), preference in itertools.product(REAL, (0.0, 2.0)):
        drawn_sets = [drawn_real(name, labelled, preference, seed) for seed in seeds]
        checks = [check_random_labelling(data, seed=seed) for seed, data in zip(seeds, drawn_sets, strict=True)]
        untold, doubted = sum(check.auc is None for check in checks), sum(check.doubtful for check in checks)
        lines.append([name, str(labelled), f"{preference:g}", f"{doubted} of {len(checks)}", str(untold)])
        print(*lines[-1], sep="; ", flush=True)
    table("labels along the first component", ["set", "labelled", "k", "doubted", "cannot be told"], lines)


def made_up(draws: int | None) -> None:
    """One line for each kind and strength of the preference."""
    lines, seeds = [], SEEDS[:draws]
    for preferred, preference in itertools.product(PREFERRED, PREFERENCES):
        estimates = [estimate_prior(drawn(preferred, preference, seed), seed=seed) for seed in seeds]
        checks = [
            check_random_labelling(drawn(preferred, preference, seed), scores=estimate.scores, seed=seed)
            for seed, estimate in zip(seeds, estimates, strict=True)
        ]
        found, doubted = [estimate.value for estimate in estimates], sum(check.doubtful for check in checks)
        lines.append(
            [preferred, f"{preference:g}", f"{min(found):.3f} to {max(found):.3f}", f"{doubted} of {len(seeds)}"]
        )
        print(*lines[-1], sep="; ", flush=True)
    table("labels that prefer some positives; true prior 0.46", ["preferred", "k", "estimates", "doubted"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="digits and breast-cancer instead of made-up rows")
    parser.add_argument("--draws", type=int, help="so many, not all")
    given = parser.parse_args()
    real_sets(given.draws) if given.real else made_up(given.draws)


if __name__ == "__main__":
    main()
