"""Users' own modules as networks: three outputs taken as they are, or layers tapped by name."""

import copy
import io

import pytest
import torch
from network_tools import batch_for, check_outputs
from torch import nn

from splitpu.errors import InputError
from splitpu.networks.build import build_network
from splitpu.networks.custom import as_backbone, without_features


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
