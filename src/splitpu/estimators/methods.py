"""One classifier for each of the other methods; `splitpu methods` says when to use which."""

from splitpu.estimators.base import PUEstimator


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


class VPUClassifier(PUEstimator):
    """The variational approach: learns without a prior, which only places its threshold. Settings: `vpu`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    >>> y = (X[:, 0] > 0) & (X[:, 1] > 0)
    >>> VPUClassifier(prior=None, config={"vpu.epochs": 2}, random_state=0).fit(X, y).predict(X).shape
    (60,)
    """

    method = "vpu"


class DANClassifier(PUEstimator):
    """A discriminator and an adversary that tells its positives from the labelled ones. Settings: `dan`."""

    method = "dan"


class P3MixClassifier(PUEstimator):
    """Mixes doubtful rows with positives near the border, and corrects labels on the way. Settings: `p3mix`."""

    method = "p3mix"


class NaivePUClassifier(PUEstimator):
    """Takes unlabelled rows for negatives: what every method has to beat. Settings: `base`."""

    method = "naive"
