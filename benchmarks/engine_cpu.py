"""What the engine does on a CPU: against a plain training loop, in two processes, and when it only predicts.

python benchmarks/engine_cpu.py                     small sizes, about two minutes on two idle cores
python benchmarks/engine_cpu.py --full --out engine_cpu.json

The figures that count are ratios inside one run: a busy machine slows both sides down.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from plain_loop import plain_epochs
from safetensors.torch import load_file

from splitpu.cli.output import print_table
from splitpu.config import EngineConfig, apply_overrides, preset
from splitpu.data import PUData, load_named, make_pu
from splitpu.engine.hardware import Hardware
from splitpu.models import Model
from splitpu.networks.fold import folded
from splitpu.onnx_export import export_onnx
from splitpu.training import profile_of, train
from splitpu.views import Views

BATCH = 256


def drawn(name: str, rows: int, labelled: int) -> PUData:
    """The first rows of a named set, some of their positives labelled."""
    data, _ = make_pu(load_named(name), labelled, 0)
    truth = data.truth
    assert truth is not None
    few = np.flatnonzero(data.labelled)[: labelled // 2]
    chosen = np.unique(np.concatenate([few, np.arange(min(rows, len(data)))]))
    features = np.ascontiguousarray(data.features[chosen])
    return PUData(features, data.labelled[chosen], data.scenario, truth=truth[chosen])


def settings(data: PUData, epochs: int, *more: str) -> Any:
    """The base stage alone, with the same batches as the plain loop."""
    asked = ["method=nnpu", f"base.epochs={epochs}", f"base.batch_size={min(BATCH, len(data))}", *more]
    return apply_overrides(preset("default", profile_of(data)), asked)


def against_plain_loop(name: str, data: PUData, backbone: str, epochs: int) -> dict[str, Any]:
    """Seconds an epoch, the quickest of each side; the plain loop may choose its number of worker processes."""
    ours = train(data, prior=0.45, config=settings(data, epochs), backbone=backbone, device="cpu")
    seconds = [record.seconds for record in ours.result.history]
    plain = {workers: plain_epochs(data, backbone, min(BATCH, len(data)), 0.45, epochs, workers) for workers in (0, 2)}
    best = min(min(times) for times in plain.values())
    # With torch's own number of threads a busy core slows the plain loop down; this is the engine without that choice.
    with ours.hardware.thread_limit():
        same_threads = min(plain_epochs(data, backbone, min(BATCH, len(data)), 0.45, epochs, 0))
    return {
        "data": name,
        "rows": len(data),
        "network": backbone,
        "ours": min(seconds),
        "plain": best,
        "plain_by_workers": {str(workers): min(times) for workers, times in plain.items()},
        "ratio": best / min(seconds),
        "threads": ours.hardware.threads,
        "same_threads": same_threads / min(seconds),
    }


def in_two_processes(data: PUData, backbone: str, epochs: int) -> dict[str, Any]:
    """One process against two with the same batches, one thread each: time an epoch and difference of the weights.

    The difference is rounding that training makes grow: in double precision one step differs by less than 1e-11.
    """
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "rows.npz"
        np.savez(rows, X=data.features, s=data.labelled.astype(int))
        words = ["fit", str(rows), "--method", "nnpu", "--prior", "0.45", "--backbone", backbone, "--quiet", "--json"]
        words += ["--set", f"base.epochs={epochs}", "--set", f"base.batch_size={BATCH}", "--set", "engine.threads=1"]
        words += ["--set", "base.optimiser.name=sgd", "--set", "base.optimiser.rate=0.02"]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        seconds, weights = {}, {}
        for count, start in ((1, []), (2, torchrun)):
            out = Path(place) / str(count)
            command = [sys.executable, *start, "-m", "splitpu", *words, "--out", str(out)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            subprocess.run(command, check=True, capture_output=True, env=environment)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            seconds[count] = min(line["seconds"] for line in lines)
            weights[count] = load_file(out / "model.safetensors")
    apart = max(float((weights[1][name] - weights[2][name]).abs().max()) for name in weights[1])
    return {
        "rows": len(data),
        "network": backbone,
        "one": seconds[1],
        "two": seconds[2],
        "speed_up": seconds[1] / seconds[2],
        "overhead": 2 * seconds[2] / seconds[1] - 1,  # of the work of both, beyond that of one
        "largest_difference": apart,
    }


def inference(data: PUData, backbone: str, rows: int) -> dict[str, Any]:
    """Images a second by the network as trained, folded, through our `predict`, and in onnxruntime."""
    import onnxruntime

    trained = train(data, prior=0.45, config=settings(data, 1, "engine.threads=1"), backbone=backbone, device="cpu")
    model: Model = trained.model
    hardware = Hardware.choose("cpu", EngineConfig(threads=1))
    features = np.resize(data.features, (rows, *data.features.shape[1:]))
    views = Views(model.preprocessing, model.config.views, "cpu")
    network, simple = model.final.network.eval(), folded(model.final.network)
    with tempfile.TemporaryDirectory() as place:
        exported = export_onnx(model, Path(place) / "model.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(exported.path), options)

    @torch.no_grad()
    def by(one: Any) -> None:
        for start in range(0, rows, BATCH):
            one(views.plain(torch.from_numpy(features[start : start + BATCH])))

    def by_onnx() -> None:
        for start in range(0, rows, BATCH):
            session.run(["probability"], {"rows": features[start : start + BATCH]})

    with hardware.thread_limit():
        speeds = {
            "as trained": rows / quickest(lambda: by(network)),
            "folded": rows / quickest(lambda: by(simple)),
            "predict": rows / quickest(lambda: model.decision(features, hardware)),
            "onnxruntime": rows / quickest(by_onnx),
        }
    return {"network": backbone, "rows": rows, **speeds, "onnx_difference": exported.difference}


def quickest(work: Callable[[], object], times: int = 3) -> float:
    """The least disturbed of several times."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def main() -> None:
    """Run everything, print tables, and write the figures with the machine they are from."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="5,000 images and more epochs")
    parser.add_argument("--out", type=Path, help="JSON file")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    digits = drawn("digits", 10**6, 50)
    photos = drawn("cifar10", 5000 if asked.full else 1000, 500)
    epochs = 5 if asked.full else 3
    loop = [against_plain_loop("digits", digits, "cnn-small", epochs)]
    loop.append(against_plain_loop("cifar10", photos, "cnn-small", epochs))
    if asked.full:
        loop.append(against_plain_loop("cifar10", photos, "cnn13", 2))
    columns = ("data", "rows", "network", "ours", "plain", "ratio", "same_threads")
    show("seconds an epoch of the base stage, against a plain loop", loop, columns)
    processes = [in_two_processes(photos, "cnn-small", epochs)]
    columns = ("network", "rows", "one", "two", "speed_up", "overhead", "largest_difference")
    show("seconds an epoch in one and in two processes, one thread each", processes, columns)
    predicting = [inference(digits, "cnn-small", 5000), inference(photos, "cnn-small", 2000)]
    columns = ("network", "as trained", "folded", "predict", "onnxruntime", "onnx_difference")
    show("rows a second, one thread", predicting, columns)
    if asked.out is not None:
        found = {"machine": machine(), "plain_loop": loop, "processes": processes, "inference": predicting}
        asked.out.write_text(json.dumps(found, indent=2))


def show(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """One table."""
    written = [{key: f"{v:.4g}" if isinstance(v, float) else str(v) for key, v in row.items()} for row in rows]
    print_table(written, columns, title=title)


if __name__ == "__main__":
    main()
