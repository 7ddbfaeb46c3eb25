"""One classifier for each method; `splitpu methods` says when to use which."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from splitpu.config.parse import config_from_dict
from splitpu.config.presets import preset
from splitpu.config.schema import Config, Scenario
from splitpu.data.features import Channels
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import check_device
from splitpu.errors import InputError
from splitpu.estimators.base import PUEstimator
from splitpu.evaluation.metrics import most_doubtful
from splitpu.methods.frozen_features import backbone_for
from splitpu.methods.split import SplitResult
from splitpu.model import Predictor, Scores
from splitpu.networks.build import NetworkChoice
from splitpu.training import Training, profile_of, row_probabilities

if TYPE_CHECKING:
    from splitpu.prior.estimate import PriorEstimate


class NNPUClassifier(PUEstimator, method="nnpu"): ...
class UPUClassifier(PUEstimator, method="upu"): ...
class ElkanNotoClassifier(PUEstimator, method="elkan-noto", takes_sparse=True): ...
class SAREMClassifier(PUEstimator, method="sar-em"): ...
class PUBaggingClassifier(PUEstimator, method="bagging", takes_sparse=True): ...
class PULogisticClassifier(PUEstimator, method="logistic", takes_sparse=True): ...
class PUForestClassifier(PUEstimator, method="forest", takes_sparse=True): ...
class PUBoostingClassifier(PUEstimator, method="boosting"): ...
class PUbNClassifier(PUEstimator, method="pubn"): ...
class SelfPUClassifier(PUEstimator, method="self-pu"): ...
class PUUPLClassifier(PUEstimator, method="puupl"): ...
class DistPUClassifier(PUEstimator, method="dist-pu"): ...
class VPUClassifier(PUEstimator, method="vpu"): ...
class DANClassifier(PUEstimator, method="dan"): ...
class P3MixClassifier(PUEstimator, method="p3mix"): ...
class NaivePUClassifier(PUEstimator, method="naive"): ...


@dataclass(frozen=True)
class RoundSummary:
    """What one round did: how it split the unlabelled rows, and what its models say of the training rows.

    Probabilities are of being positive, one for each training row, on the scale of `predict_proba`: of a calibrated
    classifier those of every model are put through its map. What was taught, `split.teacher_probability`, is not."""

    number: int
    split: SplitResult
    teacher_probabilities: Scores
    student_probabilities: Scores
    taken: bool = True  # False: the student learned nothing, and the model before it stayed

    @property
    def doubtful_rows(self) -> npt.NDArray[np.int64]:
        """Row numbers of the hard samples, the most doubtful first, as `splitpu hard` lists those of the last round."""
        stayed = self.student_probabilities if self.taken else self.teacher_probabilities
        rows, hard = self.split.rows, ~self.split.easy
        return rows[most_doubtful(self.teacher_probabilities[rows], stayed[rows], hard, len(rows))]


class SplitPUClassifier(PUEstimator, method="split-pu", takes_sparse=True):
    """A binary classifier learned with Split-PU from some known positives and many unlabelled rows.

    Parameters and attributes are those of every classifier here (see `splitpu.PUEstimator`) and these; of a loaded one
    `split_`, `rounds_`, `history_` and `engine_` are missing, which belong to the training.

    Parameters
    ----------
    rounds : int or None
        Rounds of split and student; 0 keeps the base model alone, None takes what the configuration says: 2 unless
        `config` sets another number.
    learner : str, scikit-learn classifier or None
        What base and student are: None takes what suits the data (learners for tables, networks for images), "auto"
        learners chosen out of fold, "network" networks; "logistic", "kernel", "forest", "bagging" or "boosting" one
        learner; any classifier of scikit-learn, which is cloned.

    Attributes
    ----------
    split_ : SplitResult or None
        Which unlabelled rows the last round found easy and hard, and why; None if there were no rounds.
    rounds_ : list of RoundSummary
        Number, split and the probabilities of teacher and student on the training rows, for every round, and whether
        the student was taken: one that says the same of nearly all rows is not, and the model before it stays.
        `rounds_[-1].doubtful_rows` are the hard samples to look at, the most doubtful first.
    base_ : Predictor
        The base model before any round, with predict, predict_proba and decision_function, for comparison.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    >>> y = (X[:, 0] > 0) & (X[:, 1] > 0)
    >>> quick = {"base.epochs": 2, "student.epochs": 2, "split.tau": 0.1}
    >>> fitted = SplitPUClassifier(prior=0.5, config=quick, rounds=1, random_state=0).fit(X, y)
    >>> fitted.predict_proba(X).shape
    (60, 2)
    """

    def __init__(
        self,
        *,
        prior: "float | str | PriorEstimate | None" = "auto",
        backbone: NetworkChoice = "auto",
        preset: str = "default",
        config: Config | Mapping[str, Any] | str | Path | None = None,
        rounds: int | None = None,
        learner: Any = None,
        warmup: str | None = None,
        scenario: Scenario = "single-training-set",
        pos_label: Any = None,
        calibration: str | None = None,
        channels: Channels = "auto",
        text: Sequence[str] | None = None,
        layers: tuple[str, str] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        # All of them by name, because scikit-learn finds the parameters of a class in its own signature alone.
        given = dict(locals())
        super().__init__(**{name: given[name] for name in inspect.signature(PUEstimator).parameters})
        self.rounds, self.learner = rounds, learner

    def _backbone_for(self, data: PUData, seed: int) -> NetworkChoice:
        said = (self.config, self.learner, self.warmup, self.layers)
        if self.preset != "default" or any(one is not None for one in said):
            return self.backbone  # which are about networks that are trained
        on_cpu = check_device(self.device).type == "cpu"
        return backbone_for(self.backbone, None, data, seed, on_cpu=on_cpu)

    def _whole_config(self, data: PUData) -> Config:
        config = super()._whole_config(data)
        if self.rounds is None:
            return config
        start = preset(self.preset, profile_of(data, self.backbone))
        if config.rounds not in (start.rounds, self.rounds):
            both = f"config sets rounds = {config.rounds} but rounds={self.rounds} was given as well"
            raise InputError(f"{both}: pass rounds={config.rounds}, or rounds=None to take what config says")
        return config_from_dict({"rounds": self.rounds}, config)

    @property
    def base_(self) -> Predictor:
        """The base model, which takes and refuses the same rows as the classifier itself."""
        return self._predictor("base")

    def _keep_findings(self, training: Training) -> None:
        super()._keep_findings(training)
        self.rounds_ = []
        for one in training.result.rounds:
            teacher, student = (row_probabilities(training, model) for model in (one.teacher, one.student))
            self.rounds_.append(RoundSummary(one.number, one.split, teacher, student, one.taken))
        self.split_ = self.rounds_[-1].split if self.rounds_ else None
