"""Users' own modules as networks: three outputs taken as they are, or layers tapped by name.

Training networks of one's own: what cannot be one is refused in a sentence, and none resumes another's weights.
"""

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from network_tools import batch_for, check_outputs
from torch import nn

from splitpu.config.parse import config_from_dict
from splitpu.config.presets import preset
from splitpu.data.pudata import PUData
from splitpu.errors import InputError
from splitpu.networks.build import build_network
from splitpu.networks.custom import as_backbone, without_features
from splitpu.training import Runtime, Training, TrainSpec, train


class OwnTuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.second = nn.Linear(5, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        low = self.first(batch).relu()
        high = self.second(low).relu()
        return low, high, self.head(high)


class OwnLogit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(6, 7, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(28, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(batch)).flatten(1)).squeeze(1)


class Returns(nn.Module):
    """A module that returns whatever a function makes of its batch."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.inner = nn.Identity()

    def forward(self, batch: torch.Tensor):
        return self.function(self.inner(batch))


def test_a_module_that_returns_three_is_taken_as_it_is():
    own = OwnTuple()
    backbone = as_backbone(own, (6,))
    batch = batch_for((6,))
    outputs = backbone(batch)
    check_outputs(backbone, outputs, rows=4)
    assert backbone.feature_dim == 4
    for ours, theirs in zip(outputs[:2], own(batch)[:2], strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(outputs.logit, own(batch)[2][:, 0])


def test_named_layers_are_tapped():
    own = OwnLogit().eval()
    backbone = as_backbone(own, (9, 11, 3), low="stem", high="body.2").eval()
    batch = batch_for((9, 11, 3))
    outputs = backbone(batch)
    check_outputs(backbone, outputs, rows=4)
    assert backbone.feature_dim == 28
    assert torch.equal(outputs.low, own.stem(batch))
    assert torch.equal(outputs.high, own.body(own.stem(batch)).flatten(1))
    assert torch.equal(outputs.logit, own(batch))
    outputs.low.sum().backward()
    assert own.stem[0].weight.grad is not None


def test_no_hook_stays_behind():
    own = OwnLogit()
    backbone = as_backbone(own, (9, 9, 3), low="stem", high="body")
    backbone(batch_for((9, 9, 3)))
    with pytest.raises(RuntimeError):
        backbone(torch.zeros(2, 5, 9, 9))
    assert not any(part._forward_hooks for part in backbone.modules())


def test_a_deep_copy_is_tapped_at_its_own_layers():
    backbone = as_backbone(OwnLogit(), (9, 9, 3), low="stem", high="body").eval()
    batch = batch_for((9, 9, 3))
    before = backbone(batch)
    twin = copy.deepcopy(backbone)
    with torch.no_grad():
        for weight in twin.parameters():
            weight.mul_(2.0)
    assert torch.equal(backbone(batch).low, before.low)
    assert torch.equal(twin(batch).low, twin.module.stem(batch))
    assert not torch.equal(twin(batch).low, before.low)


def test_a_tapped_module_survives_saving_whole():
    backbone = as_backbone(OwnLogit(), (9, 9, 3), low="stem", high="body").eval()
    file = io.BytesIO()
    torch.save(backbone, file)
    file.seek(0)
    back = torch.load(file, weights_only=False)
    batch = batch_for((9, 9, 3))
    assert back.feature_dim == backbone.feature_dim
    for ours, theirs in zip(back(batch), backbone(batch), strict=True):
        assert torch.equal(ours, theirs)


def test_the_dry_run_leaves_no_trace():
    own = OwnLogit()
    own.stem[1].eval()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    flags = [part.training for part in own.modules()]
    state = torch.get_rng_state()
    as_backbone(own, (9, 9, 3), low="stem", high="body")
    assert [part.training for part in own.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in own.state_dict().items():
        assert torch.equal(value, before[name])


def test_our_own_networks_pass_through():
    network = build_network("mlp", (6,))
    assert as_backbone(network, (6,)) is network


def test_a_wrong_layer_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"no layer 'body.5': did you mean 'body.\d'"):
        as_backbone(OwnLogit(), (9, 9, 3), low="stem", high="body.5")
    with pytest.raises(InputError, match="it has none inside"):
        as_backbone(nn.Linear(6, 1), (6,), low="a", high="b")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: batch[:, 0], "not .low, high, logit.*layers="),
        (lambda batch: (batch, batch), "a tuple of 2, not .low, high, logit"),
        (lambda batch: (batch, batch, batch), r"logit .* shape \(2, 6\).*\(2,\) or \(2, 1\)"),
        (lambda batch: (batch, batch, batch.mean()), "logit"),
        (lambda batch: (batch, batch[0], batch[:, 0]), "high features"),
        (lambda batch: (None, batch, batch[:, 0]), "low features .* a NoneType"),
        (lambda batch: batch @ torch.zeros(5, 5), "cannot process a batch of shape .2, 6."),
    ],
)
def test_wrong_outputs_are_refused(function, message):
    with pytest.raises(InputError, match=message):
        as_backbone(Returns(function), (6,))


def test_one_layer_under_two_names_is_low_at_first_and_high_at_last():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.head = nn.Linear(6, 6), nn.Linear(6, 1)
            self.b = self.a

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.head(self.b(self.a(batch)))

    own, batch = Tied(), batch_for((6,))
    outputs = as_backbone(own, (6,), low="a", high="b")(batch)
    assert torch.equal(outputs.low, own.a(batch)) and torch.equal(outputs.high, own.a(own.a(batch)))


@pytest.mark.parametrize(("change", "kind"), [(nn.Module.double, "float64"), (nn.Module.half, "float16")])
def test_another_precision_is_not_taken_for_another_shape(change, kind):
    with pytest.raises(InputError, match=rf"its weights are {kind}.*call .float\(\) on it"):
        as_backbone(change(OwnTuple()), (6,))


def test_what_is_no_module_is_said_to_be_none():
    with pytest.raises(InputError, match=r"your network is a int: give a torch\.nn\.Module"):
        as_backbone(3, (6,))


def test_the_logit_alone_is_the_same_logit():
    batch = batch_for((6,))
    tapped = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 1))
    for backbone in (as_backbone(OwnTuple(), (6,)), as_backbone(tapped, (6,), low="0", high="0")):
        before = backbone(batch).logit
        without_features(backbone)
        assert torch.equal(backbone(batch).logit, before)


def test_taps_are_refused_when_they_cannot_work():
    with pytest.raises(InputError, match="'unused' of your network takes no part"):
        as_backbone(OwnLogit(), (9, 9, 3), low="stem", high="unused")
    with pytest.raises(InputError, match="high= too"):
        as_backbone(OwnLogit(), (9, 9, 3), low="stem")
    with pytest.raises(InputError, match="the logit of your network is a tuple of 3"):
        as_backbone(OwnTuple(), (6,), low="first", high="second")


SETTINGS = {"method": "nnpu", "base": {"epochs": 2, "batch_size": 64}, "engine.threads": 1}
LAYERS = ("0", "1")


@pytest.fixture(scope="module")
def data(vectors: Any) -> PUData:
    return PUData.from_arrays(*vectors[:2])


def trained(data: PUData, backbone: Any, layers: Any = LAYERS, **more: Any) -> Training:
    config = config_from_dict(SETTINGS, preset("default"))
    return train(data, TrainSpec(prior=0.5, config=config, backbone=backbone, layers=layers), Runtime(**more))


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
    training = train(data, TrainSpec(prior=0.5, config=config), Runtime(checkpoints=tmp_path))
    assert training.model.network_name == "mlp"
    (file,) = tmp_path.iterdir()
    from safetensors import safe_open

    with safe_open(file, framework="pt") as stored:
        assert "own_network" not in stored.metadata()["splitpu"]
