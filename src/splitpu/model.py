"""A trained model as it is shipped and asked: networks, preprocessing, threshold, what the labels mean. No pickle."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load, save_file
from torch import nn

from splitpu.config.parse import config_from_dict, config_to_dict
from splitpu.config.schema import Config, Scenario
from splitpu.data.features import Channels, canonical_features, rows_in_words
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.tables.encode import TableRecipe, rows_for_table_model
from splitpu.engine.hardware import Hardware
from splitpu.engine.inference import predict_logits
from splitpu.errors import InputError, ModelFileError
from splitpu.evaluation.calibration import PUCalibrator
from splitpu.learners.learner_networks import LEARNER, LearnerBackbone, from_spec
from splitpu.methods.frozen_features import ENCODER, FrozenNetwork
from splitpu.networks.backbones import Backbone, Ensemble, member_count
from splitpu.networks.build import build_network, network_names
from splitpu.networks.encoders import is_tuned
from splitpu.types import Array, Floats
from splitpu.utils.files import replacing, write_through
from splitpu.utils.reading import MOST_TEXT, Guarded, checked, json_loads, sealed
from splitpu.utils.torch_state import TORCH_STATE_LOCK, usual_torch
from splitpu.views import Views

FORMAT = 2
WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
AGAIN = "copy the run folder again, or train a new run"
_Label = str | int | float | bool | None
_TRIES, _LOOK_AGAIN = 5, 0.05  # for a model that is being replaced; seconds
Scores = Floats
_Tensors = dict[str, torch.Tensor]
_MakesNetwork = Callable[[Preprocessing], Backbone]


@dataclass(frozen=True)
class ScoringNetwork:
    """A network and the logit above which it says positive."""

    network: nn.Module
    threshold: float


@dataclass(frozen=True)
class Model:
    """The final network and, for comparison, the base model it grew from."""

    final: ScoringNetwork
    base: ScoringNetwork
    network_name: str
    preprocessing: Preprocessing
    config: Config
    prior: float | None  # None if the method did without
    classes: tuple[Any, Any]  # what 'not positive' and 'positive' were called in the training labels
    inputs: Mapping[str, Any] | None = None  # how files become rows, if the model was trained on folders or a table
    calibration: PUCalibrator | None = None  # of the final network's decisions
    scenario: Scenario = "single-training-set"  # how the training rows were sampled

    def decision(self, features: Array, hardware: Hardware, *, which: str = "final") -> Floats:
        """Logit above the threshold: positive means positive. Takes canonical features.

        Of a calibrated model, these are the log odds of its probabilities, so that 1/2 is the threshold."""
        scorer = self.base if which == "base" else self.final
        views = Views(self.preprocessing, self.config.views, hardware.device)
        decision = predict_logits(scorer.network.to(hardware.device), features, views, hardware) - scorer.threshold
        if which != "base" and self.calibration is not None:
            decision = self.calibration.decision(decision)
        _refuse_no_numbers(decision)
        return decision

    def decision_function(self, X: Any, *, device: str = "auto") -> Floats:
        """How clearly each row is positive: a logit, above zero = positive. Takes rows as users have them."""
        return self._predictor(device).decision_function(X)

    def predict_proba(self, X: Any, *, device: str = "auto") -> Floats:
        """Probabilities of not being positive and of being positive, one row a sample.

        >>> from splitpu import SplitPUClassifier
        >>> rows = np.random.default_rng(0).normal(size=(60, 2)) + 3 * (np.arange(60) % 2 == 0)[:, None]
        >>> quick = {"base.epochs": 5, "rounds": 0}
        >>> fitted = SplitPUClassifier(prior=0.5, config=quick, random_state=0).fit(rows, np.arange(60) % 4 == 0)
        >>> fitted.model_.predict_proba(rows).shape
        (60, 2)
        """
        return self._predictor(device).predict_proba(X)

    def predict(self, X: Any, *, device: str = "auto") -> Array:
        """What each row is called in the training labels: the second of `classes` where it is positive."""
        return self._predictor(device).predict(X)

    def _predictor(self, device: str) -> "Predictor":
        inputs = self.inputs or {}
        # Records of a model that was trained on a table become its numbers; all else stays as it is.
        encode = partial(rows_for_table_model, inputs) if inputs.get("kind") == "table" else lambda X: X
        return Predictor(self, "final", np.array(self.classes), device, checked_input=encode)

    def save(self, folder: str | Path) -> None:
        """Write the two model files; the description comes last, and knows the weights that belong to it."""
        # An earlier model stays until both are on disk. Of a save that ends between the two nothing can be loaded.
        folder = Path(folder)
        networks = {"final": self.final.network, "base": self.base.network}
        tensors = {
            # Copied: without rounds final and base are one network, and a network of the user's may tie weights.
            f"{part}/{name}": tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for part, network in networks.items()
            for name, tensor in network.state_dict().items()
            # One encoder of frozen features is behind both.
            if part == "final" or not (isinstance(network, FrozenNetwork) and name.startswith(f"{ENCODER}."))
        }
        learners = {part: one.learner.to_spec() for part, one in networks.items() if isinstance(one, LearnerBackbone)}
        description = {
            "format": FORMAT,
            "network": self.network_name,
            **({"learners": learners} if self.network_name == LEARNER else {}),
            **({"frozen": self.final.network.spec()} if isinstance(self.final.network, FrozenNetwork) else {}),
            "preprocessing": self.preprocessing.to_dict(),
            "threshold": {"final": self.final.threshold, "base": self.base.threshold},
            "prior": self.prior,
            "scenario": self.scenario,
            "classes": [value.item() if isinstance(value, np.generic) else value for value in self.classes],
            "inputs": None if self.inputs is None else dict(self.inputs),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "meaning": "decision > 0: positive; probability = sigmoid(logit - threshold), calibrated where given",
            # How the arithmetic was done there says nothing about the machine the model is used on.
            "config": {name: value for name, value in config_to_dict(self.config).items() if name != "engine"},
        }
        with replacing(folder / DESCRIPTION) as description_file, replacing(folder / WEIGHTS) as weights_file:
            save_file(tensors, weights_file)
            described = {**description, "weights": sha256(weights_file.read_bytes()).hexdigest()}
            description_file.write_text(json.dumps(sealed(described), indent=2), encoding="utf-8")
            write_through(description_file)  # before the weights are moved into place

    @classmethod
    @usual_torch()
    def load(cls, folder: str | Path, own: _MakesNetwork | None = None) -> "Model":
        """Read a model back. `own` makes the user's own network, when it is not one of ours."""
        folder = Path(folder)
        description, tensors = _read_both(folder)
        described = Guarded(folder / DESCRIPTION, AGAIN, ModelFileError)
        with described.understood():
            preprocessing = Preprocessing.from_dict(description["preprocessing"])
            name = checked(description["network"], str, "network")
            found = checked(description["threshold"], dict[str, float], "threshold")
            thresholds = {part: float(found[part]) for part in ("final", "base")}
            config = config_from_dict(checked(description["config"], dict[str, Any], "config"))
            first, second = checked(description["classes"], tuple[_Label, _Label], "classes")
            prior = checked(description["prior"], float | None, "prior")
            inputs = checked(description["inputs"], dict[str, Any] | None, "inputs")
            if inputs is not None and inputs.get("kind") == "table":
                TableRecipe.from_dict(inputs)  # says what is wrong with it
                checked(inputs.get("frame", []), list[str], "frame")
            elif inputs is not None:
                checked(inputs.get("series"), str | None, "series")
                checked(inputs.get("depth"), int | None, "depth")
            stored = description["calibration"]
            calibration = None if stored is None else PUCalibrator.from_dict(stored)
            scenario = checked(description["scenario"], Scenario, "scenario")
            if name == LEARNER:
                checked(description["learners"], dict[str, Any], "learners")
        # Not in the block above: what goes wrong in the user's own network is no fault of the file.
        has_spec = "frozen" in description or name == LEARNER

        def network_of(part: str) -> nn.Module:
            if has_spec:
                return _rebuilt(description, preprocessing, tensors, part, folder)
            return _filled(name, preprocessing, _under(f"{part}/", tensors), folder, own)

        final, base = (ScoringNetwork(network_of(part).eval(), threshold) for part, threshold in thresholds.items())
        return cls(final, base, name, preprocessing, config, prior, (first, second), inputs, calibration, scenario)


def _under(prefix: str, tensors: _Tensors) -> _Tensors:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _filled(name: str, fitted: Preprocessing, weights: _Tensors, folder: Path, own: _MakesNetwork | None) -> nn.Module:
    ours = name in network_names() or is_tuned(name)

    def build() -> Backbone:
        if own is not None:
            return own(fitted)
        if ours:
            return build_network(name, fitted.shape)
        raise InputError(f"{folder} holds weights of your own network {name!r}: pass that network to load() as well.")

    members = member_count(list(weights))
    given = "the network that was given: pass the one it was trained with"
    unfit = ModelFileError(f"{folder / WEIGHTS} does not fit {f'network {name!r}; {AGAIN}' if own is None else given}.")
    if own is None and ours and not _has_room_for(weights, build, members):
        raise unfit
    # The weights drawn here are replaced; the user's generator stays put.
    with TORCH_STATE_LOCK, torch.random.fork_rng(devices=[]):
        network = Ensemble([build() for _ in range(members)]) if members else build()
    if fitted.kind != "vectors":  # as in training, so that the same arithmetic gives the same digits
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise unfit from error
    return network


def _has_room_for(weights: _Tensors, build: Callable[[], Backbone], members: int) -> bool:
    """Whether these are the shapes of the network: asked where nothing is allocated, whatever a file claims."""
    try:
        with torch.device("meta"):
            wanted = {name: tuple(tensor.shape) for name, tensor in build().state_dict().items()}
    except (RuntimeError, TypeError, OverflowError):  # sizes that no network could have
        return False
    if members and len(weights) != members * len(wanted):
        return False
    prefixes = [f"members.{at}." for at in range(members)] if members else [""]
    all_wanted = {f"{prefix}{name}": shape for prefix in prefixes for name, shape in wanted.items()}
    return all_wanted == {name: tuple(tensor.shape) for name, tensor in weights.items()}


def _rebuilt(
    description: Mapping[str, Any], preprocessing: Preprocessing, tensors: _Tensors, part: str, folder: Path
) -> nn.Module:
    """A learner, or a head on an encoder that is written once; refused where tensors and spec do not fit."""
    try:
        if "frozen" in description:
            encoder = {key: t for key, t in _under("final/", tensors).items() if key.startswith(f"{ENCODER}.")}
            return FrozenNetwork.rebuilt(description["frozen"], preprocessing, encoder | _under(f"{part}/", tensors))
        return LearnerBackbone(from_spec(description["learners"][part], _under(f"{part}/learner.", tensors)))
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError) and "pip install" in str(error):  # the file is whole, a package is missing
            raise
        raise ModelFileError(f"{folder / DESCRIPTION} and {WEIGHTS} do not fit together ({error}); {AGAIN}.") from error


def _read_description(path: Path) -> dict[str, Any]:
    guarded = Guarded(path, AGAIN, ModelFileError)
    try:
        found = guarded.json()
    except FileNotFoundError:
        message = f"{path.parent} holds no finished model ({path.name} is missing); train one with 'splitpu fit'."
        raise ModelFileError(message) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = str(found.get("format"))[:40] if isinstance(found, dict) else None
        message = f"{path} has model format {version}, this version of splitpu reads {FORMAT}; train the model again."
        raise ModelFileError(message)
    return guarded.unsealed(found)


def _read_both(folder: Path) -> tuple[dict[str, Any], _Tensors]:
    """The description and the weights that belong to it."""
    # Another process may be about to put a new model in place, of which one file comes before the other.
    weights = Guarded(folder / WEIGHTS, AGAIN, ModelFileError, missing="it is missing")
    for _ in range(_TRIES):
        description = _read_description(folder / DESCRIPTION)
        content = _whole(weights)
        if description.get("weights") == sha256(content).hexdigest():
            with weights.understood():
                return description, load(content)
        time.sleep(_LOOK_AGAIN)
    why = "it is damaged or cut short, or one of the two belongs to another model"
    weights.refuse(f"it is not what {DESCRIPTION} beside it was written with: {why}")


def _whole(guarded: Guarded) -> bytes:
    """The bytes of a safetensors file; one that is not as long as its header says is refused before it is read."""
    with guarded.understood(), guarded.opened() as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MOST_TEXT:
            guarded.refuse("its header is damaged")
        header = checked(json_loads(file.read(length)), dict[str, dict[str, Any]])
        ends = [checked(one["data_offsets"], tuple[int, int])[1] for name, one in header.items() if name[0] != "_"]
        if os.fstat(file.fileno()).st_size != 8 + length + max(ends, default=0):
            guarded.refuse("it is cut short or damaged")
        file.seek(0)
        return file.read()


def _refuse_no_numbers(decision: Floats) -> None:
    """What is no number is above no threshold, and would pass for a clear negative."""
    bad = np.flatnonzero(~np.isfinite(decision))
    if not len(bad):
        return
    advice = "their values are too far from those the model was trained on: look at these rows"
    if len(bad) == len(decision):
        advice = "the model may be damaged, or all rows are too far from those it was trained on: train it again"
    raise InputError(f"the model's decision for {rows_in_words(bad, len(decision))} is not a finite number; {advice}")


class Predictor:
    """One trained network, answering as scikit-learn asks: decisions above zero mean the second of `classes_`."""

    def __init__(
        self,
        model: Model,
        which: Literal["final", "base"],
        classes: Array,
        device: str,
        checked_input: Callable[[Any], Any],
        channels: Channels = "auto",
    ) -> None:
        self.classes_ = classes
        self._model, self._which, self._device, self._channels = model, which, device, channels
        self._checked_input = checked_input  # the classifier's, which knows the columns it was trained on
        # The model scores the positive class, which need not be the second in sorted order.
        self._sign = 1.0 if classes[1] == model.classes[1] else -1.0

    def decision_function(self, X: Any) -> Scores:
        """How clearly each row belongs to `classes_[1]`: a logit, zero at the threshold."""
        fitted = self._model.preprocessing
        features = canonical_features(
            self._checked_input(X), "X", channels=self._channels, double=fitted.double, trained_on=fitted.shape
        )
        fitted.check(features)
        hardware = Hardware.choose(self._device, self._model.config.engine, whatever_else_runs=True)
        with usual_torch():
            decision = self._model.decision(features, hardware, which=self._which)
        return self._sign * decision

    def predict(self, X: Any) -> Array:
        """The member of `classes_` each row is thought to belong to."""
        chosen: Array = self.classes_[(self.decision_function(X) > 0).astype(np.intp)]
        return chosen

    def predict_proba(self, X: Any) -> Scores:
        """Probabilities of the two `classes_`, one row a sample; the sigmoid of the decision."""
        decision = torch.from_numpy(self.decision_function(X))
        probabilities: Scores = torch.sigmoid(torch.stack([-decision, decision], dim=1)).numpy()
        return probabilities
