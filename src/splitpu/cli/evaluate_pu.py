"""`splitpu evaluate` where no truth is known: figures estimated from labelled and unlabelled rows."""

from splitpu.cli.output import print_facts, print_json, print_note, print_table
from splitpu.config import EngineConfig
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation import evaluate_pu, find_degeneracies
from splitpu.models import Model
from splitpu.runs.folder import RunFolder
from splitpu.runs.request import Source
from splitpu.runs.sources import load_source
from splitpu.training import without_rows_aside

_ON_TRAINING_ROWS = (
    "estimated from the rows the model was trained on, which flatters it; give a file with X and s of other rows for "
    "a fair estimate"
)
_ON_ROWS_ASIDE = (
    "estimated from the rows that were kept out of the training; epochs or probabilities may have been chosen by them"
)
_ON_OTHER_ROWS = "estimated from labelled and unlabelled rows; the truth is not known"


def run_evaluate_pu(folder: RunFolder, model: Model, data: str | None, *, device: str, json: bool) -> int:
    """Estimates with their intervals, and what is wrong with the model if something is."""
    if model.prior is None:
        raise InputError(
            f"{folder.path} was trained without a prior, without which P and U say nothing of the accuracy: give a "
            "file with X_test and y_test, or train with --prior auto."
        )
    request = folder.request()
    source = request.source if data is None else Source(npz=data, scenario=request.source.scenario)
    rows = load_source(source).data
    model.preprocessing.check(rows.features, "X")
    decision = model.decision(rows.features, Hardware.choose(device, EngineConfig()))
    _, aside = (rows, None) if data is not None else without_rows_aside(rows, folder.config(), request.seed)
    judged = rows if aside is None else aside
    positive, unlabelled = decision[judged.positives], decision[judged.unlabelled]
    interval = (request.prior_estimate or {}).get("interval")
    found = evaluate_pu(
        positive,
        unlabelled,
        model.prior,
        scenario=rows.scenario,
        prior_interval=None if interval is None else (interval[0], interval[1]),
    )
    wrong = find_degeneracies(positive, unlabelled, model.prior, scenario=rows.scenario)
    note = _ON_OTHER_ROWS if data is not None else _ON_TRAINING_ROWS if aside is None else _ON_ROWS_ASIDE
    if json:
        content = {"run": str(folder.path), "data": source.where, "rows": len(rows), "note": note}
        print_json({**content, **found.to_dict(), "degenerate": [one.__dict__ for one in wrong]})
        return 0
    print_table(
        [
            {
                "figure": name.replace("_", " "),
                "estimate": figure.value,
                "95 %": f"{figure.low:.4f} - {figure.high:.4f}",
            }
            for name, figure in found.figures.items()
        ],
        ("figure", "estimate", "95 %"),
    )
    print_facts(
        {
            "data": f"{source.where}, {len(positive):,} labelled and {len(unlabelled):,} unlabelled rows",
            "prior": f"{model.prior:.4g}",
            "called positive": f"{100 * found.positive_rate_unlabelled:.1f} % of the unlabelled",
        }
    )
    print_note(note)
    for one in wrong:
        print_note(one.sentence)
    return 0
