"""Settings that were given on the command line and that the method never reads."""

from collections.abc import Sequence

from splitpu.config import Config
from splitpu.methods.registry import find_method, sections_in_use

_FOR_ALL = ("engine", "members", "warmup")


def if_settings_do_nothing(config: Config, settings: Sequence[str], rounds: int | None) -> list[str]:
    """A note about settings without any effect, which would be waited for in vain.

    >>> if_settings_do_nothing(Config(method="nnpu"), ["base.epochs=5", "student.epochs=5"], 3)
    ['--set student.epochs=5, --rounds 3 has no effect: nnpu reads the settings in base, selection']
    """
    read = {*sections_in_use(config), *_FOR_ALL}
    idle = [f"--set {one}" for one in settings if one.partition("=")[0].partition(".")[0].strip() not in read]
    if rounds is not None and "rounds" not in read:
        idle.append(f"--rounds {rounds}")
    if not idle:
        return []
    sections = ", ".join(name for name in find_method(config.method).sections if name not in ("threshold", "rounds"))
    return [f"{', '.join(idle)} has no effect: {config.method} reads the settings in {sections}"]
