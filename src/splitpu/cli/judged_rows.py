"""The rows that `splitpu evaluate` judges a model by: the run's own, or those of other files, folders and tables."""

from dataclasses import dataclass, replace
from pathlib import Path

from splitpu.cli.inputs import DataOptions, absolute, refuse, source_asked
from splitpu.cli.predict_inputs import image_spec, refuse_arrays_for_a_table, table_form, table_recipe
from splitpu.cli.seen_rows import files_seen_in_words, rows_seen_in_words
from splitpu.config.schema import Scenario
from splitpu.data import NAMED_SETS, HeldOut, PUData, load_named
from splitpu.data.array_files import SUFFIXES as ARRAY_SUFFIXES
from splitpu.data.array_files import read_array_test
from splitpu.data.folders import read_test_folders
from splitpu.data.npz import has_only_pu_labels, read_labelled
from splitpu.data.readers import RowSpec, Watch
from splitpu.data.scanning import Skipped
from splitpu.data.table_files import SUFFIXES as TABLE_SUFFIXES
from splitpu.data.tables import TableRecipe, TableSource, read_table_test
from splitpu.errors import DataGone, InputError
from splitpu.files import ends_in
from splitpu.models import Model
from splitpu.runs.folder import RunFolder
from splitpu.runs.request import Source
from splitpu.runs.sources import load_request, load_source


@dataclass(frozen=True, kw_only=True)
class JudgedRows:
    """Rows with their truth, or else labelled and unlabelled ones; one of the two is there."""

    where: str
    tested: HeldOut | None = None
    labelled: PUData | None = None
    trained_on: bool = False  # whether the model has seen these rows
    warnings: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # that they were read from, if they were
    skipped: tuple[Skipped, ...] = ()  # what in the folders gave no row


def rows_to_judge_by(
    folder: RunFolder,
    model: Model,
    asked: DataOptions,
    watch: Watch | None = None,
    *,
    scenario: Scenario | None = None,
) -> JudgedRows:
    """What the words name, or the data of the run: its test rows if it has some.

    `scenario` says how labelled and unlabelled rows that the words name were sampled; as those of the run if None.
    """
    found = _found_rows(folder, model, asked, watch, scenario)
    if scenario is not None and (found.labelled is None or not asked.given()):
        raise InputError(
            f"--scenario {scenario} is for labelled and unlabelled rows that are given here; {found.where} "
            f"{'has its truth' if found.labelled is None else 'was sampled as the run says'}, so leave it out."
        )
    if not asked.given() or found.trained_on:
        return found
    return replace(found, warnings=(*found.warnings, *_seen_in_training(folder.request().source, model, found)))


def _seen_in_training(own: Source, model: Model, given: JudgedRows) -> list[str]:
    """What there is to say of given rows that are training rows, where both come from files of one kind."""
    if own.folders and given.folders:
        return files_seen_in_words(own.folders, given.folders, image_spec(model, given.where), given.skipped)
    rows = given.labelled if given.tested is None else given.tested
    if own.folders or own.named or given.folders or rows is None:
        return []
    return rows_seen_in_words(own, rows, table_form(model, own))


def _found_rows(
    folder: RunFolder, model: Model, asked: DataOptions, watch: Watch | None, scenario: Scenario | None
) -> JudgedRows:
    refuse(asked, ("names", "ignore"), "for training: the model knows which columns it takes.")
    for word in (asked.data, *(asked.test or ()), *(asked.positives or ()), *(asked.unlabelled or ())):
        if word is not None and ends_in(word, *ARRAY_SUFFIXES):
            refuse_arrays_for_a_table(model, word)
    others = [option for option in asked.given() if option in ("DATA", "--positives", "--unlabelled", "--labels")]
    if asked.test is not None:
        if others:
            raise InputError(f"--test says what is true of its rows, so leave out {' and '.join(others)}.")
        return _with_truth(folder, model, asked, list(asked.test), watch)
    if asked.data in NAMED_SETS:
        return _named(str(asked.data))
    if asked.data is not None and ends_in(asked.data, ".npz") and not has_only_pu_labels(asked.data):
        return JudgedRows(where=asked.data, tested=HeldOut.from_arrays(*read_labelled(asked.data)))
    return _labelled(folder, model, asked, watch, scenario) if asked.given() else _of_run(folder, model, watch)


def _of_run(folder: RunFolder, model: Model, watch: Watch | None) -> JudgedRows:
    source = folder.request().source
    if source.named is not None:
        return _named(source.named)
    try:
        loaded = load_request(folder.request(), watch=watch, form=table_form(model, source))
    except DataGone as gone:
        others = "or give other rows to judge by, as for fit or with --test"
        raise InputError(f"{str(gone).rstrip('.')}, {others}.") from gone
    if loaded.held_out is not None:
        where = f"the test rows of {source.where}"
        return JudgedRows(where=where, tested=loaded.held_out, warnings=loaded.warnings)
    return JudgedRows(where=source.where, labelled=loaded.data, trained_on=True, warnings=loaded.warnings)


def _named(name: str) -> JudgedRows:
    named = load_named(name)
    return JudgedRows(where=name, tested=HeldOut.from_arrays(named.features_test, named.truth_test, channels="last"))


def _labelled(
    folder: RunFolder, model: Model, asked: DataOptions, watch: Watch | None, scenario: Scenario | None
) -> JudgedRows:
    own = folder.request().source
    if asked.data is not None and Path(asked.data).is_dir() and asked.positives is None and asked.labels is None:
        raise InputError(
            f"nothing says which images in {asked.data} are positive: give --test POSITIVES NEGATIVES if it is known, "
            "else --positives and --unlabelled."
        )
    if asked.label is None and own.table is not None:
        asked = _as_in_training(asked, own.table)
    source = source_asked(asked, seed=0, scenario=scenario or own.scenario)
    loaded = load_source(source, watch=watch, form=_form(model, source))
    same = loaded.data.fingerprint() == folder.request().fingerprint  # the rows of the training, though named anew
    return JudgedRows(
        where=source.where,
        labelled=loaded.data,
        trained_on=same,
        warnings=loaded.warnings,
        folders=(*source.folders.positives, *source.folders.unlabelled) if source.folders else (),
        skipped=loaded.skipped,
    )


def _form(model: Model, source: Source) -> RowSpec | TableRecipe | None:
    if source.folders:
        return image_spec(model, source.where)
    return table_form(model, source)


def _with_truth(
    folder: RunFolder, model: Model, asked: DataOptions, words: list[str], watch: Watch | None
) -> JudgedRows:
    where = " and ".join(words)
    if len(words) == 1 and ends_in(words[0], *TABLE_SUFFIXES):
        own = folder.request().source.table
        named = asked if asked.label is not None or own is None else _as_in_training(asked, own)
        if named.label is None:
            raise InputError(f"{words[0]} is a table: name the column that holds the truth with --label.")
        columns = TableSource(path=words[0], label=named.label, positive=named.positive_label)
        features, truth, notes = read_table_test(words[0], columns, table_recipe(model, words[0]))
        return JudgedRows(where=where, tested=HeldOut.from_arrays(features, truth), warnings=tuple(notes))
    if len(words) != 2:
        raise InputError(
            f"--test takes one table, or two folders or .npy files (positives, negatives), but got "
            f"{len(words)} word{'' if len(words) == 1 else 's'}."
        )
    if all(ends_in(word, *ARRAY_SUFFIXES) for word in words):
        return JudgedRows(where=where, tested=HeldOut.from_arrays(*read_array_test(words)))
    folders = absolute(words)
    rows, truth = read_test_folders(folders, image_spec(model, where), strict=asked.strict, watch=watch)
    tested = HeldOut.from_arrays(rows.pixels, truth, channels="last")
    said = tuple(rows.in_words("test"))
    return JudgedRows(where=where, tested=tested, warnings=said, folders=folders, skipped=rows.skipped)


def _as_in_training(asked: DataOptions, table: TableSource) -> DataOptions:
    """The label column of the run, where none is named."""
    return DataOptions(
        **{**asked.__dict__, "label": table.label, "positive_label": asked.positive_label or table.positive}
    )
