"""The rows that `splitpu predict` scores, from any kind of input that `splitpu fit` learns from."""

from dataclasses import dataclass
from pathlib import Path

from splitpu.data import canonical_features, read_features
from splitpu.data.array_files import SUFFIXES as ARRAY_SUFFIXES
from splitpu.data.chunks import Array
from splitpu.data.folders import read_images
from splitpu.data.images import SUFFIXES as IMAGE_SUFFIXES
from splitpu.data.images import BadImage, ImageSpec, decode, read_header, require_pillow
from splitpu.data.npz import read_names
from splitpu.data.preprocess import BYTE_SCALE
from splitpu.data.readers import RowFile, RowSpec, Watch
from splitpu.data.scanning import Skipped
from splitpu.data.table_files import SUFFIXES as TABLE_SUFFIXES
from splitpu.data.table_files import read_table
from splitpu.data.tables import TableRecipe
from splitpu.data.volumes import VolumeSpec, is_nifti
from splitpu.errors import InputError, ModelFileError
from splitpu.files import ends_in
from splitpu.models import Model
from splitpu.runs.request import Source


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
