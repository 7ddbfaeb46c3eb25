"""Which estimate of the prior to recommend, judged on other data than the benchmark's: a place to choose in.

python benchmarks/prior_development.py --draws 100 --only "wine 0,moons 50"            half a minute
python benchmarks/prior_development.py --out prior_development.jsonl                   half an hour on one core

A case holds what every quick estimator says on the scores of each of two cross-fittings and on their mean, so
candidates can be compared (`--only-show`) without training anything again. Large misses count: those cost accuracy.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from case_runner import Key, run_cases, table
from development_sets import TASKS, asked_cases, drawn_task

from splitpu.prior.algorithms import PenL1, bbe, dedpul
from splitpu.prior.estimate import population_share
from splitpu.prior.scores import APART, chosen_rows, classical_scores, described, mean_scores

Estimates = dict[str, float]
PLAIN, CLEANED = ("bbe", "dedpul", "penl1-plain"), ("tedn", "tedn-dedpul", "penl1")
BEFORE = (*PLAIN[:2], *CLEANED)


def main() -> None:
    cases, options = asked_cases(__doc__, TASKS)
    show(run_cases(cases, estimated, options))


def estimated(case: Key) -> dict[str, Any]:
    """What the estimators say by the first cross-fitting, by the second, and by the mean of their scores."""
    warnings.simplefilter("ignore")
    data, truth = drawn_task(case["task"], case["prior"], case["draw"])
    rows = chosen_rows(data, 0)
    features, labelled = described(data, rows, 0), data.labelled[rows]
    single = [
        classical_scores(features, labelled, images=data.kind != "vectors", seed=seed, cross_fittings=1)
        for seed in (0, APART)
    ]
    found = []
    for scores in (*single, mean_scores(single)):
        estimates = {}
        for names, values in ((PLAIN, scores.plain), (CLEANED, scores.cleaned)):
            positive, unlabelled = values[labelled], values[~labelled]
            shares = (
                bbe(positive, unlabelled),
                dedpul(positive, unlabelled),
                PenL1.fit(positive[:, None], unlabelled[:, None]).share(),
            )
            estimates |= {name: population_share(data, share) for name, share in zip(names, shares, strict=True)}
        found.append(estimates)
    words = f"{_median_of(CLEANED)(found[-1]):.3f}, true {truth:.3f}"
    return {"truth": truth, "first": found[0], "second": found[1], "mean": found[2], "in_words": words}


def show(lines: list[dict[str, Any]]) -> None:
    """Candidates on single cross-fittings (both of them count) and on the mean of their scores."""
    candidates: dict[str, Callable[[Estimates], float]] = {
        "median of five": _median_of(BEFORE),
        "median of six": _median_of((*PLAIN, *CLEANED)),
        "median of the three cleaned": _median_of(CLEANED),
        **{name: _median_of((name,)) for name in (*CLEANED, *PLAIN)},
    }
    for title, kinds in (("one cross-fitting", ("first", "second")), ("two, scores averaged", ("mean",))):
        rows = []
        for name, candidate in candidates.items():
            errors = np.array([candidate(line[kind]) - line["truth"] for line in lines for kind in kinds])
            misses = np.abs(errors)
            figures = (misses.mean(), errors.mean(), np.sqrt((errors**2).mean()), np.quantile(misses, 0.95))
            rows.append([name, *(f"{figure:+.4f}" for figure in figures), f"{(misses > 0.05).mean():.3f}"])
        columns = ["estimate", "error", "bias", "root mean square", "95 % below", "above 0.05"]
        table(f"{title}: {len(lines)} cases", columns, rows)


def _median_of(names: tuple[str, ...]) -> Callable[[Estimates], float]:
    return lambda estimates: float(np.median([estimates[name] for name in names]))


if __name__ == "__main__":
    main()
