"""Settings that were given on the command line and that no method in the command ever reads."""

from collections.abc import Iterable, Sequence

from splitpu.config import Config
from splitpu.methods.registry import find_method, sections_in_use

_FOR_ALL = ("engine", "members", "warmup")


def if_settings_do_nothing(configs: Iterable[Config], settings: Sequence[str], rounds: int | None) -> list[str]:
    """A note about settings without any effect on the methods of these configurations, waited for in vain.

    >>> if_settings_do_nothing([Config(method="nnpu")], ["base.epochs=5", "student.epochs=5"], 3)
    ['--set student.epochs=5, --rounds 3 have no effect: nnpu reads the settings in base, selection']
    """
    configs = list(configs)
    read = set(_FOR_ALL).union(*map(sections_in_use, configs))
    idle = [f"--set {one}" for one in settings if one.partition("=")[0].partition(".")[0].strip() not in read]
    if rounds is not None and "rounds" not in read:
        idle.append(f"--rounds {rounds}")
    if not idle:
        return []
    methods = [config.method for config in configs]
    theirs = dict.fromkeys(name for method in methods for name in find_method(method).sections)
    sections = ", ".join(name for name in theirs if name not in ("threshold", "rounds"))
    have, reads = "has" if len(idle) == 1 else "have", "reads" if len(methods) == 1 else "read"
    return [f"{', '.join(idle)} {have} no effect: {', '.join(methods)} {reads} the settings in {sections}"]
