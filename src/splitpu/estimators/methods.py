"""One classifier for each of the other methods; `splitpu methods` says when to use which."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitpu.config import Config, Scenario
from splitpu.estimators.base import PUEstimator
from splitpu.training import Backbone


class NNPUClassifier(PUEstimator):
    """Non-negative PU risk: the sound and quick standard when the prior is known. Settings: `base`."""

    method = "nnpu"


class UPUClassifier(PUEstimator):
    """Unbiased PU risk, for networks too small to overfit it. Settings: `base`."""

    method = "upu"


class PUbNClassifier(PUEstimator):
    """PUbN without biased negatives: the risk on negatives is taken where a first network is sure. Settings: `pubn`."""

    method = "pubn"


class SelfPUClassifier(PUEstimator):
    """Two networks that teach one another from a growing set of trusted rows. Settings: `self_pu`."""

    method = "self-pu"


class PUUPLClassifier(PUEstimator):
    """An ensemble that takes up its own labels where its members agree. Settings: `puupl`."""

    method = "puupl"


class DistPUClassifier(PUEstimator):
    """Matches the mean predictions to the prior, then sharpens them by mixing. Settings: `dist_pu`."""

    method = "dist-pu"


class PriorFreeEstimator(PUEstimator):
    """A classifier by a method that does without a prior; given one, only its threshold follows it."""

    def __init__(
        self,
        *,
        prior: float | None = None,
        backbone: Backbone = "auto",
        preset: str = "default",
        config: Config | Mapping[str, Any] | str | Path | None = None,
        warmup: str | None = None,
        scenario: Scenario = "single-training-set",
        pos_label: Any = None,
        calibration: str | None = None,
        layers: tuple[str, str] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            prior=prior,
            backbone=backbone,
            preset=preset,
            config=config,
            warmup=warmup,
            scenario=scenario,
            pos_label=pos_label,
            calibration=calibration,
            layers=layers,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )


class VPUClassifier(PriorFreeEstimator):
    """The variational approach: needs no prior. Settings: `vpu`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    >>> y = (X[:, 0] > 0) & (X[:, 1] > 0)
    >>> VPUClassifier(config={"vpu.epochs": 2}, random_state=0).fit(X, y).predict(X).shape
    (60,)
    """

    method = "vpu"


class DANClassifier(PriorFreeEstimator):
    """A discriminator and an adversary that tells its positives from the labelled ones. Settings: `dan`."""

    method = "dan"


class P3MixClassifier(PriorFreeEstimator):
    """Mixes doubtful rows with positives near the border, and corrects labels on the way. Settings: `p3mix`."""

    method = "p3mix"


class NaivePUClassifier(PriorFreeEstimator):
    """Takes unlabelled rows for negatives: what every method has to beat. Settings: `base`."""

    method = "naive"
