"""Figures from truth and scores. A figure that the rows cannot give is None, never NaN."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Figures = dict[str, float | None]


def evaluate_scores(truth: npt.ArrayLike, decision: npt.ArrayLike, prior: float | None = None) -> Figures:
    """Compare scores with the truth (True or 1 = positive); a score above 0 says positive.

    Both the predicted and the true share of positives are among the figures: a model that calls everything positive
    has a perfect recall, and only its positive rate gives it away. With a `prior`, the distance to it comes as well.

    >>> figures = evaluate_scores([1, 1, 0, 0], [2.0, -1.0, -2.0, -3.0], prior=0.5)
    >>> figures["accuracy"], figures["precision"], figures["recall"], figures["roc_auc"], figures["prior_gap"]
    (0.75, 1.0, 0.5, 1.0, -0.25)
    """
    actual = np.asarray(truth) == 1
    scores = np.asarray(decision, dtype=np.float64)
    if actual.shape != scores.shape or actual.ndim != 1:
        raise ValueError(f"truth of shape {actual.shape} and decision of shape {scores.shape} do not match")
    if len(actual) == 0:
        raise ValueError("there are no rows to evaluate")
    called = scores > 0
    hits = int((called & actual).sum())
    figures: Figures = {
        "accuracy": float((called == actual).mean()),
        "f1": _ratio(2 * hits, int(called.sum() + actual.sum())),
        "precision": _ratio(hits, int(called.sum())),
        "recall": _ratio(hits, int(actual.sum())),
        **_ranking(actual, scores),
        "positive_rate": float(called.mean()),
        "true_rate": float(actual.mean()),
    }
    if prior is not None:
        figures["prior_gap"] = float(called.mean()) - prior
    return figures


def finite_or_none(value: Any) -> Any:
    """Replace every NaN and infinity inside nested plain values by None, because JSON knows neither.

    >>> finite_or_none({"loss": float("nan"), "terms": [1.0, float("inf")]})
    {'loss': None, 'terms': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: finite_or_none(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ranking(actual: npt.NDArray[np.bool_], scores: npt.NDArray[np.float64]) -> Figures:
    """What the order of the scores is worth; it takes rows of both classes to say."""
    if actual.all() or not actual.any() or not np.isfinite(scores).all():
        return {"roc_auc": None, "average_precision": None}
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {
        "roc_auc": float(roc_auc_score(actual, scores)),
        "average_precision": float(average_precision_score(actual, scores)),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
