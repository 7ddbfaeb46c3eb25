"""Training networks of one's own: what cannot be one is refused in a sentence, and none resumes another's weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from splitpu.config.parse import config_from_dict
from splitpu.config.presets import preset
from splitpu.data.pudata import PUData
from splitpu.errors import InputError
from splitpu.training import Training, train

SETTINGS = {"method": "nnpu", "base": {"epochs": 2, "batch_size": 64}, "engine.threads": 1}
LAYERS = ("0", "1")


@pytest.fixture(scope="module")
def data(vectors: Any) -> PUData:
    return PUData.from_arrays(*vectors[:2])


def trained(data: PUData, backbone: Any, layers: Any = LAYERS, **more: Any) -> Training:
    config = config_from_dict(SETTINGS, preset("default"))
    return train(data, prior=0.5, config=config, backbone=backbone, layers=layers, **more)


def own(activation: type[nn.Module] = nn.ReLU, *, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 1))


def frozen() -> nn.Module:
    return own().requires_grad_(False)


class Weightless(nn.Module):
    def forward(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return batch, batch, batch[:, 0]


@pytest.mark.parametrize("backbone", [None, 3])
def test_what_is_no_network_is_refused(data: PUData, backbone: object) -> None:
    with pytest.raises(InputError, match=rf"backbone={backbone} is not a network: give a name \(auto, mlp, "):
        trained(data, backbone)


@pytest.mark.parametrize("layers", [(0, 1), ("0", "1", "2"), ("0",), "01", 3])
def test_layers_are_two_names(data: PUData, layers: object) -> None:
    with pytest.raises(InputError, match=r"layers=.* does not name two layers: give .* layers=\(\"0\", \"3\"\)"):
        trained(data, own(), layers)
    assert trained(data, own(), ["0", "1"]).model.network_name == "own:Sequential"


def test_layers_of_a_network_of_ours_are_not_asked_for(data: PUData) -> None:
    with pytest.raises(InputError, match=r"layers=\('0', '1'\) is for a network of your own; .* leave layers out"):
        trained(data, "mlp", ("0", "1"))


@pytest.mark.parametrize(
    ("backbone", "layers", "said"),
    [
        (frozen(), LAYERS, "has all its weights frozen"),
        (frozen, LAYERS, "has all its weights frozen"),
        (Weightless(), None, "has no weights"),
    ],
)
def test_a_network_that_cannot_learn_is_refused(data: PUData, backbone: Any, layers: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"your network {said}, so there is nothing to train"):
        trained(data, backbone, layers)


def tanh_by_function() -> nn.Module:
    return own(nn.Tanh)


def relu_by_function() -> nn.Module:
    return own(nn.ReLU)


relu_by_function.__name__ = tanh_by_function.__name__


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: own(), lambda: own(nn.Tanh)),
        (lambda: own(), lambda: own(seed=1)),
        (lambda: relu_by_function, lambda: tanh_by_function),
    ],
)
def test_another_network_of_the_same_name_is_not_taken_up(
    data: PUData, tmp_path: Path, one: Callable[[], Any], other: Callable[[], Any]
) -> None:
    first = trained(data, one(), checkpoints=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1
    again = trained(data, one(), checkpoints=tmp_path)
    assert again.engine.startswith("stored") and torch.equal(again.result.final.logits, first.result.final.logits)
    second, alone = trained(data, other(), checkpoints=tmp_path), trained(data, other())
    assert not second.engine.startswith("stored") and len(list(tmp_path.iterdir())) == 2
    assert torch.equal(second.result.final.logits, alone.result.final.logits)


def test_other_layers_of_the_same_network_are_not_taken_up(data: PUData, tmp_path: Path) -> None:
    trained(data, own(), checkpoints=tmp_path)
    assert not trained(data, own(), ("0", "0"), checkpoints=tmp_path).engine.startswith("stored")


def test_networks_of_the_package_keep_the_keys_of_their_checkpoints(data: PUData, tmp_path: Path) -> None:
    config = config_from_dict(SETTINGS, preset("default"))
    training = train(data, prior=0.5, config=config, checkpoints=tmp_path)
    assert training.model.network_name == "mlp"
    (file,) = tmp_path.iterdir()
    from safetensors import safe_open

    with safe_open(file, framework="pt") as stored:
        assert "own_network" not in stored.metadata()["splitpu"]
