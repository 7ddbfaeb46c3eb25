"""A trained model with the three questions every scikit-learn classifier answers."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from splitpu.data import canonical_features
from splitpu.engine.hardware import Hardware
from splitpu.models import Model

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float64]


class Predictor:
    """One trained network, answering as scikit-learn asks: decisions above zero mean the second of `classes_`."""

    def __init__(self, model: Model, which: Literal["final", "base"], classes: Array, device: str) -> None:
        self.classes_ = classes
        self._model, self._which, self._device = model, which, device
        # The model scores the positive class, which need not be the second in sorted order.
        self._sign = 1.0 if classes[1] == model.classes[1] else -1.0

    def decision_function(self, X: Any) -> Scores:
        """How clearly each row belongs to `classes_[1]`: a logit, zero at the threshold."""
        features = canonical_features(X, "X")
        self._model.preprocessing.check(features)
        hardware = Hardware.choose(self._device, self._model.config.engine)
        return self._sign * self._model.decision(features, hardware, which=self._which)

    def predict(self, X: Any) -> Array:
        """The member of `classes_` each row is thought to belong to."""
        chosen: Array = self.classes_[(self.decision_function(X) > 0).astype(np.intp)]
        return chosen

    def predict_proba(self, X: Any) -> Scores:
        """Probabilities of the two `classes_`, one row a sample; the sigmoid of the decision."""
        decision = torch.from_numpy(self.decision_function(X))
        probabilities: Scores = torch.sigmoid(torch.stack([-decision, decision], dim=1)).numpy()
        return probabilities
