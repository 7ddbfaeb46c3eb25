"""`splitpu evaluate` where no truth is known: figures estimated from labelled and unlabelled rows."""

from splitpu.cli.output import print_facts, print_json, print_note, print_table
from splitpu.data import PUData
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation import evaluate_pu, find_degeneracies
from splitpu.models import Model
from splitpu.runs.folder import RunFolder
from splitpu.training import without_rows_aside

_ON_TRAINING_ROWS = (
    "estimated from the rows the model was trained on, which flatters it; for a fair estimate give other rows, "
    "labelled and unlabelled ones as for fit, or --test with rows whose truth is known"
)
_ON_OTHER_ROWS = (
    "estimated from labelled and unlabelled rows; if the truth of some rows is known, give them with --test"
)
_ON_ROWS_ASIDE = (
    "estimated from the rows that were kept out of the training; epochs or probabilities may have been chosen by them"
)


def show_estimates(
    folder: RunFolder,
    model: Model,
    rows: PUData,
    where: str,
    hardware: Hardware,
    *,
    trained_on: bool,
    json: bool,
) -> int:
    """Estimates with their intervals, and what is wrong with the model if something is."""
    if model.prior is None:
        raise InputError(
            f"{folder.path} was trained without a prior, without which P and U say nothing of the accuracy: give rows "
            "whose truth is known with --test or as X_test and y_test in a .npz, or train with --prior auto."
        )
    request = folder.request()
    model.preprocessing.check(rows.features, "X")
    decision = model.decision(rows.features, hardware)
    aside = without_rows_aside(rows, folder.config(), request.seed)[1] if trained_on else None
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
    note = _ON_OTHER_ROWS if not trained_on else _ON_TRAINING_ROWS if aside is None else _ON_ROWS_ASIDE
    if json:
        content = {"run": str(folder.path), "data": where, "rows": len(rows), "note": note}
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
            "data": f"{where}, {len(positive):,} labelled and {len(unlabelled):,} unlabelled rows",
            "prior": f"{model.prior:.4g}",
            "called positive": f"{100 * found.positive_rate_unlabelled:.1f} % of the unlabelled",
        }
    )
    print_note(note)
    for one in wrong:
        print_note(one.sentence)
    return 0
