"""A folder of runs that differ in their seed only: one run folder a seed, and what they say together."""

import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from splitpu.drafts import drafted
from splitpu.errors import InputError
from splitpu.files import disk_errors_in_words, full_disk_named_as, write_text
from splitpu.report.seeds import render_seeds
from splitpu.runs.folder import SEEDS_LIST, RunFolder

FIGURES = ("accuracy", "f1", "roc_auc", "average_precision", "positive_rate_unlabelled")
_PERCENTAGES = ("accuracy", "positive_rate_unlabelled")

Begin = Callable[[Path, int], RunFolder]  # makes the run of a seed at a path
ByModel = dict[str, dict[str, dict[str, float | None]]]  # model -> figure -> seed -> value


class SeedsFolder:
    """`seeds.json` names the seeds and how many may run at once; `seed<number>/` are their runs.

    `summary.json` comes when all are finished.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.list_file = path / SEEDS_LIST
        self.summary = path / "summary.json"
        self.page = path / "index.html"

    @classmethod
    def create(cls, path: Path, seeds: Sequence[int], begin: Begin, at_once: int | None = None) -> "SeedsFolder":
        """Make the folder with all its runs in one move, so that every seed it names has a run to go on with."""
        try:
            with disk_errors_in_words(path), full_disk_named_as(path), drafted(path) as place:
                draft = cls(place)
                for seed in seeds:
                    begin(draft.run(seed).path, seed)
                write_text(draft.list_file, json.dumps({"seeds": list(seeds), "at_once": at_once}))
        except OSError as error:
            reason = f"{path} cannot be made into a folder of runs ({error.strerror}); choose another --out."
            raise InputError(reason) from error
        return cls(path)

    def run(self, seed: int) -> RunFolder:
        """The run folder of a seed."""
        return RunFolder(self.path / f"seed{seed}")

    def seeds(self) -> list[int]:
        """The seeds that have a run here."""
        seeds: list[int] = self._listed()["seeds"]
        return seeds

    def at_once(self) -> int | None:
        """How many of them were to share the device at most; None = as suits it."""
        most: int | None = self._listed()["at_once"]
        return most

    def _listed(self) -> dict[str, Any]:
        try:
            listed = json.loads(self.list_file.read_text(encoding="utf-8"))
            most = listed.get("at_once")  # which folders of earlier versions do not say
            return {"seeds": [int(seed) for seed in listed["seeds"]], "at_once": None if most is None else int(most)}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"{self.list_file} cannot be read ({error}); resume the runs next to it one by one."
            ) from error

    def discard_if_empty(self) -> None:
        """Leave nothing of runs that all turned out to be impossible before anything was trained."""
        if not any(self.run(seed).path.exists() for seed in self.seeds()):
            shutil.rmtree(self.path, ignore_errors=True)

    def summarise(self) -> dict[str, Any]:
        """Write what the finished runs say together, for people and for programs; nothing if it is there already.

        So finished runs can be shown from a folder that may only be read.
        """
        seeds = self.seeds()
        results = {seed: self.run(seed).read_result() for seed in seeds}
        content = summary_of(results)
        text = json.dumps(content, indent=2)
        if self.page.exists() and self.summary.exists() and self.summary.read_text(encoding="utf-8") == text:
            return content
        write_text(self.summary, text)
        first = results[seeds[0]]
        title = f"{self.path.name}: {first['labelled']:,} labelled positives, {len(seeds)} seeds"
        pages = {f"seed {seed}": f"seed{seed}/{self.run(seed).report.name}" for seed in seeds}
        rows = mean_rows(content), seed_rows(content)
        write_text(self.page, render_seeds(title, *rows, pages, warnings_in_words(content)))
        return content


def summary_of(results: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Every figure of every model, the final one last: its values by seed, their mean and their standard deviation."""
    by_model: ByModel = {}
    for seed, result in results.items():
        for model in result["models"]:
            _file_figures(by_model, model["model"], seed, model)
    if any(final_model(result)["model"] != list(by_model)[-1] for result in results.values()):
        for seed, result in results.items():  # where students were not taken, seeds end with different models
            _file_figures(by_model, "final", seed, final_model(result))
    models = [
        {"model": name, "figures": {figure: spread_of(values) for figure, values in figures.items()}}
        for name, figures in by_model.items()
    ]
    seconds = {str(seed): result["seconds_total"] for seed, result in results.items()}
    return {"seeds": list(results), "models": models, "seconds": seconds, "warnings": _each_warning_once(results)}


def _each_warning_once(results: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every warning with the seeds that it concerns, in the order in which the runs have them."""
    concerned: dict[str, list[int]] = {}
    for seed, result in results.items():
        for warning in dict.fromkeys(result.get("warnings", ())):
            concerned.setdefault(warning, []).append(seed)
    return [{"warning": warning, "seeds": seeds} for warning, seeds in concerned.items()]


def warnings_in_words(summary: Mapping[str, Any]) -> list[str]:
    """The warnings of all runs, each with the seeds that it concerns before it.

    >>> warnings_in_words({"warnings": [{"warning": "no test rows", "seeds": [0, 1]}]})
    ['seeds 0, 1: no test rows']
    """
    return [f"{seeds_in_words(one['seeds'])}: {one['warning']}" for one in summary["warnings"]]


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Name the seeds.

    >>> seeds_in_words([3]), seeds_in_words([3, 0])
    ('seed 3', 'seeds 3, 0')
    """
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def _file_figures(by_model: ByModel, name: str, seed: int, model: Mapping[str, Any]) -> None:
    figures = {**(model["test"] or {}), **model}
    for figure in FIGURES:
        if figure in figures:
            by_model.setdefault(name, {}).setdefault(figure, {})[str(seed)] = figures[figure]


def final_model(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model that a run ends with; results from before students could be left out do not name it."""
    models: list[Mapping[str, Any]] = result["models"]
    return next(model for model in reversed(models) if model["model"] == result.get("final", model["model"]))


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


def spread_of(values: Mapping[str, float | None]) -> dict[str, Any]:
    """Mean and standard deviation of a figure, and its values by seed; one value has no deviation."""
    known = [value for value in values.values() if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "sd": statistics.stdev(known) if len(known) > 1 else None,
        "values": dict(values),
    }


def in_words(figure: str, spread: Mapping[str, Any]) -> str:
    """Mean and deviation as a table shows them, short enough for a terminal of 80 columns; percent without the sign.

    >>> in_words("accuracy", {"mean": 0.931, "sd": 0.004}), in_words("f1", {"mean": 0.9, "sd": 0.012})
    ('93.1±0.4', '0.900±.012')
    """
    if spread["mean"] is None:
        return "-"
    if figure in _PERCENTAGES:
        return "±".join(f"{100 * spread[part]:.1f}" for part in ("mean", "sd") if spread[part] is not None)
    deviation = "" if spread["sd"] is None else f"±{spread['sd']:.3f}".replace("±0.", "±.")
    return f"{spread['mean']:.3f}{deviation}"
