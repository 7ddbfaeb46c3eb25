"""How the commands speak: results on standard output, all else on standard error. Nothing heavy is imported here."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitpu.cli.entry_point import WORDS
from splitpu.cli.options import as_options
from splitpu.errors import InputError
from splitpu.prior.estimate import prior_in_words
from splitpu.runs.folder import NOT_JUDGED, RunFolder, belongs_to_a_run
from splitpu.utils.files import in_a_command
from splitpu.utils.reading import Guarded
from splitpu.utils.text import printable
from splitpu.utils.warnings import worth_repeating

_WHOLE_NUMBERS = 14  # characters, as of an interval; longer cells are words, which may be broken
_WHOLE_NAMES = 30  # characters; longer names in the first column are paths, which may be broken, too
_ENDINGS = (".csv", ".txt", ".parquet", "")
_PERCENTAGES = {"accuracy", "precision", "recall", "positive_rate", "true_rate", "positive_rate_unlabelled"}


def print_json(content: Mapping[str, Any]) -> None:
    """Print exactly one object, valid JSON whatever is in it."""
    from splitpu.evaluation.metrics import finite_or_none

    print(json.dumps(finite_or_none(dict(content)), indent=2))


def print_note(*texts: str) -> None:
    """Say things that are no errors, each in one line; an empty one is none."""
    for text in filter(None, texts):
        print(note_line(text), file=sys.stderr)


def note_line(text: str) -> str:
    """A note as it is shown everywhere: one line, in the words of the command line."""
    return f"note: {printable(as_options(' '.join(text.split())))}"


def title_of(figure: str) -> str:
    """What a figure is called, the same in every table."""
    kind, _, length = figure.partition("@")
    return f"{kind} in the top {int(length):,}" if length else WORDS["columns"].get(figure, figure.replace("_", " "))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], title: str | None = None) -> None:
    """Print rows side by side; text from files is shown as it is, never taken for markup.

    A terminal that is too narrow even for the narrowest columns breaks the lines itself: rich would leave columns out.
    """
    chosen = list(columns)
    cells = {column: [_cell(column, row.get(column)) for row in rows] for column in chosen}
    console = Console(markup=False, highlight=False)
    borders = 3 * len(chosen) + 1
    widths = _widths([(title_of(column), cells[column]) for column in chosen], console.width - borders)
    table = Table(title=title, title_justify="left")
    for number, (column, width) in enumerate(zip(chosen, widths, strict=True)):
        texts = [str(row.get(column)) for row in rows]
        are_words = max(map(cell_len, cells[column]), default=0) > _WHOLE_NUMBERS and any(
            sum(map(str.isalpha, text)) > sum(map(str.isdigit, text)) for text in texts
        )
        side: Literal["left", "right"] = "left" if number == 0 or are_words else "right"
        table.add_column(title_of(column), justify=side, overflow="fold", width=width)
    for line in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, line))
    console.width = max(console.width, sum(widths) + borders)
    console.print(table)


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{100 * value:.1f} %" if column in _PERCENTAGES else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def _widths(columns: Sequence[tuple[str, Sequence[str]]], room: int) -> list[int]:
    """How wide each column is, of which titles and cells are given, if all of them should fit into so much room.

    Where it gets narrow, titles are broken between words, and long texts anywhere, but numbers and names never are."""
    widths, least = [], []
    for number, (title, cells) in enumerate(columns):
        widest = max(map(cell_len, cells), default=0)
        whole = _WHOLE_NAMES if number == 0 and widest <= _WHOLE_NAMES else _WHOLE_NUMBERS
        least.append(max([min(widest, whole), *map(cell_len, title.split())]))
        widths.append(max(widest, cell_len(title)))
    while sum(widths) > room and widths != least:
        wide = [number for number, width in enumerate(widths) if width > least[number]]
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def print_figures(figures: Mapping[str, Mapping[str, float | None]]) -> None:
    """The figures of one model, each with its interval and with what simpler models get."""
    rows = []
    for name, one in figures.items():
        written = {key: "-" if value is None else f"{value:.3f}" for key, value in one.items()}
        interval = f"{written['low']} to {written['high']}"
        rows.append({"figure": title_of(name), "95 % interval": interval, **written})
    with_naive = any(one["naive"] is not None for one in figures.values())
    print_table(rows, ["figure", "value", "95 % interval", "always_negative", *(["naive"] if with_naive else [])])


def shortest_list(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures without those of several lengths of a list: one length does for a first look."""
    lengths = sorted({int(name.partition("@")[2]) for name in figures if "@" in name})
    middle = lengths[len(lengths) // 2] if lengths else None
    return {name: one for name, one in figures.items() if "@" not in name or name.endswith(f"@{middle}")}


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values in two columns; plain text, so that long paths are neither cut nor broken."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:<{width}}  {printable(str(value))}")


def notes_in_report(warnings: Sequence[object]) -> dict[str, str]:
    """How many warnings there were, and where they are kept: a fact, if there were any."""
    return {"notes": f"{len(warnings)}, all in the report"} if warnings else {}


def show_result(folder: RunFolder, result: dict[str, Any], *, json: bool) -> None:
    """The figures of every model, the splits, and where everything is."""
    if json:
        return print_json({"run": str(folder.path), "report": str(folder.report), **result})
    with Guarded(folder.result).understood():
        _show_figures(folder, result)


def _show_figures(folder: RunFolder, result: dict[str, Any]) -> None:
    from splitpu.evaluation.ranking import in_telling_order

    rows = [{**model, **(model["test"] or {})} for model in result["models"]]
    tested = ["accuracy", "f1", "roc_auc", "average_precision"] if result["test_rows"] else []
    print_table(rows, ["model", *in_telling_order(tested, result["prior"] or 1.0), "positive_rate_unlabelled"])
    if "figures" in result:
        print_figures(shortest_list(result["figures"]))
    if "learners" in result:  # a student is taken only if it beats its base
        learners = [
            {
                "learner": one["learner"],
                "AUC": f"{one['auc']:.3f}",
                "95 % interval": f"{one['auc_low']:.3f} to {one['auc_high']:.3f}",
                "seconds": f"{one['seconds']:.1f}",
                "shipped": "yes" if one["chosen"] else "no" if one["gain_over_base"] is None else "not taken",
            }
            for one in result["learners"]
        ]
        print_table(learners, learners[0], title="learners, by their AUC of P against U out of fold")
    rounds, hard = result["rounds"], 0
    if rounds:
        hard = rounds[-1]["hard"]
        columns = ["round", "easy", "hard", "agreement", *(["noise"] if rounds[0]["noise"] else [])]
        for one in (rows := [{**one, "round": str(one["round"])} for one in rounds]):
            one["noise"] = ", ".join(f"{part} {100 * share:.1f} %" for part, share in (one["noise"] or {}).items())
        print_table(rows, columns, title="split of the unlabelled")
    prior = prior_in_words(result["prior"], result["prior_interval"], result["prior_source"])
    if (expected := result["expected_positive_rate_unlabelled"]) is not None:
        prior += f" (expects {100 * expected:.1f} % positives among the unlabelled)"
    facts = {"prior": prior, "time": f"{result['seconds_total']:.1f} s of training on {result['device']}"}
    if result["final"] != result["models"][-1]["model"]:
        facts["model"] = f"{result['final']}, as no student after it was taken"
    facts["run"] = str(folder.path)
    if folder.scores.name in result["files"]:
        facts["scores"] = str(folder.scores)
    if hard:
        shown = f"{hard:,} unlabelled sample{'' if hard == 1 else 's'}, named in {folder.split} and shown in the report"
        facts["hard"] = f"{shown}; splitpu hard {in_a_command(folder.path)} lists them"
        facts["review"] = f"splitpu review {in_a_command(folder.path)} asks about the samples whose answers teach most"
    print_facts({**facts, "report": folder.report, **notes_in_report(result["warnings"])})
    unjudged = [NOT_JUDGED] if result["prior"] is not None else []
    print_note(*(() if result["test_rows"] else result.get("figures_notes", unjudged)))  # of a test it is on the page
    print_note(*filter(worth_repeating, result["warnings"]))


def check_out(out: Path | None, what: str, *, read: Path | None = None, endings: Sequence[str] = _ENDINGS) -> None:
    """Refuse, before anything is computed, a file that cannot be written, is of a run, or is what is `read` for it."""
    if out is None:
        return
    if out.is_dir():
        raise InputError(f"--out {out} is a folder: name a file in it for the {what}.")
    if read is not None and out.exists() and read.exists() and out.samefile(read):
        raise InputError(f"--out {out} is the input and would be overwritten: name another file for the {what}.")
    if belongs_to_a_run(out):
        raise InputError(f"--out {out} is a file of the run in that folder: name another file for the {what}.")
    if out.suffix.lower() not in endings:
        known = " or ".join(one for one in endings if one not in ("", ".txt"))
        raise InputError(f"--out {out} has an ending that cannot be used: {what} are written as {known}.")
