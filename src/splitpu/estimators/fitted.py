"""What a fitted classifier answers, however it was fitted."""

from typing import Any, Literal

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from splitpu.data.features import Channels, refuse_masked_entries
from splitpu.data.frames import refuse_columns_without_numbers
from splitpu.data.table_frames import rows_for_table_model
from splitpu.estimators.inputs import has_image_axes, still_on_disk
from splitpu.models import Model
from splitpu.predictor import Array, Predictor, Scores
from splitpu.tensors import readable_tensor


class FittedClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that has a model once it is fitted or loaded."""

    model_: Model
    classes_: Array
    device: str
    channels: Channels

    def decision_function(self, X: Any) -> Scores:
        """How clearly each row belongs to `classes_[1]`: a logit, zero at the threshold.

        As everywhere in scikit-learn, this is the label later in sorted order. Where `pos_label_` is the other one,
        turn the sign for `evaluate_pu`, which wants decisions above 0 to mean positive.
        """
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
        if (self.model_.inputs or {}).get("kind") == "table":
            X = rows_for_table_model(self.model_.inputs or {}, X)
        refuse_columns_without_numbers(X)
        refuse_masked_entries(X, "X")
        return still_on_disk(X, validate_data(self, X, reset=False))

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
