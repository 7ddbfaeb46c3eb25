"""`splitpu sensitivity`: what would have been decided if the prior were another one."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from splitpu.cli.output import print_facts, print_json, print_note, print_table
from splitpu.cli.progress import choose_display
from splitpu.config import EngineConfig
from splitpu.data import check_prior
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation.pu_metrics import evaluate_pu
from splitpu.methods.context import WarmStart
from splitpu.methods.thresholds import matched_threshold
from splitpu.metrics import evaluate_scores
from splitpu.models import Model
from splitpu.runs.folder import RunFolder
from splitpu.runs.request import Request
from splitpu.runs.sources import LoadedData, load_request
from splitpu.training import Training, train

Floats = npt.NDArray[np.float64]
_COLUMNS = ("prior", "positive_rate_unlabelled", "changed_decisions", "estimated_accuracy", "test_accuracy")


def run_sensitivity(
    run: str,
    *,
    lowest: float | None,
    highest: float | None,
    steps: int,
    refit: bool,
    device: str,
    json: bool,
) -> int:
    """One row a prior: how many unlabelled rows are called positive, and how many decisions differ from the run's."""
    folder = RunFolder.find_trained(run)
    folder.read_result()  # says so if the run is not finished
    request = folder.request()
    model = Model.load(folder.path)
    if model.prior is None or request.prior is None:
        raise InputError(f"{folder.path} was trained by a method that does without a prior; there is nothing to vary.")
    display = choose_display(quiet=json)
    loaded = load_request(request, display.say)
    priors = prior_range(loaded, request, lowest, highest, steps)
    hardware = Hardware.choose(device, EngineConfig())
    own = _decisions(model, loaded, hardware)
    rows, start = [], None
    for prior in priors:
        if refit:
            display.say(f"training with prior {prior:.4g}")
            training = _trained_with(prior, folder, request, loaded, device, start)
            start = training.warm_start  # a warm-up knows no prior, so the first one does for all
            scores = _decisions(training.model, loaded, hardware)
        else:
            scores = own if prior == request.prior else _moved(own, loaded, prior)
        rows.append(_row(prior, scores, own, loaded))
    if json:
        print_json({"run": str(folder.path), "prior": model.prior, "refit": refit, "rows": rows})
        return 0
    columns = _COLUMNS if loaded.held_out else _COLUMNS[:-1]
    print_table([{**row, "prior": f"{row['prior']:.4g}"} for row in rows], columns)
    print_facts({"run": folder.path, "its prior": f"{model.prior:.4g}", "each row": "trained anew" if refit else _HOW})
    print_note("the estimated accuracy rests on the training rows and on the prior of its row being right.")
    return 0


_HOW = "the run's model with its threshold where that prior puts it"


def prior_range(
    loaded: LoadedData, request: Request, lowest: float | None, highest: float | None, steps: int
) -> list[float]:
    """Evenly spaced priors and the run's own, all of them possible for the data."""
    if steps < 2:
        raise InputError(f"--steps {steps} is no range; give at least 2.")
    own = float(request.prior or 0.0)
    low, high = request.prior_interval or (own / 2, min(1.5 * own, (1 + own) / 2))
    low = low if lowest is None else lowest
    high = high if highest is None else highest
    if lowest is None and loaded.data.scenario == "single-training-set":
        share = loaded.data.labelled_share
        low = max(low, share + 0.1 * (own - share))  # at the labelled share itself nothing would be left to find
    for bound in (low, high):
        check_prior(bound, loaded.data)
    if low >= high:
        raise InputError(f"the priors from {low:g} to {high:g} are no range; --lowest must be below --highest.")
    return sorted({*np.linspace(low, high, steps - 1 if low < own < high else steps).tolist(), own})


def _decisions(model: Model, loaded: LoadedData, hardware: Hardware) -> dict[str, Floats]:
    found = {"training": model.decision(loaded.data.features, hardware)}
    if loaded.held_out is not None:
        found["test"] = model.decision(loaded.held_out.features, hardware)
    return found


def _moved(own: dict[str, Floats], loaded: LoadedData, prior: float) -> dict[str, Floats]:
    threshold = matched_threshold(torch.from_numpy(own["training"][loaded.data.population]), prior)
    return {name: scores - threshold for name, scores in own.items()}


def _trained_with(
    prior: float, folder: RunFolder, request: Request, loaded: LoadedData, device: str, start: WarmStart | None
) -> Training:
    return train(
        loaded.data,
        prior=prior,
        prior_interval=request.prior_interval if prior == request.prior else None,
        config=folder.config(),
        backbone=request.backbone,
        seed=request.seed,
        device=device,
        classes=loaded.classes,
        warm_start=start,
    )


def _row(prior: float, scores: dict[str, Floats], own: dict[str, Floats], loaded: LoadedData) -> dict[str, Any]:
    data = loaded.data
    unlabelled = scores["training"][data.unlabelled]
    estimated = evaluate_pu(scores["training"][data.positives], unlabelled, prior, scenario=data.scenario)
    row: dict[str, Any] = {
        "prior": prior,
        "positive_rate_unlabelled": float((unlabelled > 0).mean()),
        "changed_decisions": int(((unlabelled > 0) != (own["training"][data.unlabelled] > 0)).sum()),
        "estimated_accuracy": estimated["accuracy"].value,
    }
    if loaded.held_out is not None:
        row["test_accuracy"] = evaluate_scores(loaded.held_out.truth, scores["test"])["accuracy"]
    return row
