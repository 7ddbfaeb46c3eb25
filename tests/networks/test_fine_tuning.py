"""A network that starts from pretrained weights: it says what they say, moves little below, and decay leads back."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from network_tools import LITE, encoded, with_small_lite

from splitpu.config.schema import OptimiserConfig, ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.engine.optimiser import build_optimiser
from splitpu.errors import InputError
from splitpu.networks.build import build_network, network_recipe
from splitpu.networks.encoders import encoder, encoder_of
from splitpu.networks.fine_tuning import MovingConvolution, TunedLite, tuned_maker, tuned_name
from splitpu.views import Views

NAME = f"tuned:{LITE}"
IMAGES = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
HOST = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_small_lite(monkeypatch, tmp_path)


def fresh(images: np.ndarray = IMAGES) -> tuple[TunedLite, torch.Tensor]:
    """A network that has not moved yet, and the images as it sees them."""
    fitted = Preprocessing.fit(images)
    return tuned_maker(NAME, fitted, images)(), Views(fitted, ViewsConfig(), "cpu").plain(torch.from_numpy(images))


def layers(network: TunedLite) -> dict[str, MovingConvolution]:
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, MovingConvolution)}


@pytest.mark.parametrize("channels", [1, 3])
def test_it_starts_with_what_frozen_features_are(channels: int) -> None:
    network, seen = fresh(IMAGES[..., :channels])
    with torch.no_grad():
        said = network.eval()(seen)
        assert torch.equal(network.low_features(seen), said.low) and not said.logit.any()
    assert torch.allclose(said.high.mean(0), torch.zeros(network.feature_dim), atol=1e-4)
    plain = said.high * network.get_buffer("scale") + network.get_buffer("centre")
    assert torch.allclose(plain, torch.from_numpy(encoded(encoder(LITE), IMAGES[..., :channels], 30)), atol=2e-3)


@pytest.mark.parametrize("side", [8, 96])
def test_pictures_of_other_sizes_are_shown_in_those_it_knows(side: int) -> None:
    """The smallest is half of the encoder's, the largest the encoder's own; between them a picture stays as it is."""
    shape = {8: (4, 16), 96: (16, 32)}[side]
    network, seen = fresh(np.random.default_rng(0).integers(0, 256, (4, side // 2, side, 1), dtype=np.uint8))
    sizes: list[tuple[int, ...]] = []
    network.encoder.stem.register_forward_pre_hook(lambda _, given: sizes.append(tuple(given[0].shape[2:])))
    network(seen)
    assert sizes == [(shape[1] // 2, shape[1])]


def test_the_head_moves_most_and_the_stem_least() -> None:
    network, seen = fresh()
    optimiser = build_optimiser(network, OptimiserConfig(name="adamw", rate=1e-3), HOST)
    wanted = (torch.arange(30) % 2).float()
    for _ in range(5):
        optimiser.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(network(seen).logit, wanted).backward()
        optimiser.step()
    far = {name: layer.rate * float(layer.weight.detach().abs().max()) for name, layer in layers(network).items()}
    by_stage = [far["encoder.stem"], *(far[f"encoder.blocks.{block}.project"] for block in range(6))]
    assert all(later > 1.5 * earlier for earlier, later in pairwise(by_stage[:-1]))
    assert by_stage[-1] == pytest.approx(by_stage[-2], rel=0.3)  # both are listened to
    assert by_stage[-1] < 0.2 * float(network.head.weight.detach().abs().max())


def test_weight_decay_leads_back_to_the_pretrained_weights() -> None:
    network, _ = fresh()
    start = {name: layer.weights()[0].detach().clone() for name, layer in layers(network).items()}
    assert all(start[name].any() for name in start)
    for parameter in network.parameters():
        torch.nn.init.constant_(parameter, 0.5)
        parameter.grad = torch.zeros_like(parameter)
    optimiser = build_optimiser(network, OptimiserConfig(name="adamw", rate=0.5, weight_decay=1.0), HOST)
    for _ in range(20):
        optimiser.step()
    assert all(torch.allclose(layer.weights()[0], start[name], atol=1e-5) for name, layer in layers(network).items())


def test_slices_that_are_not_there_say_nothing() -> None:
    volumes = np.stack([IMAGES, IMAGES[::-1], np.zeros_like(IMAGES)], axis=1)
    network, seen = fresh(volumes)
    torch.nn.init.normal_(network.head.weight)
    with torch.no_grad():
        said, alone = network.eval()(seen), network(seen[:, :2])
    assert torch.allclose(said.logit, alone.logit, atol=1e-5) and said.low.shape[:2] == (30, 3)
    assert not said.low[:, 2].any() and torch.equal(network.low_features(seen), said.low)


def test_the_weights_are_in_the_name_of_what_is_trained_from_them() -> None:
    recipe = network_recipe(NAME, Preprocessing.fit(IMAGES), features=IMAGES)
    assert recipe.name == NAME and recipe.mark is not None and recipe.mark() == encoder(LITE).fingerprint
    first, second = (recipe.build().state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_encoder_of_in_short() -> None:
    assert [encoder_of(one) for one in (NAME, LITE, "cnn13", None)] == [LITE, LITE, None, None]


def test_what_can_be_tuned_and_what_cannot() -> None:
    assert tuned_name(LITE) == tuned_name(NAME) == NAME
    for name in ("timm:resnet18", "hf:folder", "cnn13", f"{LITE}/last"):
        with pytest.raises(InputError, match=r"cannot be tuned, only efficientnet-lite0.*--features frozen.*timm:NAME"):
            tuned_name(name)
    with pytest.raises(InputError, match="cannot be tuned"):
        build_network("tuned:timm:resnet18", (32, 32, 3))
    for shape in ((9,), (32, 32, 4)):
        with pytest.raises(InputError, match="images or volumes of one channel or three"):
            build_network(NAME, shape)
