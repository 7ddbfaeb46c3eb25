"""What a method needs and says of itself, and the settings that suit it."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from method_tools import settings, weights

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import DataProfile, preset
from splitpu.config.schema import Config, MethodName, TeacherName
from splitpu.data.pudata import PUData
from splitpu.engine.optimiser import build_optimiser, rate_at
from splitpu.errors import InputError
from splitpu.methods.registry import METHODS, find_method, sections_in_use
from splitpu.training import train


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].needs_prior])
def test_a_method_that_needs_the_prior_says_so(few_digits: PUData, method: str) -> None:
    with pytest.raises(InputError, match=f"'{method}' needs the prior.*such as 'vpu'"):
        train(few_digits, prior=None, config=settings(few_digits, method, 1))


def test_the_oracle_refuses_data_without_truth(few_digits: PUData) -> None:
    blind = replace(few_digits, truth=None)
    for config in (
        settings(few_digits, "supervised", 1),
        settings(few_digits, "split-pu", 1, "base.method=supervised"),
    ):
        with pytest.raises(InputError, match="'supervised' learns from the true label of every training row"):
            train(blind, prior=0.5, config=config)


def test_a_prior_only_moves_the_threshold_of_methods_that_do_without(few_digits: PUData) -> None:
    for method in ("vpu", "dan", "p3mix", "naive"):
        config = settings(few_digits, method, 2)
        without, given = (train(few_digits, prior=prior, config=config, backbone="mlp") for prior in (None, 0.4))
        assert all(torch.equal(a, b) for a, b in zip(weights(without).values(), weights(given).values(), strict=True))
        rate = float((given.result.final.probabilities > 0.5).double().mean())
        assert rate == pytest.approx(0.4, abs=0.01)
        assert without.model.prior is None and given.model.prior == 0.4


def test_every_name_in_the_configuration_is_a_method() -> None:
    assert set(get_args(MethodName)) == set(METHODS)
    assert set(get_args(TeacherName)) == {"risk", *METHODS} - {"split-pu", "nnpu", "upu"}
    with pytest.raises(InputError, match="did you mean 'nnpu'"):
        find_method("nnPU")


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_says_what_it_is(method: Any) -> None:
    assert callable(method._function())
    assert all(text and "\n" not in text for text in (method.summary, method.assumes, method.citation))
    assert set(method.sections) <= set(preset("default").__dataclass_fields__)


def test_only_sections_in_use_decide() -> None:
    taught = apply_overrides(Config(), ["base.method=dist-pu"])
    assert "dist_pu" in sections_in_use(taught) and "vpu" not in sections_in_use(taught)


def test_small_data_get_settings_of_their_own() -> None:
    small, large = (preset("default", DataProfile("images", rows, 100)) for rows in (1000, 50_000))
    assert large.vpu == Config().vpu and large.dist_pu == Config().dist_pu
    assert small.vpu.batch_size < large.vpu.batch_size and small.vpu.optimiser.rate > large.vpu.optimiser.rate
    assert preset("paper", DataProfile("images", 1000, 100)).vpu == Config().vpu


def test_an_epoch_is_not_chosen_by_a_handful_of_labels() -> None:
    shares = [preset("default", DataProfile("images", 50_000, labelled)).vpu.held_out for labelled in (49, 50)]
    assert shares == [0.0, 0.2]


def test_the_optimiser_is_told_its_memory() -> None:
    vpu = Config().vpu.optimiser
    optimiser = build_optimiser(torch.nn.Linear(2, 1), vpu, torch.device("cpu"))
    assert optimiser.param_groups[0]["betas"] == (0.5, 0.99)
    # Halved after 20 and 40 of 50 epochs.
    assert [rate_at(vpu, epoch, 50) / vpu.rate for epoch in (0, 19, 20, 39, 40, 49)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
