"""`splitpu evaluate`."""

from splitpu.cli.output import print_facts, print_json, print_table
from splitpu.config import EngineConfig
from splitpu.data import NAMED_SETS, HeldOut, load_named
from splitpu.data.npz import has_only_pu_labels, read_labelled
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.methods.registry import find_method
from splitpu.metrics import evaluate_scores
from splitpu.models import Model
from splitpu.runs.folder import RunFolder
from splitpu.runs.sources import load_request

_COLUMNS = ("model", "accuracy", "f1", "roc_auc", "average_precision", "positive_rate")


def run_evaluate(run: str, data: str | None, *, device: str, json: bool) -> int:
    """Figures of base and final model on rows whose truth is known."""
    folder = RunFolder.find(run)
    model = Model.load(folder.path)
    if _without_truth(folder, data):
        from splitpu.cli.evaluate_pu import run_evaluate_pu

        return run_evaluate_pu(folder, model, data, device=device, json=json)
    held_out, source = _test_rows(folder, data)
    model.preprocessing.check(held_out.features, "X_test")
    hardware = Hardware.choose(device, EngineConfig())
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
            "prior": f"{_prior(model)}; {100 * true_rate:.1f} % of the test rows are positive",
        }
    )
    return 0


def _without_truth(folder: RunFolder, data: str | None) -> bool:
    """Whether there are only labelled and unlabelled rows to judge the model by."""
    source = folder.request().source
    if data is None and (source.folders or source.table):
        return not (source.folders.test if source.folders else source.table and source.table.test)
    path = source.npz if data is None else data
    return path is not None and path.endswith(".npz") and has_only_pu_labels(path)


def _models(model: Model) -> list[tuple[str, str]]:
    """What to call each model of the run, and which one it is."""
    if model.config.method == "split-pu":
        return [("base", "base"), ("final", "final")]
    return [(find_method(model.config.method).title, "final")]


def _prior(model: Model) -> str:
    return "not given" if model.prior is None else f"{model.prior:.4g}"


def _test_rows(folder: RunFolder, data: str | None) -> tuple[HeldOut, str]:
    """The rows that were named, or the test rows of the data that the run was trained on."""
    if data is None:
        source = folder.request().source
        if source.folders or source.table:
            return _held_out(folder), f"the test rows of {source.where}"
        data = source.npz or str(source.named)
    if data in NAMED_SETS:
        named = load_named(data)
        return HeldOut.from_arrays(named.features_test, named.truth_test, channels="last"), data
    if not data.endswith(".npz"):
        raise InputError(f"{data!r} is neither a .npz file nor one of {', '.join(NAMED_SETS)}.")
    return HeldOut.from_arrays(*read_labelled(data)), data


def _held_out(folder: RunFolder) -> HeldOut:
    """The test rows of a run on folders or a table; only asked for where it has some."""
    held_out = load_request(folder.request()).held_out
    if held_out is None:
        raise InputError(f"{folder.path} has no test rows; give a .npz file with X_test and y_test.")
    return held_out
