"""Everything a run can be told: the dataclasses, the presets, and reading and writing them. Imports no torch."""

from splitpu.config.parse import (
    apply_overrides,
    config_differences,
    config_from_dict,
    config_hash,
    config_to_dict,
    config_to_toml,
    read_config,
    validate_config,
)
from splitpu.config.presets import DataProfile, preset, preset_names
from splitpu.config.schema import (
    BaseConfig,
    Config,
    EngineConfig,
    OptimiserConfig,
    PassesConfig,
    Scenario,
    SelectionConfig,
    SplitConfig,
    StudentConfig,
    TeacherName,
    ViewsConfig,
    WarmupConfig,
)

__all__ = [
    "BaseConfig",
    "Config",
    "DataProfile",
    "EngineConfig",
    "OptimiserConfig",
    "PassesConfig",
    "Scenario",
    "SelectionConfig",
    "SplitConfig",
    "StudentConfig",
    "TeacherName",
    "ViewsConfig",
    "WarmupConfig",
    "apply_overrides",
    "config_differences",
    "config_from_dict",
    "config_hash",
    "config_to_dict",
    "config_to_toml",
    "preset",
    "preset_names",
    "read_config",
    "validate_config",
]
