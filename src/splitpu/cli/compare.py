"""`splitpu compare`: its options. Nothing heavy is imported here."""

from pathlib import Path

from splitpu.cli.options import AS_USUAL, NO_WORDS, DataWords, Flag, Quiet, ResultAsJson, Share, TrainingWords
from splitpu.cli.quick_start import quick_start


def compare(
    data: str | None = None,
    /,
    *,
    method: str = "split-pu,nnpu,dist-pu,naive",
    seeds: str = "0,1,2",
    prior: Share = None,
    where: DataWords = NO_WORDS,
    out: Path | None = None,
    how: TrainingWords = AS_USUAL,
    keep_checkpoints: Flag = False,
    quiet: Quiet = False,
    json: ResultAsJson = False,
) -> int:
    """Train several methods on the same rows with the same prior and network, and put their figures side by side.

    To continue a comparison that was stopped, give the same command again. Methods and seeds can be added later.

    Parameters
    ----------
    data
        As for fit: a .npz file, a .csv or .parquet table (see --label), or the name of a public set. For folders of
        images and for .npy files, give --positives and --unlabelled instead.
    method
        The methods, separated by commas (see `splitpu methods`). All others are compared with the first. supervised
        works only where the truth of the training rows is known.
    seeds
        Seeds, separated by commas: one run for each method and seed, one after the other, so that their seconds can be
        compared. For a named set, each seed draws other labels. A single seed says nothing about chance.
    prior
        The share of positives in the population, such as 0.3. auto (if not given) estimates it once for all methods
        (for a named set, once for each draw of labels); true takes the known share of a named set; none if all methods
        are to do without.
    out
        The folder for all runs; runs.jsonl in it has a line for each. If not given: runs/compare-DATA-..., which is the
        same for the same command.
    keep_checkpoints
        Keep the intermediate states of finished runs.
    """
    with quick_start():
        from splitpu.cli.comparing import run_compare
        from splitpu.cli.fit import FitOptions

    words = where.__dict__ | how.__dict__
    asked = FitOptions(data=data, method=method, prior=prior, out=out, seeds=seeds, **words)
    return run_compare(asked, keep_checkpoints=keep_checkpoints, quiet=quiet, as_json=json)
