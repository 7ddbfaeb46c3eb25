"""The configuration: what is given is checked, and every error says what to do."""

import dataclasses
import math
import subprocess
import sys
from typing import Any, Literal, get_origin

import numpy as np
import pytest

from splitpu.config.parse import VALUE_TYPES, apply_overrides, config_differences, config_from_dict, validate_config
from splitpu.config.schema import RANGES, BaseConfig, Config, OptimiserConfig, StudentConfig
from splitpu.errors import InputError


def message_of(settings: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        config_from_dict(settings)
    return str(caught.value)


class TestFromDict:
    def test_lays_settings_over_the_base_and_leaves_the_rest(self) -> None:
        base = Config(rounds=1, student=StudentConfig(epochs=7))
        config = config_from_dict({"student": {"optimiser": {"rate": 0.5}}}, base)
        assert config == Config(rounds=1, student=StudentConfig(epochs=7, optimiser=OptimiserConfig(rate=0.5)))

    def test_nothing_given_is_the_defaults(self) -> None:
        assert config_from_dict({}) == Config()
        assert config_from_dict({"student": {}}) == Config()

    def test_dotted_and_nested_keys_mean_the_same(self) -> None:
        assert config_from_dict({"base.optimiser.rate": 0.5}) == config_from_dict({"base": {"optimiser.rate": 0.5}})

    def test_a_key_given_twice_is_refused(self) -> None:
        assert "'student.epochs' is given twice" in message_of({"student": {"epochs": 1}, "student.epochs": 2})

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("student.epoch", "student.epochs"),
            ("studnet", "student"),
            ("student.batch-size", "student.batch_size"),
            ("student.optimizer", "student.optimiser"),
            ("tau", "split.tau"),  # right name, wrong place
            ("student.rate", "student.optimiser.rate"),
            ("base.optimiser.learning_rate.rate", "base.optimiser.rate"),
        ],
    )
    def test_unknown_key_names_the_one_that_was_meant(self, key: str, meant: str) -> None:
        assert message_of({key: 1}) == f"unknown key '{key}'; did you mean '{meant}'?"

    def test_unknown_key_like_no_other_lists_the_keys_of_its_section(self) -> None:
        assert message_of({"engine": {"zzzzzzzzz": 1}}) == (
            "unknown key 'engine.zzzzzzzzz'; the keys of 'engine' are "
            "'precision', 'capture', 'kernels', 'residence', 'threads', 'pieces', 'checkpoint_every'"
        )
        assert "the top-level keys are 'method', 'rounds', 'members', 'threshold', 'base'" in message_of(
            {"qqqqqqqqqqqqq": {}}
        )

    def test_section_given_a_scalar(self) -> None:
        message = message_of({"student": 3})
        assert "'student' is a section" in message
        assert "'student.epochs'" in message

    def test_value_given_a_table(self) -> None:
        assert "student.epochs = {'a': 1}" in message_of({"student": {"epochs": {"a": 1}}})


class TestTypes:
    @pytest.mark.parametrize("value", [True, 1.5, "20", None, [1], math.inf, math.nan])
    def test_int_refuses(self, value: object) -> None:
        message = message_of({"student": {"epochs": value}})
        assert message == f"student.epochs = {value!r} cannot be used; give a whole number that is at least 1"

    @pytest.mark.parametrize("value", [20, 20.0, np.int64(20)])
    def test_int_takes_whole_numbers_and_stores_an_int(self, value: object) -> None:
        epochs = config_from_dict({"student": {"epochs": value}}).student.epochs
        assert type(epochs) is int
        assert epochs == 20

    @pytest.mark.parametrize("value", [1, np.float32(1.0), np.int64(1)])
    def test_float_takes_ints_and_stores_a_float(self, value: object) -> None:
        alpha = config_from_dict({"student": {"alpha": value}}).student.alpha
        assert type(alpha) is float
        assert alpha == 1.0

    @pytest.mark.parametrize("value", [True, "0.5", None, math.inf, math.nan, 10**400])
    def test_float_refuses(self, value: object) -> None:
        assert "student.alpha = " in message_of({"student": {"alpha": value}})

    @pytest.mark.parametrize("value", [1, 0, "true", None])
    def test_bool_takes_only_bools(self, value: object) -> None:
        assert f"views.flip = {value!r} cannot be used; give true or false" in message_of({"views": {"flip": value}})

    def test_choice_names_the_choices_and_the_nearest(self) -> None:
        message = message_of({"base": {"risk": "nnPU"}})
        assert message == "base.risk = 'nnPU' is not one of 'nnpu', 'upu'; did you mean 'nnpu'?"
        assert "is not one of 'nnpu', 'upu'; choose one of these" in message_of({"base": {"risk": 3}})

    @pytest.mark.parametrize("value", [["nnpu"], {"nnpu": 1}, None])
    def test_choice_refuses_what_is_not_a_string(self, value: object) -> None:
        assert "is not one of 'nnpu', 'upu'" in message_of({"base": {"risk": value}})


class TestRanges:
    def test_every_number_has_a_range_and_every_range_a_number(self) -> None:
        assert set(RANGES) == {key for key, kind in VALUE_TYPES.items() if kind in (int, float)}

    def test_every_key_is_of_a_kind_that_is_checked(self) -> None:
        assert all(kind in (int, float, bool) or get_origin(kind) is Literal for kind in VALUE_TYPES.values())

    @pytest.mark.parametrize(
        ("key", "value", "allowed"),
        [
            ("rounds", -1, "at least 0"),
            ("base.batch_size", 1, "at least 2"),
            ("split.tau", 0, "above 0 and at most 1"),
            ("student.rho", 0.999, "at least 0.01 and at most 0.99"),
            ("student.beta", -0.1, "at least 0"),
            ("split.optimiser.rate", 0.0, "above 0"),
            ("student.optimiser.average", 1, "at least 0 and below 1"),
            ("views.crop_padding", 0.6, "at least 0 and at most 0.5"),
            ("engine.checkpoint_every", 0, "at least 1"),
        ],
    )
    def test_out_of_range_names_key_value_and_range(self, key: str, value: float, allowed: str) -> None:
        message = message_of({key: value})
        assert message.startswith(f"{key} = {value!r} cannot be used")
        assert message.endswith(f"number that is {allowed}")

    def test_the_ends_that_mean_something_are_allowed(self) -> None:
        config = config_from_dict({"rounds": 0, "split.tau": 1, "student.alpha": 0})
        assert (config.rounds, config.split.tau, config.student.alpha) == (0, 1.0, 0.0)

    def test_validate_finds_what_the_dataclasses_let_through(self) -> None:
        with pytest.raises(InputError, match=r"base\.epochs = -5"):
            validate_config(Config(base=BaseConfig(epochs=-5)))


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "key", "value"),
        [
            ("student.epochs=20", "student.epochs", 20),
            ("base.risk=upu", "base.risk", "upu"),
            ('base.risk="upu"', "base.risk", "upu"),
            ("views.flip=false", "views.flip", False),
            (" split.tau = .5 ", "split.tau", 0.5),
            ("base.optimiser.rate=3e-4", "base.optimiser.rate", 3e-4),
            ("student={epochs=5}", "student.epochs", 5),
        ],
    )
    def test_values(self, override: str, key: str, value: object) -> None:
        assert config_differences(Config(), apply_overrides(Config(), [override])) == {key: value}

    def test_the_last_one_wins(self) -> None:
        assert apply_overrides(Config(), ["rounds=3", "rounds=4"]).rounds == 4

    @pytest.mark.parametrize("override", ["student.epochs", "student.epochs=", "=3", ""])
    def test_not_of_the_form_key_value(self, override: str) -> None:
        with pytest.raises(InputError, match=f"setting '{override}' is not of the form key=value"):
            apply_overrides(Config(), [override])

    @pytest.mark.parametrize(
        ("override", "says"),
        [
            ("student.epoch=20", "did you mean 'student.epochs'"),
            ("views.flip=False", "lower case"),
            ("student=3", "is a section"),
            ("rounds=1\nthreshold='half'", "rounds = "),
        ],
    )
    def test_wrong_settings(self, override: str, says: str) -> None:
        with pytest.raises(InputError, match=says):
            apply_overrides(Config(), [override])


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().rounds = 3  # type: ignore[misc]


def test_importing_the_configuration_does_not_import_torch() -> None:
    code = "import sys, splitpu.config; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("split.epochs", r"'split\.max_epochs'\?"),
        ("epochs", r"one of 'base\.epochs', 'student\.epochs'"),
        ("student.epoch", r"'student\.epochs'\?"),
    ],
)
def test_a_key_is_looked_for_where_it_was_said_to_be(key: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"unknown key '{key}'; did you mean {meant}"):
        config_from_dict({key: 5})
