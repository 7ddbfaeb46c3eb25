"""Configurations as files: what is written reads back, and what differs is told; and the presets they start from."""

import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitpu.config.parse import (
    VALUE_TYPES,
    config_differences,
    config_from_dict,
    config_hash,
    config_to_dict,
    config_to_toml,
    read_config,
    validate_config,
)
from splitpu.config.presets import DataProfile, preset, preset_names
from splitpu.config.schema import RANGES, Config, StudentConfig
from splitpu.errors import InputError


def any_value(key: str) -> st.SearchStrategy[Any]:
    kind = VALUE_TYPES[key]
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
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
            'method = "split-pu"\nrounds = 2\nmembers = 1\nthreshold = "prior"\n\n[base]\nmethod = "risk"\n'
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
        with pytest.raises(InputError, match=r"run\.toml' is not valid TOML: .*line 3"):
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
        with pytest.raises(InputError, match="choose one of 'default', 'paper'"):
            preset("zzz")
