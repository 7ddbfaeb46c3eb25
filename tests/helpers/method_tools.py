"""Settings with which every method is trained in a moment."""

from torch import Tensor

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.config.schema import Config
from splitpu.data.pudata import PUData
from splitpu.methods.registry import methods
from splitpu.training import Training, profile_of

METHODS = methods()
# No networks to train.
LEARNERS = [name for name, method in METHODS.items() if method.home.startswith("table_learners:")]
RIVALS = [name for name in METHODS if name not in ("split-pu", "naive", "supervised", *LEARNERS)]
SECTIONS = {method: method.replace("-", "_") for method in RIVALS if method not in ("nnpu", "upu")}
SETTINGS = [
    *("engine.threads=1", "views.flip=false", "views.crop_padding=0.1"),
    *("split.max_epochs=2", "split.tau=0.01", "student.epochs=2"),
]


def budget(method: str, epochs: int) -> list[str]:
    """So many epochs for every stage of the method, in batches that a few hundred rows have some of."""
    if method in LEARNERS:
        return ["labelled_by=0"] if method == "sar-em" else []
    section = SECTIONS.get(method, "base")
    more = {
        "base": ["base.optimiser.rate=3e-3"],
        "pubn": [f"pubn.score_epochs={epochs}"],
        "puupl": ["puupl.rounds=2", "puupl.per_round=100"],
        "dist_pu": [f"dist_pu.warmup_epochs={epochs}"],
    }
    sizes = [f"{section}.epochs={epochs}", f"{section}.batch_size=64", f"{section}.positives_per_batch=16"]
    return [*sizes, *more.get(section, [])]


def settings(data: PUData, method: str, epochs: int, *more: str) -> Config:
    start = preset("default", profile_of(data))
    return apply_overrides(start, [*SETTINGS, *budget(method, epochs), f"method={method}", *more])


def weights(training: Training) -> dict[str, Tensor]:
    return training.model.final.network.state_dict()
