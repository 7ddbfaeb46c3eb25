"""The configuration: what is given is checked, and every error says what to do.

Configurations as files: what is written reads back, and what differs is told; and the presets they start from.
"""

import dataclasses
import math
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitpu.config.parse import (
    RANGES,
    VALUE_TYPES,
    apply_overrides,
    config_differences,
    config_from_dict,
    config_hash,
    config_to_dict,
    config_to_toml,
    nearest,
    read_config,
    settings_in_names,
    unknown_name,
    validate_config,
)
from splitpu.config.presets import DataProfile, preset, preset_names
from splitpu.config.schema import LATER_KEYS, METHOD_NAMES, BaseConfig, Config, OptimiserConfig, StudentConfig
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
        keys = "'method', 'learner', 'labelled_by', 'rounds', 'members', 'threshold', 'initialisation', 'base'"
        assert f"the top-level keys are {keys}" in message_of({"qqqqqqqqqqqqq": {}})

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
        assert message.startswith(f"student.epochs = {value!r} cannot be used; give a whole number that is at least 1")

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
        kinds = {key: kind for key, kind in VALUE_TYPES.items() if get_origin(kind) is not Literal}
        assert {key for key, kind in kinds.items() if kind not in (int, float, bool)} == {"method", "labelled_by"}

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
        assert f"number that is {allowed}" in message

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


def any_value(key: str) -> st.SearchStrategy[Any]:
    kind = VALUE_TYPES[key]
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is str:
        return st.sampled_from(METHOD_NAMES)
    allowed = RANGES[key]
    high = min(allowed.high, 1e9)
    if kind is int:
        return st.integers(int(allowed.low), int(high))
    return st.floats(allowed.low, high, exclude_min=not allowed.low_included, exclude_max=not allowed.high_included)


any_settings = st.fixed_dictionaries({}, optional={key: any_value(key) for key in VALUE_TYPES})


class TestToml:
    @given(any_settings)
    def test_round_trip(self, settings: dict[str, Any]) -> None:
        config = config_from_dict(settings)
        assert config_from_dict(tomllib.loads(config_to_toml(config))) == config

    def test_sections_are_tables(self) -> None:
        text = config_to_toml(Config())
        assert text.startswith(
            'method = "split-pu"\nlearner = "network"\nlabelled_by = ""\nrounds = 2\n'
            'members = 1\nthreshold = "prior"\ninitialisation = "torch"\n\n[base]\nmethod = "risk"\n'
        )
        assert "\n[student.optimiser]\n" in text
        assert text.endswith("\n")

    def test_numpy_values_are_written_as_plain_numbers(self) -> None:
        assert "rounds = 3\n" in config_to_toml(Config(rounds=np.int64(3)))  # type: ignore[arg-type]

    def test_read_lays_the_file_over_the_base(self, tmp_path: Path) -> None:
        path = tmp_path / "run.toml"
        path.write_text("\ufeff[student]\nepochs = 9\n", encoding="utf-8")
        config = read_config(path, Config(rounds=4))
        assert config_differences(Config(), config) == {"rounds": 4, "student.epochs": 9}

    def test_broken_file_names_file_and_line(self, tmp_path: Path) -> None:
        path = tmp_path / "run.toml"
        path.write_text("rounds = 2\n[student]\nepochs = = 3\n")
        with pytest.raises(InputError, match=r"run\.toml cannot be read \(.*line 3, column 10\)\); correct it"):
            read_config(path)

    def test_wrong_key_in_a_file_names_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "run.toml"
        path.write_text("[student]\nepoch = 3\n")
        with pytest.raises(InputError, match=r"run\.toml': unknown key 'student.epoch'; did you mean"):
            read_config(str(path))

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="does not exist"):
            read_config(tmp_path / "missing.toml")
        with pytest.raises(InputError, match="cannot be read"):
            read_config(tmp_path)
        (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InputError, match="UTF-8"):
            read_config(tmp_path / "binary.toml")


class TestDifferencesAndHash:
    @given(any_settings)
    def test_differences_are_what_turns_one_into_the_other(self, settings: dict[str, Any]) -> None:
        config = config_from_dict(settings)
        assert config_from_dict(config_differences(preset("paper"), config), preset("paper")) == config

    def test_hash_sees_only_its_sections(self) -> None:
        changed = config_from_dict({"student.epochs": 3})
        assert config_hash(changed, "base", "split.tau") == config_hash(Config(), "base", "split.tau")
        assert config_hash(changed, "student") != config_hash(Config(), "student")
        assert config_hash(changed) != config_hash(Config())

    def test_hash_is_of_values_not_of_how_they_were_given(self) -> None:
        as_int = Config(student=StudentConfig(alpha=1))
        as_float = Config(student=StudentConfig(alpha=1.0))
        assert config_hash(as_int) == config_hash(as_float)
        assert config_hash(Config(), "base", "split") == config_hash(Config(), "split", "base", "base")

    def test_hash_stays_the_same_between_versions(self) -> None:
        # Run folders remember these; "split.tau" stands for all since its value will not be tuned.
        expected = "d5671288daa6a2f607995a277682911bfb8ea9ae4c5b84d588f7a3af015fb7dc"
        assert config_hash(preset("paper"), "split.tau") == expected

    def test_the_cut_of_tables_goes_with_their_learners(self) -> None:
        start = preset("default", DataProfile("vectors", 500, 50))
        assert start.threshold == "f1" == apply_overrides(start, ["method=logistic"]).threshold
        for said in ("learner=network", "method=vpu", "base.epochs=3"):
            assert apply_overrides(start, [said]).threshold == "prior"
        assert apply_overrides(start, ["learner=network", "threshold=half"]).threshold == "half"

    def test_hash_of_an_unknown_section(self) -> None:
        with pytest.raises(InputError, match="did you mean 'student'"):
            config_hash(Config(), "studnet")


class TestPresets:
    def test_names(self) -> None:
        assert preset_names()[0] == "default"
        assert "paper" in preset_names()

    @pytest.mark.parametrize("name", preset_names())
    @pytest.mark.parametrize("profile", [None, DataProfile("vectors", 100, 10), DataProfile("images", 50_000, 1000)])
    def test_every_preset_is_valid(self, name: str, profile: DataProfile | None) -> None:
        config = preset(name, profile)
        assert validate_config(config) == config

    def test_paper(self) -> None:
        paper = config_to_dict(preset("paper"))
        assert (paper["rounds"], paper["threshold"]) == (2, "half")
        constant = {"momentum": 0.0, "schedule": "constant", "warmup": 0.0, "average": 0.0}
        constant |= {"beta1": 0.9, "beta2": 0.999, "halvings": 2.5}
        assert paper["base"]["optimiser"] == {"name": "adam", "rate": 1e-4, "weight_decay": 5e-4, **constant}
        assert paper["split"]["optimiser"] == {"name": "sgd", "rate": 1e-3, "weight_decay": 5e-3, **constant}
        assert paper["student"]["optimiser"] == {"name": "adam", "rate": 5e-5, "weight_decay": 1e-2, **constant}
        expected = {
            "base": {"epochs": 50, "batch_size": 512, "population": "unlabelled", "augment": False},
            "split": {"labels": "soft", "tau": 0.92, "max_epochs": 60},
            "student": {"epochs": 100, "batch_size": 512, "rho": 0.7, "alpha": 0.3, "beta": 0.1, "low_weight": 0.3},
        }
        for section, values in expected.items():
            assert values.items() <= paper[section].items()

    def test_unknown_preset(self) -> None:
        with pytest.raises(InputError, match="there is no preset 'papre'; did you mean 'paper'"):
            preset("papre")
        with pytest.raises(InputError, match="choose one of 'default', 'fast', 'paper'"):
            preset("zzz")


LATER_VALUES = {"torch": "kaiming", "mse": "norm", "apart": "pooled", "fresh": "teacher", "0.0": 0.5, "0": 2, "": "age"}


def test_later_keys_are_in_no_name_until_they_are_used() -> None:
    """Results and checkpoints of before such a key are found by names that do not have it."""
    for key, default in LATER_KEYS.items():
        other = LATER_VALUES[str(default)]
        assert config_hash(config_from_dict({key: default})) == config_hash(Config())
        assert config_hash(apply_overrides(Config(), [f"{key}={other}"])) != config_hash(Config())
        assert config_hash(Config(), key) != config_hash(apply_overrides(Config(), [f"{key}={other}"]), key)


def test_nearest_in_short() -> None:
    assert nearest("NNPU", ["nnpu", "upu"]) == "nnpu"
    assert nearest("banana", ["nnpu", "upu"]) is None


def test_unknown_name_in_short() -> None:
    assert str(unknown_name("method", "nnpuu", ["nnpu", "vpu"])) == "there is no method 'nnpuu'; did you mean 'nnpu'?"


def test_settings_in_names_in_short() -> None:
    assert "low_loss" not in settings_in_names(Config())["student"]
