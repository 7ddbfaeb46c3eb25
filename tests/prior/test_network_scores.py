"""The prior of images: scores by networks, on small copies where the processor is all there is."""

import tracemalloc
import warnings

import numpy as np
import torch

from splitpu.data.pudata import PUData
from splitpu.networks.build import build_network
from splitpu.prior.network_scores import Mirrored, _made_small, network_scores
from splitpu.prior.scores import CrossFitted, pu_scores


def test_images_through_the_networks(monkeypatch):
    import splitpu.prior.network_scores as module

    monkeypatch.setattr(module, "WARM_UP", 2)
    monkeypatch.setattr(module, "CLEANED", 2)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(160, 8, 8, 1)).astype(np.float32)
    images[:100, :4] += 1.5  # half of it bright: positive
    data = PUData.from_arrays(images, np.arange(160) < 50, scenario="case-control")
    found = network_scores(data, seed=0, device="cpu")
    assert np.isfinite(found.plain).all() and np.isfinite(found.cleaned).all()
    hidden, negative = found.cleaned[50:100], found.cleaned[100:]
    assert (hidden[:, None] > negative).mean() > 0.9
    assert pu_scores(data, how="network", device="cpu").how == "network"


def test_the_command_says_how_far_the_networks_have_got(tmp_path, monkeypatch, capsys):
    import splitpu.prior.network_scores as module
    from splitpu.cli import main

    monkeypatch.setattr(module, "WARM_UP", 2)
    monkeypatch.setattr(module, "CLEANED", 1)
    images = np.random.default_rng(0).normal(size=(120, 8, 8, 1)).astype(np.float32)
    images[:80, :4] += 2.0
    np.savez(tmp_path / "rows.npz", X=images, s=(np.arange(120) < 40).astype(int))
    words = ["prior", str(tmp_path / "rows.npz"), "--scores", "network", "--device", "cpu"]
    assert main(words) == 0
    said = capsys.readouterr().err
    for number in (1, 4):
        assert f"prior.fold{number}.plain, epochs: 8 of 8" in said  # two, four times as few rows make few steps
        assert f"prior.fold{number}.cleaned, epochs: 4 of 4" in said
    assert main([*words, "--json"]) == 0 and "epochs" not in capsys.readouterr().err


def test_on_a_cpu_a_small_network_sees_some_rows_made_small(monkeypatch):
    import splitpu.prior.network_scores as module

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (120, 64, 48, 3)).astype(np.uint8)
    data = PUData(images, np.arange(120) < 40, "case-control")
    rows, seen = np.arange(0, 120, 2), []
    monkeypatch.setattr(module, "network_scores", lambda data, **how: seen.append((data, how)))
    module.affordable_scores(data, rows, seed=3, device="cpu")
    small, how = seen[0]
    assert how == {"seed": 3, "device": "cpu", "network": "cnn-small"}
    assert small.features.shape == (60, 32, 24, 3) and small.features.dtype == np.uint8
    assert small.scenario == "case-control" and (small.labelled == data.labelled[rows]).all()
    blocks = images[rows].reshape(60, 32, 2, 24, 2, 3).mean((2, 4))
    assert np.abs(small.features - blocks).max() <= 0.5


def test_images_are_scored_from_both_sides():
    network = build_network("cnn-small", (8, 8, 1)).eval()
    batch = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        sides = [Mirrored(network)(images).logit for images in (batch, batch.flip(-1))]
        assert not torch.allclose(network(batch).logit, sides[0])
    torch.testing.assert_close(sides[0], sides[1])


def test_networks_need_no_copy_of_large_images(monkeypatch):
    import splitpu.prior.network_scores as module

    data = PUData(np.zeros((300, 64, 64, 3), dtype=np.uint8), np.arange(300) < 50, "case-control")
    scores = np.arange(300.0)
    monkeypatch.setattr(module, "network_scores", lambda data, **how: CrossFitted(scores, scores))
    tracemalloc.start()
    try:
        assert pu_scores(data).how == "network"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < data.features.nbytes


def test_rows_that_cannot_be_written_to_are_made_small_without_a_warning() -> None:
    rows = np.arange(2 * 40 * 40, dtype=np.float32).reshape(2, 40, 40, 1)
    rows.setflags(write=False)
    torch.set_warn_always(True)  # torch would say it once a process only, perhaps in another test
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            small = _made_small(PUData(rows, np.array([True, False]), "single-training-set"), np.array([0, 1]))
    finally:
        torch.set_warn_always(False)
    assert small.features.shape == (2, 32, 32, 1)
