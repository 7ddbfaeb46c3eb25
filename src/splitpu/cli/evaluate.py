"""`splitpu evaluate`."""

from splitpu.cli.evaluate_pu import show_estimates
from splitpu.cli.inputs import DataOptions
from splitpu.cli.judged_rows import rows_to_judge_by
from splitpu.cli.output import print_facts, print_json, print_note, print_table
from splitpu.cli.progress import choose_display
from splitpu.config import EngineConfig
from splitpu.config.schema import Scenario
from splitpu.data import HeldOut
from splitpu.engine.hardware import Hardware
from splitpu.methods.registry import find_method
from splitpu.metrics import evaluate_scores
from splitpu.models import Model
from splitpu.prior.resolve import NOT_USED, prior_in_words
from splitpu.runs.folder import RunFolder
from splitpu.runs.summary import prior_source

_COLUMNS = ("model", "accuracy", "f1", "roc_auc", "average_precision", "positive_rate")


def run_evaluate(run: str, asked: DataOptions, *, scenario: Scenario | None = None, device: str, json: bool) -> int:
    """Figures of base and final model on rows whose truth is known, or estimates where it is not."""
    folder = RunFolder.find_trained(run)
    model = Model.load(folder.path)
    with choose_display(quiet=json).watching() as watch:
        rows = rows_to_judge_by(folder, model, asked, watch, scenario=scenario)
    for warning in rows.warnings:
        print_note(warning)
    hardware = Hardware.choose(device, EngineConfig())
    if rows.labelled is not None:
        return show_estimates(folder, model, rows.labelled, rows.where, hardware, trained_on=rows.trained_on, json=json)
    assert rows.tested is not None  # one of the two is there
    return _show_figures(folder, model, rows.tested, rows.where, hardware, json=json)


def _show_figures(
    folder: RunFolder, model: Model, held_out: HeldOut, source: str, hardware: Hardware, *, json: bool
) -> int:
    model.preprocessing.check(held_out.features, "X_test")
    rows = [
        {
            "model": name,
            **evaluate_scores(
                held_out.truth, model.decision(held_out.features, hardware, which=which), prior=model.prior
            ),
        }
        for name, which in _models(model)
    ]
    true_rate = float(held_out.truth.mean())
    if json:
        content = {"run": str(folder.path), "data": source, "rows": len(held_out), "prior": model.prior}
        print_json({**content, "models": rows})
        return 0
    print_table(rows, _COLUMNS)
    print_facts(
        {
            "data": f"{source}, {len(held_out):,} test rows",
            "prior": f"{_prior(folder, model)}; {100 * true_rate:.1f} % of the test rows are positive",
        }
    )
    return 0


def _models(model: Model) -> list[tuple[str, str]]:
    """What to call each model of the run, and which one it is."""
    if model.config.method == "split-pu":
        return [("base", "base"), ("final", "final")]
    return [(find_method(model.config.method).title, "final")]


def _prior(folder: RunFolder, model: Model) -> str:
    if model.prior is not None:
        return f"{model.prior:.4g}"
    # A model that Python saved has no request, and does not know why it has no prior.
    source = prior_source(folder.request()) if folder.request_file.exists() else NOT_USED
    return prior_in_words(None, None, source)
