"""What all classifiers share: checking, fitting, saving and loading. A method adds its name."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from splitpu.config import Config, Scenario, config_from_dict, preset
from splitpu.data import Preprocessing, PUData
from splitpu.data.features import Channels, refuse_masked_entries
from splitpu.data.frames import refuse_columns_without_numbers
from splitpu.errors import InputError
from splitpu.estimators.fitted import FittedClassifier
from splitpu.estimators.inputs import (
    has_image_axes,
    integer_seed,
    labelled_rows,
    laid_over,
    plain_labels,
    refuse_missing_labels,
    still_on_disk,
    two_classes,
)
from splitpu.methods.registry import find_method
from splitpu.models import Model
from splitpu.networks import Backbone as OwnNetwork
from splitpu.predictor import Array
from splitpu.progress import ProgressLines
from splitpu.tensors import readable_tensor
from splitpu.training import Backbone, Training, network_recipe, profile_of, train, with_calibration

if TYPE_CHECKING:
    from splitpu.prior import PriorEstimate
    from splitpu.prior.resolve import ResolvedPrior

WHERE_PARAMETERS_ARE = "Parameters and attributes: those of every classifier, see `splitpu.estimators.PUEstimator`."
FRAME = "frame"  # the kind of inputs of a model that was trained on a data frame in Python


class PUEstimator(FittedClassifier):
    """A binary classifier from some known positives and many unlabelled rows; a method adds its name.

    Parameters
    ----------
    prior : float, "auto", PriorEstimate or None
        Share of positives in the population that predictions are meant for, between 0 and 1; "auto" estimates it from
        the data, at every fit; what `estimate_prior` gave serves many fits. Of an estimate the decision's threshold is
        matched to the prior only as closely as its interval asks. VPU, DAN, P3Mix and the naive method learn without
        it: only their threshold follows it, they go on with a warning where it cannot be estimated, and None lets them
        cut where they themselves would.
    backbone : str, torch.nn.Module or function
        "auto" chooses by the data; else a name ("mlp", "cnn-small", "cnn13", "resnet18"), a network of your own (copied
        with its weights for every stage) or a function that makes one (called for every stage).
    preset : str
        The named configuration that `config` is laid over: "default", "paper" or "record".
    config : None, Config, dict or path
        Settings: a whole `Config`, a dict with nested or dotted keys such as {"vpu.epochs": 20}, or a TOML file.
    warmup : None or str
        "simclr" learns features from all rows without labels first, and every network starts from them; "none" does
        not; None takes what the configuration says.
    scenario : {"single-training-set", "case-control"}
        Whether the labelled rows were part of the one sample, or collected apart from the unlabelled ones.
    pos_label : None or label
        The value in y that means "labelled positive"; needed only where y is neither 1/0, 1/-1 nor True/False.
    calibration : None, "temperature", "platt" or "isotonic"
        Whether and how probabilities are calibrated, by rows that are kept out of the training for it (a fifth, unless
        the settings say how many: `selection.held_out`). None takes what the configuration says, which is not at all.
        A calibrated model says positive from the probability 1/2 on. Split-PU, nnPU, uPU, VPU and the naive method can
        be calibrated, and only with a prior.
    channels : {"auto", "last", "first"}
        Where the channels of images are, which "auto" sees if there are 1, 3 or 4 of them on one side alone.
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
    prior_ : float or None
        The prior the model was trained for; None if it was trained without.
    prior_interval_ : (float, float) or None
        Where the prior lies with 95 % confidence, if it was estimated.
    prior_source_ : str
        "given", "estimated by consensus" (the recommended estimator), "not used", "none could be estimated", or
        "stored" in a loaded model.
    history_ : list of dict
        One entry for each epoch of each stage: stage, epoch, loss terms, rate, seconds.
    model_ : Model
        Networks, preprocessing and thresholds: what `save` writes.
    threshold_ : float
        The logit of the final network above which it says positive, by the calibrated probability if there is one. In
        `decision_function` it is nought.
    engine_ : str
        How the arithmetic was done, e.g. "eager/fp32/resident".
    n_features_in_ : int
        Numbers in one row: features of a vector, or pixels times channels of an image.
    feature_names_in_ : ndarray of str
        Column names, if X was a data frame with such.

    A loaded estimator lacks `history_` and `engine_`: they belong to the training.
    """

    method: ClassVar[str]  # its name in the registry

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if cls.__doc__ and "PUEstimator" not in cls.__doc__:  # so that help() on any of them leads to the parameters
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{WHERE_PARAMETERS_ARE}\n"

    def __init__(
        self,
        *,
        prior: "float | str | PriorEstimate | None" = "auto",
        backbone: Backbone = "auto",
        preset: str = "default",
        config: Config | Mapping[str, Any] | str | Path | None = None,
        warmup: str | None = None,
        scenario: Scenario = "single-training-set",
        pos_label: Any = None,
        calibration: str | None = None,
        channels: Channels = "auto",
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
        self.warmup = warmup
        self.scenario = scenario
        self.pos_label = pos_label
        self.calibration = calibration
        self.channels = channels
        self.layers = layers
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting ---

    def fit(self, X: Any, y: npt.ArrayLike) -> Self:
        """Learn from X and from y, which says of each row whether it is labelled positive.

        X holds vectors (n, d) or images (n, H, W), (n, H, W, C) or (n, C, H, W), as floats or bytes.
        y holds 1 for labelled positives and 0 or -1 for unlabelled rows, True and False, or two other values.
        A model that learned nothing, as its own training rows tell, is warned of (`SplitPUWarning`); without a prior
        they tell only of one that says the same of nearly all rows.
        """
        observer, y = ProgressLines(self.verbose), readable_tensor(y)
        refuse_missing_labels(y)
        X, labels = self._checked_training_input(readable_tensor(X), plain_labels(y))
        classes, positive = two_classes(labels, self.pos_label)
        labelled = labelled_rows(labels, positive)
        data = PUData.from_arrays(X, labelled, scenario=self.scenario, channels=self.channels)
        negative = classes[0] if classes[1] == positive else classes[1]
        seed = integer_seed(self.random_state)
        prior = self._resolved_prior(data, seed)
        training = train(
            data,
            prior=prior.value,
            prior_interval=prior.interval,
            config=with_calibration(
                config_from_dict(self._named_in_parameters(), self._whole_config(data)), self.calibration
            ),
            backbone=self.backbone,
            seed=seed,
            device=self.device,
            observer=observer,
            layers=self.layers,
            classes=(negative, positive),
        )
        self._adopt(training.model, classes)
        self._keep_findings(training)
        from splitpu.evaluation.trained import warn_if_worthless

        warn_if_worthless(training, data)
        self.prior_interval_, self.prior_source_ = prior.interval, prior.source
        return self

    def _checked_training_input(self, X: Any, y: npt.ArrayLike) -> tuple[Any, Array]:
        """X and the labels in the form scikit-learn promises; images only lightly, `PUData` does the rest."""
        if not has_image_axes(X):
            refuse_columns_without_numbers(X)
            refuse_masked_entries(X, "X")  # scikit-learn would take what is behind the mask
            checked, labels = validate_data(self, X, y)
            X = still_on_disk(X, checked)
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

    def _resolved_prior(self, data: PUData, seed: int) -> "ResolvedPrior":
        from splitpu.prior.resolve import prior_for

        return prior_for(self.method, self.prior, data, seed=seed, device=self.device)

    def _whole_config(self, data: PUData) -> Config:
        return laid_over(preset(self.preset, profile_of(data)), self.config)

    def _named_in_parameters(self) -> dict[str, Any]:
        """Settings that parameters of their own decide about."""
        return {"method": self.method, **({} if self.warmup is None else {"warmup.name": self.warmup})}

    def _adopt(self, model: Model, classes: Array) -> None:
        """Take over everything that comes from the model itself, trained or loaded."""
        self.model_ = model
        self.classes_ = classes
        self.pos_label_ = model.classes[1]
        self.prior_ = model.prior
        self.prior_interval_, self.prior_source_ = None, "stored"
        self.threshold_ = model.final.threshold + (0.0 if model.calibration is None else model.calibration.cut())
        self.n_features_in_ = int(np.prod(model.preprocessing.shape))

    def _keep_findings(self, training: Training) -> None:
        self.history_ = [record.to_dict() for record in training.result.history]
        self.engine_ = training.engine

    # --- keeping ---

    def save(self, path: str | Path) -> None:
        """Write the model into a folder, as model.safetensors and model.json; no pickle, so it is safe to pass on."""
        check_is_fitted(self, "model_")
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file: give a folder to save the model in")
        columns = getattr(self, "feature_names_in_", None)
        of_frame = self.model_.inputs if columns is None else {"kind": FRAME, "columns": columns.tolist()}
        replace(self.model_, inputs=of_frame).save(folder)

    @classmethod
    def load(
        cls,
        path: str | Path,
        backbone: Backbone | None = None,
        *,
        layers: tuple[str, str] | None = None,
        device: str = "auto",
    ) -> Self:
        """Read what `save` or the command line wrote. A network of your own, and its `layers`, must be given again.

        A model of `splitpu fit table.csv` finds the columns of a data frame by their names, as `splitpu predict` does.
        """
        own = None if backbone is None else lambda fitted: network_of_ones_own(backbone, fitted, layers)
        model = Model.load(Path(path), own)
        if model.config.method != cls.method:
            title, own_title = find_method(model.config.method).title, find_method(cls.method).title
            raise InputError(f"{path} holds a model trained with {title}, not {own_title}: load it with that class")
        estimator = cls(
            prior=model.prior,
            backbone=model.network_name if backbone is None else backbone,
            config=model.config,
            pos_label=model.classes[1],
            scenario=model.scenario or "single-training-set",
            layers=layers,
            device=device,
            **cls._parameters_of(model),
        )
        estimator._adopt(model, np.unique(np.asarray(model.classes)))
        inputs = model.inputs or {}
        if inputs.get("kind") == FRAME:  # so that columns in another order are still found out
            estimator.feature_names_in_ = np.asarray(inputs["columns"], dtype=object)
        return estimator

    @classmethod
    def _parameters_of(cls, model: Model) -> dict[str, Any]:
        """Parameters beyond the shared ones, as the model was trained with."""
        return {}


def network_of_ones_own(backbone: Backbone, preprocessing: Preprocessing, layers: tuple[str, str] | None) -> OwnNetwork:
    """The user's network, ready to be filled with stored weights."""
    return network_recipe(backbone, preprocessing, layers).build()
