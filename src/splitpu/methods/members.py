"""Several networks trained alike instead of one: with few rows, chance decides as much about a network as they do."""

import hashlib
from collections.abc import Callable, Sequence

from splitpu.methods.context import Context, Teacher
from splitpu.networks import Backbone
from splitpu.networks.ensemble import Ensemble

Trained = tuple[Backbone, str]  # a network and the key of the stage that trained it
TrainOne = Callable[[str], Trained]  # trains a network in a stage of this name


def train_members(context: Context, name: str, train_one: TrainOne) -> Teacher:
    """Train as many networks as the configuration asks for, one after the other, and make one teacher of them."""
    return as_one(context, [train_one(place) for place in member_names(context, name)])


def member_names(context: Context, name: str) -> list[str]:
    """The stages of the members; the first has the plain name, so that more members find what fewer have trained."""
    return [name, *(f"{name}.member{number}" for number in range(2, context.config.members + 1))]


def as_one(context: Context, members: Sequence[Trained]) -> Teacher:
    """One teacher of all members."""
    networks, keys = zip(*members, strict=True)
    if len(networks) == 1:
        return context.as_teacher(networks[0], keys[0])
    return context.as_teacher(Ensemble(list(networks)), hashlib.sha256("".join(keys).encode()).hexdigest())
