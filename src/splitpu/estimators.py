"""The scikit-learn face: `SplitPUClassifier` fits, predicts, clones, searches and pickles like any other classifier."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from splitpu.config import Config, Scenario, config_from_dict, preset, read_config, validate_config
from splitpu.data import Preprocessing, PUData, check_prior
from splitpu.data.pudata import FEWEST_POSITIVES
from splitpu.errors import InputError, SplitPUWarning
from splitpu.labels import Mask
from splitpu.methods.split import SplitResult
from splitpu.methods.splitpu import Round
from splitpu.models import Model
from splitpu.predictor import Array, Predictor, Scores
from splitpu.progress import ProgressLines
from splitpu.training import Backbone, Training, network_recipe, profile_of, train

CONVENTIONS = ({0, 1}, {-1, 1})  # labels that need no explanation, 1 being positive; False and True equal 0 and 1
LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True)
class RoundSummary:
    """What one round did: how it split the unlabelled rows, and what its student says of the training rows."""

    number: int
    split: SplitResult
    student_probabilities: Scores  # of being positive, one for each training row


class SplitPUClassifier(ClassifierMixin, BaseEstimator):
    """A binary classifier learned with Split-PU from some known positives and many unlabelled rows.

    Parameters
    ----------
    prior : float
        Share of positives in the population that predictions are meant for, between 0 and 1.
    backbone : str, torch.nn.Module or function
        "auto" chooses by the data; else a name ("mlp", "cnn-small", "cnn13", "resnet18"), a network of your own (copied
        with its weights for every stage) or a function that makes one (called for every stage).
    preset : str
        The named configuration that `config` is laid over: "default" or "paper".
    config : None, Config, dict or path
        Settings: a whole `Config`, a dict with nested or dotted keys such as {"student.epochs": 20}, or a TOML file.
    rounds : int or None
        Rounds of split and student; 0 keeps the base model alone, None takes what the configuration says.
    scenario : {"single-training-set", "case-control"}
        Whether the labelled rows were part of the one sample, or collected apart from the unlabelled ones.
    pos_label : None or label
        The value in y that means "labelled positive"; needed only where y is neither 1/0, 1/-1 nor True/False.
    layers : None or (str, str)
        The names of the first block and the last hidden layer of your own network, if it returns the logit alone.
    device : str
        "auto" takes a GPU if there is one; else "cpu", "cuda", "cuda:1".
    random_state : None, int or RandomState
        Two fits with the same integer on the same CPU give the same model, bit for bit.
    verbose : int
        1 prints a line for each stage, 2 also one for each epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two labels, sorted. The positive one is `pos_label_`.
    pos_label_ : label
        The member of `classes_` that was taken as positive.
    prior_ : float
        The prior the model was trained for.
    split_ : SplitResult or None
        Which unlabelled rows the last round found easy and hard, and why; None if there were no rounds.
    rounds_ : list of RoundSummary
        Number, split and the student's probabilities on the training rows, for every round.
    history_ : list of dict
        One entry for each epoch of each stage: stage, epoch, loss terms, rate, seconds.
    base_ : Predictor
        The base model before any round, with predict, predict_proba and decision_function, for comparison.
    model_ : Model
        Networks, preprocessing and thresholds: what `save` writes.
    threshold_ : float
        The logit of the final network above which it says positive; already taken off in `decision_function`.
    engine_ : str
        How the arithmetic was done, e.g. "eager/fp32/resident".
    n_features_in_ : int
        Numbers in one row: features of a vector, or pixels times channels of an image.
    feature_names_in_ : ndarray of str
        Column names, if X was a data frame with such.

    A loaded estimator lacks `split_`, `rounds_`, `history_` and `engine_`: they belong to the training.

    Examples
    --------
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
        prior: float,
        backbone: Backbone = "auto",
        preset: str = "default",
        config: Config | Mapping[str, Any] | str | Path | None = None,
        rounds: int | None = 2,
        scenario: Scenario = "single-training-set",
        pos_label: Any = None,
        layers: tuple[str, str] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        # Only stored: scikit-learn clones an estimator by passing these on, so checking waits until fit.
        self.prior = prior
        self.backbone = backbone
        self.preset = preset
        self.config = config
        self.rounds = rounds
        self.scenario = scenario
        self.pos_label = pos_label
        self.layers = layers
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting ---

    def fit(self, X: Any, y: npt.ArrayLike) -> "SplitPUClassifier":
        """Learn from X and from y, which says of each row whether it is labelled positive.

        X holds vectors (n, d) or images (n, H, W), (n, H, W, C) or (n, C, H, W), as floats or bytes.
        y holds 1 for labelled positives and 0 or -1 for unlabelled rows, True and False, or two other values.
        """
        X, labels = self._checked_training_input(X, y)
        classes, positive = _two_classes(labels, self.pos_label)
        data = PUData.from_arrays(X, _labelled_rows(labels, positive), scenario=self.scenario)
        negative = classes[0] if classes[1] == positive else classes[1]
        training = train(
            data,
            prior=check_prior(self.prior, data),
            config=self._whole_config(data),
            backbone=self.backbone,
            seed=_integer_seed(self.random_state),
            device=self.device,
            observer=ProgressLines(self.verbose),
            layers=self.layers,
            classes=(negative, positive),
        )
        self._adopt(training.model, classes)
        self._keep_findings(training)
        return self

    def _checked_training_input(self, X: Any, y: npt.ArrayLike) -> tuple[Any, Array]:
        """X and the labels in the form scikit-learn promises; images only lightly, `PUData` does the rest."""
        if not _has_image_axes(X):
            X, labels = validate_data(self, X, y)
        else:
            if hasattr(self, "feature_names_in_"):  # from an earlier fit
                del self.feature_names_in_
            labels = column_or_1d(y, warn=True)
            check_consistent_length(X, labels)
        check_classification_targets(labels)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise InputError(
                f"Only binary classification is supported. The type of the target is {kind}: give y two values, one "
                "for labelled positives and one for unlabelled rows."
            )
        return X, np.asarray(labels)

    def _whole_config(self, data: PUData) -> Config:
        start = preset(self.preset, profile_of(data))
        config = _laid_over(start, self.config)
        if self.rounds is None:
            return config
        if config.rounds not in (start.rounds, self.rounds):
            raise InputError(
                f"config sets rounds = {config.rounds} but rounds={self.rounds} was given as well: pass "
                f"rounds={config.rounds}, or rounds=None to take what config says"
            )
        return config_from_dict({"rounds": self.rounds}, config)

    def _adopt(self, model: Model, classes: Array) -> None:
        """Take over everything that comes from the model itself, trained or loaded."""
        self.model_ = model
        self.classes_ = classes
        self.pos_label_ = model.classes[1]
        self.prior_ = model.prior
        self.threshold_ = model.final.threshold
        self.n_features_in_ = int(np.prod(model.preprocessing.shape))
        self.base_ = Predictor(model, "base", classes, self.device)

    def _keep_findings(self, training: Training) -> None:
        result = training.result
        self.rounds_ = [_summary(one) for one in result.rounds]
        self.split_ = self.rounds_[-1].split if self.rounds_ else None
        self.history_ = [record.to_dict() for record in result.history]
        self.engine_ = training.engine

    # --- predicting ---

    def decision_function(self, X: Any) -> Scores:
        """How clearly each row belongs to `classes_[1]`: a logit, zero at the threshold."""
        return self._predictor().decision_function(self._checked_input(X))

    def predict(self, X: Any) -> Array:
        """The member of `classes_` each row is thought to belong to."""
        return self._predictor().predict(self._checked_input(X))

    def predict_proba(self, X: Any) -> Scores:
        """Probabilities of the two `classes_`, one row a sample; the sigmoid of the decision."""
        return self._predictor().predict_proba(self._checked_input(X))

    def _predictor(self) -> Predictor:
        check_is_fitted(self, "model_")
        return Predictor(self.model_, "final", self.classes_, self.device)

    def _checked_input(self, X: Any) -> Any:
        # Images, wanted or given, are left to the model, which knows the shape it was trained on.
        if self.model_.preprocessing.kind == "images" or _has_image_axes(X):
            return X
        return validate_data(self, X, reset=False)

    # --- keeping ---

    def save(self, path: str | Path) -> None:
        """Write the model into a folder, as model.safetensors and model.json; no pickle, so it is safe to pass on."""
        check_is_fitted(self, "model_")
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file: give a folder to save the model in")
        self.model_.save(folder)

    @classmethod
    def load(
        cls,
        path: str | Path,
        backbone: Backbone | None = None,
        *,
        layers: tuple[str, str] | None = None,
        device: str = "auto",
    ) -> "SplitPUClassifier":
        """Read what `save` or the command line wrote. A network of your own, and its `layers`, must be given again."""
        own = None if backbone is None else lambda fitted: _own_network(backbone, fitted, layers)
        model = Model.load(Path(path), own)
        estimator = cls(
            prior=model.prior,
            backbone=model.network_name if backbone is None else backbone,
            config=model.config,
            rounds=model.config.rounds,
            pos_label=model.classes[1],
            layers=layers,
            device=device,
        )
        estimator._adopt(model, np.unique(np.asarray(model.classes)))
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "model_"):  # a pickle made on a GPU must open where there is none
            for scorer in (self.model_.final, self.model_.base):
                scorer.network.cpu()
        state: dict[str, Any] = super().__getstate__()
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.three_d_array = True
        return tags


def _has_image_axes(X: Any) -> bool:
    try:
        axes = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
        return axes in (3, 4)
    except ValueError:  # rows of different lengths: scikit-learn will say so
        return False


def _two_classes(labels: Array, pos_label: Any) -> tuple[Array, Any]:
    """The two labels in sorted order, and which of them means positive."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(
            f"y holds one class only, {classes.tolist()[0]!r}: give labelled positives and unlabelled rows together"
        )
    first, second = classes.tolist()
    if pos_label is not None:
        if pos_label not in (first, second):
            raise InputError(f"y holds the values {first!r} and {second!r}, none of which is pos_label={pos_label!r}")
        return classes, first if pos_label == first else second
    if {first, second} not in CONVENTIONS:
        warnings.warn(
            f"y holds the values {first!r} and {second!r}: {second!r}, the later in sorted order, is taken as "
            f"labelled positive; pass pos_label={second!r} to say that this is right, or pos_label={first!r}",
            SplitPUWarning,
            stacklevel=3,
        )
    return classes, second


def _labelled_rows(labels: Array, positive: Any) -> Mask:
    labelled = np.asarray(labels == positive, dtype=np.bool_)
    if labelled.sum() < FEWEST_POSITIVES:
        raise InputError(
            f"y marks only {labelled.sum()} row as labelled positive ({positive!r}): label at least {FEWEST_POSITIVES}"
        )
    return labelled


def _laid_over(start: Config, config: Any) -> Config:
    if config is None:
        return start
    if isinstance(config, Config):
        return validate_config(config)
    if isinstance(config, Mapping):
        return config_from_dict(config, start)
    if isinstance(config, str | Path):
        return read_config(config, start)
    kind = type(config).__name__
    raise InputError(f"config={config!r} is of type {kind}: give a Config, a dict or the path of a TOML file")


def _integer_seed(random_state: Any) -> int:
    """An integer stays itself, so that the command line with the same seed gives the same model."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(LARGEST_SEED))


def _summary(one: Round) -> RoundSummary:
    return RoundSummary(one.number, one.split, one.student.probabilities.double().cpu().numpy())


def _own_network(backbone: Backbone, preprocessing: Preprocessing, layers: tuple[str, str] | None) -> torch.nn.Module:
    return network_recipe(backbone, preprocessing, layers).build()
