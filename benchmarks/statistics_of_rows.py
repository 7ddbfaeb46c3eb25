"""Whose statistics should batch norm remember: of vectors as they were seen in training, with noise, or plain ones?

python benchmarks/statistics_of_rows.py --draws 100                              minutes on one core
python benchmarks/statistics_of_rows.py --out statistics_of_rows.jsonl

On development sets, as plain vectors, with the true prior. Nothing else differs between the two trainings of a case
but where students differ because their teachers do. Accuracy on test rows, of the base model and of the last student;
`benchmarks/few_images.py --variants "default,plain statistics"` asks the same of images.
"""

import warnings
from typing import Any

import numpy as np
from case_runner import Key, run_cases, table
from development_sets import asked_cases, drawn_with_tests
from machine import machine

from splitpu import SplitPUClassifier

NAMES = ("wine 1", "benign 30", "benign 80", "digits low 100", "digits 3 9", "gaussians of 20", "mnist low 150 of 1500")
KINDS = ("seen", "plain")
MODELS = ("base", "student")


def main() -> None:
    cases, options = asked_cases(__doc__, NAMES)
    show(run_cases(cases, trained_both_ways, options))


def trained_both_ways(case: Key) -> dict[str, Any]:
    """Accuracy of base and student on test rows, by whose statistics they remember."""
    warnings.simplefilter("ignore")
    drawn = drawn_with_tests(case["task"], case["prior"], case["draw"])
    accuracy = {}
    for kind in KINDS:
        model = SplitPUClassifier(
            prior=drawn.prior,
            config={f"{stage}.optimiser.statistics": kind for stage in ("base", "student")},
            random_state=case["draw"],
            device="cpu",
        ).fit(drawn.data.features, drawn.data.labelled)
        answers = (one.predict(drawn.features_test) == drawn.truth_test for one in (model.base_, model))
        accuracy[kind] = dict(zip(MODELS, (float(right.mean()) for right in answers), strict=True))
    words = ", ".join(f"{kind} {100 * accuracy[kind]['student']:.1f}" for kind in KINDS)
    return {"accuracy": accuracy, "in_words": words, "machine": machine()}


def show(lines: list[dict[str, Any]]) -> None:
    """Points gained by plain rows, task by task."""
    tasks = list(dict.fromkeys(line["case"]["task"] for line in lines))
    rows = [[task, *gains([line for line in lines if line["case"]["task"] == task])] for task in tasks]
    columns = ["task", "cases", *(f"{model}: points gained" for model in MODELS)]
    table("What the statistics of plain rows gain, mean ± standard error", columns, [*rows, ["all", *gains(lines)]])


def gains(lines: list[dict[str, Any]]) -> list[str]:
    """The number of cases, and for each model the mean difference."""
    cells = [str(len(lines))]
    for model in MODELS:
        found = [100 * (line["accuracy"]["plain"][model] - line["accuracy"]["seen"][model]) for line in lines]
        error = f" ± {np.std(found, ddof=1) / len(found) ** 0.5:.2f}" if len(found) > 1 else ""
        cells.append(f"{np.mean(found):+.2f}{error}")
    return cells


if __name__ == "__main__":
    main()
