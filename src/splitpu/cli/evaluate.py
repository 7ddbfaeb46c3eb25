"""`splitpu evaluate` where no truth is known: figures estimated from labelled and unlabelled rows.

What `splitpu evaluate` says of rows that the run was trained on, which nobody may take for new ones.

The rows that `splitpu evaluate` judges a model by: the run's own, or those of other files, folders and tables.

`splitpu evaluate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splitpu.cli.display import print_facts, print_json, print_note, print_table, title_of
from splitpu.cli.options import DataOptions, absolute, refuse, source_asked
from splitpu.cli.predict import image_spec, refuse_arrays_for_a_table, table_form, table_recipe
from splitpu.cli.progress import choose_display
from splitpu.config.schema import EngineConfig, Scenario
from splitpu.data.array_files import SUFFIXES as ARRAY_SUFFIXES
from splitpu.data.array_files import has_only_pu_labels, read_array_test, read_labelled
from splitpu.data.images.folders import FolderSource, read_test_folders, reader_for
from splitpu.data.images.scan import RowSpec, Skipped
from splitpu.data.public.datasets import NAMED_SETS, load_named
from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.tables.encode import TableRecipe, TableSource, read_table_test
from splitpu.data.tables.read import SUFFIXES as TABLE_SUFFIXES
from splitpu.engine.hardware import Hardware
from splitpu.errors import DataGone, InputError
from splitpu.evaluation.metrics import evaluate_scores
from splitpu.methods.registry import find_method
from splitpu.model import Model
from splitpu.prior.estimate import NOT_USED, prior_in_words
from splitpu.runs.folder import RunFolder
from splitpu.runs.leakage import TrainingFiles, rows_seen
from splitpu.runs.prior_stage import estimates_of
from splitpu.runs.request import Source
from splitpu.runs.results import prior_source
from splitpu.runs.sources import load_request, load_source
from splitpu.types import Array, Mask, Watch
from splitpu.utils.files import ends_in


def show_estimates(
    folder: RunFolder,
    model: Model,
    rows: PUData,
    where: str,
    hardware: Hardware,
    *,
    trained_on: bool,
    json: bool,
) -> int:
    """Estimates with their intervals, and what is wrong with the model if something is."""
    estimates = estimates_of(folder, model, rows, hardware, trained_on=trained_on)
    found, wrong, note = estimates.found, estimates.wrong, estimates.note
    if json:
        content = {"run": str(folder.path), "data": where, "rows": len(rows), "note": note}
        print_json({**content, **found.to_dict(), "degenerate": [one.__dict__ for one in wrong]})
        return 0
    print_table(
        [
            {
                "figure": title_of(name),
                "estimate": figure.value,
                "95 % interval": f"{figure.low:.4f} to {figure.high:.4f}",
            }
            for name, figure in found.figures.items()
        ],
        ("figure", "estimate", "95 % interval"),
    )
    print_facts(
        {
            "data": f"{where}, {found.positives:,} labelled and {found.unlabelled:,} unlabelled rows",
            "prior": f"{found.prior:.4g}",
            "scenario": rows.scenario,
            "called positive": f"{100 * found.positive_rate_unlabelled:.1f} % of the unlabelled",
            "nnPU value": f"{found.nnpu:.4f} (the estimated risk with the sigmoid loss; lower is better)",
        }
    )
    print_note(note)
    for one in wrong:
        print_note(one.sentence)
    return 0


Count = tuple[int, int, str]  # how many, of how many, of what


def files_seen_in_words(
    own: FolderSource, folders: Sequence[str], spec: RowSpec, skipped: Sequence[Skipped]
) -> list[str]:
    """A sentence about the given folders that hold files of the training; `skipped` are those that give no row."""
    trained = [folder for folder in (*own.positives, *own.unlabelled) if Path(folder).is_dir()]
    if not trained:
        return []  # moved away: nothing can be said
    try:
        known = TrainingFiles([file.path for file in reader_for(trained, spec).find(trained).files])
        without_row = {one.name for one in skipped}
        files = [file for file in reader_for(folders, spec).find(folders).files if file.name not in without_row]
        seen = [file.path in known for file in files]
    except OSError:
        return []
    counts: list[Count] = []
    for number, folder in enumerate(folders):
        inside = [known_one for file, known_one in zip(files, seen, strict=True) if file.folder == number]
        counts.append((sum(inside), len(inside), f"{spec.kind} in {folder}"))
    return _in_words(counts)


def rows_seen_in_words(own: Source, rows: HeldOut | PUData, recipe: TableRecipe | None) -> list[str]:
    """A sentence about rows of tables and arrays that are equal to training rows."""
    try:
        training: Array = load_source(own, form=recipe).data.features
    except (InputError, OSError):
        return []  # moved away or changed: nothing can be said
    seen = rows_seen(training, rows.features)
    positive: Mask = rows.truth if isinstance(rows, HeldOut) else rows.labelled
    others = "negatives" if isinstance(rows, HeldOut) else "unlabelled rows"
    sides = ((positive, "given positives"), (~positive, f"given {others}"))
    return _in_words([(int(seen[side].sum()), int(side.sum()), what) for side, what in sides])


def _in_words(counts: Sequence[Count]) -> list[str]:
    found = [f"{seen:,} of the {rows:,} {what}" for seen, rows, what in counts if seen]
    if not found:
        return []
    return [
        f"{' and '.join(found)} are training rows of this model, which flatters it: give rows that it was not trained "
        "on."
    ]


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


_COLUMNS = ("model", "accuracy", "f1", "roc_auc", "average_precision", "positive_rate")


def run_evaluate(run: str, asked: DataOptions, *, scenario: Scenario | None = None, device: str, json: bool) -> int:
    """Figures of base and final model on rows whose truth is known, or estimates where it is not."""
    folder = RunFolder.find_trained(run)
    model = Model.load(folder.path)
    with choose_display(quiet=json).watching() as watch:
        rows = rows_to_judge_by(folder, model, asked, watch, scenario=scenario)
    for warning in rows.warnings:
        print_note(warning)
    hardware = Hardware.choose(device, EngineConfig())
    if rows.labelled is not None:
        return show_estimates(folder, model, rows.labelled, rows.where, hardware, trained_on=rows.trained_on, json=json)
    assert rows.tested is not None  # one of the two is there
    return _show_figures(folder, model, rows.tested, rows.where, hardware, json=json)


def _show_figures(
    folder: RunFolder, model: Model, held_out: HeldOut, source: str, hardware: Hardware, *, json: bool
) -> int:
    model.preprocessing.check(held_out.features, "X_test")
    rows = [
        {
            "model": name,
            **evaluate_scores(
                held_out.truth, model.decision(held_out.features, hardware, which=which), prior=model.prior
            ),
        }
        for name, which in _models(model)
    ]
    true_rate = float(held_out.truth.mean())
    if json:
        content = {"run": str(folder.path), "data": source, "rows": len(held_out), "prior": model.prior}
        print_json({**content, "models": rows})
        return 0
    print_table(rows, _COLUMNS)
    print_facts(
        {
            "data": f"{source}, {len(held_out):,} test rows",
            "prior": f"{_prior(folder, model)}; {100 * true_rate:.1f} % of the test rows are positive",
        }
    )
    return 0


def _models(model: Model) -> list[tuple[str, str]]:
    """What to call each model of the run, and which one it is."""
    if model.config.method == "split-pu":
        return [("base", "base"), ("final", "final")]
    return [(find_method(model.config.method).title, "final")]


def _prior(folder: RunFolder, model: Model) -> str:
    if model.prior is not None:
        return f"{model.prior:.4g}"
    # A model that Python saved has no request, and does not know why it has no prior.
    source = prior_source(folder.request()) if folder.request_file.exists() else NOT_USED
    return prior_in_words(None, None, source)
