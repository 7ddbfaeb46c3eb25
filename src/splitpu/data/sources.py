"""Where rows come from: one class per kind of input. The commands know no kinds: they ask those in `KINDS`."""

import dataclasses
import hashlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypedDict, Unpack

from splitpu.config.schema import Scenario
from splitpu.data.images.scan import RowFile, Skipped
from splitpu.data.leakage import rows_seen, seen_in_words
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.public.download import Progress
from splitpu.data.pudata import HeldOut, PUData
from splitpu.errors import DataGone, InputError
from splitpu.types import Array, Mask, Watch
from splitpu.utils.files import ends_in
from splitpu.utils.text import listed

KINDS = (  # in the order in which they are asked whether the words are theirs; loaded when the first word is read
    "splitpu.data.public.datasets:NamedSource",
    "splitpu.data.array_files:ArraySource",
    "splitpu.data.images.folders:FolderSource",
    "splitpu.data.tables.encode:TableSource",
    "splitpu.data.array_files:NpzSource",
)

_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
_ENTRIES = ("npz", "named", "positives", "draw_seed", "scenario", "folders", "table", "arrays")
_NOTHING: dict[str, Any] = dict.fromkeys(_ENTRIES) | {"draw_seed": 0}


class RowForm(Protocol):
    """What a model says about its rows: shape and scale, and how files become rows, if it was trained on files."""

    @property
    def preprocessing(self) -> Preprocessing: ...
    @property
    def inputs(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, kw_only=True)
class SourceWords:
    """What the user said about the data, as the options of the command line have it; None = nothing."""

    data: str | None = None
    positives: Sequence[str] | None = None
    unlabelled: Sequence[str] | None = None
    test: Sequence[str] | None = None
    labels: str | None = None
    size: str | None = None
    strict: bool = False
    series: str | None = None
    slices: int | None = None
    label: str | None = None
    positive_label: str | None = None
    names: str | None = None
    ignore: Sequence[str] | None = None
    text: Sequence[str] | None = None
    group: str | None = None
    labelled: int | None = None  # how many positives of a fully labelled set are labelled
    seed: int = 0  # of which positives of a fully labelled set are labelled
    scenario: Scenario = "single-training-set"

    FOLDER_OPTIONS: ClassVar = ("labels", "size", "strict", "series", "slices")
    TABLE_OPTIONS: ClassVar = ("label", "positive_label", "names", "ignore", "text", "group")

    def refuse(self, names: Sequence[str], what_for: str) -> None:
        """Say of the first of these options that was used that it is for something else."""
        for name in names:
            if getattr(self, name) not in (None, False):
                raise InputError(f"--{name.replace('_', '-')} is {what_for}")

    def refuse_all_but_data(self) -> None:
        """For kinds that are one word: it says by itself what the options of other kinds would."""
        self.refuse(self.FOLDER_OPTIONS, "for folders of images or patients.")
        self.refuse(self.TABLE_OPTIONS, f"for .csv and .parquet tables, which {self.data} is not by its name.")
        self.refuse(("test",), "for folders and tables; a .npz file holds X_test and y_test.")

    @property
    def unlabelled_side(self) -> list[str]:
        """DATA beside --positives is one more place of unlabelled rows."""
        return [*([] if self.data is None else [self.data]), *(self.unlabelled or [])]

    def refuse_labelled(self, what_says_it: str) -> None:
        """For kinds that say themselves which rows are labelled."""
        self.refuse(("labelled",), f"for named sets; {what_says_it} says which rows are labelled.")


@dataclass(frozen=True, kw_only=True)
class LoadedData:
    """Training rows, test rows where there are any, and the words that belong to them."""

    data: PUData
    held_out: HeldOut | None
    description: str
    classes: tuple[Any, Any] = (0, 1)  # what 'not positive' and 'positive' are called in the labels
    feature_names: tuple[str, ...] | None = None
    true_prior: float | None = None  # known for named sets only
    inputs: dict[str, Any] | None = None  # how files become rows, for the model file
    skipped: tuple[Skipped, ...] = ()  # files that are not used
    duplicates: tuple[tuple[str, str], ...] = ()  # names of equal pictures on two sides
    warnings: tuple[str, ...] = ()  # about the data, to be told with the result
    made_from: str = ""  # what images were before they were brought into one form

    def form(self) -> str:
        """A checksum of all that is known besides the training rows: names, columns, classes and the test rows."""
        data, tested = self.data, self.held_out
        known = (data.names, self.classes, self.feature_names, self.inputs, tested and tested.fingerprint())
        return hashlib.sha256(repr(known).encode(errors="surrogateescape")).hexdigest()

    def answered(self, answers: Sequence[tuple[int, int]]) -> "LoadedData":
        """The same with the answers of a review: row numbers, and 1 = positive or -1 = negative."""
        if not answers:
            return self
        told, rows = [set[int](), set[int]()], range(len(self.data))
        for row, sign in answers:
            if row not in rows or sign not in (1, -1):
                raise InputError(f"the answer {sign} about row {row} is about no row of these data, or no answer")
            told[sign > 0].add(row)
        negatives, confirmed = ([row in kind for row in rows] for kind in told)
        return dataclasses.replace(self, data=self.data.answered(negatives, confirmed))

    def in_words(self) -> str:
        """How much there is of what, in one line."""
        data = self.data
        sides = " x ".join(str(side) for side in data.features.shape[1:])
        units = {"vectors": "features", "images": "pixels and channels", "volumes": "slices, pixels and channels"}
        rows = f"{len(data.positives):,} labelled and {len(data.unlabelled):,} unlabelled rows"
        tested = f", {len(self.held_out):,} to test on" if self.held_out else ""
        kept = ", kept sparse" if data.is_sparse else ""
        found = data.answers
        if found is not None:
            rows += f", of which {(found > 0).sum():,} were found positive and {(found < 0).sum():,} negative"
        return f"{rows}{tested}; {sides} {units[data.kind]}{kept}{self.made_from}"

    def with_leakage_warning(self) -> "LoadedData":
        """With a warning about test rows that are trained on; of folders, their reader knows equal pictures."""
        tested = self.held_out
        seen = 0 if tested is None else int(rows_seen(self.data.features, tested.features).sum())
        if tested is None or not seen:
            return self
        shared = f"{seen:,} of the {len(tested):,} test rows are also training rows"
        flatters = "so the test figures flatter the model: test on rows that it is not trained on"
        return dataclasses.replace(self, warnings=(*self.warnings, f"{shared}, {flatters}."))


class LoadOptions(TypedDict, total=False):
    """What some kinds need to know while they load."""

    own_rows: bool  # whether these are the very rows that the model was trained on
    progress: Progress | None
    watch: Watch | None


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows to predict for, in the form of a model, and what is known of them besides."""

    features: Array
    names: tuple[str, ...] | None = None
    files: tuple[RowFile, ...] | None = None  # of the rows, if each is an image file or a patient's folder
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()  # about the files they come from


@dataclass(frozen=True, kw_only=True)
class EvaluationRows:
    """Rows with their truth, or else labelled and unlabelled ones; one of the two is there."""

    where: str
    tested: HeldOut | None = None
    labelled: PUData | None = None
    trained_on: bool = False  # whether the model has seen these rows
    warnings: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # that they were read from, if they were
    skipped: tuple[Skipped, ...] = ()  # what in the folders gave no row
    groups: tuple[str, ...] = ()  # whom the rows belong to, where a column says it


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Where rows come from, in absolute paths, so that a run can be resumed from anywhere."""

    scenario: Scenario = "single-training-set"
    answers: tuple[tuple[int, int], ...] = ()  # of a review: row numbers, and 1 = positive or -1 = negative
    review_of: str = ""  # the run whose samples were reviewed

    key: ClassVar[str]  # the entry of request.json that only this kind has
    is_flat: ClassVar[bool] = False  # whether that entry is the first field, and the others are entries beside it
    draws_labels: ClassVar[bool] = False  # whether its rows are fully labelled, and the seed hides labels
    rows_are_files: ClassVar[bool] = False  # whether every row is a file or a folder that can be looked at

    @classmethod
    @abstractmethod
    def parse(cls, words: SourceWords, model: RowForm | None) -> Self | None:
        """The source that the words mean, None if they are not of this kind; a `model` is what rows are read for."""

    @classmethod
    def advice(cls, word: str) -> str:
        """What to say of DATA that no kind can take alone, but that looks like a part of this kind."""
        return ""

    def completed(self, words: SourceWords) -> SourceWords:
        """What was left out of the words about other rows, where it goes without saying as in the training."""
        return words

    @property
    @abstractmethod
    def paths(self) -> tuple[str, ...]:
        """Every file and folder that the data are read from, the most telling first."""

    @property
    def where(self) -> str:
        """The place of the data, for people."""
        return self.paths[0]

    @property
    def title(self) -> str:
        """The word that stands for the data in folder names and headings."""
        return Path(self.paths[0]).stem

    @property
    def labelled_count(self) -> int | None:
        """How many positives were asked to be labelled; None where the data say it."""
        return None

    @abstractmethod
    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        """Read and check everything; what is wrong with the data is found here, before anything is trained."""

    def load_draws(self, others: Sequence["Source"], **how: Unpack[LoadOptions]) -> list[LoadedData]:
        """The data of sources that differ from this one at most in the labels that are drawn; rows are loaded once."""
        return [self.load(**how)] * len(others)

    @classmethod
    def read_new(cls, path: Path, model: RowForm, *, strict: bool, watch: Watch | None) -> NewRows | None:
        """The rows at a path in the form of the model; None if they are not of this kind."""
        return None

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        """Rows whose truth is known; None if the words name none of this kind."""
        return None

    def evaluation_rows(self, loaded: LoadedData, *, trained_on: bool) -> EvaluationRows:
        """Labelled and unlabelled rows of this source to judge a model by."""
        return EvaluationRows(where=self.where, labelled=loaded.data, trained_on=trained_on, warnings=loaded.warnings)

    def seen_in_training(self, rows: EvaluationRows, model: RowForm) -> list[str]:
        """A sentence about rows that are equal to those of this source, by which the model was trained."""
        judged: HeldOut | PUData | None = rows.labelled if rows.tested is None else rows.tested
        if rows.folders or judged is None:
            return []
        try:
            training: Array = self.load(model, own_rows=True).data.features
        except (InputError, OSError):
            return []  # moved away or changed: nothing can be said
        seen = rows_seen(training, judged.features)
        positive: Mask = judged.truth if isinstance(judged, HeldOut) else judged.labelled
        others = "negatives" if isinstance(judged, HeldOut) else "unlabelled rows"
        sides = ((positive, "given positives"), (~positive, f"given {others}"))
        return seen_in_words([(int(seen[side].sum()), int(side.sum()), what) for side, what in sides])

    def to_dict(self) -> dict[str, Any]:
        """The form in `request.json`: an entry for every kind, of which one is filled."""
        review = {"answers": [list(one) for one in self.answers], "review_of": self.review_of}
        return {**_NOTHING, "scenario": self.scenario, **self._entries(), **(review if self.answers else {})}

    def _entries(self) -> dict[str, Any]:
        own = dataclasses.asdict(self)
        del own["scenario"], own["answers"], own["review_of"]
        return {self.key: own.pop(next(iter(own))), **own} if self.is_flat else {self.key: own}


def kinds() -> list[type[Source]]:
    """All kinds of data, in the order of `KINDS`."""
    return [pkgutil.resolve_name(home) for home in KINDS]


def source_from_dict(stored: Mapping[str, Any]) -> Source:
    """The inverse of `to_dict`, from what JSON made of it, which knows lists only."""
    kind = next((kind for kind in kinds() if stored.get(kind.key) is not None), None)
    if kind is None:
        raise KeyError("no known kind of data")
    first, *others = [one.name for one in dataclasses.fields(kind)][len(dataclasses.fields(Source)) :]
    own = {first: stored[kind.key]} | {name: stored[name] for name in others} if kind.is_flat else stored[kind.key]
    fields: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in own.items()}
    answers = tuple((int(row), int(sign)) for row, sign in stored.get("answers", ()))
    return kind(scenario=stored["scenario"], answers=answers, review_of=str(stored.get("review_of", "")), **fields)


def parse_source(words: SourceWords, model: RowForm | None = None) -> Source:
    """The one source that the words describe together, or a sentence about the one that does not belong."""
    for word in words.positives or []:
        if word.removeprefix("-").isdecimal() and not Path(word).exists():
            raise InputError(f"--positives {word} names no folder or file; of a named set give --labelled {word}.")
    data = words.data
    if data is not None and ends_in(data, *_SPREADSHEETS):
        raise InputError(f"{data} is a spreadsheet: save its sheet as CSV in UTF-8, and give that file.")
    for kind in kinds():
        if (source := kind.parse(words, model)) is not None:
            return source
    if data is None:
        files = "a .npz, .csv or .parquet file, the name of a set, or folders or .npy files"
        raise InputError(f"the command needs DATA: {files} with --positives and --unlabelled.")
    words.refuse_all_but_data()
    for kind in kinds():
        if sentence := kind.advice(data):
            raise InputError(sentence)
    known = "a .npz, .csv or .parquet file (a table in a text file has to be called .csv), or folders"
    raise InputError(f"{data} is not of a kind that can be read: give {known} with --positives and --unlabelled.")


def check_still_there(paths: Iterable[str]) -> None:
    """Refuse to look for data in a place that the user has not named now, as if it were mistyped."""
    gone = [path for path in paths if not Path(path).exists()]
    if gone:
        raise DataGone(f"the data that the run started with are no longer at {listed(gone)}: put them back there.")


def read_new_rows(path: Path, model: RowForm, *, strict: bool = False, watch: Watch | None = None) -> NewRows:
    """Rows to predict for, of any kind, in the form of the model."""
    for kind in kinds():
        if (rows := kind.read_new(path, model, strict=strict, watch=watch)) is not None:
            return rows
    if not path.exists():
        raise InputError(f"{path} does not exist: check the path")
    known = "a folder of images or of patients, one image, a table (.csv, .parquet) or arrays (.npy, .npz)"
    raise InputError(f"{path} is not of a kind that can be scored: give {known}.")


def read_rows_with_truth(words: SourceWords, model: RowForm, watch: Watch | None = None) -> EvaluationRows | None:
    """Rows whose truth is known, of any kind; None if the words name none."""
    for kind in kinds():
        if (rows := kind.read_truth(words, model, watch)) is not None:
            return rows
    if words.test is None:
        return None
    known = "one table, or two folders or .npy files (positives, negatives)"
    raise InputError(f"--test takes {known}, but got {len(words.test)}.")
