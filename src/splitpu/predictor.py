"""A trained model with the three questions every scikit-learn classifier answers."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from splitpu.ambient import usual_torch
from splitpu.data import canonical_features
from splitpu.data.features import Channels, rows_in_words
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.models import Model

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float64]


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
        _refuse_no_numbers(decision)
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


def _refuse_no_numbers(decision: Scores) -> None:
    """What is no number is above no threshold, and would pass for a clear negative."""
    bad = np.flatnonzero(~np.isfinite(decision))
    if not len(bad):
        return
    if len(bad) == len(decision):
        advice = "the model may be damaged, or all rows are too far from those it was trained on: train it again"
    else:
        advice = "their values are too far from those the model was trained on: look at these rows"
    raise InputError(f"the model's decision for {rows_in_words(bad, len(decision))} is not a finite number; {advice}")
