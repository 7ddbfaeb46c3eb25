"""What `splitpu evaluate` says of rows that the run was trained on, which nobody may take for new ones."""

from collections.abc import Sequence
from pathlib import Path

from splitpu.data import HeldOut, PUData
from splitpu.data.chunks import Array
from splitpu.data.folders import FolderSource, reader_for
from splitpu.data.readers import RowSpec
from splitpu.data.scanning import Skipped
from splitpu.data.tables import TableRecipe
from splitpu.errors import InputError
from splitpu.labels import Mask
from splitpu.runs.request import Source
from splitpu.runs.seen import TrainingFiles, rows_seen
from splitpu.runs.sources import load_source

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
