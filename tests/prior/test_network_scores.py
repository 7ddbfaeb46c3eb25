"""The prior of images: scores by networks, on small copies where the processor is all there is."""

import tracemalloc
import warnings

import numpy as np
import pytest
import torch

from splitpu import DataProfile, SplitPUClassifier, preset
from splitpu.config.parse import apply_overrides
from splitpu.data.pudata import PUData
from splitpu.engine.stage import Observer, Stage, steps_per_epoch
from splitpu.methods.registry import whole_run_rows
from splitpu.networks.build import build_network
from splitpu.prior.estimate import LARGEST_SHARE
from splitpu.prior.network_scores import DEARER, FOLDS, Mirrored, Schedule, _made_small, network_scores
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
    assert how == {"seed": 3, "device": "cpu", "network": "cnn-small", "most": np.inf}
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


def empty(rows: int, labelled: int, kind: str = "images") -> PUData:
    """Rows without anything in them, of which only the number counts."""
    shape = (32, 1, 1, 1) if kind == "volumes" else (1, 1, 1)
    return PUData(np.zeros((rows, *shape), np.uint8), np.arange(rows) < labelled, "single-training-set")


@pytest.mark.parametrize("kind", ["images", "volumes"])
@pytest.mark.parametrize("rows", [100, 150, 300, 540, 2_000, 4_999, 6_000, 30_000])
@pytest.mark.parametrize("words", [[], ["rounds=1"], ["rounds=0"], ["method=nnpu"], ["method=dist-pu"]])
def test_no_more_is_planned_for_the_prior_than_a_share_of_the_training(kind, rows, words):
    labelled = max(15, rows // 12)
    config = apply_overrides(preset("default", DataProfile(kind=kind, rows=rows, labelled=labelled)), words)
    whole, data = whole_run_rows(config, rows, labelled), empty(rows, labelled, kind)
    most = LARGEST_SHARE * whole / (DEARER if kind == "images" else 1)
    found, least = Schedule.within(most, data), Schedule.within(0.0, data)
    assert found.work(data) <= most or (found == least and found.work(data) <= whole / 2)


def test_more_small_images_come_to_as_many_pixels(monkeypatch):
    import splitpu.prior.network_scores as module

    seen: list[float] = []
    monkeypatch.setattr(module, "network_scores", lambda data, *, most, **_: seen.append(most))
    for side in (20, 64):
        data = PUData(np.zeros((60, side, side, 1), np.uint8), np.arange(60) < 20, "single-training-set")
        module.affordable_scores(data, np.arange(60), seed=0, device="cpu", most=1000.0)
    assert seen == pytest.approx([1000 / DEARER, 4000 / DEARER])


def test_the_usual_schedule_is_kept_where_there_is_time():
    data = empty(540, 40)
    usual = Schedule.within(np.inf, data)
    assert usual == (256, 40, 80, 2) == Schedule.within(usual.work(data), data)
    shorter, least = Schedule.within(0.4 * usual.work(data), data), Schedule.within(0.0, data)
    assert shorter.batch == least.batch == 50 and shorter.fittings == 2 and least == (50, 2, 4, 1)
    assert Schedule.within(np.inf, empty(20_000, 500)) == (256, 10, 20, 2)


class Counted(Observer):
    """How many rows go through a network to train it."""

    def __init__(self) -> None:
        self.rows = 0
        self.names: list[str] = []

    def stage_started(self, stage: Stage, done: int) -> None:
        steps = steps_per_epoch(stage.pools, stage.leading)
        self.rows += stage.epochs * steps * sum(pool.count for pool in stage.pools.values())
        self.names.append(stage.name)


@pytest.mark.parametrize(("most", "fittings"), [(np.inf, 2), (6000, 2), (1500, 1)])
def test_as_much_is_trained_as_planned(most, fittings):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(130, 8, 8, 1)).astype(np.float32)
    images[:80, :4] += 1.5
    data, counted = PUData.from_arrays(images, np.arange(130) < 40), Counted()
    network_scores(data, seed=0, device="cpu", network="cnn-small", most=most, observer=counted)
    plan = Schedule.within(most, data)
    assert plan.fittings == fittings and len(counted.names) == FOLDS * 2 * fittings
    assert counted.rows < plan.work(data) <= most  # what is only scored is in the plan, too


def test_the_prior_of_a_model_knows_what_the_model_will_take(monkeypatch):
    import splitpu.prior.estimate as module

    seen: list[float] = []

    def scores(data, *, most, **_):
        seen.append(most)
        raise RuntimeError("far enough")

    monkeypatch.setattr(module, "pu_scores", scores)
    images = np.random.default_rng(0).normal(size=(120, 29, 28, 1)).astype(np.float32)
    for rounds in (1, 2):
        model = SplitPUClassifier(config={"rounds": rounds}, device="cpu")
        with pytest.raises(RuntimeError, match="far enough"):
            model.fit(images, np.arange(120) < 40)
    assert 0 < seen[0] < seen[1] < np.inf
