"""The user's own arrays from one .npz with labels, or from files for each side; nothing in them is ever executed."""

import hashlib
import os
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from splitpu.data.features import canonical_features
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.public.download import cache_errors_in_words, cache_folder, working_folder
from splitpu.data.pudata import HeldOut, PUData, is_convention
from splitpu.data.sources import EvaluationRows, LoadedData, LoadOptions, NewRows, RowForm, Source, SourceWords
from splitpu.data.sparse_rows import PARTS, from_parts, is_sparse, stacked
from splitpu.errors import InputError
from splitpu.types import Array, Mask, Watch
from splitpu.utils.arrays import row_slices
from splitpu.utils.files import absolute, ends_in, move_into_place
from splitpu.utils.reading import Guarded, most_unpacked, read_marked, too_much_unpacked, write_marked
from splitpu.utils.text import listed, row_name

NEEDED = ("X", "s")
OPTIONAL = ("X_test", "y_test", "names", "truth")
SUFFIXES = (".npy", ".npz")
MOST_IN_MEMORY = 1 << 30  # bytes; systems promise more memory than there is, and end the program that believes them
_MEANING = {"s": "labelled positive", "truth": "positive", "y_test": "positive"}  # of 1 in the arrays of labels


def read_npz(path: str | Path) -> dict[str, Array]:
    """The training arrays `X` and `s` of a file, with `X_test` and `y_test`, `names` and `truth` where it has them."""
    path = Path(path)
    with _loaded(path) as archive:
        there = _arrays_in(archive)
        missing = [name for name in NEEDED if name not in there]
        if missing:
            sides = "; or save sparse rows in two files, and give them with --positives and --unlabelled"
            sparse = sides if "data" in there.get("X", {}).values() else ""
            lacking = f"no array {' and no array '.join(map(repr, missing))} (it holds {_listed(archive.files)})"
            raise InputError(f"{path} has {lacking}: save it with np.savez(path, X=features, s=labels){sparse}")
        if ("X_test" in there) != ("y_test" in there):
            one, absent = ("X_test", "y_test") if "X_test" in there else ("y_test", "X_test")
            raise InputError(f"{path} holds {one!r} without {absent!r}: save both or neither")
        return {name: _read_array(archive, name, path) for name in (*NEEDED, *OPTIONAL) if name in there}


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    """Some arrays of a file by name, all of which it must have."""
    with _loaded(path) as archive:
        missing = [name for name in names if name not in archive.files]
        if missing:
            raise InputError(f"{path} has no array {missing[0]!r} (it holds {_listed(archive.files)}): get it again")
        return {name: _read_array(archive, name, path) for name in names}


def read_features(path: str | Path) -> Array:
    """Features to predict for: a .npy file (memory-mapped), or the array `X` (or the only array) of a .npz file."""
    path = Path(path)
    if ends_in(path, ".npy"):
        mapped: Array = _loaded(path, "np.save")
        return mapped
    with _loaded(path) as archive:
        names = list(_arrays_in(archive))
        if "X" not in names and len(names) != 1:
            raise InputError(f"{path} has no array 'X' (it holds {_listed(names)}): name the features 'X'")
        found: Array = _read_array(archive, "X" if "X" in names else names[0], path)
        return found


def read_names(path: str | Path) -> list[str] | None:
    """The array `names` of a .npz file, where there is one: what the rows are called."""
    path = Path(path)
    if ends_in(path, ".npy"):
        return None
    with _loaded(path) as archive:
        if "names" not in archive.files:
            return None
        names = _read_array(archive, "names", path)
    if names.ndim != 1:
        raise InputError(f"the array 'names' in {path} has the shape {names.shape}: give one name per row")
    return [row_name(name) for name in names.tolist()]


def read_labelled(path: str | Path) -> tuple[Array, Array] | None:
    """Rows with their true labels: `X_test` and `y_test`, or else `X` and `y`; None where only some are labelled."""
    path = Path(path)
    with _loaded(path) as archive:
        there = _arrays_in(archive)
        for features, truth in (("X_test", "y_test"), ("X", "y")):
            if features in there and truth in there:
                return _read_array(archive, features, path), _read_array(archive, truth, path)
        if {"X", "s"} <= set(there):
            return None
        lacking = f"{path} holds no rows with true labels (it holds {_listed(archive.files)})"
        raise InputError(f"{lacking}: save them with np.savez(path, X_test=features, y_test=labels)")


def _loaded(path: Path, saved_with: Literal["np.save", "np.savez"] = "np.savez") -> Any:
    """What numpy makes of a file: the array, memory-mapped, or the open archive."""
    if not path.exists():
        raise InputError(f"{path} does not exist: check the path")
    if not path.is_file():
        raise InputError(f"{path} is not a file: give the path of a .npz or .npy file")
    zipped = saved_with == "np.savez"
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False) if not zipped or zipfile.is_zipfile(path) else None
    except Exception as error:  # a damaged directory, or a header, which is a line of Python, may raise anything at all
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read as numbers ({reason}): save it again with {saved_with}") from error
    if found is None:
        raise InputError(f"{path} is not a .npz file, or is cut short: save it again with np.savez")
    if isinstance(found, np.ndarray) == zipped:
        raise InputError(f"{path} is not a .npy file: save it with np.save, or name it .npz")
    return found


def _arrays_in(archive: Any) -> dict[str, dict[str, str]]:
    """The arrays of a file by their names; of those that are sparse also the parts, by what scipy calls them.

    A sparse X is either what scipy.sparse.save_npz writes, to which `s` may have been added, or lies in the arrays
    X_data, X_indices, X_indptr and X_shape, which are the parts of a CSR matrix; so do the parts of X_test."""
    names = set(archive.files)
    sparse: dict[str, dict[str, str]] = {}
    if {"data", "shape"} <= names and ({"indices", "indptr"} <= names or {"row", "col"} <= names):
        sparse["X"] = {part: part for part in (*PARTS, "row", "col", "format", "_is_array") if part in names}
    for name in ("X", "X_test"):
        parts = {part: f"{name}_{part}" for part in PARTS}
        if names.issuperset(parts.values()):
            sparse.setdefault(name, parts)
    sparse = {name: parts for name, parts in sparse.items() if name not in names}
    taken = {own for parts in sparse.values() for own in parts.values()}
    return {**sparse, **{name: {} for name in archive.files if name not in taken}}


def _read_array(archive: Any, name: str, path: Path) -> Any:
    """An array of the file by its name, or the sparse matrix that its parts make."""
    parts = _arrays_in(archive)[name]
    if parts:
        return from_parts({part: _read_one(archive, own, path) for part, own in parts.items()}, str(path))
    return _read_one(archive, name, path)


def _read_one(archive: Any, name: str, path: Path) -> Array:
    try:
        packed = archive.zip.NameToInfo.get(f"{name}.npy") or archive.zip.getinfo(name)
        if packed.file_size > most_unpacked(packed.compress_size):
            raise InputError(f"the array {name!r} in {path} {too_much_unpacked(packed.file_size)}.")
        array: Any = archive[name]
    except InputError:
        raise
    except MemoryError as error:
        instead = "save its rows as .npy files, which may be larger, for --positives and --unlabelled"
        raise InputError(f"{path} cannot be held in memory, as what is packed must be ({error}): {instead}.") from error
    except ValueError as error:
        raise InputError(f"the array {name!r} in {path} holds Python objects or is damaged: save numbers") from error
    except Exception as error:  # damaged bytes may make the unpacking raise anything at all
        raise InputError(f"the array {name!r} in {path} is damaged ({error}): save the file again") from error
    if not isinstance(array, np.ndarray):  # numpy hands back the bytes of members that are no arrays
        raise InputError(f"the entry {name!r} in {path} is not an array: save the file again with np.savez")
    return array


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"


@dataclass(frozen=True, kw_only=True)
class ArraySource(Source):
    """Which files hold what: each a .npy, or a .npz with the array X or with one array only."""

    positives: tuple[str, ...]
    unlabelled: tuple[str, ...]
    test: tuple[str, ...] = ()  # positives, negatives

    key: ClassVar[str] = "arrays"

    @classmethod
    def parse(cls, words: SourceWords, model: RowForm | None) -> "ArraySource | None":
        """Files of arrays in --positives and --unlabelled."""
        positives, unlabelled, test = list(words.positives or []), words.unlabelled_side, list(words.test or [])
        if not any(_is_array_file(word) for word in [*positives, *(words.unlabelled or [])]):
            return None
        _refuse_for_a_table(model, [*unlabelled, *positives])
        words.refuse(words.FOLDER_OPTIONS, "for folders of images or patients.")
        words.refuse(words.TABLE_OPTIONS, "for .csv and .parquet tables.")
        words.refuse_labelled("what lies in --positives")
        if not positives or not unlabelled:
            missing = "--unlabelled" if positives else "--positives"
            raise InputError(f"{missing} is missing: give .npy files of known positives and of unlabelled rows.")
        if test and len(test) != 2:
            raise InputError(f"--test takes two .npy files, of positives and of negatives, but got {len(test)}.")
        for word in [*positives, *unlabelled, *test]:
            if not _is_array_file(word):
                raise InputError(f"{word} is not a .npy or .npz file: give either arrays or folders, not both.")
        known, others, tested = (absolute(files) for files in (positives, unlabelled, test))
        return cls(scenario=words.scenario, positives=known, unlabelled=others, test=tested)

    @classmethod
    def advice(cls, word: str) -> str:
        """A .npy holds no labels."""
        if not ends_in(word, ".npy"):
            return ""
        return f"{word} does not say which rows are labelled: give .npy files as --positives and --unlabelled."

    @property
    def paths(self) -> tuple[str, ...]:
        return *self.positives, *self.unlabelled, *self.test

    @property
    def where(self) -> str:
        return " and ".join([*self.positives, *self.unlabelled])

    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        files, known = [*self.positives, *self.unlabelled], set[str]()
        for path in self.paths:  # a row on both sides teaches nothing, and one of the test flatters
            if (place := os.path.realpath(path)) in known:
                raise InputError(f"{path} is given twice, so its rows would count twice: give each file once.")
            known.add(place)
        features, lengths = join_arrays(files)
        labelled = np.repeat(np.arange(len(files)) < len(self.positives), lengths)
        names = [f"{Path(path).name}:{row}" for path, rows in zip(files, lengths, strict=True) for row in range(rows)]
        data = PUData.from_arrays(features, labelled, scenario=self.scenario, names=names)
        held_out = HeldOut.from_arrays(*read_array_test(self.test)) if self.test else None
        if held_out is not None:
            Preprocessing.fit(data.features).check(held_out.features, "--test")
        return LoadedData(data=data, held_out=held_out, description=self.where).with_leakage_warning()

    @classmethod
    def read_new(cls, path: Path, model: RowForm, *, strict: bool, watch: Watch | None) -> NewRows | None:
        if path.is_dir() or not ends_in(path, *SUFFIXES):
            return None
        _refuse_for_a_table(model, [str(path)])
        features = canonical_features(read_features(path), str(path), double=model.preprocessing.double)
        names = read_names(path)
        if names is not None and len(names) != len(features):
            raise InputError(f"'names' in {path} has {len(names)} entries but 'X' has {len(features)} rows.")
        return NewRows(features, None if names is None else tuple(names))

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        """Two files in --test, of positives and of negatives."""
        files = [word for word in words.test or () if ends_in(word, *SUFFIXES)]
        _refuse_for_a_table(model, files)
        if words.test is None or not len(files) == len(words.test) == 2:
            return None
        return EvaluationRows(where=" and ".join(files), tested=HeldOut.from_arrays(*read_array_test(files)))


@dataclass(frozen=True, kw_only=True)
class NpzSource(Source):
    """One .npz file that holds rows, their labels, and test rows if there are some."""

    path: str

    key: ClassVar[str] = "npz"
    is_flat: ClassVar[bool] = True

    @classmethod
    def parse(cls, words: SourceWords, model: RowForm | None) -> "NpzSource | None":
        if words.data is None or not ends_in(words.data, ".npz"):
            return None
        _refuse_for_a_table(model, [words.data])
        words.refuse_all_but_data()
        words.refuse_labelled(f"in {words.data} the array 's'")
        return cls(path=os.path.realpath(words.data), scenario=words.scenario)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        arrays = read_npz(self.path)
        names = arrays["names"].tolist() if "names" in arrays else None
        if names is not None and not isinstance(names, list):
            raise InputError(f"the array 'names' in {self.path} must hold one name for each row of 'X'.")
        for name in _MEANING:
            if name in arrays:
                _refuse_other_labels(arrays[name], name, self.path)
        try:
            truth = arrays.get("truth")
            data = PUData.from_arrays(arrays["X"], arrays["s"], scenario=self.scenario, names=names, truth=truth)
            held_out = HeldOut.from_arrays(arrays["X_test"], arrays["y_test"]) if "X_test" in arrays else None
            if held_out is not None:
                Preprocessing.fit(data.features).check(held_out.features, "X_test")
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error
        labels = np.asarray(arrays["s"])
        classes = (labels[~data.labelled][0].item(), labels[data.labelled][0].item())
        return LoadedData(data=data, held_out=held_out, description=self.path, classes=classes).with_leakage_warning()

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        """A file as DATA that says what its rows truly are."""
        if words.data is None or not ends_in(words.data, ".npz"):
            return None
        _refuse_for_a_table(model, [words.data])
        found = read_labelled(words.data)
        return None if found is None else EvaluationRows(where=words.data, tested=HeldOut.from_arrays(*found))


def _is_array_file(word: str) -> bool:
    return ends_in(word, *SUFFIXES) and not Path(word).is_dir()


def _refuse_for_a_table(model: RowForm | None, words: Sequence[str]) -> None:
    """Numbers in the order of the encoded columns would be taken for them, and be as wrong as they look right."""
    if model is None or (model.inputs or {}).get("kind") != "table":
        return
    for word in words:
        if ends_in(word, *SUFFIXES) and Path(word).is_file():
            raise InputError(f"{word} holds arrays, but the model was trained on a table: give one with its columns.")


def _refuse_other_labels(labels: Array, name: str, where: str) -> None:
    """Nothing on the command line says what other labels in an array mean, as `--positive-label` does of a table."""
    if labels.dtype.kind not in "biufOSU" or is_convention(labels):
        return
    held, example = "words", "'ill'"
    if labels.dtype.kind in "biuf":
        values = np.unique(labels).tolist()
        largest = max((value for value in values if np.isfinite(value)), default=1)  # NaN is no value to look for
        held, example = f"the values {listed(values, '{:g}'.format)}", f"{largest:g}"
    wanted = f"save 1 for rows that are {_MEANING[name]} and 0 for all others"
    raise InputError(f"{name!r} in {where} holds {held}: {wanted}, as {name}=(labels == {example}).astype(int) does.")


def read_array_test(files: Sequence[str]) -> tuple[Array, Mask]:
    """Rows of two files, of positives and of negatives, and which of them are positive."""
    features, (positives, negatives) = join_arrays(files)
    return features, np.repeat([True, False], [positives, negatives])


def join_arrays(files: Sequence[str]) -> tuple[Array, list[int]]:
    """All rows one after the other, and how many come from each file."""
    for double in (False, True):
        parts = [canonical_features(read_features(path), Path(path).name, double=double) for path in files]
        if all(part.dtype != np.float64 for part in parts):  # else float32 cannot tell numbers in one of them apart
            break
    for path, part in zip(files, parts, strict=True):
        if is_sparse(part) != is_sparse(parts[0]):
            raise InputError(f"{path} and {files[0]} are not both sparse: make all files in the same way.")
        own, first = (f"{one.shape[1:]} and type {one.dtype}" for one in (part, parts[0]))
        if own != first:
            raise InputError(f"{path} holds rows of shape {own}, but {files[0]} of {first}: make all in the same way.")
    lengths = [len(part) for part in parts]
    if is_sparse(parts[0]):
        return stacked(list(parts)), lengths
    if sum(part.nbytes for part in parts) <= MOST_IN_MEMORY:
        with suppress(MemoryError):
            return np.concatenate(parts), lengths
    return _joined_on_disk(files, parts), lengths


def _joined_on_disk(files: Sequence[str], parts: Sequence[Array]) -> Array:
    """The joined rows, memory-mapped, from the cache, where those of changed files stay, as runs may read them."""
    digest = hashlib.sha256()
    for path, part in zip(files, parts, strict=True):
        found = Path(path).stat()
        words = f"{os.path.realpath(path)} {found.st_size} {found.st_mtime_ns} {part.shape} {part.dtype}\n"
        digest.update(words.encode(errors="surrogateescape"))
    store = cache_folder() / "arrays"
    target = store / f"{digest.hexdigest()}.npy"
    mark = target.with_suffix(".sha256")

    def is_whole() -> bool:
        with suppress(OSError, InputError):
            return read_marked(mark) == Guarded(target).checksum().encode()
        return False

    if not is_whole():
        shape = (sum(map(len, parts)), *parts[0].shape[1:])
        header = {"descr": np.lib.format.dtype_to_descr(parts[0].dtype), "fortran_order": False, "shape": shape}
        with working_folder(store) as work, cache_errors_in_words(store):
            ready = work / target.name
            with ready.open("wb") as file:  # written, not mapped, so that a full disk is an error like others
                np.lib.format.write_array_header_2_0(file, header)
                for part in parts:
                    for some in row_slices(part):
                        file.write(np.ascontiguousarray(part[some]).data)
                os.fsync(file.fileno())
            write_marked(mark, Guarded(ready).checksum().encode())
            move_into_place(ready, target, is_whole)
    joined: Array = np.load(target, mmap_mode="r", allow_pickle=False)
    return joined
