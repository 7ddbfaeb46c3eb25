"""`splitpu export`."""

from pathlib import Path

from splitpu.cli.output import print_facts, print_json
from splitpu.models import Model
from splitpu.onnx_export import DECISION, INPUT, PROBABILITY, export_onnx
from splitpu.runs.folder import RunFolder


def run_export(run: str, file: Path | None, *, json: bool) -> int:
    """Write the final model of a run in another format."""
    folder = RunFolder.find_trained(run)
    written = folder.path / "model.onnx" if file is None else file
    done = export_onnx(Model.load(folder.path), written)
    shape = ["count", *done.shape]
    if json:
        facts = {"run": str(folder.path), "onnx": str(written), "input": INPUT, "dtype": done.dtype, "shape": shape}
        print_json(facts | {"outputs": [PROBABILITY, DECISION], "largest_difference": done.difference})
        return 0
    print_facts(
        {
            "written": written,
            "takes": f"{INPUT}: {done.dtype}, ({', '.join(map(str, shape))}), as stored: it scales them itself",
            "gives": f"{PROBABILITY} of being positive, and {DECISION}: whether it is above 1/2",
            "checked": f"with onnxruntime; largest difference in a probability {done.difference:.1g}",
        }
    )
    return 0
