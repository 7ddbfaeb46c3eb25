"""The networks by name: shapes, definitions of low and high, weight counts by hand, and which one is chosen.

Volumes as arrays: their form, their views, the network over slices, and that filling up changes nothing.
"""

import numpy as np
import pytest
import torch
from network_tools import batch_for, check_outputs
from torch import nn
from volume_tools import volumes

from splitpu import SplitPUClassifier
from splitpu.config.presets import DataProfile, preset
from splitpu.config.schema import ViewsConfig
from splitpu.data.features import canonical_features
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.errors import InputError
from splitpu.networks.backbones import (
    ResNet18,
    SlicesResNet18,
    draw_kaiming_weights,
    folded,
    masked_mean,
    member_count,
    network_input_shape,
    stand_ins,
)
from splitpu.networks.build import (
    FEW_IMAGES,
    build_network,
    choose_network,
    chosen_backbone,
    network_names,
    network_recipe,
)
from splitpu.networks.pretrained import PretrainedWeights
from splitpu.onnx_export import export_onnx
from splitpu.views import Views

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


SHAPE = (5, 16, 16, 1)


def filled_up(raw: np.ndarray, slices: int) -> np.ndarray:
    """The same volumes with more slices of zeros."""
    room = np.zeros((len(raw), slices, *raw.shape[2:]), raw.dtype)
    room[:, : raw.shape[1]] = raw
    return room


def some_volumes(count: int = 6, slices: int = 5) -> np.ndarray:
    return volumes(np.arange(count) % 2 == 0, slices=slices, side=16, seed=1)


def test_five_axes_are_volumes_and_others_are_refused() -> None:
    data = PUData.from_arrays(some_volumes(), [1, 1, 0, 0, 0, 0])
    assert data.kind == "volumes" and data.features.dtype == np.uint8
    with pytest.raises(InputError, match=r"\(n, S, H, W, C\)"):
        canonical_features(np.zeros((2, 1, 5, 16, 16)))


def test_slices_that_are_not_there_have_no_say_in_the_statistics() -> None:
    raw = some_volumes()
    plain, longer = Preprocessing.fit(raw), Preprocessing.fit(filled_up(raw, 12))
    assert (plain.mean, plain.std, plain.scale) == (longer.mean, longer.std, longer.scale)
    assert plain.mean[0] == pytest.approx(raw.mean() / 255) and plain.std[0] == pytest.approx(raw.std() / 255)
    plain.check(filled_up(raw, 12))  # more slices than in training are welcome
    with pytest.raises(InputError, match="without a slice"):
        Preprocessing.fit(np.zeros_like(raw))


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_all_slices_of_a_volume_share_its_draws(kind: str) -> None:
    one = some_volumes(8, slices=1)
    same = np.repeat(one, 4, axis=1)  # four equal slices stay equal exactly if they are treated alike
    config = ViewsConfig(rotation=20.0, zoom=0.1, cutout=0.4)
    views = Views(Preprocessing.fit(same), config, "cpu")
    seen = getattr(views, kind)(torch.from_numpy(same), torch.Generator().manual_seed(0))
    assert seen.shape == (8, 4, 2, 16, 16)
    assert torch.equal(seen, seen[:, :1].expand_as(seen))
    assert not torch.equal(seen[0], seen[2])  # patients draw for themselves


def test_cutout_blanks_the_same_square_in_every_slice() -> None:
    raw = np.full((3, 4, 16, 16, 1), 200, np.uint8)
    raw[0, 0, 0, 0] = 100  # some spread
    config = ViewsConfig(crop_padding=0.0, flip=False, brightness=0.0, contrast=0.0, cutout=0.5)
    seen = Views(Preprocessing.fit(raw), config, "cpu").strong(torch.from_numpy(raw), torch.Generator().manual_seed(1))
    blank = seen[:, :, 0] == 0
    assert (blank.sum(dim=(2, 3)) > 0).all() and torch.equal(blank, blank[:, :1].expand_as(blank))


def test_views_say_which_slices_are_there() -> None:
    raw = filled_up(some_volumes(slices=3), 5)
    views = Views(Preprocessing.fit(raw), ViewsConfig(rotation=10.0), "cpu")
    for seen in (views.plain(torch.from_numpy(raw)), views.strong(torch.from_numpy(raw), torch.Generator())):
        assert (seen[:, :3, 1] == 1).all() and (seen[:, 3:] == 0).all()


def test_filling_up_changes_nothing_outside_training() -> None:
    raw = some_volumes()
    views = Views(Preprocessing.fit(raw), ViewsConfig(), "cpu")
    torch.manual_seed(0)
    network = SlicesResNet18(SHAPE).eval()
    with torch.no_grad():
        short = network(views.plain(torch.from_numpy(raw)))
        longer = network(views.plain(torch.from_numpy(filled_up(raw, 9))))
        fast = folded(network)(views.plain(torch.from_numpy(raw)))
    assert torch.allclose(short.logit, longer.logit, atol=1e-5) and torch.allclose(short.high, longer.high, atol=1e-5)
    assert torch.allclose(short.low, longer.low[:, :5], atol=1e-6) and (longer.low[:, 5:] == 0).all()
    assert short.low.shape[:3] == (6, 5, 64) and short.high.shape == (6, 512)
    assert torch.allclose(short.logit, fast.logit, atol=1e-4)
    assert torch.allclose(network.low_features(views.plain(torch.from_numpy(raw))), short.low, atol=1e-6)


def test_batch_norm_sees_real_slices_only() -> None:
    """Twice as many places, half of them empty: every slice is seen twice, so the statistics are the same."""
    raw = some_volumes()
    views = Views(Preprocessing.fit(raw), ViewsConfig(), "cpu")
    statistics = []
    for rows in (raw, filled_up(raw, 10)):
        torch.manual_seed(0)
        network = SlicesResNet18(SHAPE).train()
        outputs = network(views.plain(torch.from_numpy(rows)))
        statistics.append((network.encoder.layer4[1].bn2.running_mean.clone(), outputs.logit.detach()))
    assert torch.allclose(statistics[0][0], statistics[1][0], atol=1e-5)
    assert torch.allclose(statistics[0][1], statistics[1][1], atol=1e-3)


def test_the_order_of_slices_does_not_matter_but_their_content_does() -> None:
    raw = some_volumes()
    views = Views(Preprocessing.fit(raw), ViewsConfig(), "cpu")
    network = SlicesResNet18(SHAPE).eval()
    changed = raw.copy()
    changed[:, 2] = 255 - changed[:, 2]
    with torch.no_grad():
        forwards, backwards, other = (
            network(views.plain(torch.from_numpy(rows))).logit
            for rows in (raw, np.ascontiguousarray(raw[:, ::-1]), changed)
        )
    assert torch.allclose(forwards, backwards, atol=1e-5) and not torch.allclose(forwards, other, atol=1e-5)


def test_a_volume_of_zeros_and_gaps_give_numbers() -> None:
    raw = some_volumes()
    raw[0] = 0
    raw[1, [0, 2]] = 0
    views = Views(Preprocessing.fit(raw), ViewsConfig(), "cpu")
    outputs = SlicesResNet18(SHAPE).train()(views.plain(torch.from_numpy(raw)))
    outputs.logit.sum().backward()
    assert torch.isfinite(outputs.logit).all()
    assert stand_ins(torch.tensor([[False, True, False, True, True]])).tolist() == [[1, 1, 4, 3, 4]]


def test_volume_networks_train_in_half_precision() -> None:
    raw = filled_up(some_volumes(slices=3), 5)
    views = Views(Preprocessing.fit(raw), ViewsConfig(), "cpu")
    network = SlicesResNet18(SHAPE).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = network(views.plain(torch.from_numpy(raw)))
    (outputs.logit.float().mean() + outputs.low.float().mean()).backward()
    assert all(
        torch.isfinite(weight.grad).all() and weight.grad.any() for weight in network.parameters() if weight.ndim > 1
    )


def test_names_and_kinds_fit_together() -> None:
    assert choose_network(SHAPE) == "slices-resnet18"
    for name, shape in (("slices-resnet18", (16, 16, 1)), ("resnet18", SHAPE), ("cnn13", SHAPE), ("mlp", SHAPE)):
        with pytest.raises(InputError, match=name):
            build_network(name, shape)


def test_pretrained_weights_load_into_the_slice_encoder(tmp_path) -> None:
    torch.manual_seed(3)
    tensors = ResNet18((64, 64, 3)).state_dict()
    recipe = network_recipe(
        "auto", Preprocessing.fit(some_volumes()), weights=PretrainedWeights(tmp_path / "w", "", tensors)
    )
    network = recipe.build()
    assert recipe.name == "slices-resnet18" and isinstance(network, SlicesResNet18)
    assert torch.equal(network.encoder.layer3[0].conv1.weight, tensors["layer3.0.conv1.weight"])


def test_the_defaults_for_volumes_use_cutout_alone() -> None:
    views = preset("default", DataProfile(kind="volumes", rows=259, labelled=40)).views
    assert views.cutout > 0 and views.brightness == views.contrast == 0


def test_split_pu_trains_on_volumes_and_is_saved(tmp_path) -> None:
    truth = np.arange(36) % 3 == 0
    raw = volumes(truth, slices=3, side=8, seed=0)
    raw[5, 2] = 0  # one patient has a slice less
    labels = truth & (np.arange(36) % 2 == 0)
    settings = {"base.epochs": 3, "student.epochs": 2, "split.max_epochs": 1, "split.tau": 0.01}
    made = SplitPUClassifier(prior=0.4, rounds=1, config=settings, random_state=0, device="cpu").fit(
        raw, labels.astype(int)
    )
    assert made.model_.network_name == "slices-resnet18"
    scores = made.decision_function(raw)
    made.save(tmp_path / "model")
    again = SplitPUClassifier.load(tmp_path / "model", device="cpu")
    assert np.allclose(scores, again.decision_function(raw))
    assert np.allclose(scores, again.decision_function(filled_up(raw, 5)), atol=1e-4)
    assert export_onnx(again.model_, tmp_path / "model.onnx").dtype == "uint8"  # which compares both before it returns


def test_kaiming_weights_are_as_large_as_in_the_released_code() -> None:
    """Kaiming normal: a variance of 2 / inputs, where torch's own has 1 / (3 inputs); biases 0."""
    torch.manual_seed(0)
    network = build_network("cnn13", (32, 32, 3))
    draw_kaiming_weights(network)
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear) and module.weight.numel() > 10_000:
            inputs = module.weight[0].numel()
            assert float(module.weight.detach().std()) == pytest.approx((2 / inputs) ** 0.5, rel=0.05)
            assert module.bias is None or not module.bias.any()


def test_network_input_shape_in_short() -> None:
    assert (network_input_shape((32, 48, 3)), network_input_shape((20,)), network_input_shape((9, 32, 48, 3))) == (
        (3, 32, 48),
        (20,),
        (9, 4, 32, 48),
    )


def test_member_count_in_short() -> None:
    assert (member_count(["members.0.head.weight", "members.1.head.weight"]), member_count(["head.weight"])) == (2, 0)


def test_masked_mean_in_short() -> None:
    assert torch.allclose(
        masked_mean(torch.tensor([[[2.0], [4.0], [9.0]]]), torch.tensor([[True, True, False]])),
        torch.tensor([[3.0]]),
        atol=1e-4,
    )


def test_network_names_in_short() -> None:
    assert network_names() == ("mlp", "cnn-small", "cnn13", "resnet18", "slices-resnet18")


def test_choose_network_in_short() -> None:
    assert (
        choose_network((20,)),
        choose_network((8, 8, 1)),
        choose_network((32, 32, 3)),
        choose_network((224, 224, 3)),
    ) == ("mlp", "cnn-small", "cnn13", "resnet18")
    assert (choose_network((32, 32, 3), rows=540), choose_network((28, 28, 1), rows=4200, on_cpu=True)) == (
        "cnn-small",
        "cnn-small",
    )


def test_build_network_in_short() -> None:
    assert build_network("auto", (20,)).feature_dim == 256


def test_chosen_backbone_in_short() -> None:
    assert chosen_backbone("auto", "frozen", (64, 64, 3), 540, on_cpu=True) == "efficientnet-lite0"
    assert chosen_backbone("auto", "trained", (64, 64, 3), 540, on_cpu=True) == "auto"
