"""`fit --log tensorboard|mlflow`: the terms of every epoch and the figures of the result, sent to a logger at once.

One observer for all loggers: each of them only has to take a number under a name at a step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from splitpu.engine.stage import EpochRecord, Observer
from splitpu.errors import InputError, MissingExtraError
from splitpu.utils.text import parse_words

Send = Callable[[str, float, int], None]  # a number under a name at a step
FOLDER = "tensorboard"  # in the run folder


class EpochLogger(Observer):
    """Sends what the epochs of a run say; epochs that a checkpoint holds are sent again, under the same steps."""

    def __init__(self, send: Send, close: Callable[[], None] = lambda: None) -> None:
        self._send, self.close = send, close

    def epoch_done(self, record: EpochRecord) -> None:
        """Its terms, its rate, and its agreement where there is one."""
        agreement = {} if record.agreement is None else {"agreement": record.agreement}
        for name, value in {**record.terms, **agreement, "rate": record.rate, "seconds": record.seconds}.items():
            self._send(f"{record.stage}/{name}", float(value), record.epoch)

    def result(self, result: Mapping[str, Any]) -> None:
        """The figures of every model on the test rows, or those estimated from P and U."""
        for model in result["models"]:
            for name, value in {**(model["test"] or {}), "called": model["positive_rate_unlabelled"]}.items():
                if value is not None:
                    self._send(f"result/{_as_key(model['model'])}/{name}", float(value), 0)
        for name, figure in (result.get("figures") or {}).items():
            self._send(f"estimated/{_as_key(name)}", float(figure["value"]), 0)


def _as_key(words: str) -> str:
    """Letters that every logger takes."""
    return "-".join("".join(c if c.isalnum() else " " for c in words).split())


def asked_loggers(names: str) -> Sequence[str]:
    """The loggers that were asked for, with commas between them; refused, before anything is trained, if not there."""
    asked = parse_words(names, "--log", "tensorboard")
    for name in asked:
        if name not in _MAKERS:
            raise InputError(f"--log {name} is not a logger: choose from {', '.join(_MAKERS)}")
        if find_spec(name) is None:
            raise MissingExtraError(f"--log {name} needs it to be installed: pip install 'splitpu[{name}]'.")
    return asked


@contextmanager
def logging_to(names: Sequence[str], run: Path) -> Iterator[list[EpochLogger]]:
    """The loggers of a run, open inside the block."""
    with ExitStack() as closing:
        opened = [_MAKERS[name](run) for name in names]
        for logger in opened:
            closing.callback(logger.close)
        yield opened


def _tensorboard(run: Path) -> EpochLogger:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(run / FOLDER))
    return EpochLogger(writer.add_scalar, writer.close)


def _mlflow(run: Path) -> EpochLogger:
    """Where MLFLOW_TRACKING_URI says; the run is called what its folder is."""
    import mlflow

    mlflow.start_run(run_name=run.name)
    return EpochLogger(lambda name, value, step: mlflow.log_metric(name, value, step=step), mlflow.end_run)


_MAKERS = {"tensorboard": _tensorboard, "mlflow": _mlflow}
