"""`splitpu data list` and `splitpu data get`."""

import sys

from splitpu.cli.output import print_facts, print_json, print_table
from splitpu.data import NAMED_SETS, cache_folder, load_named, true_prior
from splitpu.data.cache import load_cached
from splitpu.data.cifar10 import CIFAR10
from splitpu.data.medical import LOCAL_SETS, local_file
from splitpu.data.mnist import MNIST

_WHAT = {
    "digits": "8 x 8 images of digits; even is positive",
    "breast-cancer": "30 measurements of tumours; malignant is positive",
    "mnist": "28 x 28 images of digits; even is positive",
    "cifar10": "32 x 32 colour photographs; vehicles are positive",
    **{name: one.what for name, one in LOCAL_SETS.items()},
}
_DOWNLOADED = {"mnist": MNIST, "cifar10": CIFAR10}


def sets_here() -> list[dict[str, str]]:
    """Every named set, and whether it is on this machine."""
    return [{"name": name, "what": _WHAT[name], "state": _state(name)} for name in NAMED_SETS]


def run_list(*, json: bool) -> int:
    """Which sets there are."""
    if json:
        print_json({"cache": str(cache_folder()), "sets": sets_here()})
        return 0
    print_table(sets_here(), ("name", "what", "state"))
    print_facts({"cache": cache_folder()})
    return 0


def run_get(name: str, *, json: bool) -> int:
    """Have a set on this machine."""
    named = load_named(name, progress=lambda line: print(line, file=sys.stderr))
    facts = {
        "name": name,
        "description": named.description,
        "positive": named.positive_meaning,
        "training_rows": len(named.features_train),
        "test_rows": len(named.features_test),
        "prior": round(true_prior(named), 4),
        "cache": str(cache_folder()) if name in _DOWNLOADED else "not needed",
    }
    if json:
        print_json(facts)
    else:
        print_facts({key.replace("_", " "): value for key, value in facts.items()})
    return 0


def _state(name: str) -> str:
    if name in LOCAL_SETS:
        path = local_file(name)
        return f"read from {path}" if path is not None else f"needs {LOCAL_SETS[name].file} in $SPLITPU_DATA"
    if name not in _DOWNLOADED:
        return "comes with scikit-learn"
    return "in the cache" if load_cached(_DOWNLOADED[name], cache_folder()) is not None else "not downloaded"
