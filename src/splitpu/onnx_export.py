"""A trained model as one ONNX file: raw rows in, probability and decision out; preprocessing and threshold inside."""

import logging
import re
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing, is_scale_of_bytes
from splitpu.errors import InputError, SplitPUError, from_extra
from splitpu.evaluation.calibration import PUCalibrator
from splitpu.learners.learner_networks import LearnerBackbone
from splitpu.methods.frozen_features import FrozenNetwork
from splitpu.model import Model
from splitpu.networks.backbones import folded
from splitpu.networks.custom import without_features
from splitpu.types import Array
from splitpu.utils.files import replacing
from splitpu.utils.torch_state import usual_torch
from splitpu.views import Views

NEEDED = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4
INPUT, PROBABILITY, DECISION = "rows", "probability", "decision"
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # for a terminal, in what the exporter says
_CHECKED_BATCHES = (1, 2, 33)  # the number of rows is free, and not only the one that was traced


@dataclass(frozen=True)
class Exported:
    """What was written, and how closely it follows the model."""

    path: Path
    dtype: str  # of the rows it takes
    shape: tuple[int, ...]  # of one row
    difference: float  # largest difference of a probability from ours, among the rows that were tried


class RawToProbability(nn.Module):
    """Everything between rows as they are stored and the answer."""

    def __init__(
        self, network: nn.Module, preprocessing: Preprocessing, threshold: float, calibration: PUCalibrator | None
    ) -> None:
        super().__init__()
        self.calibrated = CalibrationMap(calibration or PUCalibrator("temperature"))
        self.network, self.threshold = network, threshold
        self.views = Views(preprocessing, ViewsConfig(), "cpu")

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probability of being positive, and whether the model says so."""
        logit = self.network(self.views.plain(rows)).logit
        return self.calibrated(logit.double() - self.threshold)  # type: ignore[no-any-return]


class CalibrationMap(nn.Module):
    """A calibrator as tensors: from decisions in double precision to probabilities and answers.

    The answer does not come from the probability, which is exactly 1/2 for decisions next to the threshold, too."""

    def __init__(self, calibration: PUCalibrator) -> None:
        super().__init__()
        self.slope, self.offset = calibration.slope, calibration.offset
        self.isotonic = calibration.knots is not None and calibration.heights is not None
        for name, values in (("knots", calibration.knots), ("heights", calibration.heights)):
            self.register_buffer(name, torch.tensor([] if values is None else values, dtype=torch.float64))

    def forward(self, decision: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of being positive, and who is called so."""
        if not self.isotonic:
            odds = self.slope * decision + self.offset
            return torch.sigmoid(odds.float()), odds > 0
        knots, heights = self.get_buffer("knots"), self.get_buffer("heights")
        last = len(knots) - 1
        left = (decision[:, None] >= knots).sum(1).sub(1).clamp(0, max(last - 1, 0))
        right = (left + 1).clamp(max=last)
        way = ((decision - knots[left]) / (knots[right] - knots[left]).clamp(min=1e-12)).clamp(0, 1)
        probability = heights[left] + way * (heights[right] - heights[left])
        return probability.float(), probability > 0.5


@usual_torch()
def export_onnx(model: Model, path: Path, *, raw_dtype: str | None = None) -> Exported:
    """Write the final network to an ONNX file, then run the file and compare: a file that differs is not kept.

    `raw_dtype` is that of the rows the file takes; bytes for images whose scaling says they were bytes, else float32,
    or float64 if the model was trained on numbers that float32 cannot tell apart."""
    for name in NEEDED:
        from_extra(name, "onnx", f"exporting to ONNX needs the package {name}")
    if isinstance(model.final.network, FrozenNetwork):
        advice = "pass on the run folder, which holds the pretrained network too, for splitpu predict."
        raise InputError(f"a model on frozen features needs views of every image that ONNX cannot make: {advice}")
    preprocessing = model.preprocessing
    from_bytes = is_scale_of_bytes(preprocessing.offset, preprocessing.scale) and not preprocessing.floats
    stored = "uint8" if preprocessing.kind != "vectors" and from_bytes else "float32"
    dtype = raw_dtype or ("float64" if preprocessing.double else stored)
    network = folded(model.final.network).cpu()  # a copy; learners reckon in double precision throughout
    network = network if isinstance(network, LearnerBackbone) else network.float()
    without_features(network)
    # The exact answer comes from the network as it was trained: folding is checked along with everything else.
    whole, exact = (
        RawToProbability(one, preprocessing, model.final.threshold, model.calibration).eval()
        for one in (network, model.final.network.cpu())
    )
    with replacing(path) as temporary:
        _write(whole, torch.from_numpy(_some_rows(preprocessing, dtype, 2)), temporary)
        difference = _largest_difference(temporary, exact, preprocessing, dtype)
        if not difference <= TOLERANCE:
            far = f"by {difference:.2g} in a probability, more than {TOLERANCE:g}"
            ending = f"{path} was not written, please report this."
            raise SplitPUError(f"the exported network differs from the trained one {far}; {ending}")
    return Exported(path, dtype, preprocessing.shape, difference)


def _write(whole: nn.Module, example: Tensor, path: Path) -> None:
    """Trace the computation into the file, quietly: what the exporter has to say is for its developers."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                whole,
                (example,),
                str(path),
                input_names=[INPUT],
                output_names=[PROBABILITY, DECISION],
                dynamic_shapes={"rows": {0: torch.export.Dim("count", min=1)}},
                dynamo=True,
                external_data=False,  # one file
                verbose=False,
            )
    except OSError:  # a full disk, say, which is put into words by those who lent the file
        raise
    except Exception as error:  # the exporter raises anything at all for what it cannot translate
        raise InputError(f"this network cannot be written as ONNX ({_in_short(error)}).") from error
    finally:
        logging.disable(before)


def _in_short(error: Exception) -> str:
    reason = " ".join(_COLOURS.sub("", str(error)).split())[:200]
    return f"{type(error).__name__}: {reason}"


def _largest_difference(path: Path, exact: nn.Module, preprocessing: Preprocessing, dtype: str) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in _CHECKED_BATCHES:
        rows = _some_rows(preprocessing, dtype, count)
        try:
            found = session.run([PROBABILITY], {INPUT: rows})[0]
        except Exception as error:  # onnxruntime has classes of its own for them
            wrong = f"this network cannot be written as ONNX for any number of rows ({_in_short(error)})"
            raise InputError(f"{wrong}: take the number from batch.shape[0] wherever it is used") from error
        with torch.no_grad():
            probability, _ = exact(torch.from_numpy(rows))
        worst = max(worst, float(np.abs(found - probability.numpy()).max()))
    return worst


def _some_rows(preprocessing: Preprocessing, dtype: str, count: int) -> Array:
    """Rows that the model could have been trained on, by their mean and spread."""
    random = np.random.default_rng(count)
    mean, std = np.asarray(preprocessing.mean), np.asarray(preprocessing.std)
    values = random.normal(size=(count, *preprocessing.shape)) * std + mean
    if preprocessing.kind != "vectors":
        values = values.clip(0, 1) / preprocessing.scale + preprocessing.offset
    rows: Array = values.round().clip(0, 255) if dtype == "uint8" else values
    return rows.astype(dtype)
