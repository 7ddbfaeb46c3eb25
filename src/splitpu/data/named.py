"""Public sets by name."""

from collections.abc import Callable
from pathlib import Path

from splitpu.config.keys import unknown_name
from splitpu.data.breast_cancer import breast_cancer_set
from splitpu.data.cache import Progress
from splitpu.data.cifar10 import cifar10_set
from splitpu.data.digits import digits_set
from splitpu.data.medical import LOCAL_SETS, local_set
from splitpu.data.mnist import mnist_set
from splitpu.data.namedset import NamedSet, make_pu, true_prior

__all__ = ["NAMED_SETS", "NamedSet", "load_named", "make_pu", "true_prior"]

NAMED_SETS = ("digits", "breast-cancer", "mnist", "cifar10", *LOCAL_SETS)


def load_named(
    name: str,
    cache: str | Path | None = None,
    *,
    split_seed: int = 0,
    progress: Progress | None = None,
    folder: str | Path | None = None,
) -> NamedSet:
    """One of `NAMED_SETS`; `mnist` and `cifar10` are downloaded into the cache the first time.

    `split_seed` draws the test rows of the sets that have no official split (digits, breast-cancer). `folder` holds the
    files of sets that cannot be downloaded (busi, adrenal, breastmnist); they are also looked for in $SPLITPU_DATA.

    >>> load_named("breast-cancer").features_train.shape
    (426, 30)
    """
    sources: dict[str, Callable[[], NamedSet]] = {
        "digits": lambda: digits_set(split_seed),
        "breast-cancer": lambda: breast_cancer_set(split_seed),
        "mnist": lambda: mnist_set(cache, progress),
        "cifar10": lambda: cifar10_set(cache, progress),
    }
    if name in LOCAL_SETS:
        return local_set(name, folder, cache)
    if name not in sources:
        raise unknown_name("set", name, NAMED_SETS)
    return sources[name]()
