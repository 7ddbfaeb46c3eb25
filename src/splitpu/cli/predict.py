"""The rows that `splitpu predict` scores, from any kind of input that `splitpu fit` learns from.

`splitpu predict`.

`splitpu export`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.cli.display import check_out, print_facts, print_json, print_note, write_csv, write_out
from splitpu.cli.inspect import ReviewOptions, ToReview, check_review, lay_out
from splitpu.cli.progress import choose_display
from splitpu.config.schema import EngineConfig
from splitpu.data.array_files import SUFFIXES as ARRAY_SUFFIXES
from splitpu.data.array_files import read_features, read_names
from splitpu.data.features import canonical_features
from splitpu.data.images.decode import SUFFIXES as IMAGE_SUFFIXES
from splitpu.data.images.decode import BadImage, ImageSpec, decode, read_header, require_pillow
from splitpu.data.images.folders import read_images
from splitpu.data.images.scan import RowFile, RowSpec, Skipped
from splitpu.data.preprocessing import BYTE_SCALE
from splitpu.data.tables.encode import TableRecipe
from splitpu.data.tables.read import SUFFIXES as TABLE_SUFFIXES
from splitpu.data.tables.read import read_table
from splitpu.data.volumes.reader import is_nifti
from splitpu.data.volumes.spec import VolumeSpec
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError, ModelFileError
from splitpu.evaluation.calibration import sigmoid
from splitpu.model import Model
from splitpu.onnx_export import DECISION, INPUT, PROBABILITY, export_onnx
from splitpu.runs.folder import RunFolder
from splitpu.runs.request import Source
from splitpu.runs.results import is_list_of_skipped, write_skipped
from splitpu.types import Array, Watch
from splitpu.utils.files import ends_in


@dataclass(frozen=True, eq=False)
class Rows:
    """Canonical features and what is known of the rows besides."""

    features: Array
    names: tuple[str, ...] | None = None
    files: tuple[RowFile, ...] | None = None  # of the rows, if each is an image file or a patient's folder
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()  # about the files they come from


def read_rows(model: Model, path: Path, *, strict: bool, watch: Watch | None = None) -> Rows:
    """Read a folder of images, a table or a file of arrays in the way the model was trained on."""
    if path.is_dir():
        return _folder(model, path, strict, watch)
    if ends_in(path, *IMAGE_SUFFIXES):
        return _one_image(model, path)
    if is_nifti(str(path)):
        raise InputError(f"{path} is one NIfTI file: give the folder that it is in.")
    if ends_in(path, *TABLE_SUFFIXES):
        return _table(model, path)
    if path.is_file() and not ends_in(path, *ARRAY_SUFFIXES):
        raise InputError(
            f"{path} is not of a kind that can be scored: give a folder of images or of patients, one image, a table "
            "(.csv, .parquet) or arrays (.npy, .npz)."
        )
    return _arrays(model, path)


def _folder(model: Model, path: Path, strict: bool, watch: Watch | None) -> Rows:
    spec = image_spec(model, path)
    found = read_images([path], spec=spec, strict=strict, watch=watch)
    return Rows(found.pixels, found.names, tuple(found.files), found.skipped, tuple(found.in_words("given")))


def _one_image(model: Model, path: Path) -> Rows:
    spec = image_spec(model, path)
    if not isinstance(spec, ImageSpec):
        raise InputError(f"{path} is one image, but the model was trained on volumes: give it a folder of patients.")
    require_pillow()
    if not path.exists():
        raise InputError(f"{path} does not exist: check the path.")
    try:
        read_header(path)  # finds what decoding would not
        return Rows(decode(path, spec)[None], (path.name,))
    except BadImage as error:
        raise InputError(f"{path} {error}.") from error


def image_spec(model: Model, path: str | Path) -> RowSpec:
    """The form that image files must be brought into; a model trained on arrays of bytes tells it by their shape."""
    preprocessing, inputs = model.preprocessing, model.inputs or {}
    if preprocessing.kind == "volumes":
        if inputs.get("kind") != "volumes":
            raise InputError(f"the model was trained on arrays of volumes, not on files as in {path}: give it a .npz.")
        slices, height, width, _ = preprocessing.shape
        return VolumeSpec(slices, height, width, inputs.get("series"))
    if preprocessing.kind != "images":
        wanted = "a table with its columns" if inputs.get("kind") == "table" else "arrays (.npz, .npy)"
        raise InputError(
            f"the model was trained on rows of {preprocessing.shape[0]} features, not on files as in {path}: give it "
            f"{wanted}."
        )
    height, width, channels = preprocessing.shape
    depth = inputs.get("depth") if inputs.get("kind") == "images" else 8 if preprocessing.scale == BYTE_SCALE else None
    if depth not in (8, 16) or channels not in (1, 3):
        raise InputError(f"the model was trained on arrays that files in {path} cannot be turned into: give it a .npz.")
    return ImageSpec(height, width, channels, depth)


def table_recipe(model: Model, path: str | Path) -> TableRecipe:
    """How the columns of a table become the numbers that the model was trained on."""
    if (model.inputs or {}).get("kind") != "table":
        raise InputError(f"{path} is a table, but the model was not trained on one: give it what it was trained on.")
    recipe = TableRecipe.from_dict(model.inputs or {})
    if len(recipe.feature_names) != model.preprocessing.shape[0]:
        raise ModelFileError("the stored columns do not fit the network: train the model again.")
    return recipe


def table_form(model: Model, source: Source) -> TableRecipe | None:
    """The recipe of the model where its rows are a table; tables read anew may be understood in another way by now."""
    return table_recipe(model, source.where) if source.table else None


def refuse_arrays_for_a_table(model: Model, path: str | Path) -> None:
    """Numbers in the order of the encoded columns would be taken for them, and be as wrong as they look right."""
    if Path(path).is_file() and (model.inputs or {}).get("kind") == "table":
        raise InputError(f"{path} holds arrays, but the model was trained on a table: give it one with its columns.")


def _table(model: Model, path: Path) -> Rows:
    recipe = table_recipe(model, path)
    table = read_table(path)
    names = recipe.names_of(table)
    features = recipe.encode(table)
    notes = tuple(recipe.notes_on(table))
    return Rows(features, None if names is None else tuple(names), warnings=notes)


def _arrays(model: Model, path: Path) -> Rows:
    refuse_arrays_for_a_table(model, path)
    features = canonical_features(read_features(path), str(path), double=model.preprocessing.double)
    names = read_names(path)
    if names is not None and len(names) != len(features):
        raise InputError(f"'names' in {path} has {len(names)} entries but 'X' has {len(features)} rows.")
    return Rows(features, None if names is None else tuple(names))


_COLUMNS = ("index", "name", "probability", "decision")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ReviewOptions):
    """Where the scores go, how they are computed, and what else is done with them."""

    strict: bool = False
    device: str = "auto"


def run_predict(run: str, path: Path, asked: PredictOptions) -> int:
    """Score the rows of a file or the images of a folder with the final model of a run."""
    folder, out, json = RunFolder.find_trained(run), asked.out, asked.json
    check_out(out, "scores", read=path)
    _check_review(asked, path)
    model = Model.load(folder.path)
    with choose_display(quiet=json).watching() as watch:
        rows = read_rows(model, path, strict=asked.strict, watch=watch)
    model.preprocessing.check(rows.features, str(path))
    decision = model.decision(rows.features, Hardware.choose(asked.device, EngineConfig()))
    lines = list(_lines(decision, rows.names or [""] * len(decision), model.classes))
    if out is not None:
        write_out(out, _COLUMNS, lines)
    _account_for_files(rows, out)
    reviewed = 0
    if asked.copy_to is not None and asked.top is not None and rows.files is not None:
        chosen = _most_probable(rows.files, sigmoid(decision), asked.top)
        reviewed = lay_out(asked.copy_to, chosen, link=asked.link)
    if json:
        summary = {"run": str(folder.path), "rows": len(lines), "positive": int((decision > 0).sum())}
        if rows.files is not None or rows.skipped:
            summary |= {"skipped": [_plain(entry) for entry in rows.skipped], "copied": reviewed}
        if out is not None:
            print_json(summary | {"out": str(out)})
        else:
            print_json(summary | {"scores": [dict(zip(_COLUMNS, line, strict=True)) for line in lines]})
    elif out is None:
        write_csv(sys.stdout, _COLUMNS, lines)
    else:
        print(f"{out}: {len(lines):,} rows, {int((decision > 0).sum()):,} of them positive")
    if reviewed:
        print_note(f"the {reviewed:,} samples most likely to be positive are in {asked.copy_to}")
    return 0


def _plain(entry: Skipped) -> dict[str, Any]:
    return {"name": entry.name, "why": entry.why, "bad": entry.bad}


def _check_review(asked: PredictOptions, path: Path) -> None:
    if (asked.top is None) != (asked.copy_to is None):
        raise InputError("--top and --copy-to go together: they say how many samples to put into which folder.")
    if asked.link and asked.copy_to is None:
        raise InputError("--link goes with --top and --copy-to: it makes links there instead of copies.")
    if asked.top is not None and asked.copy_to is not None:
        if not path.is_dir():
            raise InputError(f"--top and --copy-to are for folders of images or patients, and {path} is not one.")
        check_review(asked.copy_to, asked.top)


def _account_for_files(rows: Rows, out: Path | None) -> None:
    """Say which files have no score; the whole list lies beside the scores."""
    for sentence in rows.warnings:
        print_note(sentence)
    if out is None:
        return
    listing = out.with_name(f"{out.stem}.skipped.csv")
    if rows.skipped:
        write_skipped(listing, rows.skipped)
        print_note(f"{listing} lists every file that has no score, and why")
    elif is_list_of_skipped(listing):  # of earlier scores, in whose place the new ones are
        listing.unlink()


def _most_probable(files: Sequence[RowFile], shares: npt.NDArray[np.float64], top: int) -> list[ToReview]:
    chosen = np.argsort(-shares, kind="stable")[:top].tolist()
    return [ToReview(files[row].path, files[row].name, shares[row]) for row in chosen]


def _lines(
    decision: npt.NDArray[np.float64], names: Sequence[str], classes: tuple[Any, Any]
) -> "zip[tuple[int, str, float, Any]]":
    labels = [classes[int(positive)] for positive in decision > 0]
    shares = [float(f"{share:.6g}") for share in sigmoid(decision).tolist()]
    return zip(range(len(labels)), names, shares, labels, strict=True)


def _what_rows_are(model: Model) -> str:
    """A table has fewer columns than the network has inputs: whoever uses the file has to make the one of the other."""
    if (model.inputs or {}).get("kind") == "table":
        return "the table's columns as numbers, made as `inputs` in model.json says"
    return "as stored"


def run_export(run: str, file: Path | None, *, json: bool) -> int:
    """Write the final model of a run in another format."""
    folder = RunFolder.find_trained(run)
    written = folder.path / "model.onnx" if file is None else file
    if not ends_in(written, ".onnx"):
        raise InputError(f"{written} does not end in .onnx: give it the ending .onnx.")
    model = Model.load(folder.path)
    done = export_onnx(model, written)
    shape = ["count", *done.shape]
    if json:
        facts = {"run": str(folder.path), "onnx": str(written), "input": INPUT, "dtype": done.dtype, "shape": shape}
        print_json(facts | {"outputs": [PROBABILITY, DECISION], "largest_difference": done.difference})
        return 0
    rows = f"{done.dtype}, ({', '.join(map(str, shape))}), {_what_rows_are(model)}"
    print_facts(
        {
            "written": written,
            "takes": f"{INPUT}: {rows}: it scales them itself",
            "gives": f"{PROBABILITY} of being positive, and {DECISION}: whether it is above 1/2",
            "checked": f"with onnxruntime; largest difference in a probability {done.difference:.1g}",
        }
    )
    return 0
