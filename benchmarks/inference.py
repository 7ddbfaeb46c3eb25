"""Rows a second when a model only predicts, on any device; whether memory stays constant; and parity with ONNX.

python benchmarks/inference.py                              this machine's device
python benchmarks/inference.py --device cuda --networks cnn13,resnet18 --rows 50000 --out inference.json

Needs torch, numpy, scikit-learn and safetensors only; with onnx, onnxscript and onnxruntime the exported file is
measured as well. Images are noise and weights untrained but for one epoch: neither changes the speed.
"""

import argparse
import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from machine import peak_memory_mb
from tables import show, write

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.config.schema import EngineConfig
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.model import Model
from splitpu.networks.backbones import folded
from splitpu.training import Runtime, TrainSpec, profile_of, train
from splitpu.views import Views

TRAINED_ON = 256
BATCH = {"cpu": 256, "cuda": 4096}


def some_model(images: npt.NDArray[np.uint8], network: str, device: str) -> Model:
    """One epoch, so that batch norms have statistics to be folded."""
    data = PUData.from_arrays(images[:TRAINED_ON], np.arange(min(TRAINED_ON, len(images))) % 8 == 0)
    config = apply_overrides(preset("default", profile_of(data)), ["method=nnpu", "base.epochs=1"])
    return train(data, TrainSpec(prior=0.5, config=config, backbone=network), Runtime(device=device)).model


def speeds(model: Model, images: npt.NDArray[np.uint8], hardware: Hardware) -> dict[str, float]:
    """Rows a second: the network as trained, with folded batch norms, and all of `predict` from host memory.

    The latter twice: by the model that has just been trained, and by one read from files, as most are that predict.
    """
    device = hardware.device
    views = Views(model.preprocessing, model.config.views, device)
    network = model.final.network.to(device).eval()
    simple, stored = folded(network), read_back(model)
    held = torch.from_numpy(images).to(device)

    @torch.no_grad()
    def by(one: Any) -> None:
        with hardware.autocast(), hardware.thread_limit():
            for raw in held.split(BATCH[device.type]):
                one(views.plain(raw))
        if device.type == "cuda":
            torch.cuda.synchronize()

    return {
        "as trained": len(images) / quickest(lambda: by(network)),
        "folded": len(images) / quickest(lambda: by(simple)),
        "predict": len(images) / quickest(lambda: model.decision(images, hardware)),
        "read from files": len(images) / quickest(lambda: stored.decision(images, hardware)),
    }


def read_back(model: Model) -> Model:
    """The model as it comes out of its files."""
    with tempfile.TemporaryDirectory() as place:
        model.save(place)
        return Model.load(place)


def folding_difference(model: Model, images: npt.NDArray[np.uint8]) -> float:
    """Largest difference of a probability in full precision on the CPU."""
    views = Views(model.preprocessing, model.config.views, "cpu")
    network = model.final.network.cpu().eval()
    with torch.no_grad():
        inputs = views.plain(torch.from_numpy(images[:64]))
        first, second = (torch.sigmoid(one(inputs).logit) for one in (network, folded(network)))
    return float((first - second).abs().max())


def memory_growth(model: Model, images: npt.NDArray[np.uint8], hardware: Hardware) -> dict[str, float]:
    """Megabytes that predicting four times as many rows from a file adds to the peaks of host and device."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.npy"
        rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(4 * len(images), *images.shape[1:]))
        for start in range(0, len(rows), len(images)):
            rows[start : start + len(images)] = images
        rows.flush()
        mapped = np.load(path, mmap_mode="r")
        peaks = []
        for part in (mapped[: len(images)], mapped):
            model.decision(part, hardware)
            on_device = torch.cuda.max_memory_allocated() if hardware.device.type == "cuda" else 0
            peaks.append((peak_memory_mb(), on_device / 2**20))
        more = 3 * images.nbytes / 2**20
    return {"more_rows_mb": more, "host_mb": peaks[1][0] - peaks[0][0], "device_mb": peaks[1][1] - peaks[0][1]}


def through_onnx(model: Model, images: npt.NDArray[np.uint8], threads: int) -> dict[str, float]:
    """Rows a second of the exported file on the CPU, and how far its probabilities are from ours."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        return {}
    import onnxruntime

    from splitpu.onnx_export import export_onnx

    with tempfile.TemporaryDirectory() as place:
        exported = export_onnx(model, Path(place) / "model.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(exported.path), options, providers=["CPUExecutionProvider"])

    def run() -> None:
        for start in range(0, len(images), BATCH["cpu"]):
            session.run(["probability"], {"rows": images[start : start + BATCH["cpu"]]})

    return {"onnxruntime": len(images) / quickest(run), "onnx_apart": exported.difference}


def quickest(work: Callable[[], object], times: int = 3) -> float:
    """The least disturbed of several times."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def measured(network: str, rows: int, side: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Everything about one network."""
    images = np.random.default_rng(0).integers(0, 256, (rows, side, side, 3), dtype=np.uint8)
    hardware = Hardware.choose(asked.device, EngineConfig(threads=asked.threads, precision=asked.precision))
    model = some_model(images, network, asked.device)
    return {
        "network": network,
        "device": hardware.device.type,
        "precision": "bf16" if hardware.bf16 else "fp32",
        "side": side,
        "rows": rows,
        **memory_growth(model, images, hardware),
        **speeds(model, images, hardware),
        "folding_apart": folding_difference(model, images),
        # The file is the same wherever it was trained, and exporting takes most of a minute beside a GPU.
        **(through_onnx(model, images[:2000], hardware.threads) if hardware.device.type == "cpu" else {}),
    }


def main() -> None:
    """Measure the networks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--networks", default="cnn-small", help="names, with commas")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--side", type=int, default=32, help="of an image, in pixels")
    parser.add_argument("--threads", type=int, default=0, help="0 = choose")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16"))
    parser.add_argument("--out", type=Path, help="JSON file")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    found = [measured(name, asked.rows, asked.side, asked) for name in asked.networks.split(",")]
    columns = (
        "network",
        "device",
        "precision",
        "rows",
        "as trained",
        "folded",
        "predict",
        "read from files",
        "onnxruntime",
    )
    show("rows a second", found, columns)
    columns = ("network", "more_rows_mb", "host_mb", "device_mb", "folding_apart", "onnx_apart")
    show("megabytes at the peak for so many more on disk; largest differences of a probability", found, columns)
    write(asked.out, inference=found)


if __name__ == "__main__":
    main()
