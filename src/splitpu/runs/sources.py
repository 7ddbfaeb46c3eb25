"""From the source that a request names to data ready for training and testing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.config.schema import Scenario
from splitpu.data.array_files import ArraySource, read_array_data, read_npz
from splitpu.data.images.decode import SUFFIXES as IMAGE_SUFFIXES
from splitpu.data.images.folders import FolderSource, read_folders
from splitpu.data.images.scan import RowSpec, Skipped
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.public.datasets import NAMED_SETS, load_named
from splitpu.data.public.download import Progress
from splitpu.data.public.named_set import NamedSet, make_pu
from splitpu.data.pudata import HeldOut, PUData, is_convention
from splitpu.data.tables.encode import TableRecipe, TableSource, read_table_data
from splitpu.data.volumes.reader import is_nifti
from splitpu.errors import DataGone, InputError
from splitpu.runs.leakage import rows_seen
from splitpu.runs.request import Request, Source
from splitpu.types import Array, Watch
from splitpu.utils.files import ends_in
from splitpu.utils.text import listed

_MEANING = {"s": "labelled positive", "truth": "positive", "y_test": "positive"}  # of 1 in the arrays of labels


@dataclass(frozen=True, kw_only=True)
class LoadedData:
    """Training rows, test rows where there are any, and the words that belong to them."""

    data: PUData
    held_out: HeldOut | None
    description: str
    classes: tuple[Any, Any] = (0, 1)  # what 'not positive' and 'positive' are called in the labels
    feature_names: tuple[str, ...] | None = None
    true_prior: float | None = field(default=None)  # known for named sets only
    inputs: dict[str, Any] | None = None  # how files become rows, for the model file
    skipped: tuple[Skipped, ...] = ()  # files that are not used
    duplicates: tuple[tuple[str, str], ...] = ()  # names of equal pictures on two sides
    warnings: tuple[str, ...] = ()  # about the data, to be told with the result
    made_from: str = ""  # what images were before they were brought into one form

    def in_words(self) -> str:
        """How much there is of what, in one line."""
        data = self.data
        sides = " x ".join(str(side) for side in data.features.shape[1:])
        units = {"vectors": "features", "images": "pixels and channels", "volumes": "slices, pixels and channels"}
        rows = f"{len(data.positives):,} labelled and {len(data.unlabelled):,} unlabelled rows"
        tested = f", {len(self.held_out):,} to test on" if self.held_out else ""
        return f"{rows}{tested}; {sides} {units[data.kind]}{self.made_from}"


def parse_source(text: str, *, positives: int | None, seed: int, scenario: Scenario) -> Source:
    """What the user wrote as DATA: the path of a .npz file or the name of a set."""
    if text in NAMED_SETS:
        if positives is None:
            raise InputError(f"{text} is fully labelled; say how many of its positives to label with --positives 50.")
        return Source(named=text, positives=positives, draw_seed=seed, scenario=scenario)
    path = Path(text)
    if not ends_in(path, ".npz") and not path.exists():
        raise InputError(
            f"there is no set named {text!r} and no such file; use a .npz, .csv or .parquet file, folders or .npy "
            f"files with --positives and --unlabelled, or {_or(NAMED_SETS)}."
        )
    if ends_in(path, ".npy"):
        raise InputError(
            f"{text} does not say which rows are labelled: give .npy files as --positives and --unlabelled."
        )
    if ends_in(path, *IMAGE_SUFFIXES):
        raise InputError(f"{text} is one image: give folders of images with --positives and --unlabelled.")
    if is_nifti(text):
        raise InputError(f"{text} is one NIfTI file: give folders of them with --positives and --unlabelled.")
    if not ends_in(path, ".npz"):  # it would be called a broken one
        raise InputError(
            f"{text} is not of a kind that can be read: give a .npz, .csv or .parquet file, or folders with "
            "--positives and --unlabelled. A table in a text file has to be called .csv."
        )
    if positives is not None:
        raise InputError(f"--positives is for named sets; in {text} the array 's' says which rows are labelled.")
    return Source(npz=str(path.resolve()), scenario=scenario)


def load_source(
    source: Source,
    progress: Progress | None = None,
    watch: Watch | None = None,
    form: RowSpec | TableRecipe | None = None,
) -> LoadedData:
    """Read and check everything; what is wrong with the data is found here, before anything is trained.

    Files are brought into the `form` of the data that a model was trained on, or into one that suits them.
    """
    if source.folders:
        return _load_folders(source, source.folders, watch, None if isinstance(form, TableRecipe) else form)
    if source.table:
        return _told_of_leaks(_load_table(source, source.table, form if isinstance(form, TableRecipe) else None))
    if source.arrays:
        return _told_of_leaks(_load_arrays(source, source.arrays))
    return _told_of_leaks(_load_npz(source)) if source.npz else _load_named(source, progress)


def load_draws(
    sources: Sequence[Source], progress: Progress | None = None, watch: Watch | None = None
) -> list[LoadedData]:
    """The data of runs that differ at most in which positives of a named set are labelled; the rows are loaded once."""
    first = sources[0]
    if first.named is None:
        return [load_source(first, progress, watch)] * len(sources)
    named = load_named(first.named, progress=progress)
    return [_drawn(named, source) for source in sources]


def load_request(
    request: Request,
    progress: Progress | None = None,
    watch: Watch | None = None,
    form: RowSpec | TableRecipe | None = None,
) -> LoadedData:
    """The data of a run that goes on; data that changed meanwhile would make a run of two halves that do not match."""
    check_still_there(request.source.paths)
    loaded = load_source(request.source, progress, watch, form)
    check_unchanged(loaded, request)
    return loaded


def check_still_there(paths: Sequence[str]) -> None:
    """Refuse to look for data in a place that the user has not named now, as if it were mistyped."""
    gone = [path for path in paths if not Path(path).exists()]
    if gone:
        raise DataGone(f"the data that the run started with are no longer at {listed(gone)}: put them back there.")


def check_unchanged(loaded: LoadedData, request: Request) -> None:
    """Refuse data that are not those that the run began with."""
    if loaded.data.fingerprint() != request.fingerprint:
        where = request.source.named or request.source.where
        raise InputError(f"the training data in {where} changed since the run began; restore them or start a new run.")


def _told_of_leaks(loaded: LoadedData) -> LoadedData:
    """With a warning about test rows that are trained on; of folders, their reader knows equal pictures."""
    if loaded.held_out is None:
        return loaded
    seen = int(rows_seen(loaded.data.features, loaded.held_out.features).sum())
    if not seen:
        return loaded
    sentence = (
        f"{seen:,} of the {len(loaded.held_out):,} test rows are also training rows, so the test figures flatter the "
        "model: test on rows that it is not trained on."
    )
    return replace(loaded, warnings=(*loaded.warnings, sentence))


def _load_folders(source: Source, folders: FolderSource, watch: Watch | None, spec: RowSpec | None) -> LoadedData:
    found = read_folders(folders, watch, spec)
    train, test = found.train, found.test
    data = PUData.from_arrays(
        train.pixels, found.labelled, scenario=source.scenario, names=train.names, channels="last"
    )
    held_out = None
    if test is not None and found.test_truth is not None:
        held_out = HeldOut.from_arrays(test.pixels, found.test_truth, channels="last")
    return LoadedData(
        data=data,
        held_out=held_out,
        description=source.where,
        inputs={"kind": train.spec.kind, **train.spec.to_dict()},
        skipped=found.skipped,
        duplicates=found.duplicates,
        warnings=found.warnings,
        made_from=train.made_from,
    )


def _load_table(source: Source, table: TableSource, recipe: TableRecipe | None) -> LoadedData:
    found = read_table_data(table, recipe)
    data = PUData.from_arrays(found.features, found.labelled, scenario=source.scenario, names=found.names)
    held_out = None
    if found.test_features is not None and found.test_truth is not None:
        held_out = HeldOut.from_arrays(found.test_features, found.test_truth)
    return LoadedData(
        data=data,
        held_out=held_out,
        description=f"{table.path}, column {table.label!r} says which rows are labelled",
        classes=found.classes,
        feature_names=found.recipe.feature_names,
        inputs=found.recipe.to_dict(),
        warnings=found.warnings,
    )


def _load_arrays(source: Source, arrays: ArraySource) -> LoadedData:
    found = read_array_data(arrays)
    data = PUData.from_arrays(found.features, found.labelled, scenario=source.scenario, names=found.names)
    held_out = None
    if found.test_features is not None and found.test_truth is not None:
        held_out = HeldOut.from_arrays(found.test_features, found.test_truth)
        Preprocessing.fit(data.features).check(held_out.features, "--test")
    return LoadedData(data=data, held_out=held_out, description=source.where)


def _load_npz(source: Source) -> LoadedData:
    arrays = read_npz(str(source.npz))
    names = arrays["names"].tolist() if "names" in arrays else None
    if names is not None and not isinstance(names, list):
        raise InputError(f"the array 'names' in {source.npz} must hold one name for each row of 'X'.")
    for name in _MEANING:
        if name in arrays:
            _refuse_other_labels(arrays[name], name, str(source.npz))
    with _naming(str(source.npz)):
        data = PUData.from_arrays(
            arrays["X"], arrays["s"], scenario=source.scenario, names=names, truth=arrays.get("truth")
        )
        held_out = HeldOut.from_arrays(arrays["X_test"], arrays["y_test"]) if "X_test" in arrays else None
        if held_out is not None:
            Preprocessing.fit(data.features).check(held_out.features, "X_test")
    labels = np.asarray(arrays["s"])
    classes = (labels[~data.labelled][0].item(), labels[data.labelled][0].item())
    return LoadedData(data=data, held_out=held_out, description=str(source.npz), classes=classes)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """What is wrong with an array is said with the file that it is in."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _refuse_other_labels(labels: Array, name: str, where: str) -> None:
    """Nothing on the command line says what other labels in an array mean, as `--positive-label` does of a table."""
    if labels.dtype.kind not in "biufOSU" or is_convention(labels):
        return
    held, example = "words", "'ill'"
    if labels.dtype.kind in "biuf":
        values = np.unique(labels).tolist()
        largest = max((value for value in values if np.isfinite(value)), default=1)  # NaN is no value to look for
        held, example = f"the values {listed(values, '{:g}'.format)}", f"{largest:g}"
    raise InputError(
        f"the array {name!r} in {where} holds {held}: save 1 for rows that are {_MEANING[name]} and 0 for all others, "
        f"such as {name}=(labels == {example}).astype(int)."
    )


def _load_named(source: Source, progress: Progress | None) -> LoadedData:
    return _drawn(load_named(str(source.named), progress=progress), source)


def _drawn(named: NamedSet, source: Source) -> LoadedData:
    data, held_out = make_pu(named, source.positives or 0, source.draw_seed, source.scenario)
    return LoadedData(
        data=data,
        held_out=held_out,
        description=f"{named.name}: {named.description}; positive = {named.positive_meaning}",
        feature_names=named.feature_names,
        true_prior=float(named.truth_train[data.population].mean()),
    )


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
