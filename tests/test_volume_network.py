"""Volumes as arrays: their form, their views, the network over slices, and that filling up changes nothing."""

import numpy as np
import pytest
import torch
from volume_tools import volumes

from splitpu import SplitPUClassifier
from splitpu.config.presets import DataProfile, preset
from splitpu.config.schema import ViewsConfig
from splitpu.data.features import canonical_features
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.errors import InputError
from splitpu.networks.backbones import ResNet18, SlicesResNet18, folded, stand_ins
from splitpu.networks.build import build_network, choose_network, network_recipe
from splitpu.networks.pretrained import PretrainedWeights
from splitpu.onnx_export import export_onnx
from splitpu.views import Views

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


def test_half_precision_trains() -> None:
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
