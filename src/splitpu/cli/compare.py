"""`splitpu compare`: its options. Nothing heavy is imported here."""

from pathlib import Path

from splitpu.cli.options import NO_WORDS, Calibration, DataWords, Flag, Settings, Share, Whole
from splitpu.cli.quick_start import quick_start
from splitpu.config.schema import Scenario


def compare(
    data: str | None = None,
    /,
    *,
    method: str = "split-pu,nnpu,dist-pu,naive",
    seeds: str = "0,1,2",
    prior: Share = None,
    where: DataWords = NO_WORDS,
    out: Path | None = None,
    preset: str | None = None,
    config: Path | None = None,
    settings: Settings = None,
    rounds: Whole = None,
    backbone: str | None = None,
    weights: Path | None = None,
    warmup: str | None = None,
    scenario: Scenario | None = None,
    calibration: Calibration | None = None,
    device: str | None = None,
    keep_checkpoints: Flag = False,
    quiet: Flag = False,
    json: Flag = False,
) -> int:
    """Train several methods on the same rows with the same prior and network, and put their figures side by side.

    A comparison that was stopped goes on with the same command, and methods and seeds can be added to one.

    Parameters
    ----------
    data
        As for fit: a .npz file, a .csv or .parquet table (see --label), or the name of a public set. For folders of
        images and for .npy files give --positives and --unlabelled instead.
    method
        Methods with commas; the others are compared with the first. `splitpu methods` lists them; supervised only where
        the truth of the training rows is known.
    seeds
        Whole numbers with commas: one run a method and seed, one after the other, so that seconds can be compared. Of a
        named set each seed draws other labels. A single seed tells nothing about chance.
    prior
        Share of positives in the population, or auto to estimate it; if not given, the true one of a named set, else
        auto. It is estimated once for all methods, and of a named set once a draw of labels.
    out
        The folder of all runs, with a line for each in runs.jsonl; runs/compare-DATA-... if not given, the same for the
        same command.
    preset
        Where the settings start from: default, paper, or record (slower: a warm-up, then fine-tuning).
    config
        A TOML file of settings, laid over the preset.
    settings
        A single setting such as student.epochs=20, laid over both; may be repeated.
    rounds
        Rounds of split and student.
    backbone
        The network of all methods: auto, mlp, cnn-small, cnn13, resnet18 or, for volumes, slices-resnet18.
    weights
        What resnet18 starts from: imagenet, or a file in torchvision's format (.safetensors, or .pth of tensors only).
    warmup
        simclr: learn features from all rows without labels first, and start every network from them; none if not given.
    scenario
        How the data were sampled: single-training-set (one draw, some of its positives labelled) or case-control (the
        positives were collected apart).
    calibration
        Make probabilities mean what they say, as for fit; only split-pu, nnpu, upu, vpu and naive can do without the
        rows that this keeps out of the training.
    device
        auto, cpu or cuda.
    keep_checkpoints
        Keep the intermediate states of finished runs.
    quiet
        Show no progress.
    json
        Print the result as one JSON object.
    """
    with quick_start():
        from splitpu.cli.comparing import run_compare
        from splitpu.cli.fit import FitOptions

    asked = FitOptions(
        data=data,
        method=method,
        prior=prior,
        **where.__dict__,
        out=out,
        preset=preset,
        config=config,
        settings=settings,
        rounds=rounds,
        backbone=backbone,
        weights=weights,
        warmup=warmup,
        scenario=scenario,
        calibration=calibration,
        seeds=seeds,
        device=device,
    )
    return run_compare(asked, keep_checkpoints=keep_checkpoints, quiet=quiet, as_json=json)
