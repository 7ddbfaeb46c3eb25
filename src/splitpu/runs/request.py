"""What was asked for, in the form that a run folder keeps: enough to ask for the same again."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitpu.config.schema import Scenario
from splitpu.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the data come from: a .npz file, or a named set of which some positives are labelled."""

    npz: str | None = None  # an absolute path, so that the run can be resumed from anywhere
    named: str | None = None
    positives: int | None = None  # of a named set
    draw_seed: int = 0  # which positives of a named set are labelled
    scenario: Scenario = "single-training-set"

    @property
    def title(self) -> str:
        """The word that stands for the data in folder names and headings.

        >>> Source(npz="/data/cells.npz").title, Source(named="digits", positives=50).title
        ('cells', 'digits')
        """
        return Path(self.npz).stem if self.npz else str(self.named)


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
    keep_checkpoints: bool = False
    prior_estimate: dict[str, Any] | None = None  # what the prior rests on, if it was estimated

    def to_json(self) -> str:
        """The text of `request.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str, path: Path) -> "Request":
        """Read `request.json` back; `path` is for the error message."""
        try:
            stored: dict[str, Any] = json.loads(text)
            return cls(**{**stored, "source": Source(**stored["source"])})
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            raise InputError(f"{path} cannot be understood ({error}); start a new run with 'splitpu fit'.") from error
