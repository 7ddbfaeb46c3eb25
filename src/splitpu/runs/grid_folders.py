"""Folders of several runs, and what these say together: `SeedsFolder` holds runs that differ in their seed only,
`ComparisonFolder` those of several methods and seeds. What brings their runs to an end is a `Grid` (`runs/grid.py`)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from splitpu.config.parse import config_hash
from splitpu.data.sources import LoadedData
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation.metrics import finite_or_none
from splitpu.methods.registry import sections_in_use
from splitpu.model import Model
from splitpu.prior.estimate import ResolvedPrior
from splitpu.report.render import render_seeds
from splitpu.runs.folder import COMPARISON, SEEDS_LIST, RunFolder, remove_if_empty
from splitpu.runs.grid import Results
from splitpu.runs.results import estimates_of
from splitpu.utils.files import (
    disk_errors_in_words,
    drafted,
    full_disk_named_as,
    make_folder,
    remove_leftovers,
    write_text,
)
from splitpu.utils.reading import Guarded, checked, sealed, write_sealed
from splitpu.utils.statistics import mean, paired_difference, spread_of

FIGURES = ("accuracy", "f1", "roc_auc", "average_precision", "positive_rate_unlabelled")
_PERCENTAGES = ("accuracy", "positive_rate_unlabelled")

Begin = Callable[[Path, int], RunFolder]  # makes the run of a seed at a path
COMPARED = ("accuracy", "f1", "roc_auc", "average_precision")
DOUBTFUL = "(!)"  # behind the name of a method whose estimates are not to be believed

Line = dict[str, Any]
Lines = Mapping[tuple[str, int], Line]  # by method and seed


class SeedsFolder:
    """`seeds.json` names the seeds, `seed<number>/` are their runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.list_file = path / SEEDS_LIST
        self.summary = path / "summary.json"
        self.page = path / "index.html"

    @classmethod
    def create(cls, path: Path, seeds: Sequence[int], begin: Begin) -> "SeedsFolder":
        """Make the folder with all its runs in one move, so that every seed it names has a run to go on with."""
        try:
            with disk_errors_in_words(path), full_disk_named_as(path), drafted(path) as place:
                draft = cls(place)
                for seed in seeds:
                    begin(draft.run(seed).path, seed)
                write_sealed(draft.list_file, {"seeds": list(seeds)})
        except OSError as error:
            reason = f"{path} cannot be made into a folder of runs ({error.strerror}); choose another --out."
            raise InputError(reason) from error
        return cls(path)

    def run(self, seed: int) -> RunFolder:
        return RunFolder(self.path / f"seed{seed}")

    def seeds(self) -> list[int]:
        guarded = Guarded(self.list_file, "resume the runs next to it one by one", missing="it is missing")
        with guarded.understood():
            seeds: list[int] = checked(guarded.sealed()["seeds"], list[int], "seeds")
            unknown = {path.name for path in self.path.glob("seed*/")} - {self.run(seed).path.name for seed in seeds}
            if unknown or not seeds:
                guarded.refuse(f"it does not name {min(unknown, default='any run')}: it belongs to other runs")
            return seeds

    def summarise(self) -> dict[str, Any]:
        """Write what the finished runs say together, unless it is there already: the folder may be one to read only."""
        seeds = self.seeds()
        results = {seed: self.run(seed).read_result() for seed in seeds}
        content = summary_of(results)
        text = json.dumps(content, indent=2)
        with suppress(InputError, FileNotFoundError):
            if self.page.exists() and Guarded(self.summary).text() == text:
                return content
        write_text(self.summary, text)
        title = f"{self.path.name}: {results[seeds[0]]['labelled']:,} labelled positives, {len(seeds)} seeds"
        pages = {f"seed {seed}": f"seed{seed}/{self.run(seed).report.name}" for seed in seeds}
        rows = mean_rows(content), seed_rows(content)
        write_text(self.page, render_seeds(title, *rows, pages, warnings_in_words(content)))
        return content


def summary_of(results: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Every figure of every model, the final one last: its values by seed, their mean and their standard deviation."""
    by_model: dict[str, dict[str, dict[str, float | None]]] = {}  # model -> figure -> seed -> value

    def keep(name: str, seed: int, model: Mapping[str, Any]) -> None:
        figures = {**(model["test"] or {}), **model}
        for figure in (figure for figure in FIGURES if figure in figures):
            by_model.setdefault(name, {}).setdefault(figure, {})[str(seed)] = figures[figure]

    for seed, result in results.items():
        for model in result["models"]:
            keep(_role(model), seed, model)
    if any(_role(final_model(result)) != list(by_model)[-1] for result in results.values()):
        for seed, result in results.items():  # where students were not taken, seeds end with different models
            keep("final", seed, final_model(result))
    models = [
        {"model": name, "figures": {figure: spread_of(values) for figure, values in figures.items()}}
        for name, figures in by_model.items()
    ]
    seconds = {str(seed): result["seconds_total"] for seed, result in results.items()}
    concerned: dict[str, list[int]] = {}  # every warning once, with its seeds, in the order in which the runs have them
    for seed, result in results.items():
        for warning in dict.fromkeys(result.get("warnings", ())):
            concerned.setdefault(warning, []).append(seed)
    warnings = [{"warning": warning, "seeds": seeds} for warning, seeds in concerned.items()]
    return {"seeds": list(results), "models": models, "seconds": seconds, "warnings": warnings}


def _role(model: Mapping[str, Any]) -> str:
    """What a model is in its run: that of 'base: kernel, wide' is 'base'."""
    return str(model["model"]).partition(": ")[0]


def warnings_in_words(summary: Mapping[str, Any]) -> list[str]:
    """The warnings of all runs, each with the seeds that it concerns before it."""
    return [f"{seeds_in_words(one['seeds'])}: {one['warning']}" for one in summary["warnings"]]


def seeds_in_words(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def final_model(result: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(model for model in reversed(result["models"]) if model["model"] == result["final"])


def mean_rows(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row a model, for tables: mean and standard deviation in words."""
    return [
        {"model": model["model"], **{figure: in_words(figure, spread) for figure, spread in model["figures"].items()}}
        for model in summary["models"]
    ]


def seed_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a seed, for tables: the figures of its final model."""
    final = summary["models"][-1]["figures"]
    return [
        {"model": f"seed {seed}", **{figure: spread["values"].get(str(seed)) for figure, spread in final.items()}}
        for seed in summary["seeds"]
    ]


def in_words(figure: str, spread: Mapping[str, Any]) -> str:
    """Mean and deviation as a table shows them, short enough for a terminal of 80 columns; percent without the sign."""
    if spread["mean"] is None:
        return "-"
    if figure in _PERCENTAGES:
        return "±".join(f"{100 * spread[part]:.1f}" for part in ("mean", "sd") if spread[part] is not None)
    deviation = "" if spread["sd"] is None else f"±{spread['sd']:.3f}".replace("±0.", "±.")
    return f"{spread['mean']:.3f}{deviation}"


class ComparisonFolder(Results[Any]):
    """`comparison.json` says what all runs share, `METHOD/seed<number>/` are the runs, `runs.jsonl` has a line a run.

    What was asked for is checked and never changed, but methods and seeds can be added at any time: runs that are there
    already are not trained again, and the prior stays the one that the first of them had."""

    def __init__(self, path: Path, asked: Mapping[str, Any]) -> None:
        self.path = path
        self.shared_file = path / COMPARISON
        self.lines_file = path / "runs.jsonl"
        self.checkpoints = path / "checkpoints"  # of estimates of the prior, until all are known
        self.asked: dict[str, Any] = json.loads(json.dumps(asked))  # as it will be read back
        self.threads: int | None = None  # of the CPU, of all runs: on their number depend sums, and the seconds
        self._priors: dict[str, dict[str, Any]] = {}
        self._done: dict[tuple[str, int], Line] | None = None  # when the folder was first asked

    def run(self, method: str, seed: int) -> RunFolder:
        return RunFolder(self.path / method / f"seed{seed}")

    def prior(self, fingerprint: str, find: Callable[[], ResolvedPrior]) -> ResolvedPrior:
        """The prior of all methods on the same rows: found once, however many they are and however often it stopped."""
        if fingerprint not in self._priors:
            found = find()
            stored = {"value": found.value, "source": found.source, "estimate": found.to_dict()}
            self._priors[fingerprint] = {**stored, "doubts": list(found.doubts)}
        known = self._priors[fingerprint]
        return ResolvedPrior.from_dict(known["value"], known["source"], known["estimate"], known["doubts"])

    def save(self) -> None:
        """Write what the runs share; from then on the folder is a comparison."""
        write_sealed(self.shared_file, {"asked": self.asked, "threads": self.threads, "priors": self._priors})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the comparison alone, from before it is read; a folder that never became one is taken away again."""
        # A comparison may be there, or what a process has written that has only begun one, or was killed at once.
        begun = (RunFolder(self.path).lock_file.name, f".{COMPARISON}.*.tmp", self.checkpoints.name)
        there = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else [""]
        if not self.shared_file.exists() and not all(any(fnmatch(name, one) for one in begun) for name in there):
            RunFolder.free_path(self.path, "")
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with disk_errors_in_words(self.path):
            make_folder(self.path)
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
        guarded = Guarded(self.lines_file, "remove it, and run the same command to write it again")
        with guarded.understood():
            return {(checked(one["method"], str), checked(one["seed"], int)): one for one in guarded.sealed_lines()}

    def find(self, unit: Any) -> Line | None:
        """The line of a run that had been finished before."""
        self._done = self.lines() if self._done is None else self._done
        return self._done.get((unit.config.method, unit.asked.seed))

    def add(self, unit: Any, result: Line) -> None:
        """Write the line of a finished run: the whole file anew, so that there is never half a line."""
        lines = self.lines() | {(result["method"], result["seed"]): result}
        write_text(self.lines_file, "".join(f"{json.dumps(sealed(finite_or_none(one)))}\n" for one in lines.values()))

    def _read_shared(self) -> None:
        guarded = Guarded(self.shared_file, "choose another --out")
        with guarded.understood():
            shared = guarded.sealed()
            self.threads = checked(shared["threads"], int | None, "threads")
            self._priors = checked(shared["priors"], dict[str, dict[str, Any] | None], "priors")
            before = checked(shared["asked"], dict[str, Any], "asked")
            different = [name for name in self.asked if before.get(name) != self.asked[name]]
        if different:
            other = f"another {' and another '.join(different)}, whose figures are not comparable"
            raise InputError(f"{self.path} holds a comparison with {other}; choose another --out.")


def line_of(folder: RunFolder, loaded: LoadedData) -> Line:
    """What a finished run of a comparison says, with all that it rests on."""
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
        judged = estimates_of(folder, Model.load(folder.path), loaded.data, Hardware.choose(request.device))
        assert judged.found is not None  # as they are estimates
        line |= {"estimates": judged.found.to_dict(), "estimates_note": judged.note}
        line["degenerate"] = [one.__dict__ for one in judged.wrong]
    kept = ("prior", "prior_source", "network", "rows", "labelled", "unlabelled", "test_rows", "scenario", "preset")
    ran = ("device", "engine", "warnings", "versions", "commit", "finished")
    return line | {name: result[name] for name in (*kept, *ran)} | {"run": str(Path(*folder.path.parts[-2:]))}


def summary_of_methods(lines: Lines, methods: Sequence[str], seeds: Sequence[int]) -> list[Line]:
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
            "degenerate": [
                {"seed": line["seed"], **one} for line in own.values() for one in line.get("degenerate", ())
            ],
        }
        for method, own in by_method.items()
    ]


def method_rows(summary: Sequence[Line], compared: str = "accuracy") -> list[dict[str, Any]]:
    """One row a method, for tables; figures in percent, and the difference is that of the figure that is compared."""
    rows = []
    for method in summary:
        took = [method["seconds"][part] for part in ("mean", "sd") if method["seconds"][part] is not None]
        gain = method["difference"].get(compared)
        rows.append(
            {
                "method": method["method"] + (f" {DOUBTFUL}" if method["degenerate"] else ""),
                "seeds": method["seeds"],
                **{figure: _percent(found) for figure, found in method["figures"].items()},
                "seconds": "±".join(f"{value:.0f}" if value >= 100 else f"{value:.1f}" for value in took),
                "difference": f"{100 * gain['mean']:+.1f}±{100 * gain['standard_error']:.1f}" if gain else "-",
            }
        )
    return rows


def _tested(figure: str, lines: Mapping[str, Line]) -> dict[str, float | None]:
    return {seed: line["test"][figure] for seed, line in lines.items() if line["test"] is not None}


def _figure_of(figure: str, lines: Mapping[str, Line]) -> dict[str, Any]:
    """From the test rows, or else estimates with their interval: that of one run, on average over the seeds."""
    if all(line["test"] is not None for line in lines.values()):
        return spread_of(_tested(figure, lines))
    estimates = {seed: line["estimates"]["figures"][figure] for seed, line in lines.items()}
    bounds = {bound: mean(one[bound] for one in estimates.values()) for bound in ("low", "high")}
    return {**spread_of({seed: one["value"] for seed, one in estimates.items()}), **bounds}


def _percent(found: Mapping[str, Any]) -> str:
    interval = f" ({100 * found['low']:.1f}-{100 * found['high']:.1f})" if "low" in found else ""
    return in_words("accuracy", found) + interval
