"""Run by prior.py with another interpreter: what pulearn and pu-toolbox make of the prior of one data set.

Prints one JSON object on the last line. pulearn estimates the share in the population, pu-toolbox that among the
unlabelled rows; both are given as the latter, which does not depend on how many of which rows were passed on.
"""

import json
import sys
import warnings

import numpy as np


def main() -> None:
    warnings.simplefilter("ignore")
    arrays = np.load(sys.argv[1])
    features, labels, seed = arrays["X"], arrays["s"], int(sys.argv[2])
    scale = features.std(0)
    features = (features - features.mean(0)) / np.where(scale > 0, scale, 1.0)
    answers = {}
    for name, estimate in {**pulearn_estimators(seed), **toolbox_estimators(seed)}.items():
        try:
            answers[name] = float(estimate(features, labels))
        except Exception as error:  # a peer that fails is reported, not fatal
            answers[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(answers))


def pulearn_estimators(seed):
    """Its two estimators that learn something, each with a linear and a non-linear classifier."""
    from pulearn.priors import HistogramMatchPriorEstimator, ScarEMPriorEstimator
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    kinds = {"histogram": HistogramMatchPriorEstimator, "scar-em": ScarEMPriorEstimator}
    learners = {
        "logistic": lambda: LogisticRegression(max_iter=1000),
        "forest": lambda: RandomForestClassifier(100, min_samples_leaf=3, random_state=seed),
    }

    def among_unlabelled(kind, learner):
        def estimate(X, y):
            share = kinds[kind](estimator=learners[learner]()).fit(X, y).pi_
            return (share * len(y) - (y == 1).sum()) / (y == 0).sum()

        return estimate

    return {f"pulearn {kind} {learner}": among_unlabelled(kind, learner) for kind in kinds for learner in learners}


def toolbox_estimators(seed):
    """Kernel means, PEN-L1 and regrouping, with the number of rows kept to what their quadratic cost allows."""
    from pu_toolbox.prior.kernel_mean import KernelMeanPriorEstimator
    from pu_toolbox.prior.pen_l1 import ClassPriorEstimator
    from pu_toolbox.prior.recpe import ReCPEEstimator

    def kernel_mean(variant):
        return KernelMeanPriorEstimator(variant=variant, max_samples_per_group=200, random_state=seed)

    makers = {
        "km1": lambda: kernel_mean("km1"),
        "km2": lambda: kernel_mean("km2"),
        "pen-l1": ClassPriorEstimator,
        "recpe": lambda: ReCPEEstimator(base_estimator=kernel_mean("km2")),
    }

    return {f"pu-toolbox {name}": lambda X, y, make=make: make().fit(X, y).estimate() for name, make in makers.items()}


if __name__ == "__main__":
    main()
