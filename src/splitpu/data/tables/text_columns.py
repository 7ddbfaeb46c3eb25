"""Columns of free text -> TF-IDF: the words, and pairs of neighbouring words, of a column as sparse numbers.

The numbers are those of scikit-learn's `TfidfVectorizer`; what a model file remembers of it are the words and in how
many rows each of them was found, as plain JSON, so that nothing has to be pickled. Where a user has a sentence model in
a folder, it can turn the texts into vectors instead; then the folder is all that is remembered."""

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

import numpy as np

from splitpu.data.tables import checks, read
from splitpu.errors import InputError
from splitpu.utils.reading import checked
from splitpu.utils.text import composed

FEWEST_WORDS = 5  # in a usual cell of a column that is taken for free text without being told
MOST_WORDS = 20_000  # and pairs of words, by how often they are used
MOST_ROWS = 100_000  # by which the words are chosen
LONGEST = 1_000  # letters of a word in a model file
SENTENCES, LONGEST_SENTENCE = 64, 256  # in a batch of a sentence model, and the parts of words it reads of each
_LOOKED_AT = 1_000  # cells by which it is found out whether a column is text


def is_free_text(known: Sequence[Any]) -> bool:
    """Whether these are sentences, and not categories: several words in most of them, and mostly different ones."""
    some = [value for value in known[:: max(1, len(known) // _LOOKED_AT)] if isinstance(value, str)]
    if not some or median(len(value.split()) for value in some) < FEWEST_WORDS:
        return False
    different = len(set(known))
    return different > checks.MOST_CATEGORIES or 2 * different > len(known)


@dataclass(frozen=True)
class TextColumn:
    """How texts become numbers; a word that was not in the training rows counts as none."""

    name: str
    words: tuple[str, ...]  # in alphabetical order
    found_in: tuple[int, ...]  # rows that hold each word
    rows: int  # of how many
    flag_missing: bool  # whether one more number says that there was no text
    is_converted: ClassVar = True  # a word is no number

    @classmethod
    def fit(cls, name: str, cells: Sequence[Any]) -> "tuple[TextColumn | None, str]":
        """The column and a note about it; None if no word is in two rows, so that nothing could be learned from it."""
        texts = _texts(cells, f"column {name!r}")
        vectoriser = _vectoriser(min_df=2, max_features=MOST_WORDS)
        some = texts[:: -(-len(texts) // MOST_ROWS)]
        try:
            vectoriser.fit(some)
        except ValueError:
            return None, f"column {name!r} holds texts of which no two share a word: it is not used."
        words = vectoriser.get_feature_names_out().tolist()
        # The inverse of what scikit-learn makes of the number of rows that hold a word.
        found_in = np.rint((1 + len(some)) / np.exp(vectoriser.idf_ - 1) - 1).astype(np.int64).tolist()
        column = cls(name, tuple(words), tuple(found_in), len(some), None in cells)
        leave_out = f"leave it out with {checks.ignoring(name)} if it should not be"
        return column, f"column {name!r} holds free text, read as TF-IDF of {len(words):,} words: {leave_out}."

    @property
    def feature_names(self) -> list[str]:
        words = [f"{self.name}: {word}" for word in self.words]
        return words + ([f"{self.name} is missing"] if self.flag_missing else [])

    def encode(self, cells: Sequence[Any], where: str) -> Any:
        """A sparse matrix with one line a row, each of length 1, or 0 where no word is known."""
        import scipy.sparse

        vectoriser = _vectoriser(vocabulary=list(self.words))
        vectoriser.idf_ = np.log((1 + self.rows) / (1 + np.array(self.found_in))) + 1
        encoded = vectoriser.transform(_texts(cells, f"column {self.name!r} of {where}"))
        if not self.flag_missing:
            return encoded
        missing = np.array([cell is None for cell in cells], dtype=np.float32)[:, None]
        return scipy.sparse.hstack([encoded, missing], format="csr")

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "TextColumn":
        """What `TableRecipe.to_dict` wrote, looked through: it comes from a file."""
        words, found_in = checked(stored["words"], list[str], "words"), checked(stored["found_in"], list[int])
        rows = checked(stored["rows"], int, "rows")
        if not 0 < len(words) == len(set(words)) == len(found_in) <= MOST_WORDS:
            raise ValueError(f"{len(words):,} words, {len(set(words)):,} different ones, {len(found_in):,} numbers")
        if max(map(len, words)) > LONGEST or not 0 < min(found_in) <= max(found_in) <= rows:
            raise ValueError("a word is too long, or in more rows than there were")
        return cls(composed(str(stored["name"])), tuple(words), tuple(found_in), rows, bool(stored["flag_missing"]))


@dataclass(frozen=True)
class SentenceColumn:
    """Texts as the vectors of a sentence model, read from its folder wherever rows are."""

    name: str
    folder: str
    length: int
    is_converted: ClassVar = True

    @classmethod
    def fit(cls, name: str, folder: str) -> "tuple[SentenceColumn, str]":
        length = _sentence_vectors([""], folder).shape[1]
        about = f"column {name!r} is read as {length} numbers of the sentence model in {folder}."
        return cls(name, os.path.realpath(folder), length), about

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}: number {number}" for number in range(self.length)]

    def encode(self, cells: Sequence[Any], where: str) -> Any:
        vectors = _sentence_vectors(_texts(cells, f"column {self.name!r} of {where}"), self.folder)
        if vectors.shape[1] != self.length:
            raise InputError(f"{self.folder} holds another sentence model than that of the training: put it back.")
        return vectors

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "SentenceColumn":
        return cls(composed(str(stored["name"])), str(stored["folder"]), checked(stored["length"], int, "length"))


def _sentence_vectors(texts: Sequence[str], folder: str) -> Any:
    """The mean of the last layer over a text's words, of length 1; no code of the folder is run."""
    try:
        import torch
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise InputError("sentence models need the package transformers: pip install 'splitpu[sentences]'") from error
    plain: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **plain)
        model = AutoModel.from_pretrained(folder, use_safetensors=True, **plain).eval()
    except Exception as error:  # whatever a damaged or hostile folder makes of it
        what = "no sentence model that can be read (config.json, a tokenizer, model.safetensors)"
        raise InputError(f"{folder} holds {what}: {error!s:.200}") from error
    order = np.argsort([len(text) for text in texts], kind="stable")  # texts of one length have nothing to fill up
    found = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    how = {"padding": True, "truncation": True, "max_length": LONGEST_SENTENCE, "return_tensors": "pt"}
    with torch.inference_mode():
        for rows in np.array_split(order, -(-len(texts) // SENTENCES) or 1):
            given = tokenizer([texts[row] for row in rows], **how)
            mask = given["attention_mask"].unsqueeze(-1)
            total = (model(**given).last_hidden_state * mask).sum(1)  # of the same direction as the mean
            found[rows] = torch.nn.functional.normalize(total, dim=1).numpy()
    return found


def kinds_of_texts(asked: Sequence[str], columns: Container[str]) -> dict[str, str]:
    """The columns that are said to be text: by the name alone, or by NAME=FOLDER with a sentence model.

    >>> kinds_of_texts(["title", "remark=/models/minilm", "a=b"], ["title", "remark", "a=b"])
    {'title': 'text', 'remark': 'text=/models/minilm', 'a=b': 'text'}
    """
    parted = [(one, "", "") if one in columns else one.partition("=") for one in asked]
    return {name: f"text{sign}{folder}" for name, sign, folder in parted}


def _texts(cells: Sequence[Any], where: str) -> list[str]:
    if any(map(read.is_nested, cells)):
        raise InputError(f"{where} holds lists, but the model takes texts there.")
    return ["" if cell is None else read.text(cell) for cell in cells]


def _vectoriser(**chosen: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # not above: few tables hold texts

    return TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), dtype=np.float32, **chosen)
