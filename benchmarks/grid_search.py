"""Does a search that sees no negatives choose as well as one that sees the truth? GridSearchCV on digits.

python benchmarks/grid_search.py --quick --jobs 2                     one seed, four settings
python benchmarks/grid_search.py --jobs 14 --out grid_search.jsonl    three seeds, eight settings

Every setting is fitted on all training rows and judged by the true labels of the test rows, on average over five
trainings: single ones of one setting differ by a point or two. The search is only given labelled and unlabelled rows.
What counts is the true accuracy of its choice against the best one there was.
"""

import argparse
import warnings
from typing import Any

import numpy as np
from case_runner import Key, add_options, met, run_cases, table
from machine import machine
from sklearn.model_selection import GridSearchCV

from splitpu import PUStratifiedKFold, SplitPUClassifier, load_named, make_pu, make_pu_scorer
from splitpu.data.public.named_set import true_prior
from splitpu.data.pudata import HeldOut, PUData

GOAL = 0.5  # points of accuracy
LABELLED, FOLDS, TRAININGS = 150, 5, 5
GRID = [
    {"base.epochs": epochs, "base.optimiser.rate": rate, "base.positives_per_batch": positives}
    for epochs in (3, 25)
    for rate in (1e-4, 1e-3)
    for positives in (0, 32)
]
QUICK_GRID = [setting for setting in GRID if setting["base.positives_per_batch"] == 32]


def main() -> None:
    options = _options()
    seeds = [0] if options.quick and options.seeds is None else map(int, (options.seeds or "0,1,2").split(","))
    scorers = options.scorers.split(",")
    cases = [{"seed": seed, "quick": options.quick, "scorer": scorer} for seed in seeds for scorer in scorers]
    show(run_cases(cases, searched, options))


def searched(case: Key) -> dict[str, Any]:
    """Search with the PU scorer, and look up afterwards what the truth would have said."""
    warnings.simplefilter("ignore")
    grid = QUICK_GRID if case["quick"] else GRID
    named = load_named("digits")
    data, held_out = make_pu(named, LABELLED, seed=case["seed"])
    prior, labels = true_prior(named), data.labelled.astype(int)
    model = SplitPUClassifier(prior=prior, rounds=0, learner="network", random_state=case["seed"])
    search = GridSearchCV(
        model,
        {"config": grid},
        scoring=make_pu_scorer(case["scorer"], prior=prior),
        cv=PUStratifiedKFold(FOLDS, random_state=case["seed"]),
        refit=False,
    ).fit(data.features, labels)
    by_truth = [
        float(np.mean([true_accuracy(data, held_out, prior, setting, seed) for seed in range(TRAININGS)]))
        for setting in grid
    ]
    chosen = int(search.best_index_)
    lost = 100 * (max(by_truth) - by_truth[chosen])
    return {
        "settings": grid,
        "pu_score": [float(score) for score in search.cv_results_["mean_test_score"]],
        "true_accuracy": by_truth,
        "chosen": chosen,
        "lost": lost,
        "in_words": f"{lost:.2f} points lost",
        "machine": machine(),
    }


def true_accuracy(data: PUData, held_out: HeldOut, prior: float, setting: Key, seed: int) -> float:
    """Of one training, on the test rows."""
    model = SplitPUClassifier(prior=prior, rounds=0, random_state=seed, config=setting)
    predicted = model.fit(data.features, data.labelled.astype(int)).predict(held_out.features)
    return float((predicted == held_out.truth).mean())


def show(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        rows = [
            [
                " ".join(f"{key.removeprefix('base.')}={value}" for key, value in setting.items()),
                f"{score:.4f}",
                f"{100 * accuracy:.2f}",
                "chosen" if number == line["chosen"] else "",
            ]
            for number, (setting, score, accuracy) in enumerate(
                zip(line["settings"], line["pu_score"], line["true_accuracy"], strict=True)
            )
        ]
        case = line["case"]
        table(f"seed {case['seed']}, by {case['scorer']}", ["setting", "PU score", "true accuracy %", ""], rows)
    for scorer in dict.fromkeys(line["case"]["scorer"] for line in lines):
        lost = [line["lost"] for line in lines if line["case"]["scorer"] == scorer]
        print(
            f"\n{scorer}: {np.mean(lost):.2f} points lost on average, {max(lost):.2f} at most over {len(lost)} seeds; "
        )
        print(f"goal {GOAL}: {met(float(np.mean(lost)) <= GOAL)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four settings, and one seed unless --seeds says more")
    parser.add_argument("--seeds", help="with commas; 0,1,2 if not given")
    parser.add_argument("--scorers", default="accuracy", help="with commas")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
