"""The run folder: what is written where, atomically."""

from splitpu.runs.folder import RunFolder
from splitpu.runs.request import Request

__all__ = ["Request", "RunFolder"]
