"""Training and predicting where the user has set torch up for something else."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from estimator_tools import tiny
from torch import nn

from splitpu.estimators.classifiers import SplitPUClassifier
from splitpu.utils.torch_state import derive_seed, float32_by_default, usual_torch


@contextmanager
def double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SURROUNDINGS = {
    "float64": double_by_default,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "meta": lambda: torch.device("meta"),
}


def state() -> tuple[object, ...]:
    inference, device = torch.is_inference_mode_enabled(), torch.get_default_device()
    return torch.get_default_dtype(), torch.is_grad_enabled(), inference, device


def made() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


@pytest.mark.parametrize("how", [{}, {"backbone": made, "layers": ("0", "1")}])
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_the_users_torch_changes_nothing_and_is_not_changed(vectors: Any, name: str, how: dict[str, Any]) -> None:
    X, s, _ = vectors
    expected = tiny(**how).fit(X, s).predict_proba(X)
    surroundings: AbstractContextManager[object] = SURROUNDINGS[name]()  # type: ignore[operator]
    with surroundings:
        before = state()
        assert np.array_equal(tiny(**how).fit(X, s).predict_proba(X), expected)
        assert state() == before
    assert state() == (torch.float32, True, False, torch.device("cpu"))


@pytest.mark.parametrize("how", [{}, {"backbone": made, "layers": ("0", "1")}])
def test_a_model_is_loaded_in_the_precision_it_was_saved_in(vectors: Any, tmp_path: Any, how: dict[str, Any]) -> None:
    X, s, _ = vectors
    fitted = tiny(**how).fit(X, s)
    fitted.save(tmp_path)
    with double_by_default():
        loaded = SplitPUClassifier.load(tmp_path, **how)
        assert np.array_equal(loaded.decision_function(X), fitted.decision_function(X))


def test_blocks_of_several_threads_overlap() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with usual_torch():
            inside.set()
            leave.wait()

    with double_by_default():
        thread = threading.Thread(target=other)
        with float32_by_default():
            thread.start()
            inside.wait()
        assert torch.get_default_dtype() == torch.float32  # the other one is still at work
        leave.set()
        thread.join()
        assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize("surroundings", list(SURROUNDINGS))
def test_a_model_is_loaded_as_it_was_saved(vectors: Any, tmp_path: Any, surroundings: str) -> None:
    X, s = vectors[:2]
    fitted = tiny(rounds=0, random_state=0).fit(X, s)
    fitted.save(tmp_path / "model")
    with SURROUNDINGS[surroundings]():
        loaded = SplitPUClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.decision_function(X), fitted.decision_function(X))


def test_derive_seed_in_short() -> None:
    assert derive_seed(0, "base", 3) == derive_seed(0, "base", 3) != derive_seed(0, "base", 4)
