"""Does the record recipe do without CIFAR-10's 50,000 images and ResNet-18? 8,000 halved images, `cnn-small`, a CPU.

python benchmarks/record_small.py --jobs 2 --out record_small.jsonl      about an hour of two cores

Each setting differs in one thing from the preset `record`; those named `default` start from that preset. The
tasks are none of those that any table reports on. Accuracy is that of the base model and of the last student on 1,600
test images, last epoch.
"""

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from case_runner import Key, add_options, run_cases
from few_images import TASKS, drawn, show
from machine import machine

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import DataProfile, preset
from splitpu.data.pudata import PUData
from splitpu.engine.inference import predict_logits
from splitpu.training import Runtime, TrainSpec, train
from splitpu.views import Views

LABELLED, SEEDS = 300, (200, 201, 202)
ROWS = {"positive": 3_500, "negative": 4_500}
ADAMW = ("student.optimiser.name=adamw", "student.optimiser.rate=5e-4", "student.optimiser.weight_decay=0.05")
VARIANTS: dict[str, tuple[str, ...]] = {
    "record": (),
    "students by AdamW": ADAMW,
    "labels for all that agree": ("split.surest_positives=1",),
    "labels for the surest half of both": ("split.surest_negatives=0.5",),
    "without a warm-up": ("warmup.name=none",),
    "default": (),
    "default, a base of 50 epochs": ("base.epochs=50",),
    "default, labels for the surest half of the positives": ("split.surest_positives=0.5",),
}


def main() -> None:
    options = _options()
    tasks = options.only.split(",")
    variants = options.variants.split(";") if options.variants else list(VARIANTS)
    # All settings of one draw in a row and in one process: they share its warm-up.
    cases = [{"task": task, "seed": seed, "variants": variants} for seed in SEEDS[: options.seeds] for task in tasks]
    found = run_cases(cases, trained, options)
    lines = [
        {"case": {**line["case"], "variant": variant}, "accuracy": accuracy}
        for line in found
        for variant, accuracy in line["accuracy"].items()
    ]
    show(lines, tasks, variants, "8,000 halved images, cnn-small")


def trained(case: Key) -> dict[str, Any]:
    """Accuracy of base and last student with every setting, with the true prior."""
    warnings.simplefilter("ignore")
    features, truth, test_features, test_truth = drawn(case["task"], case["seed"], whole=False, rows=ROWS)
    labelled = np.zeros(len(truth), dtype=bool)
    rng = np.random.default_rng([case["seed"], 1])
    labelled[rng.choice(np.flatnonzero(truth), LABELLED, replace=False)] = True
    profile = DataProfile("images", len(truth), LABELLED)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as stages:
        for variant in case["variants"]:
            config = preset("default" if variant.startswith("default") else "record", profile)
            training = train(
                PUData.from_arrays(features, labelled, channels="last"),
                TrainSpec(
                    prior=float(truth.mean()),
                    config=apply_overrides(config, ["engine.threads=1", *VARIANTS[variant]]),
                    backbone="cnn-small",
                    seed=case["seed"],
                ),
                Runtime(device="cpu", checkpoints=Path(stages)),
            )
            views = Views(training.model.preprocessing, training.model.config.views, training.hardware.device)
            for name, model in (("base", training.result.base), ("final", training.result.final)):
                logits = predict_logits(model.network, test_features, views, training.hardware)
                found.setdefault(variant, {})[name] = float(((logits > model.threshold) == test_truth).mean())
    words = ", ".join(f"{name} {100 * one['base']:.1f} -> {100 * one['final']:.1f} %" for name, one in found.items())
    return {"accuracy": found, "in_words": words, "machine": machine()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="cifar10", help=f"tasks, with commas: {', '.join(TASKS)}")
    parser.add_argument("--variants", help=f"with semicolons: {'; '.join(VARIANTS)}")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many draws")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
