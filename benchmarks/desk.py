"""At the user's desk: our default on tables, texts and rare positives, beside pulearn, pu-toolbox and naive learners.

    python benchmarks/desk.py --cache CACHE --out desk.jsonl [--draws 3] [--sets "magic;churn"] [--methods "naive"]

What to put into CACHE is said in desk_sets.py. pulearn and pu-toolbox are taken if they can be imported (for example
from a folder of their own on PYTHONPATH). Every run is one JSON line (set, draw, method, figures on 30 % test rows, CPU
seconds, machine, commit); a line that is there already is not made again. The markdown table at the end, which `--show`
prints by itself, has the means.

Everybody gets defaults and no true prior: those who want one are given the same estimate as ours. All get missing
values replaced by medians and standardised columns, peers also dense texts. The naive learners are cut at the
same prior as ours. "all labels" is `auto` with four candidates and the true labels of all training rows.
"""

import argparse
import json
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from desk_sets import SETS, DeskSet, Draw, draw
from machine import machine

Answer = tuple[np.ndarray, np.ndarray]  # scores and decisions of the test rows
OURS, BASE, ALL = "splitpu", "splitpu base", "all labels"


class Ours:
    """The classifier as it is shipped, fitted once for a draw and shared by the lines that need it."""

    def __init__(self, given: Draw, seed: int, plain: "Plain") -> None:
        from splitpu import SplitPUClassifier

        started = time.process_time()
        sparse = hasattr(given.rows, "toarray")
        rows, self.test_rows = (given.rows, given.test_rows) if sparse else (plain.rows, plain.test_rows)
        self.model = SplitPUClassifier(random_state=seed).fit(rows, plain.labels)
        self.seconds = time.process_time() - started
        labelled, total = int(given.labelled.sum()), len(given.labelled)
        self.share = float(self.model.prior_)
        self.prior = min(
            max((self.share * total - labelled) / (total - labelled), 1 / total), 0.98
        )  # among the unlabelled

    def without_test_rows(self, given: Draw) -> dict[str, Any]:
        """What P and U alone tell: the AUC with its interval, beside that of the same scores with the true labels."""
        from sklearn.metrics import roc_auc_score

        from splitpu.evaluation.label_tests import random_labels_test
        from splitpu.evaluation.ranking import ranking_figures
        from splitpu.methods.table_learners import _Latest
        from splitpu.prior.from_scores import prior_from_scores

        assert _Latest.found is not None  # the choice that the model was made of
        rows, scores = _Latest.found[0].features, _Latest.found[1].scores
        prior = prior_from_scores(scores, given.labelled)
        auc = ranking_figures(scores, given.labelled, prior.value, prior_interval=prior.interval)["roc_auc"]
        alarm = random_labels_test(rows, scores, given.labelled, prior=prior).doubtful
        return {
            "auc_estimated": [auc.value, auc.low, auc.high],
            "auc_out_of_fold": float(roc_auc_score(given.truth, scores)),
            "labels_doubted": bool(alarm),
            "shipped": _Latest.found[1].name,
        }

    def answer(self) -> Answer:
        return _answer(self.model, self.test_rows)

    def base(self) -> Answer:
        return _answer(self.model.base_, self.test_rows)


def _answer(model: Any, rows: Any) -> Answer:
    scores = np.asarray(model.decision_function(rows), dtype=float).ravel()
    return scores, scores > 0


def top(scores: np.ndarray, share: float) -> np.ndarray:
    return scores >= np.quantile(scores, 1 - share)


def answers(given: Draw, seed: int, plain: "Plain") -> tuple[dict[str, Callable[[], Answer]], Callable[[], Ours]]:
    """Every method by name, each run when it is called, and our choice, made when it is first asked for."""
    kept: dict[str, Ours] = {}

    def ours() -> Ours:
        if not kept:
            kept["ours"] = Ours(given, seed, plain)
        return kept["ours"]

    def all_labels() -> Answer:
        from splitpu.learners.auto import choose

        few = (
            ["logistic", "naive bayes"]
            if hasattr(given.rows, "toarray")
            else ["logistic", "kernel", "forest", "boosting"]
        )
        choice = choose(given.rows, given.truth, seed=seed, candidates=few)
        scores = choice.fitted.scores(given.test_rows)
        return scores, top(scores, float(given.truth.mean()))

    found: dict[str, Callable[[], Answer]] = {
        OURS: lambda: ours().answer(),
        BASE: lambda: ours().base(),
        ALL: all_labels,
    }
    for name, make in naive(seed).items():
        found[f"naive {name}"] = lambda make=make: plain.naive(make(), ours().share)
    for name, make in peers(plain.labels, seed, lambda: ours().prior).items():
        found[name] = lambda make=make: plain.peer(make())
    return found, ours


class Plain:
    """The rows as a learner without taste wants them: dense, standardised, nothing missing."""

    def __init__(self, given: Draw) -> None:
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if hasattr(given.rows, "toarray"):
            self.rows, self.test_rows = given.rows.toarray(), given.test_rows.toarray()
        else:
            prepare = make_pipeline(SimpleImputer(strategy="median"), StandardScaler()).fit(given.rows)
            self.rows, self.test_rows = prepare.transform(given.rows), prepare.transform(given.test_rows)
        self.labels = np.where(given.labelled, 1, 0)
        self.configuration = ""  # of the last that was fitted, as it prints itself

    def naive(self, model: Any, share: float) -> Answer:
        self.configuration = repr(model)
        scores = model.fit(self.rows, self.labels).predict_proba(self.test_rows)[:, 1]
        return scores, top(scores, share)

    def peer(self, model: Any) -> Answer:
        self.configuration = repr(model)
        model.fit(self.rows, self.labels)
        called = np.asarray(model.predict(self.test_rows)) == 1
        if hasattr(model, "decision_function"):
            return np.asarray(model.decision_function(self.test_rows), dtype=float).ravel(), called
        probability = np.asarray(model.predict_proba(self.test_rows), dtype=float)
        return (probability[:, -1] if probability.ndim == 2 else probability), called


def naive(seed: int) -> dict[str, Callable[[], Any]]:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    return {
        "logistic": lambda: LogisticRegression(max_iter=1000),
        "forest": lambda: RandomForestClassifier(random_state=seed),
        "boosting": lambda: HistGradientBoostingClassifier(random_state=seed),
    }


def peers(labels: np.ndarray, seed: int, prior: Callable[[], float]) -> dict[str, Callable[[], Any]]:
    """pulearn around scikit-learn's classifiers and pu-toolbox, where they are installed, near their defaults."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    found: dict[str, Callable[[], Any]] = {}
    positives, others = int(labels.sum()), int((labels == 0).sum())
    try:
        pulearn = import_module("pulearn")
    except ImportError:
        print("pulearn is not installed: left out")
    else:
        weighted = pulearn.WeightedElkanotoPuClassifier
        found |= {
            "pulearn elkanoto, logistic": lambda: pulearn.ElkanotoPuClassifier(
                LogisticRegression(max_iter=1000), random_state=seed
            ),
            "pulearn elkanoto, SVM": lambda: pulearn.ElkanotoPuClassifier(
                SVC(probability=True, random_state=seed), random_state=seed
            ),
            "pulearn elkanoto, forest": lambda: pulearn.ElkanotoPuClassifier(
                RandomForestClassifier(random_state=seed), random_state=seed
            ),
            "pulearn weighted elkanoto, logistic": lambda: weighted(
                LogisticRegression(max_iter=1000), positives, others, random_state=seed
            ),
        }
        for name, of in {"trees": DecisionTreeClassifier, "logistic": LogisticRegression, "SVM": SVC}.items():
            found[f"pulearn bagging, {name}"] = lambda of=of: pulearn.BaggingPuClassifier(
                of(), n_estimators=100, max_samples=min(positives, others), random_state=seed
            )
    homes = {"classic.elkan_noto.ElkanNotoClassifier": False, "risk.nnpu.NonNegativePUClassifier": True}
    homes |= {"risk.upu.UPUClassifier": True}
    for home, wants_prior in homes.items():
        module, name = home.rsplit(".", 1)
        try:
            kind = getattr(import_module(f"pu_toolbox.estimators.{module}"), name)
        except ImportError:
            print("pu-toolbox is not installed: left out")
            break
        found[f"pu-toolbox {name}"] = lambda kind=kind, wants_prior=wants_prior: kind(
            **({"class_prior": prior()} if wants_prior else {}), random_state=seed
        )
    return found


def figures(answer: Answer, truth: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    scores, called = answer
    scores = np.nan_to_num(scores)
    return {
        "auc": float(roc_auc_score(truth, scores)),
        "ap": float(average_precision_score(truth, scores)),
        "f1": float(f1_score(truth, called)),
    }


def lines(chosen: DeskSet, cache: Path, seed: int, wanted: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    given = draw(chosen, cache, seed)
    about = {"rows": given.rows.shape[0], "columns": given.rows.shape[1], "labelled": int(given.labelled.sum())}
    about["share_in_u"] = float(given.truth[~given.labelled].mean())
    plain = Plain(given)
    every, ours = answers(given, seed, plain)
    for name, make in every.items():
        if not wanted(name):
            continue
        if name != OURS:
            ours()  # before the clock starts: others borrow its prior
        plain.configuration = "SplitPUClassifier()" if name in (OURS, BASE) else "choose(truth)"
        started = time.process_time()
        line: dict[str, Any] = {"set": chosen.name, "draw": seed, "method": name, **about}
        try:
            line |= figures(make(), given.test_truth)
        except Exception as error:  # a method that fails is a line that says so, not the end of the run
            line["failed"] = f"{type(error).__name__}: {error}"[:300]
        line["seconds"] = time.process_time() - started
        line["configuration"] = " ".join(plain.configuration.split())
        if name == OURS:
            line["seconds"] = max(line["seconds"], ours().seconds)
            line |= {"prior": ours().share, "prior_interval": ours().model.prior_interval_}
            line |= {"true_prior": float(given.truth.mean()), **ours().without_test_rows(given)}
        yield line


def table(path: Path) -> str:
    """Means over the draws: the table of the README, then what it says in numbers."""
    every = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = dict.fromkeys(line["set"] for line in every)
    sets = {name: means_of([line for line in every if line["set"] == name]) for name in names}
    alone = {name: means for name, means in sets.items() if OURS in means}
    sets = {name: means for name, means in alone.items() if len(means) > 3}
    told = told_without_test_rows([line for line in every if "auc_estimated" in line], alone)
    if not sets:
        return "\n".join(told)
    head = "set | splitpu | its base | best peer | best naive | all labels | AP | best other | F1 | best other | CPU s"
    written = [f"| {head} |", "|---" * 11 + "|"]
    for name, means in sets.items():
        peer, plain = (best(means, "auc", kind) for kind in ("peer", "naive"))
        cells = [f"{100 * means[who]['auc']:.1f}" if who in means else "" for who in (OURS, BASE)]
        cells += [f"{100 * means[who]['auc']:.1f} ({who.removeprefix('naive ')})" for who in (peer, plain)]
        cells += [f"{100 * means[ALL]['auc']:.1f}" if ALL in means else ""]
        for figure in ("ap", "f1"):
            other = best(means, figure)
            cells += [f"{100 * means[OURS][figure]:.1f}", f"{100 * means[other][figure]:.1f} ({other})"]
        written.append(f"| {name} | " + " | ".join([*cells, f"{means[OURS]['seconds']:.0f}"]) + " |")
    for figure in ("auc", "ap", "f1"):
        gaps = {name: 100 * (means[OURS][figure] - means[best(means, figure)][figure]) for name, means in sets.items()}
        worst = min(gaps, key=lambda name: gaps[name])
        reached, near = (sum(gap >= least for gap in gaps.values()) for least in (0, -1))
        written.append(
            f"\n{figure.upper()}: at or above the best other on {reached} of {len(gaps)} sets, less than a point below "
            f"on {near}; least {gaps[worst]:+.2f} ({worst}), mean {np.mean(list(gaps.values())):+.2f}"
        )
    return "\n".join([*written, *told])


def means_of(lines: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of every method that answered in each draw that we did: the mean of its figures."""
    draws = sum(line["method"] == OURS for line in lines)
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if "auc" in line:
            found.setdefault(line["method"], []).append(line)
    keys = ("auc", "ap", "f1", "seconds")
    return {
        method: {key: float(np.mean([line[key] for line in some])) for key in keys}
        for method, some in found.items()
        if len(some) >= draws
    }


def best(means: dict[str, dict[str, float]], figure: str, kind: str = "") -> str:
    """The best of the others by this figure: of peers, of naive learners, or of both."""
    others = [name for name in means if not name.startswith((OURS, ALL))]
    if kind:
        others = [name for name in others if name.startswith("naive") == (kind == "naive")]
    return max(others, key=lambda name: means[name][figure])


def told_without_test_rows(ours: list[dict[str, Any]], sets: dict[str, Any]) -> Iterator[str]:
    """How right prior, estimated AUC and doubts about the labels are over the runs, and how far a base is ahead."""
    behind = {name: 100 * (means[OURS]["auc"] - means[BASE]["auc"]) for name, means in sets.items() if BASE in means}
    if behind:
        worst = min(behind, key=lambda name: behind[name])
        yield f"\nshipped less its base: least {behind[worst]:+.2f} points of AUC ({worst})"
    if ours:
        held = [line["prior_interval"][0] <= line["true_prior"] <= line["prior_interval"][1] for line in ours]
        off = [abs(line["prior"] - line["true_prior"]) for line in ours]
        yield f"\nprior: interval holds in {np.mean(held):.0%} of {len(ours)} runs, mean error {np.mean(off):.4f}"
        for truth in ("auc", "auc_out_of_fold"):
            away = [abs(line["auc_estimated"][0] - line[truth]) for line in ours]
            inside = [line["auc_estimated"][1] <= line[truth] <= line["auc_estimated"][2] for line in ours]
            yield f"\nAUC without test rows against {truth}: off by {np.mean(away):.4f}, holds in {np.mean(inside):.0%}"
        yield f"\nrandom labels doubted in {sum(line['labels_doubted'] for line in ours)} of {len(ours)} runs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path())
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--first-draw", type=int, default=0)
    parser.add_argument("--sets", default="", help="names, with semicolons; all without")
    parser.add_argument("--methods", default="", help="beginnings of names, with semicolons; all without")
    parser.add_argument("--show", action="store_true", help="only the table of what OUT holds")
    given = parser.parse_args()
    if given.show:
        return print(table(given.out))
    warnings.simplefilter("ignore")
    there = set()
    if given.out.exists():
        for text in given.out.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            there.add((line["set"], line["draw"], line["method"]))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    begun = tuple(name.strip() for name in given.methods.split(";")) if given.methods else ("",)
    names = [name.strip() for name in given.sets.split(";")] if given.sets else []
    for seed in range(given.first_draw, given.first_draw + given.draws):
        for chosen in SETS:
            if names and chosen.name not in names:
                continue

            def wanted(name: str, chosen: DeskSet = chosen, seed: int = seed) -> bool:
                return name.startswith(begun) and (chosen.name, seed, name) not in there

            for line in lines(chosen, given.cache, seed, wanted):
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**line, "commit": commit.strip(), "machine": machine()}) + "\n")
                said = line.get("failed") or "  ".join(f"{key} {line[key]:.4f}" for key in ("auc", "ap", "f1"))
                print(f"{chosen.name} {seed} {line['method']}: {said} ({line['seconds']:.1f} s)", flush=True)
    print(table(given.out))


if __name__ == "__main__":
    main()
