"""Tables with numeric and categorical columns -> rows of numbers, by a recipe that is plain JSON in the model file."""

import os
import shlex
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from splitpu.data.features import column_names, is_missing
from splitpu.data.pudata import HeldOut, PUData, binary_truth, labelled_mask
from splitpu.data.sources import EvaluationRows, LoadedData, LoadOptions, NewRows, RowForm, Source, SourceWords
from splitpu.data.sparse_rows import SparseRows, as_array, is_sparse_matrix
from splitpu.data.tables import checks, read
from splitpu.data.tables.text_columns import SentenceColumn, TextColumn, is_free_text, kinds_of_texts
from splitpu.errors import InputError, ModelFileError, SplitPUWarning
from splitpu.types import Array, Mask, Watch
from splitpu.utils.files import ends_in
from splitpu.utils.text import composed, is_number, listed

_OFTEN_POSITIVE = ("yes", "y", "positive", "pos", "p", "true", "t", "+", "case", "ill", "confirmed", "labelled")
FEWEST_ROWS_FOR_NAMES = 10  # in fewer rows, texts that all differ may be a coincidence
AnyColumn = read.Column | read.ListColumn | TextColumn | SentenceColumn
BESIDE_WORDS = 0.5  # the mean sum of squares of all columns that are no text, where that of a text is 1


@dataclass(frozen=True)
class LabelColumn:
    """Its name, and the label in it that means positive, where that is not 1."""

    name: str
    positive: str | None = None

    def labelled(self, table: read.Table) -> tuple[Mask, tuple[Any, Any]]:
        """Which rows are labelled positive, and what the others and these are called; an empty cell is no label."""
        labels, of_table = self._labels(table)
        if all(label is None for label in labels):
            means = self.positive or "1"
            raise InputError(f"{of_table} is empty in every row, so none is labelled: write {means} into positives.")
        if self.positive is None:
            return labelled_mask(self._numbers(labels, of_table), name=self.name), (0, 1)
        mask, others = self._positive_rows(labels, of_table)
        return labelled_mask(mask, name=self.name), (others[0] if len(others) == 1 else 0, self.positive)

    def truth(self, table: read.Table) -> Mask:
        """Which rows are positive, in a table that says it of all of them."""
        labels, of_table = self._labels(table)
        if any(label is None for label in labels):
            raise InputError(f"{of_table} has empty cells: test rows need their true labels.")
        if self.positive is None:
            return binary_truth(self._numbers(labels, of_table), self.name)
        return self._positive_rows(labels, of_table)[0]

    def _labels(self, table: read.Table) -> tuple[list[Any], str]:
        of_table = f"column {self.name!r} of {table.where}"
        if self.name not in table.columns:
            raise InputError(f"{table.lacking(self.name)}: name with --label the column that says what is labelled.")
        if any(map(read.is_nested, table.columns[self.name])):
            raise InputError(f"{of_table} holds lists or structures, which are no labels: name another with --label.")
        return table.columns[self.name], of_table

    def _positive_rows(self, labels: list[Any], of_table: str) -> tuple[Mask, list[str]]:
        """Which rows hold the label that means positive, and what the others hold.

        A table that never holds it is written in other words (1 and 0 for yes and no, say): taking all its rows for
        negatives would give figures that look like figures."""
        as_numbers = self.positive in ("0", "1")  # True and False, which only Parquet holds as such, also go by these
        plain = (int(label) if as_numbers and isinstance(label, bool) else label for label in labels)
        words = [None if label is None else read.text(label) for label in plain]
        held = {word for word in words if word is not None}
        if self.positive not in held:
            never = f"holds {listed(sorted(held), repr)} but never {self.positive!r}"
            raise InputError(f"{of_table} {never}: say with --positive-label which of them means positive.")
        return np.array([word == self.positive for word in words], dtype=np.bool_), sorted(held - {self.positive})

    def _numbers(self, labels: list[Any], of_table: str) -> Array:
        said = [None if label is None else read.TRUTH_WORDS.get(read.text(label).lower(), label) for label in labels]
        nothing = -1 if any(one is not None and is_number(one) and float(one) == -1 for one in said) else 0
        plain = [nothing if label is None else label for label in said]
        others = sorted({read.text(label) for label in plain if not is_number(label)})
        numbers = {float(label) for label in plain if is_number(label)}
        if not others and not (numbers <= {0, 1} or numbers <= {1, -1}):
            others = [f"{one:g}" for one in sorted(numbers)]
        if others:
            # The option as it may be copied; none at all where copying it could turn the labels round.
            likely = others if len(others) == 1 else [one for one in others if one.lower() in _OFTEN_POSITIVE]
            example = f", such as --positive-label {shlex.quote(likely[0])}" if len(likely) == 1 else ""
            held = f"{of_table} holds {listed(others, repr)}, but labels are 1 and 0, or 1 and nothing"
            raise InputError(f"{held}: say with --positive-label which of them means positive{example}.")
        return np.array([float(label) for label in plain])


@dataclass(frozen=True)
class TableRecipe:
    """What the model file remembers of a table."""

    columns: tuple[AnyColumn, ...]
    names: str | None = None  # the column that holds the names of the rows

    @classmethod
    def fit(
        cls, table: read.Columns, names: str | None = None, notes: Sequence[str] = (), kinds: Mapping[str, str] = {}
    ) -> tuple["TableRecipe", list[str]]:
        """Decide for every column from the training rows; also gives notes about columns that are not used.

        These follow the `notes` that there are already. `names` is the column of the rows' names, not among them;
        without it, one that looks like it is taken. `kinds` says of columns that they are "text", "text=FOLDER" (of a
        sentence model) or "categories", whatever they look like."""
        columns: list[AnyColumn] = []
        notes = list(notes)
        for name, cells in table.items():
            kind = kinds.get(name)
            if not isinstance(cells, np.ndarray) and any(map(read.is_nested, cells)):
                lists, about = read.ListColumn.fit(name, cells)
                columns += [lists] if lists else []
                notes.append(about)
                continue
            numbers = None if kind else read.as_numbers(cells)
            dates = read.order_of_dates(cells) if kind is None and numbers is None else ""
            numbers = read.as_days(cells, dates) if dates else numbers
            known: Any = [one for one in cells if one is not None] if numbers is None else numbers[~np.isnan(numbers)]
            if not len(known):
                notes.append(f"column {name!r} is empty and is not used.")
            elif numbers is not None:
                finite = known[np.abs(known) <= read.LARGEST] if len(known) else known
                fill = float(np.median(finite)) if len(finite) else 0.0
                origin = fill if dates else read.origin(finite, fill)
                columns.append(read.Column(name, None, fill, len(known) < len(cells), origin, dates=dates))
                numbering = checks.if_it_numbers_the_rows(name, known, len(cells))
                notes += checks.of_dates(name, known) if dates else numbering
                notes += checks.if_thousands_are_parted(name, cells)
            elif kind and kind.startswith("text="):
                sentences, about = SentenceColumn.fit(name, kind.removeprefix("text="))
                columns.append(sentences)
                notes.append(about)
            elif kind == "text" or (kind is None and is_free_text(known)):
                texts, about = TextColumn.fit(name, cells)
                if kind and texts is None:
                    raise InputError(about)
                columns += [texts] if texts else []
                notes.append(about)
            else:
                said = sum(map(is_number, known))
                counted = Counter(map(read.text, known))
                if kind is None and 2 * said <= len(known) and FEWEST_ROWS_FOR_NAMES <= len(cells) == len(counted):
                    notes.append(f"column {name!r} has another text in every row: taken as names, not as a feature.")
                    notes += checks.if_numbers_are_dressed_up(name, counted) + checks.if_dates_are_odd(name, counted)
                    notes += checks.if_lists_are_written_out(name, known)
                    names = names or name
                    continue
                frequent = sorted(counted, key=lambda value: (-counted[value], value))[: checks.MOST_CATEGORIES]
                notes += [] if kind else checks.if_categories_are_odd(name, counted, said)
                columns.append(read.Column(name, tuple(sorted(frequent)), 0.0, len(known) < len(cells)))
        if any(isinstance(one, TextColumn) for one in columns):
            columns = _beside_words(columns, table)
        if not columns:
            message = "the table has no column that can be used as a feature: add numbers or categories."
            raise InputError(" ".join([message, *notes]))
        return cls(tuple(columns), names), notes

    @classmethod
    def of(cls, model: RowForm, path: str | Path) -> "TableRecipe":
        """How the columns of a table become the numbers that the model was trained on."""
        if (model.inputs or {}).get("kind") != "table":
            raise InputError(f"{path} is a table, but the model was not trained on one: give what it was trained on.")
        recipe = cls.from_dict(model.inputs or {})
        if len(recipe.feature_names) != model.preprocessing.shape[0]:
            raise ModelFileError("the stored columns do not fit the network: train the model again.")
        return recipe

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def column_of_feature(self) -> list[str]:
        """Which column every number of a row comes from."""
        return [column.name for column in self.columns for _ in column.feature_names]

    def encode(self, table: read.Table) -> Array:
        """The rows of any table with these columns; others in it are ignored."""
        missing = [column.name for column in self.columns if column.name not in table.columns]
        if missing:
            raise InputError(f"{table.where} lacks columns that the model was trained on: add {listed(missing, repr)}.")
        parts = [column.encode(table.columns[column.name], table.where) for column in self.columns]
        if not any(map(is_sparse_matrix, parts)):
            return np.hstack(parts)
        import scipy.sparse

        return as_array(SparseRows.checked(scipy.sparse.hstack(parts, format="csr"), table.where))

    def notes_on(self, table: read.Table) -> list[str]:
        """What was left out, and every column of which the model knows few values, so that it decides without it."""
        notes = list(table.notes)
        for column in (one for one in self.columns if isinstance(one, read.Column)):
            values = table.columns[column.name]
            if isinstance(values, np.ndarray):
                values = values.tolist() if column.categories is not None else []
            if column.categories is None and not column.dates:
                notes += checks.if_thousands_are_parted(column.name, values)
            unknown = column.unknown(values)
            known = len(values) - values.count(None)
            if 2 * len(unknown) > known:
                some = f"{len(unknown):,} of the {known:,} values in column {column.name!r} of {table.where}"
                strange = f"are categories that the model does not know ({listed(sorted(set(unknown)), repr)})"
                knows = f"and count as none; it knows {listed(column.categories or (), repr)}"
                notes.append(f"{some} {strange} {knows}: check how they are written.")
        return notes

    def names_of(self, table: read.Table) -> tuple[str, ...] | None:
        values = table.columns.get(self.names) if self.names else None
        return None if values is None else tuple("" if value is None else read.as_written(value) for value in values)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and texts, ready for JSON."""
        plain = [asdict(column).items() for column in self.columns]
        columns = [{key: list(one) if isinstance(one, tuple) else one for key, one in items} for items in plain]
        return {"kind": "table", "columns": columns, "names": self.names}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "TableRecipe":
        try:
            names = None if stored["names"] is None else composed(str(stored["names"]))
            return cls(tuple(map(_stored_column, stored["columns"])), names)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"the stored columns cannot be read ({error!r}): train the model again.") from error


def _beside_words(columns: Sequence[AnyColumn], table: read.Columns) -> list[AnyColumn]:
    """The same, but numbers in steps, and all that are no texts so small that together they weigh less than one text.

    Rows with words in them are sparse, and nobody scales sparse columns. Neither the unit of a number nor columns that
    say nothing must drown the words, whose squares add up to one in every row (docs/LOG.md has what that gains)."""
    stepped = [one.in_steps(table[one.name]) if isinstance(one, read.Column) else one for one in columns]
    others = [one for one in stepped if isinstance(one, read.Column)]
    squares = sum(float((one.encode(table[one.name], "X") ** 2).sum()) / len(table[one.name]) for one in others)
    weight = np.sqrt(BESIDE_WORDS / squares) if squares else 1.0
    return [replace(one, weight=float(weight)) if isinstance(one, read.Column) else one for one in stepped]


def _stored_column(stored: Mapping[str, Any]) -> AnyColumn:
    if "words" in stored:
        return TextColumn.from_dict(stored)
    if "folder" in stored:
        return SentenceColumn.from_dict(stored)
    return (read.ListColumn if isinstance(stored["fill"], list) else read.Column).from_dict(stored)


@dataclass(frozen=True, kw_only=True)
class TableSource(Source):
    """Which file, and which of its columns says what is labelled."""

    path: str
    label: str
    positive: str | None = None  # the label that means positive, where it is not 1
    names: str | None = None  # the column that holds the names of the rows; found where not given
    ignore: tuple[str, ...] = ()  # columns that are no features
    text: tuple[str, ...] = ()  # columns of free text, besides those that are found to be
    group: str | None = None  # the column that says which rows belong together, and is no feature
    test: str | None = None  # a file with the same columns in which the label is the truth

    key: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        """Columns and labels in the letters that tables are read in."""
        for name in ("label", "positive", "names", "group"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else composed(given))
        for name in ("ignore", "text"):
            object.__setattr__(self, name, tuple(map(composed, getattr(self, name))))

    @classmethod
    def parse(cls, words: SourceWords, model: RowForm | None) -> "TableSource | None":
        data = words.data
        if data is None or not ends_in(data, *read.SUFFIXES):
            return None
        words.refuse(words.FOLDER_OPTIONS, "for folders of images or patients.")
        words.refuse_labelled(f"in {data} the column that --label names")
        if not Path(data).exists():
            raise InputError(f"{data} does not exist: check the path.")
        if words.label is None:
            raise InputError(f"{data} is a table: name the column that says which rows are labelled with --label.")
        if words.test is not None and len(words.test) != 1:
            raise InputError(f"--test takes one table with the columns of {data}, but got {len(words.test)}.")
        return cls(
            scenario=words.scenario,
            path=os.path.realpath(data),
            label=words.label,
            positive=words.positive_label,
            names=words.names,
            ignore=tuple(words.ignore or ()),
            text=tuple(words.text or ()),
            group=words.group,
            test=None if words.test is None else os.path.realpath(words.test[0]),
        )

    def completed(self, words: SourceWords) -> SourceWords:
        """The label column of the training, where none is named, and that of the groups."""
        words = replace(words, group=words.group or self.group)
        if words.label is not None:
            return words
        return replace(words, label=self.label, positive_label=words.positive_label or self.positive)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if self.test is None else (self.path, self.test)

    def _entries(self) -> dict[str, Any]:
        """Without what was not asked for: earlier runs have no such entries."""
        own = super()._entries()[self.key]
        return {self.key: {name: one for name, one in own.items() if one or name not in ("text", "group")}}

    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        """All rows, by the model's recipe: tables read anew may be understood in another way by now."""
        table = read.read_table(Path(self.path))
        labelled, classes = LabelColumn(self.label, self.positive).labelled(table)
        groups = groups_of(table, self.group)
        if model is None:
            kinds = kinds_of_texts(self.text, table.columns)
            recipe, notes = TableRecipe.fit(_features_of(table, self), self.names, table.notes, kinds)
            features = recipe.encode(table)
            notes += checks.if_they_give_labels_away(features, labelled, recipe.column_of_feature)
        else:
            recipe = TableRecipe.of(model, self.where)
            features, notes = recipe.encode(table), recipe.notes_on(table)
        data = PUData.from_arrays(features, labelled, scenario=self.scenario, names=recipe.names_of(table))
        data = replace(data, columns=recipe.column_of_feature)
        rows = None if self.test is None else self._tested(self.test, recipe)
        if rows is not None:
            notes += [*rows.warnings, *shared_groups(groups, rows.groups, self.group)]
        return LoadedData(
            data=data.counted(groups=groups) if groups else data,
            held_out=None if rows is None else rows.tested,
            description=f"{self.path}, column {self.label!r} says which rows are labelled",
            classes=classes,
            feature_names=recipe.feature_names,
            inputs=recipe.to_dict(),
            warnings=tuple(notes),
        ).with_leakage_warning()

    def _tested(self, path: str, recipe: TableRecipe) -> EvaluationRows:
        """The rows of a table whose label column is the truth, with notes about its columns."""
        table = read.read_table(Path(path))
        tested = HeldOut.from_arrays(recipe.encode(table), LabelColumn(self.label, self.positive).truth(table))
        notes = tuple(recipe.notes_on(table))
        return EvaluationRows(where=path, tested=tested, warnings=notes, groups=groups_of(table, self.group))

    def written(self) -> read.Columns:
        """The records as their owner wrote them, by column; without the label."""
        columns = read.read_table(Path(self.path)).columns
        return {name: column for name, column in columns.items() if name != self.label}

    @classmethod
    def read_new(cls, path: Path, model: RowForm, *, strict: bool, watch: Watch | None) -> NewRows | None:
        if not ends_in(path, *read.SUFFIXES):
            return None
        recipe, table = TableRecipe.of(model, path), read.read_table(path)
        return NewRows(recipe.encode(table), recipe.names_of(table), warnings=tuple(recipe.notes_on(table)))

    def evaluation_rows(self, loaded: LoadedData, *, trained_on: bool) -> EvaluationRows:
        """As for every kind; of other rows than those of the training it is said how they were read."""
        rows = super().evaluation_rows(loaded, trained_on=trained_on)
        known, others = len(loaded.data.positives), len(loaded.data.unlabelled)
        labelled = f"by its column {self.label!r}, {known:,} are labelled positive and {others:,} may be either"
        sentence = f"{self.path} is read as labelled and unlabelled rows: {labelled}."
        truth = "If that column is the truth, give the table as --test."
        return rows if trained_on else replace(rows, warnings=(f"{sentence} {truth}", *rows.warnings))

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        """One table in --test, whose label column is the truth."""
        if words.test is None or len(words.test) != 1 or not ends_in(words.test[0], *read.SUFFIXES):
            return None
        (path,) = words.test
        if words.label is None:
            raise InputError(f"{path} is a table: name the column that holds the truth with --label.")
        columns = cls(path=path, label=words.label, positive=words.positive_label, group=words.group)
        return columns._tested(path, TableRecipe.of(model, path))

    def seen_in_training(self, rows: EvaluationRows, model: RowForm) -> list[str]:
        """Also of groups: a patient's other rows are nearly as good as the same rows."""
        found = super().seen_in_training(rows, model)
        if self.group is None or not rows.groups or not Path(self.path).exists():
            return found
        return found + shared_groups(groups_of(read.read_table(Path(self.path)), self.group), rows.groups, self.group)


def groups_of(table: read.Table, column: str | None) -> tuple[str, ...]:
    """Whom every row belongs to, where a column says it; a row that does not stands alone."""
    cells = () if column is None else table.columns.get(column, [None] * len(table))
    return tuple(f"\0{row}" if cell is None else read.text(cell) for row, cell in enumerate(cells))


def shared_groups(training: Sequence[str], test: Sequence[str], column: str | None) -> list[str]:
    """A sentence about groups that are both trained on and tested with."""
    both = sorted(one for one in set(training) & set(test) if one[0] != "\0")
    counted = Counter(test)
    rows = sum(counted[one] for one in both)
    shared = f"{len(both):,} values of column {column!r} ({listed(both, repr)}) are in the training and the test rows"
    flatters = "so the test figures flatter the model: test on groups that it is not trained on"
    return [f"{shared} ({rows:,} of these), {flatters}."] if both else []


def _features_of(table: read.Table, source: TableSource) -> read.Columns:
    """The columns that may be features: all but those that the user gave another meaning, or none."""
    texts = tuple(kinds_of_texts(source.text, table.columns))
    said = {"--names": (source.names,), "--ignore": source.ignore, "--text": texts, "--group": (source.group,)}
    for option, names in said.items():
        for name in names:
            if name is not None and name not in table.columns:
                raise InputError(f"{table.lacking(name)}: check {option}.")
            if name == source.label:
                raise InputError(f"column {name!r} is named by both --label and {option}: leave out one of them.")
            if option == "--text" and name in (source.names, source.group, *source.ignore):
                raise InputError(f"column {name!r} is named by --text, but also as no feature: leave out one of them.")
    if source.names is not None and any(map(read.is_nested, table.columns[source.names])):
        raise InputError(f"column {source.names!r} of {table.where} holds lists, not names: check --names.")
    apart = {source.label, source.names, source.group, *source.ignore}
    return {name: column for name, column in table.columns.items() if name not in apart}


def rows_for_table_model(inputs: Mapping[str, Any], X: Any) -> Any:
    """Rows as the model takes them: a data frame is encoded as a file would be, whatever the order of its columns.

    An array is left alone where the model takes every column as it is. Else its numbers would be taken for what the
    columns are turned into, and be as wrong as they look right."""
    recipe = TableRecipe.from_dict(inputs)
    if not column_names(X):
        turned = [one.name for one in recipe.columns if one.is_converted]
        if turned:
            needed = f"the model was trained on a table with columns to be converted first ({listed(turned, repr)})"
            raise InputError(f"X has no column names, but {needed}: give X as a data frame with these columns")
        return X
    table = frame_as_table(X, [column.name for column in recipe.columns])
    encoded = recipe.encode(table)
    for note in recipe.notes_on(table):
        warnings.warn(note, SplitPUWarning, stacklevel=2)
    return encoded


def fit_frame(X: Any, text: Sequence[str] = ()) -> tuple[Array, TableRecipe, list[str]]:
    """The rows of a data frame, the recipe by which they are encoded as those of a file would be, and notes."""
    table = frame_as_table(X)
    texts = kinds_of_texts(text, table.columns)
    for name in texts:
        if name not in table.columns:
            raise InputError(f"{table.lacking(name)}: check text=")
    categories = [name for name in column_names(X) if str(getattr(X[name], "dtype", "")).lower().startswith("categor")]
    kinds = dict.fromkeys((composed(str(name).strip()) for name in categories), "categories")
    recipe, notes = TableRecipe.fit(table.columns, kinds=kinds | texts)
    return recipe.encode(table), recipe, notes


def frame_as_table(X: Any, wanted: Sequence[str] | None = None) -> read.Table:
    """The columns of a data frame as those of a file, all or the wanted ones; numbers stay arrays, which is quicker."""
    columns: read.Columns = {}
    for name, own in ((composed(str(name).strip()), name) for name in column_names(X)):
        if name in columns:
            raise InputError(f"X has more than one column {name!r}: give every column its own name")
        if wanted is not None and name not in wanted:
            continue
        values = np.asarray(X[own])
        if values.dtype.kind in "mM":
            values = values.astype(f"{values.dtype.kind}8[us]").astype(object)
        if values.dtype.kind not in "biuf":
            columns[name] = [None if is_missing(value) else read.plain_cell(value) for value in values.tolist()]
        else:
            columns[name] = values
    return read.Table(columns, "X")
