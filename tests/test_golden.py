"""What results and checkpoints hang on, frozen: names of configurations and stages, the forms of files, weights.

`python tests/test_golden.py` writes the file anew; that makes earlier checkpoints and results strangers, so it is a
decision and never a repair."""

import contextlib
import hashlib
import io
import json
import platform
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from splitpu import preset
from splitpu.cli import main
from splitpu.config.parse import apply_overrides, config_hash
from splitpu.config.presets import DataProfile, preset_names
from splitpu.methods.registry import sections_in_use

GOLDEN = Path(__file__).parent / "golden" / "frozen.json"
PROFILES = {
    "none": None,
    "table": DataProfile("vectors", 500, 50),
    "few images": DataProfile("images", 500, 50),
    "many images": DataProfile("images", 50_000, 1000),
    "volumes": DataProfile("volumes", 200, 40),
}
METHODS = ("split-pu", "nnpu", "upu", "dist-pu", "self-pu", "puupl", "pubn", "vpu", "dan", "p3mix", "naive")
TINY = (
    "learner=network",
    "base.epochs=2",
    "split.max_epochs=2",
    "student.epochs=2",
    "split.tau=0.01",
    "engine.threads=1",
)


def config_names() -> dict[str, str]:
    """The hash of what decides about a result, for every preset, method and kind of data."""
    found = {}
    for name, (kind, profile), method in product(preset_names(), PROFILES.items(), METHODS):
        config = apply_overrides(preset(name, profile), [f"method={method}", "learner=network"])
        found[f"{name} / {kind} / {method}"] = config_hash(config, *sections_in_use(config))
    return found


def shape_of(value: Any) -> Any:
    """The form of a JSON value: names and kinds, without what was measured."""
    if isinstance(value, dict):
        return {name: shape_of(inner) for name, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def rows(kind: str) -> dict[str, Any]:
    """Two clouds of points, or noise with a brighter half; a third of the positives is labelled."""
    random = np.random.default_rng(0)
    truth = np.arange(80) % 2 == 0
    X = random.normal(size=(80, 4)).round(3) + 3 * truth[:, None]
    if kind == "images":
        X = (random.integers(0, 150, size=(80, 8, 8, 3)) + 100 * truth[:, None, None, None]).astype(np.uint8)
    return {"X": X, "s": (truth & (np.arange(80) % 6 == 0)).astype(int), "truth": truth}


def tiny_run(kind: str, folder: Path) -> dict[str, Any]:
    """What a run leaves: the names of its stages, the forms of its files and of its answer, its weights."""
    np.savez(folder / "rows.npz", **rows(kind))
    settings = [word for one in TINY for word in ("--set", one)]
    words = ["fit", str(folder / "rows.npz"), "--prior", "0.5", "--out", str(folder / "run"), "--quiet", "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*words, "--keep-checkpoints", *settings, "--set", "engine.precision=fp32"]) == 0
    run = folder / "run"
    return {
        "stages": sorted(path.name for path in (run / "checkpoints").iterdir()),
        "files": sorted(path.name for path in run.iterdir()),
        "answer": shape_of(json.loads(out.getvalue())),
        **{name: shape_of(json.loads((run / name).read_text())) for name in ("request.json", "model.json")},
        "weights": hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
    }


def machine() -> str:
    """What decides about the last bit of a sum besides the code."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} / torch {torch.__version__}"


def frozen() -> dict[str, Any]:
    """Everything that must not change by accident."""
    runs = {}
    for kind in ("vectors", "images"):
        with tempfile.TemporaryDirectory() as folder:
            runs[kind] = tiny_run(kind, Path(folder))
    return {"machine": machine(), "configs": config_names(), "runs": runs}


def test_configurations_have_the_names_they_had() -> None:
    assert config_names() == json.loads(GOLDEN.read_text())["configs"]


@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_runs_leave_what_they_left(kind: str, tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text())
    expected, found = golden["runs"][kind], tiny_run(kind, tmp_path)
    if machine() != golden["machine"]:  # other processors sum in another order; everything else is the same there
        expected["weights"] = found["weights"]
    assert found == expected


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(frozen(), indent=1, sort_keys=True) + "\n")
