"""Images at half their size in the first epochs of a stage: what the network is shown, resuming, what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stopping import StopAt
from torch.nn import functional

from splitpu import load_named, make_pu, preset, train
from splitpu.config.parse import apply_overrides, config_hash, settings_in_names
from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.errors import InputError, Interrupted
from splitpu.networks.backbones import SmallCNN
from splitpu.networks.build import OF_ANY_SIZE, build_network
from splitpu.training import Runtime, TrainSpec
from splitpu.views import Views

SHORT = apply_overrides(
    preset("default"),
    [
        *("base.epochs=4", "base.half_size=0.5", "split.max_epochs=1", "student.epochs=4", "student.half_size=0.75"),
        *("rounds=1", "base.batch_size=256", "student.batch_size=256"),
    ],
)


def images(rows: int, side: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, side, side, 3), dtype=np.uint8)


def test_two_by_two_pixels_become_their_mean_and_the_draws_stay() -> None:
    raw = images(5)
    views = Views(Preprocessing.fit(raw), ViewsConfig(cutout=0.5), "cpu")
    small = views.at_half_size()
    batch = torch.from_numpy(raw)
    torch.testing.assert_close(small.plain(batch), functional.avg_pool2d(views.plain(batch), 2))
    for name in ("weak", "strong"):
        seen = [getattr(one, name)(batch, torch.Generator().manual_seed(3)) for one in (views, small)]
        torch.testing.assert_close(seen[1], functional.avg_pool2d(seen[0], 2))
    assert views.plain(batch).shape[-1] == 8  # the views themselves are what they were


@pytest.mark.parametrize("name", OF_ANY_SIZE)
@pytest.mark.parametrize("side", [32, 27])
def test_networks_take_images_of_half_the_size_they_were_built_for(name: str, side: int) -> None:
    network = build_network(name, (side, side, 3))
    whole, half = network(torch.randn(4, 3, side, side)), network(torch.randn(4, 3, side // 2, side // 2))
    assert whole.high.shape == half.high.shape and half.logit.shape == (4,)


def test_only_the_first_epochs_are_at_half_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = SmallCNN.forward

    def watched(self, batch):
        if self.training:
            seen.append(batch.shape[-1])
        return forward(self, batch)

    monkeypatch.setattr(SmallCNN, "forward", watched)
    data = make_pu(load_named("digits"), 50, 0)[0]
    train(data, TrainSpec(prior=0.5, config=replace(SHORT, rounds=0), backbone="cnn-small"), Runtime(device="cpu"))
    steps = len(data) // 256
    assert seen[: 4 * steps] == [4] * 2 * steps + [8] * 2 * steps
    assert set(seen[4 * steps :]) == {8}  # statistics of averaged weights are of whole images


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_stopped_at_either_size_ends_as_one_that_was_not(tmp_path: Path, stop: int) -> None:
    data = make_pu(load_named("digits"), 50, 0)[0]
    spec = TrainSpec(prior=0.5, config=SHORT, backbone="cnn-small")
    whole = train(data, spec, Runtime(device="cpu"))
    with pytest.raises(Interrupted):
        train(data, spec, Runtime(device="cpu", checkpoints=tmp_path, observer=StopAt(stop)))
    resumed = train(data, spec, Runtime(device="cpu", checkpoints=tmp_path))
    for name, weights in whole.model.final.network.state_dict().items():
        assert torch.equal(weights, resumed.model.final.network.state_dict()[name])


@pytest.mark.parametrize(("data", "network"), [("digits", "mlp"), ("breast-cancer", "mlp")])
def test_what_has_no_half_size_is_refused(data: str, network: str) -> None:
    rows = make_pu(load_named(data), 50, 0)[0]
    with pytest.raises(InputError, match=r"base.half_size=0.5 is for images .* this is mlp: set it to 0"):
        train(rows, TrainSpec(prior=0.4, config=SHORT, backbone=network), Runtime(device="cpu"))


def test_half_size_is_in_the_name_of_a_stage_only_where_it_is_on() -> None:
    off = apply_overrides(SHORT, ["base.half_size=0"])
    assert config_hash(SHORT, "base") != config_hash(off, "base")
    assert "half_size" not in settings_in_names(off)["base"]
