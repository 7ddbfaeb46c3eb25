"""`splitpu evaluate` where no truth is known: figures estimated from labelled and unlabelled rows."""

from splitpu.cli.output import print_facts, print_json, print_note, print_table, title_of
from splitpu.data import PUData
from splitpu.engine.hardware import Hardware
from splitpu.models import Model
from splitpu.runs.estimates import estimates_of
from splitpu.runs.folder import RunFolder


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
    estimates = estimates_of(folder, model, rows, hardware, trained_on=trained_on)
    found, wrong, note = estimates.found, estimates.wrong, estimates.note
    if json:
        content = {"run": str(folder.path), "data": where, "rows": len(rows), "note": note}
        print_json({**content, **found.to_dict(), "degenerate": [one.__dict__ for one in wrong]})
        return 0
    print_table(
        [
            {
                "figure": title_of(name),
                "estimate": figure.value,
                "95 % interval": f"{figure.low:.4f} to {figure.high:.4f}",
            }
            for name, figure in found.figures.items()
        ],
        ("figure", "estimate", "95 % interval"),
    )
    print_facts(
        {
            "data": f"{where}, {found.positives:,} labelled and {found.unlabelled:,} unlabelled rows",
            "prior": f"{found.prior:.4g}",
            "scenario": rows.scenario,
            "called positive": f"{100 * found.positive_rate_unlabelled:.1f} % of the unlabelled",
            "nnPU value": f"{found.nnpu:.4f} (the estimated risk with the sigmoid loss; lower is better)",
        }
    )
    print_note(note)
    for one in wrong:
        print_note(one.sentence)
    return 0
