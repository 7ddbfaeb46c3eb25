"""`splitpu prior`, and `splitpu sensitivity`: what would have been decided if the prior were another one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from splitpu.cli.display import print_facts, print_json, print_note, print_table
from splitpu.cli.options import ClusterWords, DataOptions, PriorsTried, as_options
from splitpu.cli.progress import choose_display
from splitpu.cli.several_runs import StageLines, run_grid
from splitpu.cli.train import estimating
from splitpu.config.schema import Scenario
from splitpu.data.public.download import cache_folder
from splitpu.data.pudata import PUData
from splitpu.data.sources import LoadedData, parse_source
from splitpu.engine.hardware import Hardware
from splitpu.engine.stage import Observer
from splitpu.errors import InputError
from splitpu.evaluation.calibration import PUCalibrator
from splitpu.evaluation.diagnostics import check_random_labelling, find_degeneracies
from splitpu.evaluation.metrics import evaluate_pu, evaluate_scores
from splitpu.methods.context import RowsAside
from splitpu.methods.thresholds import matched_threshold
from splitpu.model import Model
from splitpu.prior.estimate import estimate_prior
from splitpu.prior.scores import ScoreKind, needs_networks
from splitpu.runs.folder import NOT_JUDGED, Request, RunFolder, kept_until_settled, load_request
from splitpu.runs.grid import Grid, InTurn
from splitpu.runs.results import how_to_have_a_prior
from splitpu.runs.run import spec_of
from splitpu.training import Runtime, TrainSpec, calibrated_on, train, without_rows_aside
from splitpu.types import Floats
from splitpu.utils.arrays import checked_seed
from splitpu.utils.warnings import Note, collected_warnings

_COLUMNS = ("prior", "positive_rate_unlabelled", "changed_decisions", "estimated_accuracy", "test_accuracy")
_MORE_THAN_CHANCE = 0.01  # by which the AUC may exceed what is possible without a word about it


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
    priors = prior_range(loaded, request, tried.lowest, tried.highest, tried.steps)
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
    rows = [_row(prior, found, own, loaded, judged) for prior, found in zip(priors, scores, strict=True)]
    about_own = _about_own_row(model, request, refit=tried.refit)
    if json:
        content = {"run": str(folder.path), "prior": model.prior, "refit": tried.refit, "note": about_own}
        return print_json({**content, "rows": rows})
    left_out = {*(() if loaded.held_out else ("test_accuracy",)), *(() if judged else ("estimated_accuracy",))}
    columns = [column for column in _COLUMNS if column not in left_out]
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

    def run(self, observer: Observer, note: Note) -> dict[str, Floats]:
        with collected_warnings(note):
            runtime = Runtime(device=self.device, observer=observer, warm_start=self.warm.get("start"))
            training = train(self.loaded.data, self.spec, runtime)
        self.warm["start"] = training.warm_start
        scores = _decisions(training.model, self.loaded, Hardware.choose(self.device))
        return scores if training.out_of_fold is None else {**scores, "training": training.out_of_fold[0]}


def _is_cut_by_calibration(calibration: PUCalibrator | None) -> bool:
    """Whether a calibration decides, as one with an offset does; a temperature leaves every decision as it was."""
    return calibration is not None and calibration.method != "temperature"


def _about_own_row(model: Model, request: Request, *, refit: bool) -> str | None:
    """Why the run's own row need not lie between its neighbours."""
    own = f"the row of the run's own prior {request.prior:.4g}"
    if _is_cut_by_calibration(model.calibration):
        return None
    if model.config.threshold == "half":
        said = f"{own} is cut at the probability 1/2 (threshold=half), the others where their prior says; see --refit."
        return None if refit else said
    if model.config.threshold == "f1":
        return None if refit else f"{own} is cut for the highest F1 (threshold=f1), the others where their prior says."
    if request.prior_interval is None:
        return None
    depends = "on gaps in the logits and on the count of a model trained with a PU risk"
    also = f"{own} is the run as it is: that prior is an estimate, so its threshold also depends {depends}"
    return f"{also}; every other row takes its prior as known."


def prior_range(
    loaded: LoadedData, request: Request, lowest: float | None, highest: float | None, steps: int
) -> list[float]:
    """Evenly spaced priors and the run's own, all of them possible for the data."""
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


def _decisions(model: Model, loaded: LoadedData, hardware: Hardware) -> dict[str, Floats]:
    found = {"training": model.decision(loaded.data.features, hardware)}
    if loaded.held_out is not None:
        found["test"] = model.decision(loaded.held_out.features, hardware)
    return found


def _moved(
    plain: dict[str, Floats], taught: PUData, aside: RowsAside | None, prior: float, calibration: PUCalibrator | None
) -> dict[str, Floats]:
    """What the run's network says with this prior: by its calibration where that decides, else by its threshold."""
    moved = plain
    if not _is_cut_by_calibration(calibration):
        threshold = matched_threshold(torch.from_numpy(plain["training"][taught.population]), prior)
        moved = {name: scores - threshold for name, scores in plain.items()}
    if calibration is None or aside is None:
        return moved
    anew = calibrated_on(aside, moved["training"], prior, calibration.method, taught.scenario)
    return {name: anew.decision(scores) for name, scores in moved.items()}


def _row(
    prior: float,
    scores: dict[str, Floats],
    own: dict[str, Floats],
    loaded: LoadedData,
    judged: PUData | RowsAside | None,
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


def run_prior(asked: DataOptions, *, scenario: Scenario, scores: ScoreKind, seed: int, device: str, json: bool) -> None:
    """Every estimator, the recommended value, and what speaks against relying on it."""
    if asked.test is not None:
        raise InputError("--test is for fit and evaluate: the prior is estimated without any test rows.")
    checked_seed(seed, "--seed ")
    display = choose_display(quiet=json)
    with display.watching() as watch:
        source = parse_source(asked.as_words(seed=seed, scenario=scenario))
        loaded = source.load(progress=display.say, watch=watch)
    print_note(*loaded.warnings)
    data = loaded.data
    with _checkpoints_of(data, seed) as kept_in, estimating(data, scores, display, kept_in) as observer:
        found = estimate_prior(
            data, every=True, scores=scores, seed=seed, device=device, observer=observer, checkpoints=kept_in
        )
    labelling = check_random_labelling(data, scores=found.scores, seed=seed)
    if json:
        about = {"labelling": labelling.__dict__, "true_prior": loaded.true_prior}
        return print_json({"data": loaded.description, "scenario": scenario, **found.to_dict(), **about})
    rows = [
        {"estimator": row.name, "prior": row.value, "95 % interval": f"{row.low:.3f} to {row.high:.3f}"}
        for row in found.table
    ]
    print_table(rows, rows[0], title="share of positives in the population")
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
