"""`splitpu evaluate`: figures on rows whose truth is known, or estimated from labelled and unlabelled rows.

The rows are the run's own, or those of other files, folders and tables; what was trained on is not taken for new.
"""

from dataclasses import replace

from splitpu.cli.display import print_facts, print_figures, print_json, print_note, print_table
from splitpu.cli.options import DataOptions
from splitpu.cli.progress import choose_display
from splitpu.config.schema import EngineConfig, Scenario
from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.sources import EvaluationRows, SourceWords, parse_source, read_rows_with_truth
from splitpu.engine.hardware import Hardware
from splitpu.errors import DataGone, InputError
from splitpu.evaluation.metrics import evaluate_scores, if_truth_is_swapped
from splitpu.evaluation.ranking import in_telling_order
from splitpu.learners.learner_networks import LEARNER
from splitpu.methods.registry import find_method
from splitpu.model import Model
from splitpu.prior.estimate import NOT_USED, prior_in_words
from splitpu.runs.folder import RunFolder
from splitpu.runs.request import load_request
from splitpu.runs.results import estimates_of, judged_by_truth, naive_decision, prior_source
from splitpu.types import Watch


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
    judged = estimates_of(folder, model, rows, hardware, trained_on=trained_on)
    found, wrong = judged.found, judged.wrong
    assert found is not None  # as they are estimates
    if json:
        content = {"run": str(folder.path), "data": where, "rows": len(rows), "note": ". ".join(judged.notes)}
        print_json({**content, **found.to_dict(), "degenerate": [one.__dict__ for one in wrong]})
        return 0
    print_figures(judged.to_dict()["figures"])
    print_facts(
        {
            "data": f"{where}, {found.positives:,} labelled and {found.unlabelled:,} unlabelled rows",
            "prior": f"{found.prior:.4g}",
            "scenario": rows.scenario,
            "called positive": f"{100 * found.positive_rate_unlabelled:.1f} % of the unlabelled",
            "nnPU value": f"{found.nnpu:.4f} (the estimated risk with the sigmoid loss; lower is better)",
            **about_naive(model),
        }
    )
    for sentence in [*judged.notes, *(one.sentence for one in wrong)]:
        print_note(sentence)
    return 0


def about_naive(model: Model) -> dict[str, str]:
    """What stands beside the figures as the naive model, where there is one."""
    words = "the best single learner of labelled against unlabelled rows, cut where being labelled is as likely as not"
    return {"naive": words} if model.network_name == LEARNER else {}


def rows_to_judge_by(
    folder: RunFolder,
    model: Model,
    asked: DataOptions,
    watch: Watch | None = None,
    *,
    scenario: Scenario | None = None,
) -> EvaluationRows:
    """What the words name, or the data of the run: its test rows if it has some.

    `scenario` says how labelled and unlabelled rows that the words name were sampled; as those of the run if None.
    """
    own = folder.request().source
    words = own.completed(asked.as_words(scenario=scenario or own.scenario))
    found = _found_rows(folder, model, asked, words, watch)
    if scenario is not None and (found.labelled is None or not asked.given()):
        raise InputError(
            f"--scenario {scenario} is for labelled and unlabelled rows that are given here; {found.where} "
            f"{'has its truth' if found.labelled is None else 'was sampled as the run says'}, so leave it out."
        )
    if not asked.given() or found.trained_on:
        return found
    return replace(found, warnings=(*found.warnings, *own.seen_in_training(found, model)))


def _found_rows(
    folder: RunFolder, model: Model, asked: DataOptions, words: SourceWords, watch: Watch | None
) -> EvaluationRows:
    words.refuse(("names", "ignore"), "for training: the model knows which columns it takes.")
    words.refuse(("labelled",), "for training: a model is judged by the test rows of a named set.")
    others = [option for option in asked.given() if option in ("DATA", "--positives", "--unlabelled", "--labels")]
    if asked.test is not None and others:
        raise InputError(f"--test says what is true of its rows, so leave out {' and '.join(others)}.")
    if (with_truth := read_rows_with_truth(words, model, watch)) is not None:
        return with_truth
    if not asked.given():
        return _rows_of_run(folder, model, watch)
    source = parse_source(words, model)
    loaded = source.load(model, watch=watch)
    same = loaded.data.fingerprint() == folder.request().fingerprint  # the rows of the training, though named anew
    return source.evaluation_rows(loaded, trained_on=same)


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


_COLUMNS = ("accuracy", "f1", "roc_auc", "average_precision")


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
    decisions = {
        name: model.decision(held_out.features, hardware, which=which) for name, which in _models(folder, model)
    }
    rows = [{"model": name, **evaluate_scores(held_out.truth, one, model.prior)} for name, one in decisions.items()]
    final = list(decisions.values())[-1]
    judged = judged_by_truth(held_out, final, naive_decision(model, held_out.features, hardware))
    true_rate = float(held_out.truth.mean())
    for sentence in if_truth_is_swapped(rows[-1], len(held_out)):
        print_note(sentence)
    if json:
        content = {"run": str(folder.path), "data": source, "rows": len(held_out), "prior": model.prior}
        print_json({**content, "models": rows, **({} if judged is None else judged.to_dict())})
        return 0
    print_table(rows, ["model", *in_telling_order(_COLUMNS, true_rate), "positive_rate"])
    if judged is not None:
        print_figures(judged.to_dict()["figures"])
    print_facts(
        {
            "data": f"{source}, {len(held_out):,} test rows",
            "prior": f"{_prior(folder, model)}; {100 * true_rate:.1f} % of the test rows are positive",
            **about_naive(model),
        }
    )
    for sentence in [] if judged is None else judged.notes[1:]:
        print_note(sentence)
    return 0


def _models(folder: RunFolder, model: Model) -> list[tuple[str, str]]:
    """What to call each model of the run, and which one it is."""
    if model.network_name == LEARNER and folder.finished:
        names = [one["model"] for one in folder.read_result()["models"]]
        return list(zip(names, ("base", "final"), strict=False))
    if model.config.method == "split-pu":
        return [("base", "base"), ("final", "final")]
    return [(find_method(model.config.method).title, "final")]


def _prior(folder: RunFolder, model: Model) -> str:
    if model.prior is not None:
        return f"{model.prior:.4g}"
    # A model that Python saved has no request, and does not know why it has no prior.
    source = prior_source(folder.request()) if folder.request_file.exists() else NOT_USED
    return prior_in_words(None, None, source)
