"""What was asked for, in the form that a run folder keeps: enough to ask for the same again."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from splitpu.data.public.download import Progress
from splitpu.data.sources import LoadedData, RowForm, Source, check_still_there, source_from_dict
from splitpu.errors import InputError
from splitpu.prior.estimate import TO_BE_ESTIMATED, ResolvedPrior
from splitpu.types import Watch


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

    def to_json(self) -> str:
        """The text of `request.json`."""
        return json.dumps({**dataclasses.asdict(self), "source": self.source.to_dict()}, indent=2)

    @classmethod
    def from_json(cls, text: str, path: Path) -> "Request":
        """Read `request.json` back; `path` is for the error message."""
        try:
            stored: dict[str, Any] = json.loads(text)
            return cls(**{**stored, "source": source_from_dict(stored["source"])})
        except (json.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} cannot be understood ({error}); start a new run with 'splitpu fit'.") from error


def load_request(
    request: Request, progress: Progress | None = None, watch: Watch | None = None, model: RowForm | None = None
) -> LoadedData:
    """The data of a run that goes on, or of the run that `model` comes from."""
    check_still_there(request.source.paths)
    loaded = request.source.load(model, own_rows=True, progress=progress, watch=watch)
    check_unchanged(loaded, request)
    return loaded


def check_unchanged(loaded: LoadedData, request: Request) -> None:
    """Refuse data that are not those that the run began with."""
    if loaded.data.fingerprint() != request.fingerprint:
        where = request.source.title if request.source.draws_labels else request.source.where
        raise InputError(f"the training data in {where} changed since the run began; restore them or start a new run.")
