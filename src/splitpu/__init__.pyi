"""Everything that is public, by the module it lives in: what users call, and what the signatures of that mention.

Type checkers read this file, and so does `__init__.py`. `as` says that a name is public.
"""

# ruff: noqa: I001
# fmt: off
from splitpu.config.presets import DataProfile as DataProfile, preset as preset
from splitpu.config.schema import (
    BaseConfig as BaseConfig, Config as Config, DANConfig as DANConfig, DistPUConfig as DistPUConfig,
    EngineConfig as EngineConfig, OptimiserConfig as OptimiserConfig, P3MixConfig as P3MixConfig,
    PUUPLConfig as PUUPLConfig, PUbNConfig as PUbNConfig, SelectionConfig as SelectionConfig,
    SelfPUConfig as SelfPUConfig, SplitConfig as SplitConfig, StudentConfig as StudentConfig,
    VPUConfig as VPUConfig, ViewsConfig as ViewsConfig, WarmupConfig as WarmupConfig,
)
from splitpu.data.preprocessing import Preprocessing as Preprocessing
from splitpu.data.public.datasets import load_named as load_named
from splitpu.data.public.named_set import NamedSet as NamedSet, make_pu as make_pu
from splitpu.data.pudata import HeldOut as HeldOut, PUData as PUData
from splitpu.engine.checkpoint import CheckpointStore as CheckpointStore, StageState as StageState
from splitpu.engine.distributed import World as World
from splitpu.engine.hardware import Hardware as Hardware
from splitpu.engine.loop import Engine as Engine
from splitpu.engine.rows import RowStore as RowStore, SharedRows as SharedRows
from splitpu.engine.stage import (
    Batch as Batch, EpochRecord as EpochRecord, Observer as Observer, Pool as Pool, Stage as Stage,
    StageOutcome as StageOutcome, Task as Task,
)
from splitpu.errors import (
    InputError as InputError, ModelFileError as ModelFileError, SplitPUError as SplitPUError,
    SplitPUWarning as SplitPUWarning,
)
from splitpu.estimators.base import PUEstimator as PUEstimator, PerRow as PerRow
from splitpu.estimators.classifiers import (
    DANClassifier as DANClassifier, DistPUClassifier as DistPUClassifier,
    ElkanNotoClassifier as ElkanNotoClassifier, NNPUClassifier as NNPUClassifier, SAREMClassifier as SAREMClassifier,
    NaivePUClassifier as NaivePUClassifier, P3MixClassifier as P3MixClassifier,
    PUBaggingClassifier as PUBaggingClassifier, PUBoostingClassifier as PUBoostingClassifier,
    PUForestClassifier as PUForestClassifier, PULogisticClassifier as PULogisticClassifier,
    PUUPLClassifier as PUUPLClassifier, PUbNClassifier as PUbNClassifier, SelfPUClassifier as SelfPUClassifier,
    SplitPUClassifier as SplitPUClassifier, UPUClassifier as UPUClassifier, VPUClassifier as VPUClassifier,
)
from splitpu.evaluation.calibration import PUCalibrator as PUCalibrator
from splitpu.evaluation.metrics import (
    PUEvaluation as PUEvaluation, PUFigure as PUFigure, evaluate_pu as evaluate_pu,
)
from splitpu.evaluation.scikit_learn import (
    PUScorer as PUScorer, PUStratifiedGroupKFold as PUStratifiedGroupKFold, PUStratifiedKFold as PUStratifiedKFold,
    make_pu_scorer as make_pu_scorer, pu_train_test_split as pu_train_test_split,
)
from splitpu.methods.context import (
    Context as Context, KeptWeights as KeptWeights, RowsAside as RowsAside, Student as Student, Teacher as Teacher,
    WarmStart as WarmStart,
)
from splitpu.methods.registry import Method as Method, register as register
from splitpu.methods.split import MethodResult as MethodResult, Round as Round, SplitResult as SplitResult
from splitpu.model import Model as Model, Predictor as Predictor, ScoringNetwork as ScoringNetwork
from splitpu.networks.backbones import Backbone as Backbone
from splitpu.networks.build import NetworkRecipe as NetworkRecipe
from splitpu.networks.custom import as_backbone as as_backbone
from splitpu.networks.pretrained import PretrainedWeights as PretrainedWeights
from splitpu.prior.estimate import (
    EstimatorRow as EstimatorRow, PriorEstimate as PriorEstimate, estimate_prior as estimate_prior,
)
from splitpu.prior.scores import PUScores as PUScores
from splitpu.training import (
    Runtime as Runtime, TrainSpec as TrainSpec, Training as Training, profile_of as profile_of, train as train,
)
from splitpu.views import Views as Views

__all__: list[str]
__version__: str
