"""How each figure of the paper is shown: from the series in its result lines to tables and drawings.

The content of the results page: every table and sweep as blocks, read from the result lines.

`docs/RESULTS.md` and `docs/results.html` from the result lines. No figure is typed by hand.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from splitpu.report.charts import Labels, Mark, Series, line_chart
from splitpu.report.contents import MISSING
from splitpu.report.render import render_page
from splitpu.reproduce.declared import Experiment, Recipe, Row, experiments, recipes
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
    as_markdown,
    candidates,
    cells,
    estimate,
    figure_lines,
    mean_and_deviation,
    mean_of,
    verdict,
    with_deviation,
)
from splitpu.utils.files import write_text

TAUS = (0.70, 0.75, 0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
PARTS = ("easy", "hard")
_NEVER = "never reached"


def noise_by_tau(lines: list[Line]) -> list[Block]:
    """The split at each tau is that of the first epoch whose agreement lies above it."""
    found = [(tau, _splits_at(lines, tau)) for tau in TAUS]
    rows = [
        [
            f"{tau:.2f}",
            *([_mean(split, "epoch", 1), _mean(split, "easy", 0), _mean(split, "hard", 0)] if split else [_NEVER] * 3),
            *([_share(split, "easy"), _share(split, "hard")] if split else [MISSING] * 2),
        ]
        for tau, split in found
    ]
    reached = [(tau, split) for tau, split in found if split]
    xs = [tau for tau, _ in reached]
    noise_all = fmean(line["series"]["noise_all"] for line in lines)
    sizes = [Series(part, xs, [fmean(s[f"noisy_{part}"] for s in split) for _, split in reached]) for part in PARTS]
    rates = [Series(part, xs, [100 * _rate(split, part) for _, split in reached]) for part in PARTS]
    together = Mark(100 * noise_all, "all unlabelled")
    drawings = [
        (
            "noisy samples among easy and hard ones",
            line_chart(sizes, Labels("Noisy samples against tau", "tau", "samples"), whole=False),
        ),
        (
            "share of noise among easy and hard ones",
            line_chart(rates, Labels("Noise rate against tau", "tau", "noise, in %"), level=together, whole=False),
        ),
    ]
    columns = ["tau", "epoch", "easy", "hard", "noise in easy", "noise in hard"]
    return [Grid(columns, rows), Charts(drawings)]


def learning_of_noise(lines: list[Line]) -> list[Block]:
    """Training accuracy of clean and noisy easy samples."""
    series = _mean_over_seeds([{**line["series"], "noise_missed": _noise_missed(line["series"])} for line in lines])
    epochs = series["epoch"]
    rows = [
        [
            f"{epochs[i]:.0f}",
            _percent(series["clean"][i]),
            _percent(series["noisy"][i]),
            _count(series["clean_missed"][i]),
            _count(series["noisy_missed"][i]),
            _percent(series["noise_missed"][i]),
        ]
        for i in _some_of(len(epochs))
    ]
    curves = [Series(part, epochs, [_hundred(y) for y in series[part]]) for part in ("clean", "noisy")]
    labels = Labels("Training accuracy of easy samples", "epoch", "as their label says, in %")
    drawing = line_chart(curves, labels)
    columns = ["epoch", "clean learned", "noisy learned", "clean missed", "noisy missed", "noise among missed"]
    return [Grid(columns, rows), Charts([("clean and noisy easy samples", drawing)])]


def spr(lines: list[Line]) -> list[Block]:
    """Noise among the most suspected samples, beside the noise of the whole set."""
    series = _mean_over_seeds([line["series"] for line in lines])
    shares = [_part(n, s - n) for n, s in zip(series["selected_noisy"], series["selected"], strict=True)]
    all_noise = _percent(series["noise_easy"])
    found = zip(series["epoch"], series["selected"], series["selected_noisy"], shares, series["auc"], strict=True)
    rows = [
        [f"{epoch:.0f}", _count(size - noisy), _count(noisy), _percent(share), all_noise, _auc(auc)]
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
        [f"{what}, {part}", _count(stats.get("count")), *(_short(stats.get(key)) for key in keys)]
        for what, source in (("gradient", "statistics"), ("coherence", "coherence"))
        for part in ("clean", "noisy")
        for stats in (series[source][part],)
    ]
    found = [
        [
            _percent(_part(series["selected_noisy"], series["selected"] - series["selected_noisy"])),
            _percent(series["noise_easy"]),
            _auc(series["auc"]),
        ]
    ]
    # Seed by seed: gradients of one may be ten times those of another, and each has bins of its own.
    what = "gradient of the first convolution's first weight"
    drawings = [(_of_seed(what, line), _histogram(line)) for line in lines]
    return [
        Grid(["", "samples", "mean", "sd", "lower quarter", "median", "upper quarter"], rows),
        Grid(["noise among the least coherent tenth", "noise among all", "ROC AUC"], found, words=0),
        Charts(drawings),
    ]


def gallery(lines: list[Line]) -> list[Block]:
    """The pictures themselves, of the first seed."""
    return [
        Pictures(
            _of_seed(group[0].upper() + group[1:], lines[0]),
            [(s["png"], f"row {s['row']}: teacher {s['teacher']:.2f}, student {s['student']:.2f}") for s in samples],
        )
        for group, samples in lines[0]["series"].items()
    ]


FIGURE_CONTENTS: dict[str, Callable[[list[Line]], list[Block]]] = {
    "noise-by-tau": noise_by_tau,
    "learning-of-noise": learning_of_noise,
    "spr": spr,
    "cgh": cgh,
    "gallery": gallery,
}


def _noise_missed(series: Mapping[str, Any]) -> list[float | None]:
    """The share of noise among what a seed's student has not learned, epoch by epoch."""
    return [_part(noisy, clean) for noisy, clean in zip(series["noisy_missed"], series["clean_missed"], strict=True)]


def _of_seed(what: str, line: Line) -> str:
    return f"{what}, seed {line['seed']}"


def _histogram(line: Line) -> Markup:
    """Gradients of clean and noisy samples of one seed."""
    series = line["series"]
    middle = [round(x, 12) for x in series["middle"]]  # else the pointer would read 2e-17 where nought is meant
    curves = [Series(part, middle, [100 * y for y in series[f"{part}_share"]]) for part in ("clean", "noisy")]
    return line_chart(curves, Labels("Gradients of single samples", "gradient", "samples, in %"), whole=False)


def _mean_over_seeds(found: list[Any]) -> Any:
    """The same curves and figures, each the mean over the seeds that have it.

    >>> _mean_over_seeds([{"epoch": [1.0, 2.0], "auc": None}, {"epoch": [1.0, 4.0], "auc": 0.5}])
    {'epoch': [1.0, 3.0], 'auc': 0.5}
    """
    first = found[0]
    if isinstance(first, dict):
        return {key: _mean_over_seeds([one[key] for one in found if key in one]) for key in first}
    if isinstance(first, list):
        return [_mean_over_seeds(list(at_one_place)) for at_one_place in zip(*found, strict=False)]
    numbers = [one for one in found if one is not None]
    return fmean(numbers) if numbers else None


def _splits_at(lines: list[Line], tau: float) -> list[dict[str, float]]:
    """The split of every seed at this tau; none if one of them never came so far."""
    found = []
    for line in lines:
        series = line["series"]
        above = [i for i, agreement in enumerate(series["agreement"]) if agreement > tau]
        if not above:
            return []
        keys = ("epoch", "easy", "hard", "noisy_easy", "noisy_hard")
        found.append({key: series[key][above[0]] for key in keys})
    return found


def _mean(splits: list[dict[str, float]], key: str, decimals: int) -> str:
    return f"{fmean(split[key] for split in splits):,.{decimals}f}"


def _rate(splits: list[dict[str, float]], part: str) -> float:
    return fmean(split[f"noisy_{part}"] / max(split[part], 1) for split in splits)


def _share(splits: list[dict[str, float]], part: str) -> str:
    return _percent(_rate(splits, part))


def _part(some: float, others: float) -> float | None:
    return some / (some + others) if some + others else None


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _auc(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def _count(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"


def _short(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"


def _some_of(count: int, rows: int = 12) -> list[int]:
    """About this many positions, first and last among them."""
    step = max(1, -(-count // rows))
    return sorted({*range(0, count, step), count - 1}) if count else []


HOW_TO_READ = (
    "Every accuracy is in percent, on the test images, after the last epoch, at the model's own threshold, as mean ± "
    "standard deviation over n seeds. Every run is given the true prior. No epoch or threshold was chosen by test "
    "labels; what chose the settings stands beside each recipe. Times are the training time of a whole run on the "
    "device named beside them, stages taken from the cache included; where several runs were made at once (shared), "
    "the time divided by their number. Where a row is the recipe itself, the others are compared with it seed by seed, "
    "as mean difference ± its standard error (none for two seeds). Every figure is read from the lines in results/ by "
    "`splitpu reproduce render`; what has no line yet says 'not run'."
)


def page_parts(store: ResultStore, *, smoke: bool = False) -> list[Part]:
    """Every section in the order of the page."""
    tables = [Part(name, one.title, _section(one, store, smoke)) for name, one in experiments().items()]
    return [Part("reading", "How to read this", _introduction(store)), *tables]


def headline(store: ResultStore, *, smoke: bool = False) -> str:
    """One sentence: how far the main result has come."""
    main, size = experiments()["main"], 1000
    row = next(row for row in main.rows if row.value == "accuracy")
    found = []
    for recipe in main.recipes:
        cell = next((c for c in cells(main, recipe, store, smoke=smoke) if c.row is row and c.positives == size), None)
        if cell is not None and cell.mean is not None:
            found.append(f"recipe `{recipe}` {cell.ours}")
    ours = ", ".join(found) or NOT_RUN
    return f"CIFAR-10 with {size} labelled positives: the paper says {row.paper[size]:.2f}; ours: {ours}."


def _introduction(store: ResultStore) -> list[Block]:
    rows = [[r.title, r.about, _chosen_by(r, store) or MISSING, r.unavailable or "yes"] for r in recipes().values()]
    outdated = len(store.lines) - len(store.used)
    counted = f"{len(store.used)} results are shown."
    if outdated:
        counted += f" {outdated} more, of earlier settings of a recipe or of no table here, are left out."
    counted += "".join(f" {remark}." for remark in store.remarks())
    return [
        Paragraph(HOW_TO_READ),
        Paragraph(counted),
        Grid(["recipe", "what it is", "chosen by", "can be run"], rows, words=4),
    ]


def _chosen_by(recipe: Recipe, store: ResultStore) -> str:
    """What chose the recipe's settings: computed from the lines of its choices as soon as there are any."""
    verdicts = {name: verdict(experiments()[name], recipe.name, store) for name in recipe.chosen_in}
    picks = [f"What `{name}` picks: {found}" for name, found in verdicts.items() if found]
    return ". ".join([recipe.chosen_by, *picks])


def _section(experiment: Experiment, store: ResultStore, smoke: bool) -> list[Block]:
    chosen = recipes()
    blocks: list[Block] = [Paragraph(f"{experiment.place}. {experiment.about}")]
    if experiment.paper_says:
        blocks.append(Paragraph(f"The paper says: {experiment.paper_says}"))
    if experiment.unavailable:
        blocks.append(Paragraph(f"Not run: {experiment.unavailable}."))
    if experiment.chosen_by:
        blocks.append(Paragraph(f"Chosen by: {experiment.chosen_by}."))
    write: dict[str, Callable[[Experiment, Recipe, ResultStore, bool], list[Block]]]
    write = {"figure": _figure, "choice": _choice}
    for recipe in experiment.recipes:
        blocks.append(Heading(f"Recipe: {_recipe_title(experiment, chosen[recipe])}"))
        blocks += _as_it_was(experiment, chosen[recipe])
        blocks += write.get(experiment.kind, _table)(experiment, chosen[recipe], store, smoke)
    if experiment.kind == "sweep":
        blocks.append(sweep_charts(experiment, store, smoke=smoke))
    if experiment.published:
        blocks += [Heading("Other methods as the paper quotes them"), _published(experiment.published)]
    return blocks


def _recipe_title(experiment: Experiment, recipe: Recipe) -> str:
    """With the networks that are trained, which are the recipe's unless the table has others for its sets."""
    others = dict.fromkeys(treatment.network for treatment in experiment.sets.values() if treatment.network)
    return f"{recipe.name}, {' and '.join(others)}" if others else recipe.title


def _as_it_was(experiment: Experiment, recipe: Recipe) -> list[Block]:
    """A table of runs from before the recipe's last change says so, or its rows would pass for today's recipe."""
    earlier = recipe.as_run_for(experiment.name)
    if not earlier:
        return []
    was = ", ".join(f"{key} = {value}" for key, value in earlier.items())
    return [Paragraph(f"Where no row says otherwise, these runs are of the recipe as it was before: {was}.")]


def _table(experiment: Experiment, recipe: Recipe, store: ResultStore, smoke: bool) -> list[Block]:
    found = cells(experiment, recipe.name, store, smoke=smoke)
    # What the paper says of each row stands in the first recipe's table, whether that has been run or not.
    if recipe.name != experiment.recipes[0] and not any(cell.lines for cell in found):
        return [_not_run(experiment, recipe)]
    columns = {
        experiment.what: [cell.row.label for cell in found],
        "positives": [str(cell.positives) for cell in found],
        experiment.theirs: [cell.paper for cell in found],
        "ours": [cell.ours for cell in found],
        "difference": [cell.difference for cell in found],
        **_over_the_recipe(experiment, found),
        # Models differ in where they cut: what is lost there is told apart from what is lost in the ranking.
        "cut at the prior": [cell.matched for cell in found],
        "ROC AUC, %": [cell.ranking for cell in found],
        "time a run": [cell.time for cell in found],
        "device": [cell.device for cell in found],
    }
    blocks: list[Block] = [Grid(list(columns), list(zip(*columns.values(), strict=True)))]
    notes = {row.label: row.note for row in experiment.rows if row.note}
    if notes:
        blocks.append(Grid([experiment.what, "protocol behind the published figure, and ours"], list(notes.items()), 2))
    return blocks


def _over_the_recipe(experiment: Experiment, found: Sequence[Cell]) -> dict[str, list[str]]:
    """What each change to the recipe is worth, where a row of the table is the recipe itself."""
    recipe = {cell.positives: cell for cell in found if cell.row.label == experiment.reference}
    if not recipe:
        return {}
    # At a size that nobody declared, the recipe itself may be a row that nobody ran.
    gains = [cell.over(recipe[cell.positives]) if cell.positives in recipe else MISSING for cell in found]
    return {f"over '{experiment.reference}', same seeds": gains}


def _not_run(experiment: Experiment, recipe: Recipe) -> Paragraph:
    return Paragraph(f"Not run yet: `splitpu reproduce run {experiment.name} --recipe {recipe.name}` runs it.")


def _published(rows: Sequence[Row]) -> Grid:
    lines = [[row.label, str(size), Cell(row, size).paper] for row in rows for size in row.paper]
    return Grid(["method", "positives", "published"], lines)


def _choice(experiment: Experiment, recipe: Recipe, store: ResultStore, smoke: bool) -> list[Block]:
    """Candidates by what chose between them, over all sizes and size by size; the test accuracy stands last."""
    return [_compared(experiment, recipe, store, smoke), _by_size(experiment, recipe, store, smoke)]


def _compared(experiment: Experiment, recipe: Recipe, store: ResultStore, smoke: bool) -> Grid:
    rows = []
    for name, group in candidates(experiment, recipe.name, store, smoke=smoke).items():
        for one in group:
            gain = MISSING if one.gain is None else f"{'+' * (one.gain > 0)}{with_deviation(one.gain, one.gain_error)}"
            label = f"{name}: {one.row.label}" if name else one.row.label
            mean = f"{one.mean:.2f}" if one.mean is not None else NOT_RUN
            rows.append([label, "chosen" if one.chosen else "", mean, gain, str(len(one.gains))])
    columns = [experiment.what, "", "estimated on PU data", "over the first ± its error", "compared runs"]
    return Grid(columns, rows, words=2)


def _by_size(experiment: Experiment, recipe: Recipe, store: ResultStore, smoke: bool) -> Grid:
    rows = []
    for cell in cells(experiment, recipe.name, store, smoke=smoke):
        # Of the last model; a row about an earlier round has none.
        risk = mean_of(cell.lines, "selection", "nnpu_value") if cell.row.value == "accuracy" else None
        rows.append(
            [
                f"{cell.row.group}: {cell.row.label}" if cell.row.group else cell.row.label,
                str(cell.positives),
                mean_and_deviation((estimate(line, cell.row.value) for line in cell.lines), NOT_RUN),
                f"{risk:.4f}" if risk is not None else MISSING,
                cell.ours,
                cell.time,
            ]
        )
    columns = [experiment.what, "positives", "estimated on PU data", "nnPU value", "test accuracy", "time a run"]
    return Grid(columns, rows)


def _figure(experiment: Experiment, recipe: Recipe, store: ResultStore, smoke: bool) -> list[Block]:
    lines = figure_lines(experiment, recipe.name, store, smoke=smoke)
    if not lines:
        return [_not_run(experiment, recipe)]
    ran = f"{len(lines)} seed{'s' if len(lines) > 1 else ''}, {lines[0]['positives']} positives, {lines[0]['device']}."
    blocks = [Paragraph(ran), *FIGURE_CONTENTS[experiment.name](lines)]
    return blocks + _accuracy_by_tau(recipe, store, smoke) if experiment.name == "noise-by-tau" else blocks


def _accuracy_by_tau(recipe: Recipe, store: ResultStore, smoke: bool) -> list[Block]:
    """The paper draws it beside the noise. It is of other runs, which may be of the recipe as it was before."""
    sweep = experiments()["tau"]
    charts = sweep_charts(sweep, store, smoke=smoke, only=recipe.name)
    if not charts.drawings:
        return []
    return [Paragraph("Accuracy, from the runs of `tau`."), *_as_it_was(sweep, recipe), charts]


def sweep_charts(experiment: Experiment, store: ResultStore, *, smoke: bool = False, only: str | None = None) -> Charts:
    """Accuracy against the setting that is swept, one drawing for every number of positives.

    Points that were not run with all the seeds of the others stand in the table alone.
    """
    sizes = dict.fromkeys(cell.positives for cell in cells(experiment, experiment.recipes[0], store, smoke=smoke))
    drawings = []
    for size in sizes:
        series = []
        theirs = [(row.x, row.paper[size]) for row in experiment.rows if row.x is not None and size in row.paper]
        if theirs:
            series.append(_sweep_line("paper", theirs))
        for recipe in [only] if only else experiment.recipes:
            found = [c for c in cells(experiment, recipe, store, smoke=smoke) if c.positives == size]
            ours = [(c.row.x, c.mean) for c in _with_all_seeds(found) if c.row.x is not None and c.mean is not None]
            if ours:
                series.append(_sweep_line(f"ours, {recipe}", ours))
        if series:
            drawings.append((f"{size} positives", _sweep_drawing(experiment, size, series)))
    return Charts(drawings)


def _with_all_seeds(found: Sequence[Cell]) -> list[Cell]:
    """A point of fewer seeds than its neighbours differs from them by its seeds more than by what is swept."""
    most = max((cell.seeds for cell in found), key=len, default=set())
    return [cell for cell in found if cell.seeds >= most]


def _sweep_line(name: str, points: Sequence[tuple[float, float]]) -> Series:
    return Series(name, [x for x, _ in points], [y for _, y in points])


def _sweep_drawing(experiment: Experiment, size: int, series: list[Series]) -> Markup:
    return line_chart(
        series,
        Labels(f"Accuracy against {experiment.what} with {size} positives", experiment.what, "accuracy, in %"),
        whole=all(float(row.x or 0).is_integer() for row in experiment.rows),
    )


MARKDOWN, PAGE = "RESULTS.md", "results.html"
TITLE = "Results of splitpu"
_GENERATED = "<!-- Written by `splitpu reproduce render` from the lines in results/; changes here are lost. -->"


def render(store: ResultStore, folder: Path, *, smoke: bool = False) -> tuple[Path, Path]:
    """Write both pages, each in one move; give their paths."""
    parts, answer = page_parts(store, smoke=smoke), headline(store, smoke=smoke)
    write_text(folder / MARKDOWN, _markdown(parts, answer))
    write_text(folder / PAGE, render_page("results.html", title=TITLE, parts=parts, answer=answer))
    return folder / MARKDOWN, folder / PAGE


def _markdown(parts: list[Part], answer: str) -> str:
    sections = [
        "\n\n".join([f"## {part.title} (`{part.anchor}`)", *(as_markdown(block, PAGE) for block in part.blocks)])
        for part in parts
    ]
    return "\n\n".join([f"# {TITLE}", _GENERATED, answer, *sections]) + "\n"
