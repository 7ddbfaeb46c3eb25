"""The other methods' settings for small data: published ones are for tens of thousands of rows."""

from splitpu.config.parse import config_from_dict
from splitpu.config.schema import METHOD_SECTIONS, Config

SMALL = 5_000  # rows below which a set is trained in small batches and few epochs
FEWEST_LABELLED_TO_CHOOSE_BY = 10  # of those that are kept from the training; fewer would choose any epoch
_FITTED = {"epochs": 60, "batch_size": 128, "positives_per_batch": 16, "optimiser.rate": 1e-3}


def methods_fitted_to(config: Config, rows: int, labelled: int) -> Config:
    """Give small data smaller batches and a larger rate, so that there are steps enough for anything to be learned.

    Only the methods beside Split-PU: its own sections are the presets' business.

    >>> [methods_fitted_to(Config(), rows, labelled=100).vpu.optimiser.rate for rows in (1000, 50_000)]
    [0.0003, 3e-05]
    """
    if rows >= SMALL:
        enough = config.vpu.held_out * labelled >= FEWEST_LABELLED_TO_CHOOSE_BY
        return config if enough else config_from_dict({"vpu.held_out": 0.0}, config)
    settings = {f"{method}.{key}": value for method in METHOD_SECTIONS for key, value in _FITTED.items()}
    special = {
        # Its loss soon knows few positives by heart, and then calls nothing else positive: stop early, mix much.
        "vpu.epochs": 20,
        "vpu.held_out": 0.0,
        "vpu.optimiser.rate": 3e-4,
        "vpu.mix_weight": 1.0,
        # All predictions rise to one before the adversary knows anything; in so few steps the game would not undo it.
        "dan.anchor_level": 0.95,
        "dan.positives_per_batch": 0,
        "dan.optimiser.weight_decay": 0.0,
        "dan.optimiser.average": 0.0,
        "p3mix.positives_per_batch": 0,
        "p3mix.optimiser.weight_decay": 5e-4,
        "puupl.epochs": 40,
        "puupl.rounds": 3,
        "puupl.per_round": max(2, rows // 8),
        "dist_pu.epochs": 40,
        "dist_pu.warmup_epochs": 40,
        "dist_pu.warmup_optimiser.rate": 1e-3,
        "dist_pu.optimiser.rate": 1e-4,  # the second part only refines the first
    }
    return config_from_dict(settings | special, config)
