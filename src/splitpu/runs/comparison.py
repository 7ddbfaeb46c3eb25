"""A folder of runs that differ in their method and seed only: what they share, one line a run, and the table."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from splitpu.config import EngineConfig, config_hash
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.files import disk_errors_in_words, remove_leftovers, write_text
from splitpu.methods.registry import sections_in_use
from splitpu.metrics import finite_or_none
from splitpu.models import Model
from splitpu.prior.resolve import ResolvedPrior
from splitpu.runs.estimates import estimates_of
from splitpu.runs.folder import COMPARISON, RunFolder, remove_if_empty
from splitpu.runs.several import final_model, in_words, spread_of
from splitpu.runs.sources import LoadedData

COMPARED = ("accuracy", "f1", "roc_auc")
DOUBTFUL = "(!)"  # behind the name of a method whose estimates are not to be believed

Line = dict[str, Any]


class ComparisonFolder:
    """`comparison.json` says what all runs share, `METHOD/seed<number>/` are the runs, `runs.jsonl` has a line a run.

    What was asked for is checked and never changed, but methods and seeds can be added at any time: runs that are there
    already are not trained again, and the prior stays the one that the first of them had.
    """

    def __init__(self, path: Path, asked: Mapping[str, Any]) -> None:
        self.path = path
        self.shared_file = path / COMPARISON
        self.lines_file = path / "runs.jsonl"
        self.asked: dict[str, Any] = json.loads(json.dumps(asked))  # as it will be read back
        self._threads: int | None = None
        self._priors: dict[str, dict[str, Any] | None] = {}

    def run(self, method: str, seed: int) -> RunFolder:
        """The run folder of a method and a seed."""
        return RunFolder(self.path / method / f"seed{seed}")

    def threads(self, choose: Callable[[], int]) -> int:
        """The number of CPU threads of all runs: on it depend sums, and the seconds."""
        if self._threads is None:
            self._threads = choose()
        return self._threads

    def prior(self, fingerprint: str, find: Callable[[], ResolvedPrior]) -> ResolvedPrior:
        """The prior of all methods on the same rows: found once, however many they are and however often it stopped."""
        if fingerprint not in self._priors:
            found = find()
            stored = {"value": found.value, "source": found.source, "estimate": found.to_dict()}
            self._priors[fingerprint] = {**stored, "doubts": list(found.doubts)}
        known = self._priors[fingerprint]
        if known is None:  # in folders from before it was kept why there is none
            return ResolvedPrior.none()
        source, doubts = known.get("source", "given"), known.get("doubts", ())
        return ResolvedPrior.from_dict(known["value"], source, known["estimate"], doubts)

    def save(self) -> None:
        """Write what the runs share; from then on the folder is a comparison."""
        shared = {"asked": self.asked, "threads": self._threads, "priors": self._priors}
        write_text(self.shared_file, json.dumps(shared, indent=2))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the comparison alone, from before it is read; a folder that never became one is taken away again."""
        self._refuse_other_things()
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with disk_errors_in_words(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        try:
            with RunFolder(self.path).locked():
                remove_leftovers(self.path)
                if self.shared_file.exists():
                    self._read_shared()
                yield
        finally:
            for folder in new:
                remove_if_empty(folder)

    def lines(self) -> dict[tuple[str, int], Line]:
        """The lines of all finished runs, by method and seed."""
        if not self.lines_file.exists():
            return {}
        try:
            found = [json.loads(text) for text in self.lines_file.read_text(encoding="utf-8").splitlines()]
            return {(line["method"], line["seed"]): line for line in found}
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{self.lines_file} cannot be read ({error}); remove it, and run the same command to write it again."
            ) from error

    def add(self, folder: RunFolder, loaded: LoadedData) -> None:
        """Write the line of a finished run: the whole file anew, so that there is never half a line."""
        line = _line_of(folder, loaded)
        lines = self.lines() | {
            (line["method"], line["seed"]): {**line, "run": str(folder.path.relative_to(self.path))}
        }
        write_text(self.lines_file, "".join(f"{json.dumps(finite_or_none(one))}\n" for one in lines.values()))

    def _refuse_other_things(self) -> None:
        """A comparison may be there, or what a process has written that has only begun one, or was killed at once."""
        begun = (RunFolder(self.path).lock_file.name, f".{COMPARISON}.*.tmp")
        if self.shared_file.exists():
            return
        if self.path.is_dir() and all(any(fnmatch(p.name, name) for name in begun) for p in self.path.iterdir()):
            return
        RunFolder.free_path(self.path, "")

    def _read_shared(self) -> None:
        try:
            shared = json.loads(self.shared_file.read_text(encoding="utf-8"))
            before, self._threads, self._priors = shared["asked"], shared["threads"], shared["priors"]
            different = [name for name in self.asked if before.get(name) != self.asked[name]]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{self.shared_file} cannot be read ({error}); choose another --out.") from error
        if different:
            raise InputError(
                f"{self.path} holds a comparison with another {' and another '.join(different)}, whose figures are not "
                "comparable; choose another --out."
            )


def _line_of(folder: RunFolder, loaded: LoadedData) -> Line:
    result, request, config = folder.read_result(), folder.request(), folder.config()
    line: Line = {
        "method": config.method,
        "seed": request.seed,
        "config_hash": config_hash(config, *sections_in_use(config)),
        "data_fingerprint": request.fingerprint,
        "test": final_model(result)["test"],  # of the last epoch, or of the one that rows set aside chose
        "seconds": result["seconds_total"],
    }
    if loaded.held_out is None:
        hardware = Hardware.choose(request.device, EngineConfig())
        estimates = estimates_of(folder, Model.load(folder.path), loaded.data, hardware)
        line |= {
            "estimates": estimates.found.to_dict(),
            "estimates_note": estimates.note,
            "degenerate": [one.__dict__ for one in estimates.wrong],
        }
    kept = ("prior", "prior_source", "network", "rows", "labelled", "unlabelled", "test_rows", "scenario", "preset")
    ran = ("device", "engine", "warnings", "versions", "commit", "finished")
    return line | {name: result[name] for name in (*kept, *ran)}


# -------------------------------------------------------------------------------------------------------- all together


def summary_of_methods(
    lines: Mapping[tuple[str, int], Line], methods: Sequence[str], seeds: Sequence[int]
) -> list[Line]:
    """Mean and deviation of every figure of every method, and how far it is from the first method, seed by seed."""
    by_method = {method: {str(seed): lines[method, seed] for seed in seeds} for method in methods}
    first = by_method[methods[0]]
    return [
        {
            "method": method,
            "seeds": len(seeds),
            "figures": {figure: _figure_of(figure, own) for figure in COMPARED},
            "seconds": spread_of({seed: line["seconds"] for seed, line in own.items()}),
            "difference": {
                figure: difference
                for figure in COMPARED
                if own is not first and (difference := paired_difference(_tested(figure, own), _tested(figure, first)))
            },
            "degenerate": _degenerate(own),
        }
        for method, own in by_method.items()
    ]


def paired_difference(
    values: Mapping[str, float | None], reference: Mapping[str, float | None]
) -> dict[str, float] | None:
    """The mean difference over the seeds that both have, with its standard error; None for fewer than two.

    >>> paired_difference({"0": 0.5, "1": 1.0}, {"0": 0.25, "1": 0.25})
    {'mean': 0.5, 'standard_error': 0.25}
    """
    pairs = [(value, reference.get(seed)) for seed, value in values.items()]
    gains = [value - other for value, other in pairs if value is not None and other is not None]
    if len(gains) < 2:
        return None
    return {"mean": statistics.fmean(gains), "standard_error": statistics.stdev(gains) / len(gains) ** 0.5}


def by_chance(difference: Mapping[str, float]) -> bool:
    """Whether a difference is no larger than its standard error, as it is if one seed of several makes all of it."""
    return abs(difference["mean"]) <= difference["standard_error"] * (1 + 1e-9)


def method_rows(summary: Sequence[Line]) -> list[dict[str, Any]]:
    """One row a method, for tables; figures in percent, and the difference is that of the accuracy."""
    return [
        {
            "method": method["method"] + (f" {DOUBTFUL}" if method["degenerate"] else ""),
            "seeds": method["seeds"],
            **{figure: _percent(found) for figure, found in method["figures"].items()},
            "seconds": _seconds(method["seconds"]),
            "difference": _points(method["difference"].get("accuracy")),
        }
        for method in summary
    ]


def _degenerate(lines: Mapping[str, Line]) -> list[dict[str, Any]]:
    """What is wrong with the models behind estimates, by seed; lines from before it was kept say nothing of it."""
    return [{"seed": line["seed"], **one} for line in lines.values() for one in line.get("degenerate", ())]


def _tested(figure: str, lines: Mapping[str, Line]) -> dict[str, float | None]:
    return {seed: line["test"][figure] for seed, line in lines.items() if line["test"] is not None}


def _figure_of(figure: str, lines: Mapping[str, Line]) -> dict[str, Any]:
    """From the test rows, or else estimates with their interval: that of one run, on average over the seeds."""
    if all(line["test"] is not None for line in lines.values()):
        return spread_of(_tested(figure, lines))
    estimates = {seed: line["estimates"]["figures"][figure] for seed, line in lines.items()}
    bounds = {bound: statistics.fmean(one[bound] for one in estimates.values()) for bound in ("low", "high")}
    return {**spread_of({seed: one["value"] for seed, one in estimates.items()}), **bounds}


def _percent(found: Mapping[str, Any]) -> str:
    interval = f" ({100 * found['low']:.1f}-{100 * found['high']:.1f})" if "low" in found else ""
    return in_words("accuracy", found) + interval


def _seconds(spread: Mapping[str, float | None]) -> str:
    known = [spread[part] for part in ("mean", "sd")]
    return "±".join(f"{value:.0f}" if value >= 100 else f"{value:.1f}" for value in known if value is not None)


def _points(difference: Mapping[str, float] | None) -> str:
    return "-" if difference is None else f"{100 * difference['mean']:+.1f}±{100 * difference['standard_error']:.1f}"
