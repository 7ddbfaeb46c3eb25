"""What was asked for, in the form that a run folder keeps: enough to ask for the same again."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from splitpu.data.public.download import Progress
from splitpu.data.sources import LoadedData, RowForm, Source, check_still_there, source_from_dict
from splitpu.errors import InputError
from splitpu.prior.estimate import TO_BE_ESTIMATED, ResolvedPrior
from splitpu.types import Watch
from splitpu.utils.reading import Guarded, checked


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything a run depends on besides its configuration."""

    source: Source
    fingerprint: str  # of the training data
    prior: float | None  # None if the method does without
    preset: str
    backbone: str
    seed: int
    device: str  # as chosen, not "auto": a checkpoint is only good for the kind of device it was made on
    precision: Literal["fp32", "bf16"]  # as chosen, too
    form: str = ""  # a checksum of the data's columns, names and classes, and of the test rows
    keep_checkpoints: bool = False
    prior_source: str = "given"  # in words, or that it is to be estimated
    prior_estimate: dict[str, Any] | None = None  # what the prior rests on, if it was estimated
    doubts: list[str] = field(default_factory=list)  # told when the prior was settled
    weights: dict[str, Any] | None = None  # the file that the network starts from: path, checksum, what was loaded

    @property
    def prior_is_open(self) -> bool:
        """Whether the prior has yet to be estimated, which is the first stage of the run."""
        return self.prior_source == TO_BE_ESTIMATED

    def with_prior(self, found: ResolvedPrior) -> "Request":
        """The same run with its prior known."""
        doubts = list(found.doubts)
        return dataclasses.replace(
            self, prior=found.value, prior_source=found.source, prior_estimate=found.to_dict(), doubts=doubts
        )

    @property
    def prior_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of a prior that was estimated."""
        if self.prior_estimate is None:
            return None
        low, high = self.prior_estimate["interval"]
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """The content of `request.json`."""
        return {**dataclasses.asdict(self), "source": self.source.to_dict()}

    def settled(self) -> dict[str, Any]:
        """What never changes of it, by which the configuration beside it is known to belong to it."""
        later = ("prior", "prior_source", "prior_estimate", "doubts")
        return {name: value for name, value in self.to_dict().items() if name not in later}

    @classmethod
    def read(cls, path: Path) -> "Request":
        """Read `request.json` back."""
        guarded = Guarded(path, "copy the run folder again, or start a new run with 'splitpu fit'")
        stored = guarded.sealed()
        with guarded.understood():
            for name, kind in get_type_hints(cls).items():
                checked(stored[name], dict[str, Any] if name == "source" else kind, name)
            request = cls(**{**stored, "source": source_from_dict(stored["source"])})
            checked(request.prior_interval, tuple[float, float] | None, "prior_estimate")
            return request


def load_request(
    request: Request, progress: Progress | None = None, watch: Watch | None = None, model: RowForm | None = None
) -> LoadedData:
    """The data of a run that goes on, or of the run that `model` comes from."""
    check_still_there(request.source.paths)
    loaded = request.source.load(model, own_rows=True, progress=progress, watch=watch).answered(request.source.answers)
    check_unchanged(loaded, request, form=model is None)
    return loaded


def check_unchanged(loaded: LoadedData, request: Request, *, form: bool = True) -> None:
    """Refuse data that are not those that the run began with; those in the form of a model may be described anew."""
    same = loaded.data.fingerprint() == request.fingerprint
    if not same or (form and request.form not in ("", loaded.form())):
        where = request.source.title if request.source.draws_labels else request.source.where
        what = "names, columns, classes or test rows of the data" if same else "training data"
        raise InputError(f"the {what} in {where} changed since the run began; restore them or start a new run.")
