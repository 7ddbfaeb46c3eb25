"""What a student is taught in every step: all loss terms, and which rows they are of."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from splitpu import losses
from splitpu.config.schema import StudentConfig
from splitpu.engine.rows import joined
from splitpu.engine.stage import Batch
from splitpu.kernels.dispatch import last_rows
from splitpu.kernels.loss_terms import (
    feature_term,
    fused_consistency_applies,
    fused_terms_apply,
    label_terms,
    low_level_term,
)
from splitpu.methods.common import two_layers
from splitpu.methods.context import Teacher
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.views import Views

_PREDICTOR_WIDTH = 512


class StudentTask:
    """All loss terms of the student, over up to three groups of rows.

    Two groups are the easy rows and the labelled positives. The third holds the rows whose two views have to agree
    (`consistent`). Where the views of easy rows have to agree as well, the third group holds only the others (`rest`),
    and one view of an easy row serves both its label and the agreement."""

    def __init__(
        self, network: Backbone, predictor: nn.Module, teacher: Teacher, prior: float, config: StudentConfig
    ) -> None:
        self.module = nn.ModuleDict({"network": network, "predictor": predictor})
        self.network, self.predictor = network, predictor
        self.teacher, self.prior, self.config = teacher.network, prior, config
        # Terms that are not named here are reported only.
        self.weights = {
            "easy": 1.0,
            "positive": config.positive_weight,
            "nnpu_objective": 1.0,
            "low": config.low_weight,
            "prediction": config.alpha,
            "feature": config.beta,
        }
        self._weights: Tensor | None = None
        self._agreeing = ("easy", "rest") if easy_rows_agree(config) else ("consistent",)
        q = teacher.probabilities.float()
        self.labels = q if config.labels == "soft" else (q > 0.5).float()

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for every view of every group, so that all share their batch-norm statistics."""
        # Rows with labels, then the consistent rows in weak views, and these once more in strong ones.
        agreeing = [batch[name].raw for name in self._agreeing if name in batch]
        labelled = [batch[name].raw for name in ("easy", "positives") if name in batch and name not in self._agreeing]
        parts = []
        if self.config.label_views == "strong" and labelled:
            parts.append(views.strong(joined(labelled), generator))
            labelled = []
        if labelled or agreeing:
            parts.append(views.weak(joined([*labelled, *agreeing]), generator))
        if agreeing:
            parts.append(views.strong(joined(agreeing), generator))
        seen = torch.cat(parts)
        outputs = self.network(seen)
        consistent = sum(len(batch[name].rows) for name in self._agreeing if name in batch)
        terms = self._label_terms(batch, self._in_order(batch, outputs.logit, consistent), consistent)
        if consistent:
            terms |= self._feature_terms(outputs, seen, consistent)
        names = [name for name in self.weights if name in terms]
        stacked = torch.stack([terms[name] for name in names])
        if self._weights is None:  # on the device from the first step on: a captured step must not copy anything to it
            shares = {}
            if self.config.label_mean != "apart":  # the two means over rows with labels are to be one over all of them
                groups = {"easy": "easy", "positive": "positives"}  # loss term -> the rows it is of
                sizes = {term: len(batch[group].rows) for term, group in groups.items() if group in batch}
                shares = {term: size / sum(sizes.values()) for term, size in sizes.items()}
            self._weights = stacked.new_tensor([self.weights[name] * shares.get(name, 1.0) for name in names])
        return {"loss": (stacked * self._weights).sum(), **terms}

    def _in_order(self, batch: Mapping[str, Batch], logit: Tensor, consistent: int) -> Tensor:
        """Logits of easy rows, positives, and consistent rows in weak and in strong views, one behind the other."""
        if "easy" not in self._agreeing or "easy" not in batch:
            return logit
        positives, weak, strong = torch.split(logit, [len(logit) - 2 * consistent, consistent, consistent])
        taught = strong if self.config.label_views == "strong" else weak
        return torch.cat([taught[: len(batch["easy"].rows)], positives, weak, strong])

    def _label_terms(self, batch: Mapping[str, Batch], logit: Tensor, consistent: int) -> dict[str, Tensor]:
        """What depends on logits alone: the losses of labels, and the consistency of predictions."""
        sizes = {name: len(batch[name].rows) for name in ("easy", "positives") if name in batch}
        sizes |= {"consistent": consistent, "strong": consistent} if consistent else {}
        kind, config = self.config.hard_loss, self.config
        fused: Mapping[str, Tensor] = {}
        if fused_terms_apply(self.module, logit):
            taught = batch["easy"].rows if "easy" in batch else batch["positives"].rows[:0]
            rho = config.rho if config.easy_loss == "js" else None
            counts = (len(taught), sizes["positives"], consistent)
            fused = label_terms(logit, self.labels, taught, counts, rho=rho, confidence=config.confidence)
        else:
            logit = logit.float()
        logits = dict(zip(sizes, torch.split(logit, list(sizes.values())), strict=True))

        def term(name: str, computed: Callable[[], Tensor]) -> dict[str, Tensor]:
            return {name: fused[name] if name in fused else computed()}

        def easy_loss() -> Tensor:
            labels = self.labels[batch["easy"].rows]
            if config.easy_loss == "js":
                return losses.generalised_jensen_shannon(logits["easy"], labels, config.rho)
            return losses.soft_cross_entropy(logits["easy"], labels)

        def agreement() -> Tensor:
            """How many easy samples the student already decides as their label says."""
            return ((logits["easy"] > 0) == (self.labels[batch["easy"].rows] > 0.5)).float().mean()

        known = logits["positives"]
        terms = term("positive", lambda: losses.soft_cross_entropy(known, torch.ones_like(known)))
        if "easy" in batch:
            terms |= term("easy", easy_loss) | term("agreement", agreement)
        if consistent and kind == "nnpu":
            risk = losses.nnpu_risk(known, logits["consistent"], self.prior)
            terms |= {"nnpu_objective": risk.objective, "nnpu": risk.value}
        if consistent and kind in ("self", "dual"):
            views = logits["consistent"], logits["strong"]
            terms |= term("prediction", lambda: losses.prediction_consistency(*views, confidence=config.confidence))
        return terms

    def _feature_terms(self, outputs: Outputs, seen: Tensor, count: int) -> dict[str, Tensor]:
        """What depends on features of the consistent rows, the last of the batch in both views."""
        kind, fused = self.config.hard_loss, None
        terms: dict[str, Tensor] = {}
        if kind in ("cross", "dual"):
            with torch.no_grad():
                low = self.teacher.low_features(seen[-2 * count :])
            norm = self.config.low_loss == "norm"
            if not norm and fused_consistency_applies(self.module, outputs.low, low):
                # Not where outputs were gathered from elsewhere: then nothing but this term moves them.
                own = self.network.low_gradient_is_own and isinstance(outputs, Outputs)
                fused = low_level_term(outputs.low, low, own_gradient=own)
            if fused is None:
                fused = losses.low_level_consistency(last_rows(outputs.low, len(low)), low, norm=norm)
            terms["low"] = fused
        if kind in ("self", "dual"):
            high = outputs.high[-2 * count :]
            predicted = self.predictor(high)
            fused = feature_term(predicted, high) if fused_consistency_applies(self.module, predicted, high) else None
            terms["feature"] = (
                losses.feature_consistency(*predicted.chunk(2), *high.chunk(2)) if fused is None else fused
            )
        return terms


def feature_predictor(size: int) -> nn.Module:
    """The head that maps one view's feature to the other's."""
    return two_layers(size, _PREDICTOR_WIDTH, size)


def easy_rows_agree(config: StudentConfig) -> bool:
    """Whether the two views of easy rows have to agree as well, not only those of hard rows."""
    return config.consistency == "all" and config.hard_loss != "none"
