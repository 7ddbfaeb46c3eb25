"""Weights from files: what fits is loaded, what does not is said, and nothing inside a file is run."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast
from urllib.error import URLError

import pytest
import torch
from cli_tools import TINY, run_cli
from fault_tools import forge
from image_tools import small_folders
from safetensors.torch import save_file
from torch import nn

from splitpu.errors import InputError
from splitpu.networks.backbones import ResNet18
from splitpu.networks.build import weights_file
from splitpu.networks.pretrained import fitted_to_channels, imagenet_weights, pretrainable, read_pretrained, transfer

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file such as torchvision's: 7 x 7 stem for RGB, a head of 1000 classes."""
    tensors = ResNet18((64, 64, 3)).state_dict()
    tensors |= {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(tensors, path)
    return path


def test_all_but_the_head_is_loaded(published: Path) -> None:
    network = ResNet18((64, 64, 3))
    head = network.fc.weight.clone()
    loaded, done = transfer(read_pretrained(published), network)
    expected = torch.load(published, weights_only=True)
    assert all(torch.equal(network.state_dict()[name], expected[name]) for name in loaded)
    assert len(loaded) == len(expected) - 2 and torch.equal(network.fc.weight, head)
    assert "the head is trained anew" in done


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_first_layer_is_fitted_to_the_channels(published: Path, channels: int) -> None:
    network = ResNet18((64, 64, channels))
    _, done = transfer(read_pretrained(published), network)
    assert done.count("conv1.weight fitted from") == 1 and f"to {channels} channels" in done
    kernel = torch.load(published, weights_only=True)["conv1.weight"]
    grey = torch.randn(1, 1, 16, 16)
    before, after = (
        nn.functional.conv2d(grey.expand(-1, weight.shape[1], -1, -1), weight)
        for weight in (kernel, fitted_to_channels(kernel, channels))
    )
    torch.testing.assert_close(before, after)


def test_small_images_keep_their_own_first_layer(published: Path) -> None:
    _, done = transfer(read_pretrained(published), ResNet18((32, 32, 3)))
    assert "conv1.weight not loaded" in done and "3x3" in done


def test_other_ways_of_saving(published: Path, tmp_path: Path) -> None:
    tensors = torch.load(published, weights_only=True)
    save_file(tensors, tmp_path / "a.SAFETENSORS")
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in tensors.items()}}, tmp_path / "b.pth")
    for name in ("a.SAFETENSORS", "b.pth"):
        assert len(transfer(read_pretrained(tmp_path / name), ResNet18((64, 64, 3)))[0]) == len(tensors) - 2


class Malicious:
    """Would run something while it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("this must never be printed",))


def test_bad_files(published: Path, tmp_path: Path, capsys: Capture) -> None:
    whole = torch.load(published, weights_only=True)
    torch.save({**whole, "x": Malicious()}, tmp_path / "malicious.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save({**whole, "layer1.0.conv1.weight": torch.zeros(1)}, tmp_path / "shape.pth")
    torch.save({"fc.bias": torch.zeros(1)}, tmp_path / "other.pth")
    (tmp_path / "cut.pth").write_bytes(published.read_bytes()[:1000])
    (tmp_path / "text.safetensors").write_text("hello")
    cases = {
        "malicious.pth": r"holds more than tensors.*save the network's state_dict\(\) alone",
        "list.pth": "named tensors",
        "shape.pth": "has the shape",
        "other.pth": "has no 'conv1.weight'",
        "cut.pth": "cannot be read",
        "text.safetensors": "cannot be read",
        "imagenet": "torchvision",
    }
    for name, saying in cases.items():
        with pytest.raises(InputError, match=saying) as caught:
            transfer(read_pretrained(tmp_path / name), ResNet18((64, 64, 3)))
        assert "\n" not in str(caught.value)
    assert "printed" not in capsys.readouterr().out


def test_a_file_cut_anywhere_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "old.pth"
    torch.save({"conv1.weight": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    for length in range(0, len(whole), 3):  # there is a place for every kind of error that torch's reader knows
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"old\.pth"):
            read_pretrained(path)


def test_fit_starts_from_weights(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    words = ["fit", *small_folders(tmp_path), "--prior", 0.6, "--quiet", "--method", "nnpu", "--set", "base.epochs=1"]
    code, _, err = run_cli(
        capsys, *words, "--weights", published, "--out", tmp_path / "run", "--set", "engine.threads=1"
    )
    assert code == 0, err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["network"] == "resnet18" and "tensors loaded" in result["weights"]["in_words"]
    code, out, _ = run_cli(capsys, "sensitivity", tmp_path / "run", "--refit", "--lowest", 0.5, "--steps", 2, "--json")
    again = next(row for row in json.loads(out)["rows"] if row["prior"] == 0.6)
    assert code == 0 and again["changed_decisions"] == 0  # it starts from the same weights
    (tmp_path / "run" / "result.json").unlink()
    changed = tmp_path / "changed.pth"
    forge(tmp_path / "run" / "request.json", lambda request: request["weights"].update(path=str(changed)))
    torch.save({"x": torch.zeros(1)}, changed)
    code, _, err = run_cli(capsys, "resume", tmp_path / "run", "--quiet")
    assert code == 2 and "changed since" in err
    code, _, err = run_cli(capsys, *words, "--weights", published, "--backbone", "cnn13", *TINY)
    assert code == 2 and "for resnet18" in err


# ------------------------------------------------------------------------------------------------------------- imagenet


def pretend_torchvision(monkeypatch: pytest.MonkeyPatch, get_state_dict: Callable[..., object]) -> None:
    """A torchvision that has nothing but what is asked of it."""
    weights = SimpleNamespace(DEFAULT=SimpleNamespace(get_state_dict=get_state_dict))
    models = SimpleNamespace(ResNet18_Weights=weights)
    monkeypatch.setitem(sys.modules, "torchvision", cast(ModuleType, SimpleNamespace(models=models)))
    monkeypatch.setitem(sys.modules, "torchvision.models", cast(ModuleType, models))


def test_imagenet_weights_are_fetched_once(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    pretend_torchvision(monkeypatch, lambda **_: torch.load(published, weights_only=True))
    path = weights_file(Path("imagenet"))
    assert path is not None and path.suffix == ".safetensors" and tmp_path in path.parents
    monkeypatch.setitem(sys.modules, "torchvision", None)  # no longer needed
    assert weights_file(Path("imagenet")) == path
    assert len(transfer(read_pretrained(path), ResNet18((64, 64, 3)))[0]) > 100
    Path("imagenet").write_text("a file of the user's own goes first")
    assert weights_file(Path("imagenet")) == Path("imagenet")


def test_without_torchvision_a_sentence_says_how_to_get_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "torchvision", None)
    code, _, err = run_cli(capsys, "fit", *small_folders(tmp_path), "--weights", "imagenet", "--out", tmp_path / "run")
    assert code == 2 and err.count("\n") == 1 and not (tmp_path / "run").exists()
    assert "torchvision, which is not installed here" in err and "torch.save(torchvision.models.resnet18(" in err


def test_without_a_network_the_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(**_: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    pretend_torchvision(monkeypatch, no_network)
    with pytest.raises(InputError, match=r"cannot be fetched .*no route to host.*where there is a network"):
        imagenet_weights()
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_pretrainable_in_short() -> None:
    assert (pretrainable((64, 64, 3)), pretrainable((20, 64, 64, 1))) == ("resnet18", "slices-resnet18")
