"""`splitpu export`."""

from pathlib import Path

from splitpu.cli.output import print_facts, print_json
from splitpu.errors import InputError
from splitpu.files import ends_in
from splitpu.models import Model
from splitpu.onnx_export import DECISION, INPUT, PROBABILITY, export_onnx
from splitpu.runs.folder import RunFolder


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
