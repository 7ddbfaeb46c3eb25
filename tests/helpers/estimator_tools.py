"""Classifiers that are trained in a moment, for the tests of the scikit-learn face."""

from splitpu.estimators.classifiers import SplitPUClassifier

QUICK = {
    "threshold": "half",
    "base": {"epochs": 25, "batch_size": 64, "augment": False, "optimiser.rate": 0.01},
    "split": {"max_epochs": 5, "batch_size": 64, "optimiser.rate": 0.1, "tau": 0.8},
    "student": {"epochs": 10, "batch_size": 64, "optimiser.rate": 0.01},
    "engine.threads": 1,
}
TINY = {
    "base": {"epochs": 2, "batch_size": 32},
    "split": {"max_epochs": 2, "tau": 0.01},
    "student": {"epochs": 2, "batch_size": 32},
    "engine.threads": 1,
}


def quick(**parameters):
    """A classifier that learns easy things in a moment."""
    return SplitPUClassifier(**{"prior": 0.5, "config": QUICK, "rounds": 1, "random_state": 0, **parameters})


def tiny(**parameters):
    """A classifier that learns next to nothing, for everything that is not about learning."""
    return quick(**{"config": TINY, **parameters})
