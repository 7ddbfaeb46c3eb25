"""Networks: shapes, definitions of low and high, weight counts by hand, and users' own modules."""

import copy
import io

import pytest
import torch
from torch import nn

from splitpu.errors import InputError
from splitpu.networks import (
    FEW_IMAGES,
    Outputs,
    as_backbone,
    build_network,
    choose_network,
)
from splitpu.networks.custom import without_features

IMAGE_NETWORKS = ("cnn-small", "cnn13", "resnet18")
FLAT_NETWORKS = ("mlp", *IMAGE_NETWORKS)  # the one for volumes has tests of its own


def batch_for(input_shape: tuple[int, ...], rows: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn((rows, *input_shape), generator=generator)
    return batch.permute(0, 3, 1, 2) if len(input_shape) == 3 else batch


def check_outputs(network: nn.Module, outputs: Outputs, rows: int) -> None:
    assert isinstance(outputs, Outputs)
    assert outputs.logit.shape == (rows,)
    assert outputs.high.shape == (rows, network.feature_dim)
    assert len(outputs.low) == rows


def weights_in(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# --- the networks by name ---


@pytest.mark.parametrize("name", FLAT_NETWORKS)
@pytest.mark.parametrize("shape", [(8, 8, 1), (9, 13, 3), (28, 28, 1), (33, 32, 4), (1, 1, 2)])
def test_every_network_takes_every_image_size(name, shape):
    network = build_network(name, shape)
    check_outputs(network, network(batch_for(shape)), rows=4)


@pytest.mark.parametrize("features", [1, 37])
def test_mlp_takes_vectors(features):
    network = build_network("mlp", (features,))
    outputs = network(batch_for((features,)))
    check_outputs(network, outputs, rows=4)
    assert outputs.low.shape == (4, 256)
    assert network.feature_dim == 256


@pytest.mark.parametrize("name", FLAT_NETWORKS)
def test_low_high_and_logit_form_one_chain(name):
    """The logit must be a function of high, high of low, low of the input: gradients flow through all of them."""
    network = build_network(name, (8, 8, 3))
    outputs = network(batch_for((8, 8, 3)))
    through = torch.autograd.grad(outputs.logit.sum(), [outputs.high, outputs.low])
    assert all(gradient.abs().sum() > 0 for gradient in through)
    assert (outputs.low >= 0).all()
    assert (outputs.high >= 0).all()


@pytest.mark.parametrize(("name", "channels", "feature_dim"), [("cnn-small", 32, 128), ("cnn13", 96, 1000)])
def test_low_is_the_first_block_at_full_size(name, channels, feature_dim):
    network = build_network(name, (10, 12, 3)).eval()
    batch = batch_for((10, 12, 3))
    convolution, norm, _ = network.first
    expected = torch.relu(norm(convolution(batch)))
    low, high, logit = network(batch)
    assert low.shape == (4, channels, 10, 12)
    assert torch.equal(low, expected)
    assert high.shape == (4, feature_dim)
    assert torch.equal(logit, network.head(high)[:, 0])


def test_cnn13_has_the_papers_layers():
    network = build_network("cnn13", (32, 32, 3))
    convolutions = [part for part in network.modules() if isinstance(part, nn.Conv2d)]
    layout = [(part.out_channels, part.kernel_size[0], part.stride[0]) for part in convolutions]
    assert layout == [
        (96, 3, 1),
        (96, 3, 1),
        (96, 3, 2),
        (192, 3, 1),
        (192, 3, 1),
        (192, 3, 2),
        (192, 3, 1),
        (192, 1, 1),
        (10, 1, 1),
    ]
    widths = [3, 96, 96, 96, 192, 192, 192, 192, 192, 10]
    kernels = [9] * 7 + [1] * 2
    convolved = sum(kernels[i] * widths[i] * widths[i + 1] for i in range(9))
    normalised = 2 * sum(widths[1:])
    linear = (640 * 1000 + 1000) + (1000 * 1000 + 1000) + (1000 + 1)
    assert weights_in(network) == convolved + normalised + linear == 3_013_997


def test_resnet18_has_the_usual_weight_names_and_shapes():
    network = build_network("resnet18", (64, 64, 3))
    expected: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), "fc.weight": (1, 512), "fc.bias": (1,)}
    norms = {"bn1": 64}
    inputs = 64
    for layer, width in enumerate([64, 128, 256, 512], start=1):
        for block in range(2):
            prefix = f"layer{layer}.{block}"
            expected[f"{prefix}.conv1.weight"] = (width, inputs, 3, 3)
            expected[f"{prefix}.conv2.weight"] = (width, width, 3, 3)
            norms |= {f"{prefix}.bn1": width, f"{prefix}.bn2": width}
            if inputs != width:
                expected[f"{prefix}.downsample.0.weight"] = (width, inputs, 1, 1)
                norms[f"{prefix}.downsample.1"] = width
            inputs = width
    for name, width in norms.items():
        expected |= {f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")}
        expected[f"{name}.num_batches_tracked"] = ()
    assert {name: tuple(value.shape) for name, value in network.state_dict().items()} == expected
    assert weights_in(network) - weights_in(network.fc) == 11_176_512


@pytest.mark.parametrize(("side", "low_side"), [(32, 32), (63, 63), (64, 32)])
def test_resnet18_stem_keeps_the_size_of_small_images(side, low_side):
    network = build_network("resnet18", (side, side, 3)).eval()
    batch = batch_for((side, side, 3), rows=2)
    with torch.no_grad():
        low, high, logit = network(batch)
        assert low.shape == (2, 64, low_side, low_side)
        assert torch.equal(low, torch.relu(network.bn1(network.conv1(batch))))
        pooled = nn.functional.max_pool2d(low, 3, stride=2, padding=1) if side >= 64 else low
        last = network.layer4(network.layer3(network.layer2(network.layer1(pooled))))
    torch.testing.assert_close(high, last.mean(dim=(2, 3)))
    torch.testing.assert_close(logit, network.fc(high)[:, 0])


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_memory_layout_does_not_change_the_result(name):
    network = build_network(name, (16, 16, 3)).eval()
    batch = batch_for((16, 16, 3))
    assert batch.is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        ours, theirs = network(batch), network(batch.contiguous())
    torch.testing.assert_close(ours.logit, theirs.logit, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.high, theirs.high, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FLAT_NETWORKS)
def test_half_precision_trains(name):
    network = build_network(name, (8, 8, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = network(batch_for((8, 8, 3)))
    check_outputs(network, outputs, rows=4)
    outputs.logit.float().mean().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in network.parameters())


@pytest.mark.parametrize("name", FLAT_NETWORKS)
def test_weights_come_from_the_global_seed(name):
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([weight.flatten() for weight in build_network(name, (8, 8, 1)).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


# --- choosing and refusing ---


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((30,), "mlp"),
        ((8, 8, 1), "cnn-small"),
        ((23, 23, 3), "cnn-small"),
        ((24, 24, 3), "cnn13"),
        ((48, 48, 3), "cnn13"),
        ((49, 32, 3), "resnet18"),
    ],
)
def test_auto_goes_by_the_shape(shape, name):
    assert choose_network(shape) == name
    assert type(build_network("auto", shape)) is type(build_network(name, shape))


@pytest.mark.parametrize(("rows", "name"), [(FEW_IMAGES - 1, "cnn-small"), (FEW_IMAGES, "cnn13"), (60_000, "cnn13")])
def test_auto_takes_the_small_network_for_few_small_images(rows, name):
    assert choose_network((32, 32, 3), rows) == name
    assert choose_network((64, 64, 3), rows) == "resnet18"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"'resnet50'.*did you mean 'resnet18'"):
        build_network("resnet50", (32, 32, 3))
    with pytest.raises(InputError, match="did you mean 'cnn13'"):
        build_network("cnn-13", (32, 32, 3))


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_image_networks_refuse_vectors(name):
    with pytest.raises(InputError, match=f"'{name}' needs images.*use 'mlp'"):
        build_network(name, (12,))


# --- users' own modules ---


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
