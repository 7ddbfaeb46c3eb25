"""How good a model is, and how much of it rests on the prior: `splitpu evaluate`, `sensitivity` and `prior`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from splitpu.cli.display import print_facts, print_figures, print_json, print_note, print_table
from splitpu.cli.options import ClusterWords, DataWords, PriorsTried, as_options
from splitpu.cli.progress import choose_display
from splitpu.cli.several_runs import StageLines, run_grid
from splitpu.cli.train import estimating
from splitpu.config.schema import Scenario
from splitpu.data.public.download import cache_folder
from splitpu.data.pudata import PUData
from splitpu.data.sources import EvaluationRows, LoadedData, SourceWords, parse_source, read_rows_with_truth
from splitpu.engine.hardware import Hardware
from splitpu.engine.stage import Observer
from splitpu.errors import DataGone, InputError
from splitpu.evaluation.calibration import PUCalibrator
from splitpu.evaluation.diagnostics import check_random_labelling, find_degeneracies
from splitpu.evaluation.metrics import evaluate_pu, evaluate_scores, if_truth_is_swapped
from splitpu.evaluation.ranking import in_telling_order
from splitpu.learners.learner_networks import LEARNER
from splitpu.methods.context import RowsAside
from splitpu.methods.registry import find_method
from splitpu.methods.thresholds import matched_threshold
from splitpu.model import Model
from splitpu.prior.estimate import NOT_USED, estimate_prior, prior_in_words
from splitpu.prior.scores import ScoreKind, needs_networks
from splitpu.runs.folder import NOT_JUDGED, Request, RunFolder, kept_until_settled, load_request
from splitpu.runs.grid import Grid, InTurn
from splitpu.runs.results import estimates_of, how_to_have_a_prior, judged_by_truth, naive_decision, prior_source
from splitpu.runs.run import spec_of
from splitpu.training import Runtime, TrainSpec, calibrated_on, train, without_rows_aside
from splitpu.types import Floats, Watch
from splitpu.utils.arrays import checked_seed
from splitpu.utils.warnings import Note, collected_warnings

_COUNTED = ("accuracy", "f1", "roc_auc", "average_precision")
_OF_A_PRIOR = ("prior", "positive_rate_unlabelled", "changed_decisions", "estimated_accuracy", "test_accuracy")
Decisions = dict[str, Floats]  # on training and test rows, by the one or the other
Told = tuple[dict[str, object], list[str]]  # facts, and notes under them
_MORE_THAN_CHANCE = 0.01  # by which the AUC may exceed what is possible without a word about it


def run_evaluate(
    run: str, data: str | None, *, where: DataWords, scenario: Scenario | None, device: str, json: bool
) -> None:
    """Figures of base and final model on rows whose truth is known, or estimates where it is not."""
    asked = replace(where, data=data)
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
        best = "the best single learner of labelled against unlabelled rows"
        facts["naive"] = f"{best}, cut where being labelled is as likely as not"
    print_facts(facts)
    print_note(*notes)


def rows_to_judge_by(
    folder: RunFolder, model: Model, asked: DataWords, watch: Watch | None = None, *, scenario: Scenario | None = None
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


def _show_estimates(folder: RunFolder, model: Model, rows: EvaluationRows, hardware: Hardware, *, json: bool) -> Told:
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


def _show_figures(folder: RunFolder, model: Model, rows: EvaluationRows, hardware: Hardware, *, json: bool) -> Told:
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
        print_table(scored, ["model", *in_telling_order(_COUNTED, true_rate), "positive_rate"])
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


def run_sensitivity(run: str, *, tried: PriorsTried, cluster: ClusterWords, device: str, json: bool) -> None:
    """One row a prior: how many unlabelled rows are called positive, and how many decisions differ from the run's."""
    folder = RunFolder.find_trained(run)
    folder.read_result()  # says so if the run is not finished
    request, config = folder.request(), folder.config()
    model = Model.load(folder.path)
    if model.prior is None or request.prior is None:
        how = how_to_have_a_prior(request)
        raise InputError(f"{folder.path} was trained without a prior, so none can be varied; {how}.")
    display = choose_display(quiet=json)
    loaded = load_request(request, display.say, model=model)
    priors = prior_range(loaded, request, tried)
    executor = cluster.executor(folder.path, device, config.engine.threads)
    if executor is not None and not tried.refit:
        raise InputError("--ray goes with --refit: to move a threshold takes no time.")
    hardware = Hardware.choose(device)
    own = _decisions(model, loaded, hardware)
    plain = own if model.calibration is None else _decisions(replace(model, calibration=None), loaded, hardware)
    found = folder.read_out_of_fold(len(loaded.data))
    if found is not None and model.calibration is None:  # as in scores.csv
        own = plain = {**own, "training": found[0]}
    taught, aside = without_rows_aside(loaded.data, config, request.seed)
    judged = loaded.data if found is not None else aside  # never rows that the model was trained on
    spec = spec_of(request, config, loaded.classes)
    if tried.refit:
        warm: dict[str, Any] = {}
        specs = {prior: replace(spec, prior=prior, prior_interval=None) for prior in priors} | {request.prior: spec}
        units = [_Refit(f"prior {prior:.4g}", loaded, specs[prior], device, warm) for prior in priors]
        grid = Grid(units, progress=StageLines(display))
        scores = run_grid(grid, executor or InTurn(), how_to_go_on="run the same command to begin again")
    else:
        scores = [
            own if prior == request.prior else _moved(plain, taught, aside, prior, model.calibration)
            for prior in priors
        ]
    rows = [_row_of_prior(prior, found, own, loaded, judged) for prior, found in zip(priors, scores, strict=True)]
    about_own = _about_own_row_of_prior(model, request, refit=tried.refit)
    if json:
        content = {"run": str(folder.path), "prior": model.prior, "refit": tried.refit, "note": about_own}
        return print_json({**content, "rows": rows})
    left_out = {*(() if loaded.held_out else ("test_accuracy",)), *(() if judged else ("estimated_accuracy",))}
    columns = [column for column in _OF_A_PRIOR if column not in left_out]
    print_table([{**row, "prior": f"{row['prior']:.4g}"} for row in rows], columns)
    how = "the run's model with its threshold where that prior puts it"
    if tried.refit:
        how = "trained anew"
    elif _is_cut_by_calibration(model.calibration):
        how = "the run's model, calibrated for that prior, with its threshold at the probability 1/2"
    print_facts({"run": folder.path, "its prior": f"{model.prior:.4g}", "each row": how})
    print_note(about_own or "")
    words = "decisions out of fold" if found is not None else "rows that were kept out of the training"
    resting = f"the estimated accuracy rests on the {words} and on the prior of its row being right."
    print_note(resting if judged else f"{NOT_JUDGED}.")
    others = []  # of the run's own row the reason is said in full, of the others in a word
    for row in rows:
        if row["prior"] == request.prior:
            print_note(*(f"the run's own prior {request.prior:.4g}: {one['sentence']}" for one in row["degenerate"]))
        elif row["degenerate"]:
            others.append(f"{row['prior']:.4g} ({' and '.join(one['kind'] for one in row['degenerate'])})")
    if others:
        print_note(f"do not believe the estimated accuracy of these priors (--json says why): {', '.join(others)}.")


@dataclass(frozen=True)
class _Refit:
    """The training of the run with another prior; gives the decisions on all rows."""

    name: str
    loaded: LoadedData
    spec: TrainSpec
    device: str
    warm: dict[str, Any]  # a warm-up knows no prior, so the first one does for all that follow

    def run(self, observer: Observer, note: Note) -> Decisions:
        with collected_warnings(note):
            runtime = Runtime(device=self.device, observer=observer, warm_start=self.warm.get("start"))
            training = train(self.loaded.data, self.spec, runtime)
        self.warm["start"] = training.warm_start
        scores = _decisions(training.model, self.loaded, Hardware.choose(self.device))
        return scores if training.out_of_fold is None else {**scores, "training": training.out_of_fold[0]}


def _is_cut_by_calibration(calibration: PUCalibrator | None) -> bool:
    """Whether a calibration decides, as one with an offset does; a temperature leaves every decision as it was."""
    return calibration is not None and calibration.method != "temperature"


def _about_own_row_of_prior(model: Model, request: Request, *, refit: bool) -> str | None:
    """Why the run's own row need not lie between its neighbours."""
    own = f"the row of the run's own prior {request.prior:.4g}"
    if _is_cut_by_calibration(model.calibration):
        return None
    cuts = {"half": "at the probability 1/2 (threshold=half)", "f1": "for the highest F1 (threshold=f1)"}
    if (cut := cuts.get(model.config.threshold)) is not None:
        return None if refit else f"{own} is cut {cut}, the others where their prior says; see --refit."
    if request.prior_interval is None:
        return None
    depends = "on gaps in the logits and on the count of a model trained with a PU risk"
    also = f"{own} is the run as it is: that prior is an estimate, so its threshold also depends {depends}"
    return f"{also}; every other row takes its prior as known."


def prior_range(loaded: LoadedData, request: Request, tried: PriorsTried) -> list[float]:
    """Evenly spaced priors and the run's own, all of them possible for the data."""
    lowest, highest, steps = tried.lowest, tried.highest, tried.steps
    if steps < 2:
        raise InputError(f"--steps {steps} is too few for a range; give at least 2.")
    for option, bound in (("--lowest", lowest), ("--highest", highest)):
        if bound is not None and not 0 < bound < 1:
            raise InputError(f"{option} {bound:g} is not a share: give a prior between 0 and 1, such as 0.3.")
    own = float(request.prior or 0.0)
    low, high = request.prior_interval or (own / 2, min(1.5 * own, (1 + own) / 2))
    low = low if lowest is None else lowest
    high = high if highest is None else highest
    labelled = loaded.data.labelled_share if loaded.data.scenario == "single-training-set" else 0.0
    if lowest is None:  # at the labelled share itself nothing would be left to find
        low = max(low, labelled + 0.1 * (own - labelled))
    if highest is None:  # the interval of a doubtful estimate reaches up to 1, where nothing would be negative
        high = min(high, 1 - 0.1 * (1 - own))
    for option, bound in (("--lowest", low), ("--highest", high)):
        if bound <= labelled:
            little = f"{option} {bound:g} is no more than the share of rows that are labelled positive already"
            raise InputError(f"{little}: give more than {labelled:.4g}.")
    if low >= high:
        raise InputError(f"the priors from {low:g} to {high:g} are not a range; --lowest must be below --highest.")
    spaced = np.linspace(low, high, steps)
    if low < own < high and not np.isclose(spaced, own).any():
        spaced = np.linspace(low, high, steps - 1)
    # One that is the run's own but for rounding would be a row, or a training, for nothing.
    return sorted({*spaced[~np.isclose(spaced, own)].tolist(), own})


def _decisions(model: Model, loaded: LoadedData, hardware: Hardware) -> Decisions:
    found = {"training": model.decision(loaded.data.features, hardware)}
    if loaded.held_out is not None:
        found["test"] = model.decision(loaded.held_out.features, hardware)
    return found


def _moved(
    plain: Decisions, taught: PUData, aside: RowsAside | None, prior: float, calibration: PUCalibrator | None
) -> Decisions:
    """What the run's network says with this prior: by its calibration where that decides, else by its threshold."""
    moved = plain
    if not _is_cut_by_calibration(calibration):
        threshold = matched_threshold(torch.from_numpy(plain["training"][taught.population]), prior)
        moved = {name: scores - threshold for name, scores in plain.items()}
    if calibration is None or aside is None:
        return moved
    anew = calibrated_on(aside, moved["training"], prior, calibration.method, taught.scenario)
    return {name: anew.decision(scores) for name, scores in moved.items()}


def _row_of_prior(
    prior: float, scores: Decisions, own: Decisions, loaded: LoadedData, judged: PUData | RowsAside | None
) -> dict[str, Any]:
    data, training = loaded.data, scores["training"]
    unlabelled, estimated, wrong = training[data.unlabelled], None, []
    if judged is not None:
        decisions = training[judged.positives], training[judged.unlabelled]
        estimated = evaluate_pu(*decisions, prior, scenario=data.scenario, intervals=False)["accuracy"].value
        wrong = find_degeneracies(*decisions, prior, scenario=data.scenario)
    row: dict[str, Any] = {
        "prior": prior,
        "positive_rate_unlabelled": float((unlabelled > 0).mean()),
        "changed_decisions": int(((unlabelled > 0) != (own["training"][data.unlabelled] > 0)).sum()),
        "estimated_accuracy": estimated,
        "degenerate": [one.__dict__ for one in wrong],
    }
    if loaded.held_out is not None:
        row["test_accuracy"] = evaluate_scores(loaded.held_out.truth, scores["test"])["accuracy"]
    return row


def run_prior(
    data: str | None, *, where: DataWords, scenario: Scenario, scores: ScoreKind, seed: int, device: str, json: bool
) -> None:
    """Every estimator, the recommended value, and what speaks against relying on it."""
    if where.test is not None:
        raise InputError("--test is for fit and evaluate: the prior is estimated without any test rows.")
    checked_seed(seed, "--seed ")
    display = choose_display(quiet=json)
    with display.watching() as watch:
        source = parse_source(replace(where, data=data).as_words(seed=seed, scenario=scenario))
        loaded = source.load(progress=display.say, watch=watch)
    print_note(*loaded.warnings)
    rows = loaded.data
    with _checkpoints_of(rows, seed) as kept_in, estimating(rows, scores, display, kept_in) as observer:
        how: dict[str, Any] = {"device": device, "observer": observer, "checkpoints": kept_in}
        found = estimate_prior(rows, every=True, scores=scores, seed=seed, **how)
    labelling = check_random_labelling(rows, scores=found.scores, seed=seed)
    if json:
        about = {"labelling": labelling.__dict__, "true_prior": loaded.true_prior}
        return print_json({"data": loaded.description, "scenario": scenario, **found.to_dict(), **about})
    table = [
        {"estimator": row.name, "prior": row.value, "95 % interval": f"{row.low:.3f} to {row.high:.3f}"}
        for row in found.table
    ]
    print_table(table, table[0], title="share of positives in the population")
    low, high = found.interval
    auc = found.diagnostics["auc_labelled_against_unlabelled"]
    best = found.diagnostics["auc_a_perfect_classifier_would_have"]
    besides = ", so something besides the class may tell them apart" if auc > best + _MORE_THAN_CHANCE else ""
    true = {} if loaded.true_prior is None else {"truth": f"{loaded.true_prior:.4g}, known for a named set"}
    print_facts(
        {
            "recommended": f"{found.value:.3g} (95 % interval {low:.3f} to {high:.3f}); fit finds it by itself and "
            f"takes the interval into account, while --prior {found.value:.3g} is taken as exact",
            **true,
            "separation": f"a classifier tells P from U with an AUC of {auc:.3f}; if this prior is right, a perfect "
            f"one would reach {best:.3f}{besides}",
            "labelling": labelling.verdict,
            **{f"note {number}": as_options(sentence) for number, sentence in enumerate(found.verdicts, start=1)},
        }
    )


@contextmanager
def _checkpoints_of(data: PUData, seed: int) -> Iterator[Path | None]:
    """A place in the cache for what an estimate has, there being no run: the same command goes on with it.

    None where no networks are trained, where nothing can be written, and where another process is at the same estimate.
    """
    if not needs_networks(data):
        yield None
        return
    folder = RunFolder(cache_folder() / "priors" / f"{data.fingerprint()[:12]}-seed{seed}")
    with ExitStack() as held:
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            held.enter_context(folder.locked())
        except (OSError, InputError):
            yield None
            return
        folder.sweep()
        with kept_until_settled(folder.path):
            yield folder.checkpoints
