"""Several networks trained alike instead of one: with few rows, chance decides as much about a network as they do."""

import hashlib
from collections.abc import Callable

from splitpu.methods.context import Context, Teacher
from splitpu.networks import Backbone
from splitpu.networks.ensemble import Ensemble

TrainOne = Callable[
    [str], tuple[Backbone, str]
]  # trains a network in a stage of this name; gives it and the stage's key


def train_members(context: Context, name: str, train_one: TrainOne) -> Teacher:
    """Train as many networks as the configuration asks for, one after the other, and make one teacher of them.

    The first has the stage's own name, so that a run with more members finds what a run with fewer has trained.
    """
    networks, keys = [], []
    for number in range(1, context.config.members + 1):
        network, key = train_one(name if number == 1 else f"{name}.member{number}")
        networks.append(network)
        keys.append(key)
    if len(networks) == 1:
        return context.as_teacher(networks[0], keys[0])
    return context.as_teacher(Ensemble(networks), hashlib.sha256("".join(keys).encode()).hexdigest())
