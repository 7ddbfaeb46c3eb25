"""The scikit-learn face: one classifier a method, each of which fits, predicts, clones, searches and pickles."""

from splitpu.estimators.base import PUEstimator as PUEstimator
from splitpu.estimators.classifiers import DANClassifier as DANClassifier
from splitpu.estimators.classifiers import DistPUClassifier as DistPUClassifier
from splitpu.estimators.classifiers import ElkanNotoClassifier as ElkanNotoClassifier
from splitpu.estimators.classifiers import NaivePUClassifier as NaivePUClassifier
from splitpu.estimators.classifiers import NNPUClassifier as NNPUClassifier
from splitpu.estimators.classifiers import P3MixClassifier as P3MixClassifier
from splitpu.estimators.classifiers import PUBaggingClassifier as PUBaggingClassifier
from splitpu.estimators.classifiers import PUbNClassifier as PUbNClassifier
from splitpu.estimators.classifiers import PUBoostingClassifier as PUBoostingClassifier
from splitpu.estimators.classifiers import PUForestClassifier as PUForestClassifier
from splitpu.estimators.classifiers import PULogisticClassifier as PULogisticClassifier
from splitpu.estimators.classifiers import PUUPLClassifier as PUUPLClassifier
from splitpu.estimators.classifiers import RoundSummary as RoundSummary
from splitpu.estimators.classifiers import SelfPUClassifier as SelfPUClassifier
from splitpu.estimators.classifiers import SplitPUClassifier as SplitPUClassifier
from splitpu.estimators.classifiers import UPUClassifier as UPUClassifier
from splitpu.estimators.classifiers import VPUClassifier as VPUClassifier
