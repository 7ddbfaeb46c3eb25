"""From the source that a request names to data ready for training and testing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.config.schema import Scenario
from splitpu.data import HeldOut, Preprocessing, PUData, load_named, make_pu, read_npz, true_prior
from splitpu.data.cache import Progress
from splitpu.data.named import NAMED_SETS
from splitpu.errors import InputError
from splitpu.runs.request import Request, Source


@dataclass(frozen=True, kw_only=True)
class LoadedData:
    """Training rows, test rows where there are any, and the words that belong to them."""

    data: PUData
    held_out: HeldOut | None
    description: str
    classes: tuple[Any, Any] = (0, 1)  # what 'not positive' and 'positive' are called in the labels
    feature_names: tuple[str, ...] | None = None
    true_prior: float | None = field(default=None)  # known for named sets only


def parse_source(text: str, *, positives: int | None, seed: int, scenario: Scenario) -> Source:
    """What the user wrote as DATA: the path of a .npz file or the name of a set."""
    if text in NAMED_SETS:
        if positives is None:
            raise InputError(f"{text} is fully labelled; say how many of its positives to label with --positives 50.")
        return Source(named=text, positives=positives, draw_seed=seed, scenario=scenario)
    path = Path(text)
    if path.suffix != ".npz" and not path.exists():
        raise InputError(f"there is no set named {text!r} and no such file; use a .npz file or {_or(NAMED_SETS)}.")
    if positives is not None:
        raise InputError(f"--positives is for named sets; in {text} the array 's' says which rows are labelled.")
    return Source(npz=str(path.resolve()), scenario=scenario)


def load_source(source: Source, progress: Progress | None = None) -> LoadedData:
    """Read and check everything; what is wrong with the data is found here, before anything is trained."""
    return _load_npz(source) if source.npz else _load_named(source, progress)


def load_request(request: Request, progress: Progress | None = None) -> LoadedData:
    """The data of a run that goes on; data that changed meanwhile would make a run of two halves that do not match."""
    loaded = load_source(request.source, progress)
    if loaded.data.fingerprint() != request.fingerprint:
        where = request.source.npz or request.source.named
        raise InputError(f"the training data in {where} changed since the run began; restore them or start a new run.")
    return loaded


def _load_npz(source: Source) -> LoadedData:
    arrays = read_npz(str(source.npz))
    names = arrays["names"].tolist() if "names" in arrays else None
    if names is not None and not isinstance(names, list):
        raise InputError(f"the array 'names' in {source.npz} must hold one name for each row of 'X'.")
    data = PUData.from_arrays(
        arrays["X"], arrays["s"], scenario=source.scenario, names=names, truth=arrays.get("truth")
    )
    held_out = HeldOut.from_arrays(arrays["X_test"], arrays["y_test"]) if "X_test" in arrays else None
    if held_out is not None:
        Preprocessing.fit(data.features).check(held_out.features, "X_test")
    labels = np.asarray(arrays["s"])
    classes = (labels[~data.labelled][0].item(), labels[data.labelled][0].item())
    return LoadedData(data=data, held_out=held_out, description=str(source.npz), classes=classes)


def _load_named(source: Source, progress: Progress | None) -> LoadedData:
    named = load_named(str(source.named), progress=progress)
    data, held_out = make_pu(named, source.positives or 0, source.draw_seed, source.scenario)
    return LoadedData(
        data=data,
        held_out=held_out,
        description=f"{named.name}: {named.description}; positive = {named.positive_meaning}",
        feature_names=named.feature_names,
        true_prior=true_prior(named),
    )


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
