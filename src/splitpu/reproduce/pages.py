"""`docs/RESULTS.md` and `docs/results.html` from the result lines, as blocks; no figure is typed by hand."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from splitpu.report.charts import Labels, Mark, Series, line_chart
from splitpu.report.contents import MISSING
from splitpu.report.render import render_page
from splitpu.reproduce.claims import claims_blocks
from splitpu.reproduce.declared import Experiment, Recipe, experiments, read_declared, recipes
from splitpu.reproduce.store import Line, ResultStore
from splitpu.reproduce.summary import (
    NOT_RUN,
    Block,
    Cell,
    Charts,
    Grid,
    Heading,
    Paragraph,
    Part,
    Pictures,
    candidates,
    cells,
    estimate,
    found_lines,
    mean_and_deviation,
    signed,
    sizes_of,
    verdict,
)
from splitpu.utils.files import write_text
from splitpu.utils.statistics import mean

TAUS = (0.70, 0.75, 0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96)


def render(store: ResultStore, folder: Path) -> tuple[Path, Path]:
    """Write both pages, each in one move; give their paths."""
    tables = [Part(name, one.title, _section(one, store)) for name, one in experiments().items()]
    # After the tables, as it counts the lines that these have used.
    claimed = Part("claims", "What the paper claims, and what these runs say of it", claims_blocks(store))
    parts, answer = [Part("reading", "How to read this", _introduction(store)), claimed, *tables], _headline(store)
    names = ("results.md", "RESULTS.md"), ("results.html", "results.html")
    for template, name in names:
        write_text(folder / name, render_page(template, title="Results of splitpu", parts=parts, answer=answer))
    return folder / names[0][1], folder / names[1][1]


def _headline(store: ResultStore) -> str:
    """One sentence: how far the main result has come."""
    main, size = experiments()["main"], 1000
    row = next(row for row in main.rows if row.value == "accuracy")
    ours = [
        f"recipe `{recipe}` {cell.ours}"
        for recipe in main.recipes
        for cell in cells(main, recipe, store)
        if cell.row is row and cell.positives == size and cell.mean is not None
    ]
    said = ", ".join(ours) or NOT_RUN
    return f"CIFAR-10 with {size} labelled positives: the paper says {row.paper[size]:.2f}; ours: {said}."


def _introduction(store: ResultStore) -> list[Block]:
    rows = []
    for recipe in recipes().values():
        # What chose its settings is computed from the lines of its choices as soon as there are any.
        verdicts = {name: verdict(experiments()[name], recipe.name, store) for name in recipe.chosen_in}
        picks = [f"What `{name}` picks: {found}" for name, found in verdicts.items() if found]
        chosen_by = ". ".join([recipe.chosen_by, *picks]) or MISSING
        rows.append([recipe.title, recipe.about, chosen_by, recipe.unavailable or "yes"])
    counted, outdated = f"{len(store.used)} results are shown.", len(store.lines) - len(store.used)
    if outdated:
        counted += f" {outdated} more, of earlier settings of a recipe or of no table here, are left out."
    counted += "".join(f" {remark}." for remark in store.remarks())
    columns = ["recipe", "what it is", "chosen by", "can be run"]
    return [Paragraph(read_declared("page.toml")["how_to_read"]), Paragraph(counted), Grid(columns, rows, words=4)]


def _section(experiment: Experiment, store: ResultStore) -> list[Block]:
    blocks: list[Block] = [Paragraph(f"{experiment.place}. {experiment.about}")]
    if experiment.paper_says:
        blocks.append(Paragraph(f"The paper says: {experiment.paper_says}"))
    if experiment.unavailable:
        blocks.append(Paragraph(f"Not run: {experiment.unavailable}."))
    if experiment.chosen_by:
        blocks.append(Paragraph(f"Chosen by: {experiment.chosen_by}."))
    write = {"figure": _figure, "choice": _choice}.get(experiment.kind, _table)
    # The networks that are trained are the recipe's unless the table has others for its sets.
    others = dict.fromkeys(treatment.network for treatment in experiment.sets.values() if treatment.network)
    for recipe in (recipes()[name] for name in experiment.recipes):
        title = f"{recipe.name}, {' and '.join(others)}" if others else recipe.title
        blocks += [Heading(f"Recipe: {title}"), *_as_it_was(experiment, recipe), *write(experiment, recipe, store)]
    if experiment.kind == "sweep":
        blocks.append(sweep_charts(experiment, store))
    if experiment.published:
        lines = [[row.label, str(size), Cell(row, size).paper] for row in experiment.published for size in row.paper]
        blocks.append(Heading("Other methods as the paper quotes them"))
        blocks.append(Grid(["method", "positives", "published"], lines))
    return blocks


def _as_it_was(experiment: Experiment, recipe: Recipe) -> list[Block]:
    """A table of runs from before the recipe's last change says so, or its rows would pass for today's recipe."""
    was = ", ".join(f"{key} = {value}" for key, value in recipe.as_run_for(experiment.name).items())
    says = f"Where no row says otherwise, these runs are of the recipe as it was before: {was}."
    return [Paragraph(says)] if was else []


def _not_run(experiment: Experiment, recipe: Recipe) -> list[Block]:
    return [Paragraph(f"Not run yet: `splitpu reproduce run {experiment.name} --recipe {recipe.name}` runs it.")]


def _table(experiment: Experiment, recipe: Recipe, store: ResultStore) -> list[Block]:
    found = cells(experiment, recipe.name, store)
    # What the paper says of each row stands in the first recipe's table, whether that has been run or not.
    if recipe.name != experiment.recipes[0] and not any(cell.lines for cell in found):
        return _not_run(experiment, recipe)
    columns = {
        experiment.what: [cell.row.label for cell in found],
        "positives": [str(cell.positives) for cell in found],
        experiment.theirs: [cell.paper for cell in found],
        "ours": [cell.ours for cell in found],
        "difference": [cell.difference for cell in found],
    }
    itself = {cell.positives: cell for cell in found if cell.row.label == experiment.reference}
    if itself:  # what each change to the recipe is worth; at a size nobody declared, the recipe may not have been run
        gains = [cell.over(itself[cell.positives]) if cell.positives in itself else MISSING for cell in found]
        columns[f"over '{experiment.reference}', same seeds"] = gains
    # Models differ in where they cut: what is lost there is told apart from what is lost in the ranking.
    columns["cut at the prior"] = [cell.matched for cell in found]
    columns["ROC AUC, %"] = [cell.ranking for cell in found]
    columns["time a run"] = [cell.time for cell in found]
    columns["device"] = [cell.device for cell in found]
    blocks: list[Block] = [Grid(list(columns), list(zip(*columns.values(), strict=True)))]
    notes = {row.label: row.note for row in experiment.rows if row.note}
    if notes:
        blocks.append(Grid([experiment.what, "protocol behind the published figure, and ours"], list(notes.items()), 2))
    return blocks


def _choice(experiment: Experiment, recipe: Recipe, store: ResultStore) -> list[Block]:
    """Candidates by what chose between them, over all sizes and size by size; the test accuracy stands last."""
    compared = [
        [
            f"{name}: {one.row.label}" if name else one.row.label,
            "chosen" if one.chosen else "",
            NOT_RUN if one.mean is None else f"{one.mean:.2f}",
            signed(one.gain, one.gain_error),
            str(len(one.gains)),
        ]
        for name, group in candidates(experiment, recipe.name, store).items()
        for one in group
    ]
    by_size = []
    for cell in cells(experiment, recipe.name, store):
        judged = (estimate(line, cell.row.value, experiment.criterion) for line in cell.lines)
        estimated = mean_and_deviation(judged, NOT_RUN)
        # Of the last model; a row about an earlier round has none.
        risks = [line["selection"]["nnpu_value"] for line in cell.lines if cell.row.value == "accuracy"]
        label = f"{cell.row.group}: {cell.row.label}" if cell.row.group else cell.row.label
        by_size.append([label, str(cell.positives), estimated, _shown(mean(risks), ".4f"), cell.ours, cell.time])
    columns = [experiment.what, "", "estimated on PU data", "over the first ± its error", "compared runs"]
    of_sizes = [experiment.what, "positives", "estimated on PU data", "nnPU value", "test accuracy", "time a run"]
    return [Grid(columns, compared, words=2), Grid(of_sizes, by_size)]


def sweep_charts(experiment: Experiment, store: ResultStore, *, only: str | None = None) -> Charts:
    """Accuracy against the setting that is swept, one drawing for every number of positives.

    Points that were not run with all the seeds of the others differ from these by their seeds more than by what is
    swept: they stand in the table alone."""
    whole = all(float(row.x or 0).is_integer() for row in experiment.rows)
    drawings = []
    for size in dict.fromkeys(cell.positives for cell in cells(experiment, experiment.recipes[0], store)):
        points = {"paper": [(row.x, row.paper.get(size)) for row in experiment.rows]}
        for recipe in [only] if only else experiment.recipes:
            found = [cell for cell in cells(experiment, recipe, store) if cell.positives == size]
            most = max((cell.seeds for cell in found), key=len, default=set())
            points[f"ours, {recipe}"] = [(cell.row.x, cell.mean) for cell in found if cell.seeds >= most]
        lines = {name: [(x, y) for x, y in some if x is not None and y is not None] for name, some in points.items()}
        series = [Series(name, [x for x, _ in some], [y for _, y in some]) for name, some in lines.items() if some]
        if series:
            title = f"Accuracy against {experiment.what} with {size} positives"
            drawing = line_chart(series, Labels(title, experiment.what, "accuracy, in %"), whole=whole)
            drawings.append((f"{size} positives", drawing))
    return Charts(drawings)


def _figure(experiment: Experiment, recipe: Recipe, store: ResultStore) -> list[Block]:
    # At the first number of positives that has any.
    sizes, row = sizes_of(experiment, store), experiment.rows[0]
    lines = next(filter(None, (found_lines(experiment, recipe.name, row, size, store) for size in sizes)), None)
    if not lines:
        return _not_run(experiment, recipe)
    ran = f"{len(lines)} seed{'s' if len(lines) > 1 else ''}, {lines[0]['positives']} positives, {lines[0]['device']}."
    blocks = [Paragraph(ran), *FIGURE_CONTENTS[experiment.name](lines)]
    if experiment.name == "noise-by-tau":
        # The paper draws the accuracy beside the noise. It is of other runs, maybe of the recipe as it was before.
        sweep = experiments()["tau"]
        charts = sweep_charts(sweep, store, only=recipe.name)
        if charts.drawings:
            blocks += [Paragraph("Accuracy, from the runs of `tau`."), *_as_it_was(sweep, recipe), charts]
    return blocks


def noise_by_tau(lines: list[Line]) -> list[Block]:
    """The split at each tau is that of the first epoch whose agreement lies above it."""
    rows, xs, drawn = [], list[float](), defaultdict[str, list[float]](list)
    for tau in TAUS:
        reached = [[i for i, agreement in enumerate(line["series"]["agreement"]) if agreement > tau] for line in lines]
        if not all(reached):  # one of the seeds never came so far
            rows.append([f"{tau:.2f}", *["never reached"] * 3, *[MISSING] * 2])
            continue
        keys = ("epoch", "easy", "hard", "noisy_easy", "noisy_hard")
        splits = [{key: line["series"][key][at[0]] for key in keys} for line, at in zip(lines, reached, strict=True)]
        found = {key: fmean(split[key] for split in splits) for key in keys}
        rates = {part: fmean(one[f"noisy_{part}"] / max(one[part], 1) for one in splits) for part in ("easy", "hard")}
        sizes = [f"{found['epoch']:,.1f}", f"{found['easy']:,.0f}", f"{found['hard']:,.0f}"]
        rows.append([f"{tau:.2f}", *sizes, *(_percent(rate) for rate in rates.values())])
        xs.append(tau)
        for part, rate in rates.items():
            drawn[f"noisy {part}"].append(found[f"noisy_{part}"])
            drawn[part].append(100 * rate)
    noise_all = Mark(100 * fmean(line["series"]["noise_all"] for line in lines), "all unlabelled")
    counts, shares = ([Series(part, xs, drawn[what + part]) for part in ("easy", "hard")] for what in ("noisy ", ""))
    of_counts = line_chart(counts, Labels("Noisy samples against tau", "tau", "samples"), whole=False)
    labels = Labels("Noise rate against tau", "tau", "noise, in %")
    of_shares = line_chart(shares, labels, level=noise_all, whole=False)
    captions = ("noisy samples among easy and hard ones", "share of noise among easy and hard ones")
    columns = ["tau", "epoch", "easy", "hard", "noise in easy", "noise in hard"]
    return [Grid(columns, rows), Charts(list(zip(captions, (of_counts, of_shares), strict=True)))]


def learning_of_noise(lines: list[Line]) -> list[Block]:
    """Training accuracy of clean and noisy easy samples."""
    of_seeds = []
    for series in (line["series"] for line in lines):
        missed = zip(series["noisy_missed"], series["clean_missed"], strict=True)
        of_seeds.append({**series, "noise_missed": [_part(noisy, clean) for noisy, clean in missed]})
    series = _mean_over_seeds(of_seeds)
    epochs = series["epoch"]
    step = max(1, -(-len(epochs) // 12))  # about a dozen rows, first and last among them
    rows = [
        [
            f"{epochs[i]:.0f}",
            *(_percent(series[part][i]) for part in ("clean", "noisy")),
            *(_shown(series[f"{part}_missed"][i], ",.0f") for part in ("clean", "noisy")),
            _percent(series["noise_missed"][i]),
        ]
        for i in sorted({*range(0, len(epochs), step), len(epochs) - 1} if epochs else ())
    ]
    curves = [Series(part, epochs, [_hundred(y) for y in series[part]]) for part in ("clean", "noisy")]
    drawing = line_chart(curves, Labels("Training accuracy of easy samples", "epoch", "as their label says, in %"))
    columns = ["epoch", "clean learned", "noisy learned", "clean missed", "noisy missed", "noise among missed"]
    return [Grid(columns, rows), Charts([("clean and noisy easy samples", drawing)])]


def spr(lines: list[Line]) -> list[Block]:
    """Noise among the most suspected samples, beside the noise of the whole set."""
    series = _mean_over_seeds([line["series"] for line in lines])
    shares = [_part(n, s - n) for n, s in zip(series["selected_noisy"], series["selected"], strict=True)]
    all_noise = _percent(series["noise_easy"])
    found = zip(series["epoch"], series["selected"], series["selected_noisy"], shares, series["auc"], strict=True)
    rows = [
        [f"{epoch:.0f}", f"{size - noisy:,.0f}", f"{noisy:,.0f}", _percent(share), all_noise, _shown(auc, ".3f")]
        for epoch, size, noisy, share, auc in found
    ]
    drawing = line_chart(
        [Series("among the suspected", series["epoch"], [_hundred(share) for share in shares])],
        Labels("Noise among the samples that SPR suspects", "epoch", "noise, in %"),
        level=Mark(100 * series["noise_easy"], "all easy samples"),
    )
    columns = ["epoch", "suspected, clean", "suspected, noisy", "noise among suspected", "noise among all", "ROC AUC"]
    return [Grid(columns, rows), Charts([("noise among the tenth that SPR suspects most", drawing)])]


def cgh(lines: list[Line]) -> list[Block]:
    """Gradients of clean and noisy easy samples."""
    series = _mean_over_seeds([line["series"] for line in lines])
    keys = ("mean", "sd", "quarter", "median", "three_quarters")
    rows = [
        [f"{what}, {part}", _shown(stats.get("count"), ",.0f"), *(_shown(stats.get(key), ".4g") for key in keys)]
        for what, source in (("gradient", "statistics"), ("coherence", "coherence"))
        for part, stats in ((part, series[source][part]) for part in ("clean", "noisy"))
    ]
    among = _part(series["selected_noisy"], series["selected"] - series["selected_noisy"])
    found = [[_percent(among), _percent(series["noise_easy"]), _shown(series["auc"], ".3f")]]
    labels, drawings = Labels("Gradients of single samples", "gradient", "samples, in %"), []
    for line in lines:  # seed by seed: gradients of one may be ten times those of another, and each has its own bins
        own = line["series"]
        middle = [round(x, 12) for x in own["middle"]]  # else the pointer would read 2e-17 where nought is meant
        curves = [Series(part, middle, [100 * y for y in own[f"{part}_share"]]) for part in ("clean", "noisy")]
        what = f"gradient of the first convolution's first weight, seed {line['seed']}"
        drawings.append((what, line_chart(curves, labels, whole=False)))
    return [
        Grid(["", "samples", "mean", "sd", "lower quarter", "median", "upper quarter"], rows),
        Grid(["noise among the least coherent tenth", "noise among all", "ROC AUC"], found, words=0),
        Charts(drawings),
    ]


def gallery(lines: list[Line]) -> list[Block]:
    """The pictures themselves, of the first seed."""
    return [
        Pictures(
            f"{group[0].upper()}{group[1:]}, seed {lines[0]['seed']}",
            [(s["png"], f"row {s['row']}: teacher {s['teacher']:.2f}, student {s['student']:.2f}") for s in samples],
        )
        for group, samples in lines[0]["series"].items()
    ]


_SHOWN = (noise_by_tau, learning_of_noise, spr, cgh, gallery)
FIGURE_CONTENTS = {figure.__name__.replace("_", "-"): figure for figure in _SHOWN}


def _mean_over_seeds(found: Sequence[Any]) -> Any:
    """The same curves and figures, each the mean over the seeds that have it."""
    first = found[0]
    if isinstance(first, dict):
        return {key: _mean_over_seeds([one[key] for one in found if key in one]) for key in first}
    if isinstance(first, list):
        return [_mean_over_seeds(at_one_place) for at_one_place in zip(*found, strict=False)]
    return mean(found)


def _part(some: float, others: float) -> float | None:
    return some / (some + others) if some + others else None


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def _shown(value: float | None, form: str) -> str:
    return MISSING if value is None else format(value, form)
