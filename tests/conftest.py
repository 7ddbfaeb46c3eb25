"""Fixtures that several files share.

What only some tests need is imported where it is used, so that the others also run where it is not installed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from splitpu.data.pudata import HeldOut, PUData
    from splitpu.methods.split import MethodResult

# They assert on behalf of tests, and their failures should say as much.
pytest.register_assert_rewrite("cli_tools", "network_tools")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, whose folder is not there yet."""
    folder = tmp_path_factory.mktemp("own") / "cache"
    monkeypatch.setenv("SPLITPU_CACHE", str(folder))
    return folder


@pytest.fixture
def offline(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, no data elsewhere, and no way out of this machine."""
    from splitpu.data.public import cifar10, download

    monkeypatch.delenv("SPLITPU_DATA", raising=False)
    monkeypatch.setattr(cifar10, "BINARY_URL", (tmp_path / "no-such-archive").as_uri())
    monkeypatch.setattr(download.shutil, "which", lambda name: None)


@pytest.fixture(scope="session")
def vectors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two clouds; half of the positive one is labelled."""
    random = np.random.default_rng(0)
    truth = random.random(200) < 0.5
    X = random.normal(size=(200, 4)).astype(np.float32) + 3 * truth[:, None].astype(np.float32)
    return X, (truth & (random.random(200) < 0.5)).astype(int), truth


@pytest.fixture(scope="session")
def images() -> tuple[np.ndarray, np.ndarray]:
    """Small noisy colour images as bytes, the positive ones brighter on the left."""
    random = np.random.default_rng(1)
    truth = random.random(60) < 0.5
    pixels = random.integers(0, 150, size=(60, 8, 8, 3))
    pixels[truth, :, :4] += 100
    return pixels.astype(np.uint8), (truth & (random.random(60) < 0.6)).astype(int)


@pytest.fixture(scope="session")
def fitted(vectors: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Any:
    """A classifier that learned the vectors in two rounds."""
    from estimator_tools import quick

    X, s, _ = vectors
    return quick(rounds=2).fit(X, s)


@pytest.fixture
def tiny_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are gone through in so small parts that even those of tests have several."""
    from splitpu.utils import arrays as chunks

    monkeypatch.setattr(chunks, "VALUES_PER_CHUNK", 50)


@pytest.fixture(scope="session")
def hundred_digits() -> "tuple[PUData, HeldOut, float]":
    """Even digits against odd ones, 100 of them labelled: to learn from, to test on, and the true prior."""
    from splitpu.data.public.datasets import load_named
    from splitpu.data.public.named_set import make_pu, true_prior

    named = load_named("digits")
    return *make_pu(named, 100, seed=0), true_prior(named)


@pytest.fixture(scope="session")
def few_digits(hundred_digits: "tuple[PUData, HeldOut, float]") -> "PUData":
    """Some of the digits, for everything that is not about learning."""
    from splitpu.data.pudata import PUData

    data = hundred_digits[0]
    chosen = np.r_[data.positives[:40], data.unlabelled[:260]]
    assert data.truth is not None
    return PUData.from_arrays(data.features[chosen], data.labelled[chosen], truth=data.truth[chosen], channels="last")


@pytest.fixture(scope="session")
def usual() -> "MethodResult":
    """What Split-PU finds with the quick settings of `splitpu_tools`."""
    from splitpu_tools import run

    return run()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over tiny vectors, beside its data; every file has its own."""
    from cli_tools import fit_tiny

    return fit_tiny(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def compared_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows for comparisons."""
    from compare_tools import write_overlapping

    return write_overlapping(tmp_path_factory.mktemp("data") / "rows.npz")


@pytest.fixture(scope="module")
def compared(compared_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison; every file has its own."""
    from compare_tools import compare_tiny

    return compare_tiny(compared_rows, tmp_path_factory.mktemp("compared") / "all")
