"""Run by classifiers.py with another interpreter: what classifiers of pulearn and pu-toolbox say of test rows.

Prints one JSON object on the last line. All are near their defaults; those that want a prior are told the true share
among the unlabelled rows, which is what both libraries mean by it.
"""

import json
import sys
import time
import warnings
from importlib import import_module

import numpy as np


def main() -> None:
    warnings.simplefilter("ignore")
    arrays, seed, prior = np.load(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    features, labels, test = arrays["X"], arrays["s"], arrays["X_test"]
    answers = {}
    for name, make in {**pulearn_classifiers(labels, prior, seed), **toolbox_classifiers(prior, seed)}.items():
        started = time.perf_counter()
        try:
            model = make().fit(features, labels)
            scores, called = scores_of(model, test), np.asarray(model.predict(test)) == 1
            seconds = time.perf_counter() - started
            answers[name] = {"scores": scores.tolist(), "called": called.tolist(), "seconds": seconds}
        except Exception as error:  # a peer that fails is reported, not fatal
            answers[name] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answers))


def scores_of(model, rows):
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(rows), dtype=float).ravel()
    probability = np.asarray(model.predict_proba(rows), dtype=float)
    return probability[:, -1] if probability.ndim == 2 else probability


def pulearn_classifiers(labels, prior, seed):
    """Its wrappers around scikit-learn's classifiers, linear and not, and its linear nnPU."""
    from pulearn import BaggingPuClassifier, ElkanotoPuClassifier, NNPUClassifier, WeightedElkanotoPuClassifier
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    labelled, unlabelled = int((labels == 1).sum()), int((labels != 1).sum())

    def forest():
        return RandomForestClassifier(100, random_state=seed)

    def bagging(of):
        return BaggingPuClassifier(of, n_estimators=100, max_samples=labelled, random_state=seed)

    made = {
        "elkanoto, forest": lambda: ElkanotoPuClassifier(forest(), random_state=seed),
        "elkanoto, SVM": lambda: ElkanotoPuClassifier(SVC(probability=True, random_state=seed), random_state=seed),
        "weighted elkanoto, forest": lambda: WeightedElkanotoPuClassifier(
            forest(), labelled, unlabelled, random_state=seed
        ),
        "bagging, trees": lambda: bagging(DecisionTreeClassifier()),
        "bagging, logistic": lambda: bagging(LogisticRegression(max_iter=1000)),
        "bagging, SVM": lambda: bagging(SVC()),
        "nnPU, linear": lambda: NNPUClassifier(prior, random_state=seed),
    }
    return {f"pulearn {name}": make for name, make in made.items()}


def toolbox_classifiers(prior, seed):
    """What it has for labels given at random that needs no model or views of the user's and ends within a minute."""
    homes = {
        "classic.elkan_noto.ElkanNotoClassifier": {},
        "risk.upu.UPUClassifier": {"class_prior": prior},
        "risk.nnpu.NonNegativePUClassifier": {"class_prior": prior},
        "risk.dist_pu.DistPUClassifier": {"class_prior": prior},
        "deep.self_pu.SelfPUClassifier": {"class_prior": prior},
        "deep.infomax_pu.InfoMaxPUClassifier": {"class_prior": prior},
    }

    def maker(home, settings):
        module, name = home.rsplit(".", 1)

        def make():
            return getattr(import_module(f"pu_toolbox.estimators.{module}"), name)(**settings, random_state=seed)

        return make

    return {f"pu-toolbox {home.rsplit('.', 1)[1]}": maker(home, settings) for home, settings in homes.items()}


if __name__ == "__main__":
    main()
