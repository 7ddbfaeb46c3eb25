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
        Share of positives in the population; if not given (auto), it is estimated once for all methods, and of a named
        set once a draw of labels. Of a named set, true takes the true one; none if all are to do without.
    out
        The folder of all runs, with a line for each in runs.jsonl; runs/compare-DATA-... if not given, the same for the
        same command.
    keep_checkpoints
        Keep the intermediate states of finished runs.
    """
    with quick_start():
        from splitpu.cli.comparing import run_compare
        from splitpu.cli.fit import FitOptions

    words = where.__dict__ | how.__dict__
    asked = FitOptions(data=data, method=method, prior=prior, out=out, seeds=seeds, **words)
    return run_compare(asked, keep_checkpoints=keep_checkpoints, quiet=quiet, as_json=json)
