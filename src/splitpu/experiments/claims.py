"""Which units this process works on, so that others with the same cache leave them alone."""

import hashlib
from contextlib import ExitStack
from pathlib import Path

from splitpu.experiments.units import Unit
from splitpu.files import disk_errors_in_words
from splitpu.locks import Taken, held_alone


class Claims:
    """Lock files beside the stages: whoever shares those shares the work."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "claims"

    def take(self, unit: Unit) -> ExitStack | None:
        """Hold the unit until the stack is closed; None if another process has it."""
        name = hashlib.sha256(unit.work_key.encode()).hexdigest()[:32]
        claim = ExitStack()
        try:
            with disk_errors_in_words(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                claim.enter_context(held_alone(self._folder / name))
        except Taken:
            return None
        return claim
