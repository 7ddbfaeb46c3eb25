"""`splitpu predict` and `splitpu export`: what is done with the model of a finished run."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.cli.display import check_out, print_facts, print_json, print_note, write_out
from splitpu.cli.inspect import ToReview, check_review, lay_out
from splitpu.cli.progress import choose_display
from splitpu.config.schema import EngineConfig
from splitpu.data.sources import NewRows, read_new_rows
from splitpu.data.tables.read import write_csv
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation.calibration import sigmoid
from splitpu.model import Model
from splitpu.onnx_export import DECISION, INPUT, PROBABILITY, export_onnx
from splitpu.runs.folder import RunFolder
from splitpu.runs.results import is_list_of_skipped, write_skipped
from splitpu.utils.files import ends_in

_COLUMNS = ("index", "name", "probability", "decision")


def run_predict(
    run: str,
    path: Path,
    *,
    out: Path | None,
    top: int | None,
    copy_to: Path | None,
    link: bool,
    strict: bool,
    device: str,
    json: bool,
) -> None:
    """Score the rows of a file or the images of a folder with the final model of a run."""
    folder = RunFolder.find_trained(run)
    check_out(out, "scores", read=path)
    if (top is None) != (copy_to is None):
        raise InputError("--top and --copy-to go together: they say how many samples to put into which folder.")
    if link and copy_to is None:
        raise InputError("--link goes with --top and --copy-to: it makes links there instead of copies.")
    if copy_to is not None and not path.is_dir():
        raise InputError(f"--top and --copy-to are for folders of images or patients, and {path} is not one.")
    check_review(copy_to, top)
    model = Model.load(folder.path)
    with choose_display(quiet=json).watching() as watch:
        rows = read_new_rows(path, model, strict=strict, watch=watch)
    model.preprocessing.check(rows.features, str(path))
    decision = model.decision(rows.features, Hardware.choose(device, EngineConfig()))
    probabilities = sigmoid(decision)
    names = rows.names or [""] * len(decision)
    shares = [float(f"{share:.6g}") for share in probabilities.tolist()]
    labels = [model.classes[int(positive)] for positive in decision > 0]
    lines = list(zip(range(len(labels)), names, shares, labels, strict=True))
    if out is not None:
        write_out(out, _COLUMNS, lines)
    _account_for_files(rows, out)
    reviewed = 0
    if copy_to is not None and rows.files is not None:
        order = np.argsort(-probabilities, kind="stable")[:top].tolist()
        likeliest = [ToReview(rows.files[row].path, rows.files[row].name, probabilities[row]) for row in order]
        reviewed = lay_out(copy_to, likeliest, link=link)
    positive = int((decision > 0).sum())
    if json:
        summary: dict[str, Any] = {"run": str(folder.path), "rows": len(lines), "positive": positive}
        if rows.files is not None or rows.skipped:
            skipped = [{"name": one.name, "why": one.why, "bad": one.bad} for one in rows.skipped]
            summary |= {"skipped": skipped, "copied": reviewed}
        listing = [dict(zip(_COLUMNS, line, strict=True)) for line in lines] if out is None else []
        print_json(summary | ({"scores": listing} if out is None else {"out": str(out)}))
    elif out is None:
        write_csv(sys.stdout, _COLUMNS, lines)
    else:
        print(f"{out}: {len(lines):,} rows, {positive:,} of them positive")
    if reviewed:
        print_note(f"the {reviewed:,} samples most likely to be positive are in {copy_to}")


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


def run_export(run: str, file: Path | None, *, json: bool) -> None:
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
        return
    # A table has fewer columns than the network has inputs: whoever uses the file has to make the one of the other.
    is_table = (model.inputs or {}).get("kind") == "table"
    stored = "the table's columns as numbers, made as `inputs` in model.json says" if is_table else "as stored"
    rows = f"{done.dtype}, ({', '.join(map(str, shape))}), {stored}"
    print_facts(
        {
            "written": written,
            "takes": f"{INPUT}: {rows}: it scales them itself",
            "gives": f"{PROBABILITY} of being positive, and {DECISION}: whether it is above 1/2",
            "checked": f"with onnxruntime; largest difference in a probability {done.difference:.1g}",
        }
    )
