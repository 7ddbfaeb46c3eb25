"""Device memory that is too small, for real: rows stay on the host, steps do not fit. Skipped without a GPU."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from splitpu import InputError, preset, train
from splitpu.config.parse import apply_overrides
from splitpu.data.pudata import PUData
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.training import Runtime, Training, TrainSpec

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

ROWS, SIDE = 1024, 32
# In float32 and without a graph, so that two ways to compute can be compared number by number.
EXACT = ["engine.precision=fp32", "engine.capture=off", "method=nnpu", "base.epochs=3", "base.batch_size=512"]


class RowByRow(Backbone):
    """No batch norm: its rows may go through in pieces. Wide, so that activations are what fills the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_dim = 8
        self.first = nn.Conv2d(3, 96, 3, padding=1)
        self.second = nn.Sequential(nn.ReLU(), nn.Conv2d(96, 96, 3, padding=1), nn.ReLU(), nn.Conv2d(96, 8, 3))
        self.head = nn.Linear(8, 1)

    def forward(self, batch: Tensor) -> Outputs:
        low = self.first(batch)
        high = self.second(low).mean((2, 3))
        return Outputs(low.mean((2, 3)), high, self.head(high).squeeze(1))


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (ROWS, SIDE, SIDE, 3), dtype=np.uint8)


@pytest.fixture
def room() -> Iterator[None]:
    """Whatever a test takes away of the device's memory is given back."""
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def trained(images: np.ndarray, backbone: str | type[Backbone], *settings: str) -> Training:
    data = PUData.from_arrays(images, np.arange(ROWS) % 8 == 0, channels="last")
    config = apply_overrides(preset("default"), [*EXACT, *settings])
    torch.manual_seed(0)
    return train(data, TrainSpec(prior=0.4, config=config, seed=0, backbone=backbone), Runtime(device="cuda"))


def losses(training: Training) -> list[float]:
    return [record.terms["loss"] for record in training.result.history]


def leave(share: float, of_bytes: int) -> None:
    """Let torch have that share of what a training took at its peak, and no more."""
    gc.collect()
    torch.cuda.empty_cache()
    wanted = torch.cuda.memory_allocated() + share * of_bytes
    torch.cuda.set_per_process_memory_fraction(wanted / torch.cuda.get_device_properties(0).total_memory)


def peak_of(images: np.ndarray, backbone: str | type[Backbone]) -> tuple[Training, int]:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    training = trained(images, backbone)
    return training, torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("kind", ["array", "file"])
def test_rows_streamed_through_pinned_memory_train_as_resident_ones(
    images: np.ndarray, kind: str, tmp_path: Path
) -> None:
    rows = images
    if kind == "file":
        np.save(tmp_path / "rows.npy", images)
        rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    resident, streamed = trained(images, "cnn-small"), trained(rows, "cnn-small", "engine.residence=host")
    assert resident.engine.startswith("eager/fp32/resident")
    assert streamed.engine.startswith("eager/fp32/streamed")
    assert losses(streamed) == pytest.approx(losses(resident), rel=1e-4)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(("backbone", "way"), [(RowByRow, "pieces"), ("cnn13", "activations on host")])
def test_a_step_that_does_not_fit_is_taken_in_less_memory(
    images: np.ndarray, backbone: str | type[Backbone], way: str
) -> None:
    whole, peak = peak_of(images, backbone)
    leave(0.6, peak)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        lighter = trained(images, backbone)
    assert way in lighter.engine
    assert any("ran out of memory in stage base: it continues more slowly" in str(one.message) for one in heard)
    assert losses(lighter) == pytest.approx(losses(whole), rel=1e-3)


@pytest.mark.usefixtures("room")
def test_where_nothing_fits_one_sentence_says_what_to_lower(images: np.ndarray) -> None:
    _, peak = peak_of(images, "cnn13")
    leave(0.02, peak)
    with pytest.raises(InputError, match=r"ran out of memory .*: lower|do not fit on"):
        trained(images, "cnn13")
