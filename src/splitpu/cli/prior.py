"""`splitpu prior`."""

from typing import Any

from splitpu.cli.estimating import estimating
from splitpu.cli.inputs import DataOptions, source_asked
from splitpu.cli.option_words import as_options
from splitpu.cli.output import print_facts, print_json, print_note, print_table
from splitpu.cli.progress import choose_display
from splitpu.config.schema import Scenario
from splitpu.errors import InputError
from splitpu.evaluation.assumptions import check_random_labelling
from splitpu.prior.estimate import PriorEstimate, estimate_prior
from splitpu.prior.resolve import being_estimated
from splitpu.prior.scores import ScoreKind, too_few_rows
from splitpu.runs.sources import load_source
from splitpu.seeds import checked_seed

_MORE_THAN_CHANCE = 0.01  # by which the AUC may exceed what is possible without a word about it


def run_prior(
    asked: DataOptions,
    *,
    scenario: Scenario,
    scores: ScoreKind,
    seed: int,
    device: str,
    json: bool,
) -> int:
    """Every estimator, the recommended value, and what speaks against relying on it."""
    if asked.test is not None:
        raise InputError("--test is for fit and evaluate: the prior is estimated without any test rows.")
    checked_seed(seed, "--seed ")
    display = choose_display(quiet=json)
    with display.watching() as watch:
        loaded = load_source(source_asked(asked, seed=seed, scenario=scenario), display.say, watch)
    for warning in loaded.warnings:
        print_note(warning)
    if not too_few_rows(loaded.data):  # else there is no estimate to wait for
        display.say(being_estimated(loaded.data, scores))
    with estimating(display, loaded.data, seed) as way:
        found = estimate_prior(
            loaded.data,
            seed=seed,
            every=True,
            scores=scores,
            device=device,
            observer=way.observer,
            checkpoints=way.checkpoints,
        )
    labelling = check_random_labelling(loaded.data, scores=found.scores, seed=seed)
    if json:
        content: dict[str, Any] = {
            "data": loaded.description,
            "scenario": scenario,
            **found.to_dict(),
            "labelling": labelling.__dict__,
            "true_prior": loaded.true_prior,
        }
        print_json(content)
        return 0
    print_table(
        [
            {"estimator": row.name, "prior": row.value, "95 % interval": f"{row.low:.3f} to {row.high:.3f}"}
            for row in found.table
        ],
        ("estimator", "prior", "95 % interval"),
        title="share of positives in the population",
    )
    print_facts(_facts(found, labelling.verdict, loaded.true_prior))
    return 0


def _facts(found: PriorEstimate, labelling: str, true_prior: float | None) -> dict[str, object]:
    low, high = found.interval
    facts: dict[str, object] = {
        "recommended": f"{found.value:.3g} (95 % interval {low:.3f} to {high:.3f}); fit finds it by itself and "
        f"takes the interval into account, while --prior {found.value:.3g} is taken as exact"
    }
    if true_prior is not None:
        facts["truth"] = f"{true_prior:.4g}, known for a named set"
    auc, best = (
        found.diagnostics[key] for key in ("auc_labelled_against_unlabelled", "auc_a_perfect_classifier_would_have")
    )
    besides = ", so something besides the class may tell them apart" if auc > best + _MORE_THAN_CHANCE else ""
    facts["separation"] = (
        f"a classifier tells P from U with an AUC of {auc:.3f}; if this prior is right, a perfect one would reach "
        f"{best:.3f}{besides}"
    )
    facts["labelling"] = labelling
    facts |= {f"note {number}": as_options(sentence) for number, sentence in enumerate(found.verdicts, start=1)}
    return facts
