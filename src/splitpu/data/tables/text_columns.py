"""Columns of free text -> TF-IDF: the words, and pairs of neighbouring words, of a column as sparse numbers.

The numbers are those of scikit-learn's `TfidfVectorizer`; what a model file remembers of it are the words and in how
many rows each of them was found, as plain JSON, so that nothing has to be pickled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from splitpu.data.tables import checks, read
from splitpu.errors import InputError
from splitpu.utils.reading import checked
from splitpu.utils.text import composed

FEWEST_WORDS = 5  # in a usual cell of a column that is taken for free text without being told
MOST_WORDS = 20_000  # and pairs of words, by how often they are used
MOST_ROWS = 100_000  # by which the words are chosen
LONGEST = 1_000  # letters of a word in a model file
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

    @classmethod
    def fit(cls, name: str, cells: Sequence[Any]) -> "tuple[TextColumn | None, str]":
        """The column and a note about it; None if no word is in two rows, so that nothing could be learned from it."""
        texts = _texts(cells)
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

    @property
    def is_converted(self) -> bool:
        """Always: a word is no number."""
        return True

    def encode(self, cells: Sequence[Any], where: str) -> Any:
        """A sparse matrix with one line a row, each of length 1, or 0 where no word is known."""
        import scipy.sparse

        if any(map(read.is_nested, cells)):
            raise InputError(f"column {self.name!r} of {where} holds lists, but the model takes texts there.")
        vectoriser = _vectoriser(vocabulary=list(self.words))
        vectoriser.idf_ = np.log((1 + self.rows) / (1 + np.array(self.found_in))) + 1
        encoded = vectoriser.transform(_texts(cells))
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


def _texts(cells: Sequence[Any]) -> list[str]:
    return ["" if cell is None else read.text(cell) for cell in cells]


def _vectoriser(**chosen: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # not above: few tables hold texts

    return TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), dtype=np.float32, **chosen)
