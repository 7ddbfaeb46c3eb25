"""The protocol of the highest published figure we found (NcPU, 97.36 %): 1000 positives, 40,000 unlabelled, no prior.

python benchmarks/ncpu_protocol.py --presets default,record --seeds 0,1 --out ncpu_protocol.jsonl       on a GPU
python benchmarks/ncpu_protocol.py --presets default --seeds 0 --tiny --out tiny.jsonl                  tries the script

CIFAR-10, vehicles against animals. The unlabelled images are 16,000 vehicles and 24,000 animals, none of them among the
labelled ones; the prior is estimated as `prior="auto"` does it. One line a run, of the last epoch; a run that is there
already is not made again. `--show` prints what there is.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from machine import machine

from splitpu import SplitPUClassifier, estimate_prior
from splitpu.data.public.datasets import load_named
from splitpu.data.pudata import PUData
from splitpu.utils.statistics import standard_error

POSITIVES, HIDDEN, NEGATIVES = 1000, 16_000, 24_000
PUBLISHED = 97.36
NETWORKS = {"default": "cnn13", "fast": "cnn13", "record": "resnet18"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("ncpu_protocol.jsonl"))
    parser.add_argument("--presets", default="default,record")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--commit")
    parser.add_argument("--side-by-side", type=int, default=1, help="how many jobs share the device, for the times")
    parser.add_argument("--tiny", action="store_true", help="a twentieth of the images, two epochs")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    wanted = [(name, int(seed)) for seed in options.seeds.split(",") for name in options.presets.split(",")]
    done = {(line["preset"], line["seed"]) for line in read(options.out)}
    for name, seed in [] if options.show else wanted:
        if (name, seed) in done:
            continue
        line = one_run(name, seed, 20 if options.tiny else 1)
        told = {"commit": options.commit, "side_by_side": options.side_by_side, "machine": machine()}
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | told) + "\n")
        print(f"{name} seed {seed}: {line['accuracy']:.2f} %, prior {line['estimated']:.3f}", flush=True)
    show(read(options.out))


def one_run(name: str, seed: int, part: int) -> dict[str, Any]:
    """Draw, estimate the prior, train, and look at the 10,000 test images once."""
    named = load_named("cifar10")
    draw = np.random.default_rng(seed)
    vehicles = draw.permutation(np.flatnonzero(named.truth_train))[: (POSITIVES + HIDDEN) // part]
    animals = draw.permutation(np.flatnonzero(~named.truth_train))[: NEGATIVES // part]
    rows = np.sort(np.concatenate([vehicles, animals]))
    labelled = np.isin(rows, vehicles[: POSITIVES // part])
    images, started = np.asarray(named.features_train)[rows], time.perf_counter()
    data = PUData.from_arrays(images, labelled, scenario="case-control", channels="last")
    prior = estimate_prior(data, seed=seed, scores="auto" if part == 1 else "classical")
    estimated_in = time.perf_counter() - started
    model = SplitPUClassifier(
        prior=prior,
        preset=name,
        backbone=NETWORKS[name] if part == 1 else "cnn-small",
        scenario="case-control",
        config={"rounds": 1, **dict.fromkeys(("base.epochs", "split.max_epochs", "student.epochs", "warmup.epochs"), 2)}
        if part > 1
        else None,
        random_state=seed,
    ).fit(images, labelled.astype(int))
    seconds = time.perf_counter() - started
    accuracy = {}
    for which, one in {"student": model, "base": model.base_}.items():
        accuracy[which] = 100 * float((one.predict(np.asarray(named.features_test)) == named.truth_test).mean())
    told = {"estimated": prior.value, "interval": list(prior.interval), "truth": HIDDEN / (HIDDEN + NEGATIVES)}
    times = {"seconds": round(seconds, 1), "prior_seconds": round(estimated_in, 1)}
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    found = {"preset": name, "seed": seed, "accuracy": accuracy["student"], "base_accuracy": accuracy["base"]}
    return {**found, **told, **times, "device": where}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def show(lines: list[dict[str, Any]]) -> None:
    """Mean and standard error of every preset beside the published figure."""
    print("| preset | accuracy % | base % | prior estimated for .400 | published | n |\n|---|---|---|---|---|---|")
    for name in dict.fromkeys(line["preset"] for line in lines):
        some = [line for line in lines if line["preset"] == name]
        error = standard_error([line["accuracy"] for line in some], 2)
        said = f"{fmean(line['accuracy'] for line in some):.2f}" + (f" ± {error:.2f}" if error is not None else "")
        base, prior = (fmean(line[key] for line in some) for key in ("base_accuracy", "estimated"))
        print(f"| {name} | {said} | {base:.2f} | {prior:.3f} | {PUBLISHED} | {len(some)} |")


if __name__ == "__main__":
    main()
