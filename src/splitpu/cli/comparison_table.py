"""What `splitpu compare` prints: one table of all methods, and what has to be known before a figure is believed."""

from collections.abc import Mapping, Sequence

from splitpu.cli.output import print_facts, print_json, print_note, print_table
from splitpu.listening import UNRELIABLE
from splitpu.listing import listed
from splitpu.methods.registry import find_method
from splitpu.runs.comparison import DOUBTFUL, ComparisonFolder, Line, by_chance, method_rows, summary_of_methods
from splitpu.runs.estimates import FLATTERED, KNOWN_ROWS
from splitpu.runs.several import seeds_in_words


def show_comparison(folder: ComparisonFolder, methods: Sequence[str], seeds: Sequence[int], *, json: bool) -> None:
    """One row a method, and under it everything that decides how far the figures can be trusted."""
    found = folder.lines()
    lines = {(method, seed): found[method, seed] for method in methods for seed in seeds}
    summary = summary_of_methods(lines, methods, seeds)
    notes = {"prior": _prior(lines), **_notes(summary, lines, len(seeds))}
    unreliable = [
        f"{method}, seed {seed}: {warning}"
        for (method, seed), line in lines.items()
        for warning in line["warnings"]
        if UNRELIABLE in warning
    ]
    if json:
        places = {"comparison": str(folder.path), "runs": str(folder.lines_file)}
        print_json({**places, "seeds": list(seeds), "methods": summary, "notes": notes, "unreliable": unreliable})
        return
    tested = lines[methods[0], seeds[0]]["test_rows"]
    judged = f"on {tested:,} test rows by which nothing was chosen" if tested else "estimated from P, U and the prior"
    rows = method_rows(summary)
    compared = f"accuracy less {methods[0]}"
    columns = ["method", "seeds", "accuracy", "f1", "roc_auc", "seconds"]
    if any(method["difference"] for method in summary):
        columns.append(compared)
    spread = "mean±standard deviation over the seeds" if len(seeds) > 1 else "one seed"
    title = f"percent, {spread}, {judged}"
    print_table([{**row, compared: row["difference"]} for row in rows], columns, title=title)
    print_facts({**notes, "folder": folder.path, "lines": folder.lines_file})
    for warning in [*unreliable, *_doubts(summary)]:
        print_note(warning)


def _doubts(summary: Sequence[Line]) -> list[str]:
    """Why the estimates of a method are not to be believed: each reason once, as the first seed that has it says it."""
    said = []
    for method in summary:
        seeds: dict[str, list[int]] = {}
        for one in method["degenerate"]:
            seeds.setdefault(one["kind"], []).append(one["seed"])
        for kind, found in seeds.items():
            sentence = next(one["sentence"] for one in method["degenerate"] if one["kind"] == kind)
            which = "; of the first of them" if len(found) > 1 else ""
            said.append(f"{DOUBTFUL} {method['method']}, {seeds_in_words(found)}{which}: {sentence}")
    return said


def _notes(summary: Sequence[Line], lines: Mapping[tuple[str, int], Line], seeds: int) -> dict[str, str]:
    """What has to be known before a figure is believed."""
    first = next(iter(lines.values()))
    notes = {"network": first["network"]}
    if seeds == 1:
        notes["spread"] = "a single seed has none, so differences may be chance; give --seeds 0,1,2,3,4"
    compared = {one["method"]: one["difference"]["accuracy"] for one in summary if "accuracy" in one["difference"]}
    if compared:
        chance = [method for method, difference in compared.items() if by_chance(difference)]
        here = f" (here {', '.join(chance)})" if chance else ""
        notes["difference"] = (
            f"in points, seed by seed, ± standard error; a smaller difference is chance{here}, and with {seeds} seeds "
            "larger ones may be chance too"
        )
    if "estimates_note" in first:
        notes["intervals"] = "95 %, for one run, averaged over the seeds; deviations are only those between seeds"
        notes["estimates"] = first["estimates_note"]
        if FLATTERED in first["estimates_note"]:
            notes["estimates"] = f"{FLATTERED}, and some methods more than others; {_fairer(summary)}"
    doubtful = [one["method"] for one in summary if one["degenerate"]]
    if doubtful:
        notes["doubtful"] = f"{DOUBTFUL} do not believe the figures of {', '.join(doubtful)}; the notes below say why"
    warned = [line["run"] for line in lines.values() if line["warnings"]]
    if warned:
        notes["warnings"] = f"in the reports of {listed(warned)} in the folder"
    mixed = [what for what in ("versions", "device") if len({str(line[what]) for line in lines.values()}) > 1]
    if mixed:
        notes["beware"] = f"not all runs had the same {' and '.join(mixed)}; the lines say which had which"
    return notes


def _fairer(summary: Sequence[Line]) -> str:
    """How to get figures that do not flatter, as this command would take it."""
    unable = [one["method"] for one in summary if "selection" not in find_method(one["method"]).sections]
    without = f", without {', '.join(unable)}," if unable else ""
    aside = "--set selection.held_out=0.2 --set selection.criterion=none"
    return f"give {KNOWN_ROWS}, or{without} keep rows out of the training with {aside}"


def _prior(lines: Mapping[tuple[str, int], Line]) -> str:
    """The value, or the range of what was estimated from other draws of labels, and where it comes from."""
    values = [line["prior"] for line in lines.values()]
    sources: list[str] = [line["prior_source"] for line in lines.values()]
    if None in values:
        return sources[values.index(None)]
    source = sources[0]
    bounds = dict.fromkeys(f"{value:.4g}" for value in (min(values), max(values)))
    return f"{' to '.join(bounds)}, {source}; the same for all methods"
