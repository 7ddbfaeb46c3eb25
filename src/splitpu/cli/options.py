"""Kinds of options that several commands share.

Sentences of the library in the words of the command line: what is `prior=0.3` in Python is `--prior 0.3` here.

What the words of `splitpu fit` say about the data: a set's name, a file, a table, or folders of images.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter, Token

from splitpu.config.schema import Scenario
from splitpu.data.array_files import SUFFIXES as ARRAY_SUFFIXES
from splitpu.data.array_files import ArraySource
from splitpu.data.images.folders import FolderSource
from splitpu.data.public.datasets import NAMED_SETS
from splitpu.data.tables.encode import TableSource
from splitpu.data.tables.read import SUFFIXES as TABLE_SUFFIXES
from splitpu.errors import InputError
from splitpu.runs.request import Source
from splitpu.runs.sources import parse_source
from splitpu.utils.files import ends_in


def _whole_number(_: object, tokens: Sequence[Token]) -> int:
    word = tokens[0].value
    try:
        return int(word)  # cyclopts itself would round 1.5 to 2
    except ValueError:
        raise ValueError(f"{word!r} is not a whole number; give one such as 3.") from None


def _share_or_word(_: object, tokens: Sequence[Token]) -> float | Literal["auto", "true", "none"]:
    word = tokens[0].value
    match word.lower():
        case "auto" | "true" | "none" as known:
            return known
    try:
        return float(word)
    except ValueError:
        raise ValueError(
            f"{word!r} is not a share; give a number between 0 and 1, such as 0.3, or auto to have it estimated."
        ) from None


Whole = Annotated[int, Parameter(converter=_whole_number)]
WholeOrNone = Annotated[int | None, Parameter(converter=_whole_number)]
Share = Annotated[float | Literal["auto", "true", "none"] | None, Parameter(converter=_share_or_word)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Words = Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)]
Settings = Annotated[list[str] | None, Parameter(name="--set", negative=(), consume_multiple=False)]
Calibration = Literal["temperature", "platt", "isotonic"]

# What many commands ask for in the same words, which are said here and not in their docstrings.
FinishedRun = Annotated[str, Parameter(help="The folder of a finished run.")]
Device = Annotated[str, Parameter(help="Where to compute: auto (a GPU if there is one), cpu or cuda.")]
Quiet = Annotated[Flag, Parameter(help="Do not show progress.")]
AsJson = Annotated[Flag, Parameter(help="Print one JSON object.")]
ResultAsJson = Annotated[Flag, Parameter(help="Print the result as one JSON object.")]
Link = Annotated[Flag, Parameter(help="With --copy-to: make links instead of copies.")]
Strict = Annotated[
    Flag, Parameter(help="Stop at the first file that cannot be read, instead of skipping up to a tenth of them.")
]


@Parameter(name="*", group=Group("Where the data are", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class DataWords:
    """Where the data are, besides DATA itself; the same words for every command that reads data.

    Parameters
    ----------
    positives
        The known positives: folders of images (PNG, JPEG, TIFF, WebP), folders of patients (each a folder of DICOM
        files or one NIfTI file) or .npy files. For a named set: how many of its positives to label, such as 50.
    unlabelled
        The rows that may be positive or not: folders or .npy files, as for --positives.
    test
        What to test on, with known truth: two folders or two .npy files, positives first, then negatives; or one table
        whose label column is the truth.
    labels
        For images, instead of --positives: a CSV file with the columns name and label (1 = labelled positive, 0 or
        empty = unlabelled). Give the folder of all images as DATA.
    size
        The size to resize images to, such as 64 or 48x64 (height x width). If not given, it is chosen from the images,
        up to 224 pixels (128 for fewer than 5,000 images), and the run says what it is.
    series
        For patients: which DICOM series to take, by a part of its description, such as T1. If not given: the one with
        the most slices.
    slices
        For patients: the largest number of slices; of patients with more, slices are chosen evenly. If not given: all.
    label
        For tables: the column that says which rows are labelled (1 = positive, 0 or empty = unlabelled).
    positive_label
        For tables: the value in that column that means positive. If not given: 1.
    names
        For tables: the column with the names of the rows, such as a patient's number. It is not used as a feature.
    ignore
        For tables: columns not to use as features, such as dates or what was filled in because of the label.
    """

    positives: Words = None
    unlabelled: Words = None
    test: Words = None
    labels: str | None = None
    size: str | None = None
    strict: Strict = False
    series: str | None = None
    slices: WholeOrNone = None
    label: str | None = None
    positive_label: str | None = None
    names: str | None = None
    ignore: Words = None

    def given(self) -> list[str]:
        """The options that were given, as they are written; DATA, where there is one, among them."""
        spelling = {"data": "DATA", "settings": "--set"}
        chosen = [field.name for field in fields(self) if getattr(self, field.name) not in (None, False)]
        return [spelling.get(name, f"--{name.replace('_', '-')}") for name in chosen]


@Parameter(name="*", group=Group("How to train", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class TrainingWords:
    """How to train; the same words for every command that trains.

    Parameters
    ----------
    preset
        The settings to start from: default, paper (as published) or record (slower: a warm-up, then fine-tuning).
    config
        A TOML file of settings, which override the preset.
    settings
        A single setting such as student.epochs=20, which overrides both. May be repeated.
    rounds
        How many rounds of split and student.
    backbone
        The network: auto, mlp, cnn-small, cnn13, resnet18 or, for volumes, slices-resnet18.
    weights
        Weights that resnet18 starts from: imagenet, or a file in torchvision's format (.safetensors, or .pth of tensors
        only).
    warmup
        simclr: first learn features from all rows without labels, and start every network from them. If not given: no
        warm-up.
    scenario
        How the data were sampled: single-training-set (one draw, some of its positives labelled; the default) or
        case-control (the positives were collected separately).
    calibration
        Calibrate the probabilities by temperature, platt or isotonic, so that they mean what they say. This keeps a
        fifth of the rows out of the training (or the share that --set selection.held_out=... says).
    device
        Where to compute: auto (a GPU if there is one), cpu or cuda.
    """

    preset: str | None = None
    config: Path | None = None
    settings: Settings = None
    rounds: WholeOrNone = None
    backbone: str | None = None
    weights: Path | None = None
    warmup: str | None = None
    scenario: Scenario | None = None
    calibration: Calibration | None = None
    device: str | None = None


NO_WORDS = DataWords()
AS_USUAL = TrainingWords()


# Not behind a slash or a dot: there it is part of a file's name.
_AS_IN_PYTHON = re.compile(r"(?<![\w/\\.-])(prior|scenario|device)=(?:'([^']*)'|([\w.:-]*\w))")


def as_options(sentence: str) -> str:
    """The sentence as a user of the command line needs it.

    >>> as_options("give the share yourself (prior=0.3, say) or use scenario='case-control'")
    'give the share yourself (--prior 0.3, say) or use --scenario case-control'
    """
    return _AS_IN_PYTHON.sub(lambda found: f"--{found[1]} {found[2] or found[3]}", sentence)


SMALLEST_SIDE, LARGEST_SIDE = 4, 2048
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
_FOR_FOLDERS = ("labels", "size", "strict", "series", "slices")
_FOR_TABLES = ("label", "positive_label", "names", "ignore")


@dataclass(frozen=True, kw_only=True)
class DataOptions(DataWords):
    """Everything that was said about where the data are; None = not given."""

    data: str | None = None


def source_asked(asked: DataOptions, *, seed: int, scenario: Scenario) -> Source:
    """The one source that the options describe together, or a sentence about the one that does not belong."""
    data, number, folders = _number_or_folders(asked)
    if data is not None and ends_in(data, *_SPREADSHEETS):
        raise InputError(f"{data} is a spreadsheet: save its sheet as CSV in UTF-8, and give that file.")
    if any(_is_array_file(word) for word in [*folders, *(asked.unlabelled or [])]):
        refuse(asked, _FOR_FOLDERS, "for folders of images or patients.")
        refuse(asked, _FOR_TABLES, "for .csv and .parquet tables.")
        return Source(arrays=_array_source(asked, data, folders), scenario=scenario)
    if folders or asked.unlabelled or (data is not None and data not in NAMED_SETS and Path(data).is_dir()):
        refuse(asked, _FOR_TABLES, "for tables; image folders take --labels names.csv.")
        return Source(folders=_folder_source(asked, data, folders), scenario=scenario)
    if data is None:
        raise InputError(
            "the command needs DATA: a .npz, .csv or .parquet file, the name of a set, or folders or .npy files with "
            "--positives and --unlabelled."
        )
    refuse(asked, _FOR_FOLDERS, "for folders of images or patients.")
    if data not in NAMED_SETS and ends_in(data, *TABLE_SUFFIXES):
        if number is not None:
            raise InputError(f"--positives is for named sets and folders; in {data} name the column with --label.")
        return Source(table=_table_source(asked, data), scenario=scenario)
    refuse(asked, _FOR_TABLES, f"for .csv and .parquet tables, which {data} is not by its name.")
    refuse(asked, ("test",), "for folders and tables; a .npz file holds X_test and y_test.")
    return parse_source(data, positives=number, seed=seed, scenario=scenario)


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Height and width: one number for a square, or two.

    >>> parse_size("64"), parse_size("48x64")
    ((64, 64), (48, 64))
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if not (1 <= len(sides) <= 2 and all(side.isascii() and side.isdigit() for side in sides)):
        raise InputError(f"--size {text} is not a size: give one number such as 64, or height x width such as 48x64.")
    height, width = int(sides[0]), int(sides[-1])
    if not all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in (height, width)):
        raise InputError(f"--size {text} is out of range: sides from {SMALLEST_SIDE} to {LARGEST_SIDE} can be used.")
    return height, width


def _number_or_folders(asked: DataOptions) -> tuple[str | None, int | None, list[str]]:
    """DATA, the number of positives, and the folders of positives; `--positives 50 digits` is understood, too."""
    data, words = asked.data, list(asked.positives or [])
    if words and _is_number(words[0]) and not Path(words[0]).is_dir():
        if len(words) == 2 and data is None:
            data = words.pop()
        if len(words) > 1:
            raise InputError(f"--positives {' '.join(words)} is neither one number nor a list of folders.")
        return data, int(words[0]), []
    return data, None, words


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isascii() and word.removeprefix("-").isdigit()


def _folder_source(asked: DataOptions, data: str | None, positives: Sequence[str]) -> FolderSource:
    _refuse_data_beside_folders(asked, data)
    unlabelled = [*([data] if data is not None else []), *(asked.unlabelled or [])]
    for folder in [*positives, *unlabelled, *(asked.test or [])]:
        if not Path(folder).is_dir():
            wrong = "is not a folder" if Path(folder).exists() else "does not exist"
            raise InputError(f"the folder {folder} {wrong}: give folders that hold images.")
    if not unlabelled:
        raise InputError("--positives names folders, so --unlabelled has to name the folders of the other images.")
    if not positives and asked.labels is None:
        raise InputError("no image is labelled: give --positives FOLDER, or --labels names.csv with name and label.")
    if asked.test is not None and len(asked.test) != 2:
        raise InputError(f"--test takes two folders, of positives and of negatives, but got {len(asked.test)}.")
    if asked.slices is not None and asked.slices < 1:
        raise InputError(f"--slices {asked.slices} leaves nothing of a volume: give 1 or more.")
    return FolderSource(
        positives=absolute(positives),
        unlabelled=absolute(unlabelled),
        test=absolute(asked.test or []),
        labels=None if asked.labels is None else str(Path(asked.labels).resolve()),
        size=parse_size(asked.size),
        strict=bool(asked.strict),
        series=asked.series,
        slices=asked.slices,
    )


def _refuse_data_beside_folders(asked: DataOptions, data: str | None) -> None:
    """A folder as DATA is one of unlabelled images; a file or a named set says by itself which rows are labelled."""
    if data is None or Path(data).is_dir():
        return
    option = "--positives" if asked.positives else "--unlabelled"
    if data in NAMED_SETS:
        given = " ".join(asked.positives or asked.unlabelled or [])
        raise InputError(f"{data} is a named set, but {option} {given} is not a number: give one, as --positives 50.")
    if Path(data).is_file():
        raise InputError(
            f"{data} is a file, and {option} names folders, which do not go together: give either the file alone, or "
            "folders with --positives and --unlabelled."
        )


def _array_source(asked: DataOptions, data: str | None, positives: Sequence[str]) -> ArraySource:
    unlabelled = [*([data] if data is not None else []), *(asked.unlabelled or [])]
    if not positives or not unlabelled:
        missing = "--unlabelled" if positives else "--positives"
        raise InputError(f"{missing} is missing: give .npy files of known positives and of unlabelled rows.")
    test = list(asked.test or [])
    if test and len(test) != 2:
        raise InputError(f"--test takes two .npy files, of positives and of negatives, but got {len(test)}.")
    for word in [*positives, *unlabelled, *test]:
        if not _is_array_file(word):
            raise InputError(f"{word} is not a .npy or .npz file: give either arrays or folders, not both.")
    return ArraySource(positives=absolute(positives), unlabelled=absolute(unlabelled), test=absolute(test))


def _is_array_file(word: str) -> bool:
    return ends_in(word, *ARRAY_SUFFIXES) and not Path(word).is_dir()


def _table_source(asked: DataOptions, data: str) -> TableSource:
    if not Path(data).exists():
        raise InputError(f"{data} does not exist: check the path.")
    if asked.label is None:
        raise InputError(f"{data} is a table: name the column that says which rows are labelled with --label.")
    if asked.test is not None and len(asked.test) != 1:
        raise InputError(f"--test takes one table with the columns of {data}, but got {len(asked.test)}.")
    return TableSource(
        path=str(Path(data).resolve()),
        label=asked.label,
        positive=asked.positive_label,
        names=asked.names,
        ignore=tuple(asked.ignore or ()),
        test=None if asked.test is None else str(Path(asked.test[0]).resolve()),
    )


def absolute(folders: Sequence[str]) -> tuple[str, ...]:
    """So that the run can be resumed from anywhere."""
    return tuple(str(Path(folder).absolute()) for folder in folders)


def refuse(asked: DataOptions, names: Sequence[str], what_for: str) -> None:
    for name in names:
        if getattr(asked, name) not in (None, False):
            raise InputError(f"--{name.replace('_', '-')} is {what_for}")
