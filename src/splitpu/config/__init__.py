"""Everything a run can be told: the dataclasses, the presets, and reading and writing them. Imports no torch."""

from splitpu.config.parse import apply_overrides as apply_overrides
from splitpu.config.parse import config_differences as config_differences
from splitpu.config.parse import config_from_dict as config_from_dict
from splitpu.config.parse import config_hash as config_hash
from splitpu.config.parse import config_to_dict as config_to_dict
from splitpu.config.parse import config_to_toml as config_to_toml
from splitpu.config.parse import read_config as read_config
from splitpu.config.parse import validate_config as validate_config
from splitpu.config.presets import DataProfile as DataProfile
from splitpu.config.presets import preset as preset
from splitpu.config.presets import preset_names as preset_names
from splitpu.config.schema import BaseConfig as BaseConfig
from splitpu.config.schema import Config as Config
from splitpu.config.schema import EngineConfig as EngineConfig
from splitpu.config.schema import OptimiserConfig as OptimiserConfig
from splitpu.config.schema import PassesConfig as PassesConfig
from splitpu.config.schema import Scenario as Scenario
from splitpu.config.schema import SelectionConfig as SelectionConfig
from splitpu.config.schema import SplitConfig as SplitConfig
from splitpu.config.schema import StudentConfig as StudentConfig
from splitpu.config.schema import TeacherName as TeacherName
from splitpu.config.schema import ViewsConfig as ViewsConfig
from splitpu.config.schema import WarmupConfig as WarmupConfig
