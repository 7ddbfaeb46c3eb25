"""How each figure of the paper is shown: from the series in its result lines to tables and drawings."""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from splitpu.experiments.blocks import Block, Charts, Grid, Pictures
from splitpu.experiments.store import Line
from splitpu.report.charts import Mark, Series, line_chart
from splitpu.report.text import MISSING

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
            line_chart(sizes, description="Noisy samples against tau", x_label="tau", y_label="samples", whole=False),
        ),
        (
            "share of noise among easy and hard ones",
            line_chart(
                rates,
                description="Noise rate against tau",
                x_label="tau",
                y_label="noise, in %",
                level=together,
                whole=False,
            ),
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
    drawing = line_chart(
        curves, description="Training accuracy of easy samples", x_label="epoch", y_label="as their label says, in %"
    )
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
        description="Noise among the samples that SPR suspects",
        x_label="epoch",
        y_label="noise, in %",
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


def _histogram(line: Line) -> str:
    """Gradients of clean and noisy samples of one seed."""
    series = line["series"]
    middle = [round(x, 12) for x in series["middle"]]  # else the pointer would read 2e-17 where nought is meant
    curves = [Series(part, middle, [100 * y for y in series[f"{part}_share"]]) for part in ("clean", "noisy")]
    return line_chart(
        curves, description="Gradients of single samples", x_label="gradient", y_label="samples, in %", whole=False
    )


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
