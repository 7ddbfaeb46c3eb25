"""The networks by name: shapes, definitions of low and high, weight counts by hand, and which one is chosen."""

import pytest
import torch
from network_tools import batch_for, check_outputs
from torch import nn

from splitpu.errors import InputError
from splitpu.networks.build import FEW_IMAGES, build_network, choose_network

IMAGE_NETWORKS = ("cnn-small", "cnn13", "resnet18")
FLAT_NETWORKS = ("mlp", *IMAGE_NETWORKS)  # the one for volumes has tests of its own


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
