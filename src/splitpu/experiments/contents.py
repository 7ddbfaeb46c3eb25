"""The content of the results page: every table and sweep as blocks, read from the result lines."""

from collections.abc import Callable, Sequence
from statistics import fmean

from splitpu.experiments.blocks import Block, Charts, Grid, Heading, Paragraph, Part
from splitpu.experiments.choosing import candidates, estimate, verdict
from splitpu.experiments.declared import Experiment, Recipe, Row, experiments, recipes
from splitpu.experiments.figure_contents import FIGURE_CONTENTS
from splitpu.experiments.store import ResultStore
from splitpu.experiments.summary import NOT_RUN, Cell, cells, deviation, figure_lines, mean_of, with_deviation
from splitpu.report.charts import Series, line_chart
from splitpu.report.text import MISSING

HOW_TO_READ = (
    "Every accuracy is in percent, on the test images, after the last epoch, at the model's own threshold, as mean ± "
    "standard deviation over n seeds. Every run is given the true prior. No epoch or threshold was chosen by test "
    "labels; what chose the settings stands beside each recipe. Times are the training time of a whole run on the "
    "device named beside them, stages taken from the cache included; where several runs were made at once (shared), "
    "the time divided by their number. Where a row is the recipe itself, the others are compared with it seed by seed, "
    "as mean difference ± its standard error (none for two seeds). Every figure is read from the lines in results/ by "
    "`splitpu reproduce --render`; what has no line yet says 'not run'."
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
    return Paragraph(f"Not run yet: `splitpu reproduce {experiment.name} --recipe {recipe.name}` runs it.")


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
        estimates = [value for line in cell.lines if (value := estimate(line, cell.row.value)) is not None]
        # Of the last model; a row about an earlier round has none.
        risk = mean_of(cell.lines, "selection", "nnpu_value") if cell.row.value == "accuracy" else None
        rows.append(
            [
                f"{cell.row.group}: {cell.row.label}" if cell.row.group else cell.row.label,
                str(cell.positives),
                with_deviation(fmean(estimates), deviation(estimates)) if estimates else NOT_RUN,
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


def _sweep_drawing(experiment: Experiment, size: int, series: list[Series]) -> str:
    return line_chart(
        series,
        description=f"Accuracy against {experiment.what} with {size} positives",
        x_label=experiment.what,
        y_label="accuracy, in %",
        whole=all(float(row.x or 0).is_integer() for row in experiment.rows),
    )
