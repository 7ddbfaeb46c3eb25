"""Which settings suit few images: Split-PU on some hundred photographs and handwritten digits, by true test labels.

python benchmarks/few_images.py --seeds 1 --only mnist                              minutes on one core
python benchmarks/few_images.py --jobs 14 --minutes 9 --out few_images.jsonl        all of it
python benchmarks/few_images.py --variants default --whole --networks cnn-small,cnn13 --device cuda   which network

The tasks are none of those that any table reports on, so the defaults for few images may be chosen by them. Accuracy is
that of the base model and of every round, last epoch.
"""

import argparse
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from case_runner import Key, add_options, run_cases, table
from machine import machine

from splitpu import SplitPUClassifier, load_named
from splitpu.data.public.download import cache_folder

LABELLED, TEST_ROWS = 40, 1600
SEEDS = (100, 101, 102, 103, 104, 105)
# Classes that count as positive, and as negative.
TASKS = {
    "mnist": ((0, 2, 4, 6, 9), (1, 3, 5, 7, 8)),
    "mnist-low": ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
    "cifar10": ((2, 3, 4), (0, 1, 9)),  # bird, cat, deer against plane, car, truck
    "cifar10-far": ((5, 7), (8, 9)),  # dog, horse against ship, truck
}
ROWS = {"positive": 231, "negative": 164}
AVERAGED = {"base.optimiser.average": 0.99, "student.optimiser.average": 0.99}
DECAY = {"base.optimiser.weight_decay": 5e-3, "student.optimiser.weight_decay": 5e-3}
STRONG = {"student.label_views": "strong"}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "longer": {"base.epochs": 100, "student.epochs": 100},
    "averaged": AVERAGED,
    "slower student": {"student.optimiser.rate": 3e-4},
    "decay": DECAY,
    "strong labels": STRONG,
    "strong base": {"base.views": "strong"},
    "all three": {**AVERAGED, **DECAY, **STRONG},
    "consistency on all": {"student.consistency": "all"},
    "no split": {"split.enabled": False},
    "tau 0.8": {"split.tau": 0.8},
    "tau 0.97": {"split.tau": 0.97},
    "surest half of the positives": {"split.surest_positives": 0.5},
    "surest half of both": {"split.surest_positives": 0.5, "split.surest_negatives": 0.5},
    "warm-up": {"warmup.name": "simclr"},
    "three members": {"members": 3},
    "five members": {"members": 5},
}


def main() -> None:
    options = _options()
    tasks = options.only.split(",") if options.only else list(TASKS)
    variants = options.variants.split(",") if options.variants else list(VARIANTS)
    networks = options.networks.split(",")
    cases = [
        {"task": task, "variant": variant, "seed": seed} | _network_key(network, whole=options.whole)
        for seed in SEEDS[: options.seeds]
        for task in tasks
        for network in networks
        for variant in variants
    ]
    on_gpu = options.device != "cpu"
    lines = run_cases(cases, partial(trained, device=options.device), options, on_gpu=lambda case: on_gpu)
    for network in networks:
        key = _network_key(network, whole=options.whole)
        wanted = [line for line in lines if key == {name: line["case"][name] for name in key}]
        show(wanted, tasks, variants, f"{network}, {'whole' if options.whole else 'halved'} images")


def _network_key(network: str, *, whole: bool) -> Key:
    """What tells the cases of a network apart; nothing for those that have always been run."""
    return {"network": network, "whole": whole} if whole or network != "cnn-small" else {}


def trained(case: Key, device: str = "cpu") -> dict[str, Any]:
    """Accuracy of base and students on test images, with the true prior."""
    warnings.simplefilter("ignore")
    features, truth, test_features, test_truth = drawn(case["task"], case["seed"], whole=case.get("whole", False))
    labels = np.zeros(len(truth), dtype=int)
    rng = np.random.default_rng([case["seed"], 1])
    labels[rng.choice(np.flatnonzero(truth), LABELLED, replace=False)] = 1
    model = SplitPUClassifier(
        prior=float(truth.mean()),
        config=VARIANTS[case["variant"]],
        random_state=case["seed"],
        device=device,
        backbone=case.get("network", "cnn-small"),
    ).fit(features, labels)
    models = {"base": model.base_, "final": model}
    found = {name: float((one.predict(test_features) == test_truth).mean()) for name, one in models.items()}
    words = f"{100 * found['base']:.1f} -> {100 * found['final']:.1f} %"
    return {"accuracy": found, "in_words": words, "machine": machine()}


def drawn(
    task: str, seed: int, *, whole: bool, rows: Mapping[str, int] = ROWS
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test images with their truth; training images are another draw for every seed."""
    rng = np.random.default_rng(seed)
    name = task.partition("-")[0]
    if not (cache_folder() / name).is_dir():
        load_named(name)  # so that it is in the cache, where its ten classes are
    parts: list[np.ndarray] = []
    for part, counts in (("train", rows), ("test", dict.fromkeys(rows, TEST_ROWS // 2))):
        images, classes = (np.load(cache_folder() / name / f"{kind}_{part}.npy", mmap_mode="r") for kind in ("x", "y"))
        chosen = [
            rng.choice(np.flatnonzero(np.isin(classes, wanted)), count, replace=False)
            for wanted, count in zip(TASKS[task], counts.values(), strict=True)
        ]
        truth = np.arange(sum(map(len, chosen))) < len(chosen[0])
        pictures = images[np.concatenate(chosen)]
        parts += [pictures if whole else _halved(pictures), truth]
    return parts[0], parts[1], parts[2], parts[3]


def _halved(images: np.ndarray) -> np.ndarray:
    """Half as high and as wide, so that a training takes seconds on a CPU."""
    count, height, width = images.shape[:3]
    blocks = images.reshape(count, height // 2, 2, width // 2, 2, -1)
    return np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)


def show(lines: list[dict[str, Any]], tasks: list[str], variants: list[str], about: str) -> None:
    """Mean over seeds, base -> final, a row a variant."""
    rows = []
    for variant in variants:
        cells, finals = [], []
        for task in tasks:
            found = [li["accuracy"] for li in lines if li["case"]["task"] == task and li["case"]["variant"] == variant]
            if not found:
                cells.append("not run")
                continue
            base, final = (100 * np.mean([one[name] for one in found]) for name in ("base", "final"))
            finals.append(final)
            cells.append(f"{base:.1f} -> {final:.1f} ({len(found)})")
        rows.append([variant, *cells, f"{np.mean(finals):.2f}" if finals else ""])
    table(f"{about}: test accuracy of base -> second student, % (seeds)", ["variant", *tasks, "mean"], rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--only", help=f"names of tasks, with commas: {', '.join(TASKS)}")
    parser.add_argument("--variants", help="names of variants, with commas")
    parser.add_argument("--networks", default="cnn-small", help="names of networks, with commas")
    parser.add_argument("--whole", action="store_true", help="images of their own size instead of half of it")
    parser.add_argument("--device", default="cpu")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
