"""`splitpu predict` and `splitpu export`: what is done with the model of a finished run."""

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
from splitpu.data.images.scan import RowFile, Skipped
from splitpu.data.sources import NewRows, read_new_rows
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation.calibration import sigmoid
from splitpu.model import Model
from splitpu.onnx_export import DECISION, INPUT, PROBABILITY, export_onnx
from splitpu.runs.folder import RunFolder
from splitpu.runs.results import is_list_of_skipped, write_skipped
from splitpu.utils.files import ends_in

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
        rows = read_new_rows(path, model, strict=asked.strict, watch=watch)
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


def _account_for_files(rows: NewRows, out: Path | None) -> None:
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
