"""How far can a choice without true labels come on tables? Our learners chosen by less and by more than a user has.

    python benchmarks/desk_limit.py --cache CACHE --out desk_limit.jsonl [--draws 10,11]
    python benchmarks/desk_limit.py --cache CACHE --out desk_limit.jsonl --ours      ours anew, others as there
    python benchmarks/desk_limit.py --out desk_limit.jsonl --show

CACHE and the other packages as for desk.py. The tables are those that settings were chosen on, none that desk.py
reports. The best other is picked for every table by its test figures, as in desk.py's table; so `best by test` is our
learners given the same favour, and `best by truth` picks out of fold with all true labels. What they do not reach, no
choice without labels can be asked for. SVM peers are left out above 1,200 rows: they take minutes there.
"""

import argparse
import json
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from desk import Plain, figures, naive, peers
from desk_sets import DeskSet, draw, keel, r_table
from machine import machine

RARE = {"labelled": 0.5, "most": 10_000}
TABLES = [
    DeskSet("ring", keel("ring", "1")),
    DeskSet("twonorm", keel("twonorm", "1")),
    DeskSet("chess", keel("chess", "won")),
    DeskSet("german", keel("german", "2")),
    DeskSet("mammographic", keel("mammographic", "1")),
    DeskSet("marketing", keel("marketing", "8|9")),
    DeskSet("contraceptive", keel("contraceptive", "1")),
    DeskSet("pima", keel("pima", "tested_positive")),
    DeskSet("texture", keel("texture", "2|3|4")),
    DeskSet("vehicle1", keel("vehicle1", "positive", "imbalanced")),
    DeskSet("yeast1", keel("yeast1", "positive", "imbalanced")),
    DeskSet("titanic3", keel("titanic", "1.0")),
    DeskSet("segment", keel("segment", "1|3|4")),
    DeskSet("attrition", r_table("modeldata/attrition", "Attrition", "Yes")),
    DeskSet("oj", r_table("ISLR/OJ", "Purchase", "MM")),
    DeskSet("hmda", r_table("AER/HMDA", "deny", "yes"), labelled=0.3),
    DeskSet("yeast4", keel("yeast4", "positive", "imbalanced"), **RARE),
    DeskSet("wine-red-4", keel("winequality-red-4", "positive", "imbalanced"), **RARE),
    DeskSet("abalone17", keel("abalone-17_vs_7-8-9-10", "positive", "imbalanced"), **RARE),
    DeskSet("ring-2%", keel("ring", "1"), 0.02, **RARE),
    DeskSet("marketing-4%", keel("marketing", "8|9"), 0.04, **RARE),
    DeskSet("mushroom-1%", keel("mushroom", "p"), 0.01, **RARE),
    DeskSet("texture-2%", keel("texture", "2|3|4"), 0.02, **RARE),
    DeskSet("chess-3%", keel("chess", "nowin"), 0.03, **RARE),
    DeskSet("caravan-6%", r_table("ISLR/Caravan", "Purchase", "Yes"), **RARE),
    DeskSet("kr-zero-one", keel("kr-vs-k-zero-one_vs_draw", "positive", "imbalanced"), **RARE),
    DeskSet("car-good", keel("car-good", "positive", "imbalanced"), **RARE),
]
MOST_ROWS_FOR_SVM = 1_200
SLOW = ("pulearn weighted", "pu-toolbox NonNegative", "pu-toolbox UPU")  # behind the others on these tables, and slow


def measured(table: DeskSet, cache: Path, seed: int, told: dict[str, Any] | None = None) -> dict[str, Any]:
    """Test figures of what is shipped, of every learner of ours with what could choose it, and, if not told, others."""
    from sklearn.metrics import roc_auc_score

    from splitpu.learners.auto import choose
    from splitpu.prior.from_scores import prior_from_scores

    given = draw(table, cache, seed)
    plain = Plain(given)
    choice = choose(plain.rows, given.labelled, seed=seed)

    def on_test(scores: np.ndarray) -> dict[str, float]:
        found = figures((scores, scores > 0), given.test_truth)
        return {"auc": found["auc"], "ap": found["ap"]}

    learners = {}
    for one in choice.candidates:
        if one.against_base is None and len(one.scores) == len(given.labelled):
            fitted = one.fitted or one.learner.fit(plain.rows, given.labelled, seed=seed)
            by_truth = float(roc_auc_score(given.truth, one.scores))
            learners[one.name] = {"by_pu": one.auc.value, "by_truth": by_truth} | on_test(
                fitted.scores(plain.test_rows)
            )
    shipped = on_test(choice.fitted.scores(plain.test_rows))
    if told is not None:
        return {"set": table.name, "draw": seed, "shipped": shipped, "learners": learners, "others": told}
    prior = prior_from_scores(choice.scores, given.labelled)
    others = {f"naive {name}": make for name, make in naive(seed).items()}
    others |= peers(plain.labels, seed, lambda: prior.among_unlabelled)
    told = {}
    for name, make in others.items():
        if name.startswith(SLOW) or ("SVM" in name and len(given.labelled) > MOST_ROWS_FOR_SVM):
            continue
        try:
            answer = plain.naive(make(), prior.value) if name.startswith("naive") else plain.peer(make())
        except ValueError as error:  # as some do with few positives
            print(f"{table.name} {seed}, {name}: {error}")
            continue
        told[name] = on_test(np.nan_to_num(answer[0]))
    return {"set": table.name, "draw": seed, "shipped": shipped, "learners": learners, "others": told}


def shown(lines: list[dict[str, Any]]) -> str:
    """Per way of choosing: on how many tables its mean figures are at or above those of the best other."""
    gaps: dict[str, list[np.ndarray]] = defaultdict(list)
    against: dict[str, list[np.ndarray]] = defaultdict(list)
    for name in dict.fromkeys(line["set"] for line in lines):
        some = [line for line in lines if line["set"] == name]

        def mean(figures: list[dict[str, float]]) -> np.ndarray:
            return 100 * np.mean([(one["auc"], one["ap"]) for one in figures], axis=0)

        def singly(kind: str, some: list[dict[str, Any]] = some) -> dict[str, np.ndarray]:
            common = set.intersection(*(set(line[kind]) for line in some))
            return {who: mean([line[kind][who] for line in some]) for who in common}

        others = singly("others")
        best_other = np.max(list(others.values()), axis=0)
        ways = {"shipped": mean([line["shipped"] for line in some])}
        for way, key in {"best by P against U": "by_pu", "best by truth, out of fold": "by_truth"}.items():
            ways[way] = mean([max(line["learners"].values(), key=lambda one, key=key: one[key]) for line in some])
        ways["best by test, as for the others"] = np.max(list(singly("learners").values()), axis=0)
        for way, reached in ways.items():
            gaps[way].append(reached - best_other)
        for who, reached in others.items():
            against[who].append(ways["shipped"] - reached)
    written = ["| chosen | AUC, mean gap | at or above on | AP, mean gap | at or above on |", "|---" * 5 + "|"]
    for title, table in (("{}", gaps), ("shipped less {}", against)):
        for who, found in table.items():
            gap = np.array(found)
            cells = [f"{gap[:, at].mean():+.2f} | {(gap[:, at] >= 0).sum()} of {len(gap)}" for at in (0, 1)]
            written.append(f"| {title.format(who)} | " + " | ".join(cells) + " |")
    return "\n".join(written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path())
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", default="10,11")
    parser.add_argument("--ours", action="store_true", help="measure ours again, write all lines anew")
    parser.add_argument("--show", action="store_true", help="only the table of what OUT holds")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    there = {(line["set"], line["draw"]) for line in lines}
    if given.ours:
        tables = {table.name: table for table in TABLES}
        for at, line in enumerate(lines):
            again = measured(tables[line["set"]], given.cache, line["draw"], line["others"])
            lines[at] = again | {"machine": machine(), "others_machine": line.get("others_machine", line["machine"])}
            print(line["set"], line["draw"], flush=True)
        given.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    wanted = [] if given.show else [(table, int(seed)) for seed in given.draws.split(",") for table in TABLES]
    for table, seed in wanted:
        if (table.name, seed) not in there:
            lines.append(measured(table, given.cache, seed) | {"machine": machine()})
            with given.out.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            print(table.name, seed, flush=True)
    print(shown(lines))


if __name__ == "__main__":
    main()
