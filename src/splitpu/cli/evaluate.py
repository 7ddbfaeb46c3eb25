"""`splitpu evaluate`: figures on rows whose truth is known, or estimated from labelled and unlabelled rows."""

from dataclasses import replace

from splitpu.cli.display import print_facts, print_figures, print_json, print_note, print_table
from splitpu.cli.options import DataOptions
from splitpu.cli.progress import choose_display
from splitpu.config.schema import Scenario
from splitpu.data.sources import EvaluationRows, SourceWords, parse_source, read_rows_with_truth
from splitpu.engine.hardware import Hardware
from splitpu.errors import DataGone, InputError
from splitpu.evaluation.metrics import evaluate_scores, if_truth_is_swapped
from splitpu.evaluation.ranking import in_telling_order
from splitpu.learners.learner_networks import LEARNER
from splitpu.methods.registry import find_method
from splitpu.model import Model
from splitpu.prior.estimate import NOT_USED, prior_in_words
from splitpu.runs.folder import RunFolder, load_request
from splitpu.runs.results import estimates_of, judged_by_truth, naive_decision, prior_source
from splitpu.types import Watch

_COLUMNS = ("accuracy", "f1", "roc_auc", "average_precision")


def run_evaluate(run: str, asked: DataOptions, *, scenario: Scenario | None = None, device: str, json: bool) -> None:
    """Figures of base and final model on rows whose truth is known, or estimates where it is not."""
    folder = RunFolder.find_trained(run)
    model = Model.load(folder.path)
    with choose_display(quiet=json).watching() as watch:
        rows = rows_to_judge_by(folder, model, asked, watch, scenario=scenario)
    print_note(*rows.warnings)
    show = _show_estimates if rows.labelled is not None else _show_figures
    facts, notes = show(folder, model, rows, Hardware.choose(device), json=json)
    if json:
        return
    if model.network_name == LEARNER:
        facts["naive"] = (
            "the best single learner of labelled against unlabelled rows, cut where being labelled is as likely as not"
        )
    print_facts(facts)
    print_note(*notes)


def rows_to_judge_by(
    folder: RunFolder, model: Model, asked: DataOptions, watch: Watch | None = None, *, scenario: Scenario | None = None
) -> EvaluationRows:
    """What the words name, sampled as the `scenario` or else the run says; or the run's data, its test rows if any."""
    own = folder.request().source
    words = own.completed(asked.as_words(scenario=scenario or own.scenario))
    words.refuse(("names", "ignore"), "for training: the model knows which columns it takes.")
    words.refuse(("labelled",), "for training: a model is judged by the test rows of a named set.")
    others = [option for option in asked.given() if option in ("DATA", "--positives", "--unlabelled", "--labels")]
    if asked.test is not None and others:
        raise InputError(f"--test says what is true of its rows, so leave out {' and '.join(others)}.")
    found = read_rows_with_truth(words, model, watch)
    if found is None and not asked.given():
        found = _rows_of_run(folder, model, watch)
    if found is None:
        source = parse_source(words, model)
        loaded = source.load(model, watch=watch)
        same = loaded.data.fingerprint() == folder.request().fingerprint  # the rows of the training, though named anew
        found = source.evaluation_rows(loaded, trained_on=same)
    if scenario is not None and (found.labelled is None or not asked.given()):
        why = "has its truth" if found.labelled is None else "was sampled as the run says"
        given_here = f"--scenario {scenario} is for labelled and unlabelled rows that are given here"
        raise InputError(f"{given_here}; {found.where} {why}, so leave it out.")
    if not asked.given() or found.trained_on:
        return found
    return replace(found, warnings=(*found.warnings, *own.seen_in_training(found, model)))


def _rows_of_run(folder: RunFolder, model: Model, watch: Watch | None) -> EvaluationRows:
    request = folder.request()
    source = request.source
    if source.draws_labels and (tested := read_rows_with_truth(SourceWords(data=source.title), model)) is not None:
        return tested
    try:
        loaded = load_request(request, watch=watch, model=model)
    except DataGone as gone:
        others = "or give other rows to judge by, as for fit or with --test"
        raise InputError(f"{str(gone).rstrip('.')}, {others}.") from gone
    if loaded.held_out is None:
        return source.evaluation_rows(loaded, trained_on=True)
    where = f"the test rows of {source.where}"
    return EvaluationRows(where=where, tested=loaded.held_out, warnings=loaded.warnings)


def _show_estimates(
    folder: RunFolder, model: Model, rows: EvaluationRows, hardware: Hardware, *, json: bool
) -> tuple[dict[str, object], list[str]]:
    """Estimates with their intervals; gives the facts and notes under them, such as what is wrong with the model."""
    data = rows.labelled
    assert data is not None
    judged = estimates_of(folder, model, data, hardware, trained_on=rows.trained_on)
    found, wrong = judged.found, judged.wrong
    assert found is not None  # as they are estimates
    if json:
        content = {"run": str(folder.path), "data": rows.where, "rows": len(data), "note": ". ".join(judged.notes)}
        print_json({**content, **found.to_dict(), "degenerate": [one.__dict__ for one in wrong]})
    else:
        print_figures(judged.to_dict()["figures"])
    facts: dict[str, object] = {
        "data": f"{rows.where}, {found.positives:,} labelled and {found.unlabelled:,} unlabelled rows",
        "prior": f"{found.prior:.4g}",
        "scenario": data.scenario,
        "called positive": f"{100 * found.positive_rate_unlabelled:.1f} % of the unlabelled",
        "nnPU value": f"{found.nnpu:.4f} (the estimated risk with the sigmoid loss; lower is better)",
    }
    return facts, [*judged.notes, *(one.sentence for one in wrong)]


def _show_figures(
    folder: RunFolder, model: Model, rows: EvaluationRows, hardware: Hardware, *, json: bool
) -> tuple[dict[str, object], list[str]]:
    """Figures of every model of the run by the truth; gives the facts and notes under them."""
    held_out = rows.tested
    assert held_out is not None  # one of the two is there
    model.preprocessing.check(held_out.features, "X_test")
    models = [(find_method(model.config.method).title, "final")]  # what each is called, and which one it is
    if model.network_name == LEARNER and folder.finished:
        names = [one["model"] for one in folder.read_result()["models"]]
        models = list(zip(names, ("base", "final"), strict=False))
    elif model.config.method == "split-pu":
        models = [("base", "base"), ("final", "final")]
    decisions = {name: model.decision(held_out.features, hardware, which=which) for name, which in models}
    scored = [{"model": name, **evaluate_scores(held_out.truth, one, model.prior)} for name, one in decisions.items()]
    final = list(decisions.values())[-1]
    judged = judged_by_truth(held_out, final, naive_decision(model, held_out.features, hardware))
    true_rate = float(held_out.truth.mean())
    print_note(*if_truth_is_swapped(scored[-1], len(held_out)))
    if json:
        content = {"run": str(folder.path), "data": rows.where, "rows": len(held_out), "prior": model.prior}
        print_json({**content, "models": scored, **({} if judged is None else judged.to_dict())})
    else:
        print_table(scored, ["model", *in_telling_order(_COLUMNS, true_rate), "positive_rate"])
        if judged is not None:
            print_figures(judged.to_dict()["figures"])
    # A model that Python saved has no request, and does not know why it has no prior.
    source = prior_source(folder.request()) if folder.request_file.exists() else NOT_USED
    prior = prior_in_words(None, None, source) if model.prior is None else f"{model.prior:.4g}"
    facts: dict[str, object] = {
        "data": f"{rows.where}, {len(held_out):,} test rows",
        "prior": f"{prior}; {100 * true_rate:.1f} % of the test rows are positive",
    }
    return facts, [] if judged is None else list(judged.notes[1:])
