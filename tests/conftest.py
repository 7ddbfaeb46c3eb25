"""Fixtures that several files share.

What only some tests need is imported where it is used, so that the others also run where it is not installed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.register_assert_rewrite("cli_tools")  # it asserts on behalf of tests, and its failures should say as much


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
    from splitpu.data import cifar10, download

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
