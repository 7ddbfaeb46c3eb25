"""Sparse rows that stand where an array of vectors stands: words in texts, clicks, fingerprints of molecules."""

from collections.abc import Iterator
from typing import Any, SupportsIndex, TypeGuard, cast

import numpy as np

from splitpu.errors import InputError
from splitpu.types import Array, Indices, Mask

VALUES_AT_ONCE = 1 << 22  # numbers that rows are made dense into at a time: 16 MB
MOST_COLUMNS = 10_000_000  # a model remembers a number for each
FORMATS = ("csr", "csc", "coo")  # that scipy.sparse.save_npz writes and that are read back
PARTS = ("data", "indices", "indptr", "shape")  # of a CSR matrix in a .npz file


class SparseRows:
    """Checked rows of a CSR matrix, float32, with as much of an array's ways as the package needs.

    One row is a plain array; several are sparse again. What would make an array of all of them is refused, since that
    could fill the memory many times over."""

    ndim = 2

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix

    @classmethod
    def checked(cls, X: Any, name: str) -> "SparseRows":
        """Any sparse matrix of finite numbers, in one order; the user's own is left as it is."""
        if len(X.shape) != 2:
            raise InputError(f"{name} is sparse and has the shape {X.shape}: give rows and columns, as (n, d)")
        if 0 in X.shape:
            raise InputError(f"{name} has no rows or no columns (shape={X.shape}): give at least one of each")
        if X.shape[1] > MOST_COLUMNS:
            too_many = f"{name} is sparse and has {X.shape[1]:,} columns, more than {MOST_COLUMNS:,}"
            raise InputError(f"{too_many}: leave out those that hardly any row has, or hash them into fewer")
        if X.dtype.kind not in "biuf":
            raise InputError(f"{name} is a sparse matrix of dtype {X.dtype}: give integers, floats or booleans")
        import scipy.sparse

        with np.errstate(over="ignore"):
            matrix = scipy.sparse.csr_matrix(X, dtype=np.float32)  # shares memory where it can
        try:
            matrix.check_format(full_check=True)  # a file may promise columns that there are not
        except ValueError as error:
            raise InputError(f"{name} is not a sound sparse matrix ({error}): make it again") from error
        if not matrix.has_canonical_format or not matrix.data.all():
            matrix = matrix.copy()
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
        if not np.isfinite(matrix.data).all():
            places = np.flatnonzero(~np.isfinite(matrix.data))
            bad = np.unique(np.searchsorted(matrix.indptr, places, side="right") - 1)
            where = f"in {len(bad)} of {X.shape[0]} rows (the first is row {bad[0]})"
            raise InputError(f"{name} holds NaN, infinite or too large (beyond float32) values {where}: drop these")
        return cls(matrix)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self._matrix.shape
        return int(rows), int(columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def size(self) -> int:
        """How many numbers an array of them would hold."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        return int(sum(part.nbytes for part in (self._matrix.data, self._matrix.indices, self._matrix.indptr)))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, SupportsIndex) and not isinstance(rows, np.ndarray):
            return self._matrix[int(rows)].toarray()[0]
        return SparseRows(self._matrix[rows])

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise InputError("sparse rows cannot be used where a whole array is needed: give X.toarray() if that fits")

    def tocsr(self) -> Any:
        """The matrix itself, which nobody may change."""
        return self._matrix

    def dense(self, rows: Any = None) -> Array:
        """Some rows, or all of a few, as an array."""
        wanted: Array = (self._matrix if rows is None else self._matrix[rows]).toarray()
        return wanted

    def slices(self) -> Iterator[slice]:
        """Parts that can be made dense, one after the other."""
        step = max(1, VALUES_AT_ONCE // self.shape[1])
        for start in range(0, len(self), step):
            yield slice(start, min(start + step, len(self)))

    def buffers(self) -> list[Array]:
        """All that the rows are made of, in an order that is always the same."""
        matrix = self._matrix
        return [matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), np.ascontiguousarray(matrix.data)]

    def row_bytes(self) -> Iterator[bytes]:
        """Every row as bytes that are the same for the same row."""
        matrix = self._matrix
        for first, end in zip(matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist(), strict=True):
            yield matrix.indices[first:end].astype(np.int64).tobytes() + matrix.data[first:end].tobytes()


def is_sparse(features: object) -> TypeGuard[SparseRows]:
    """Whether canonical features are sparse rows; everywhere else they go by the type of an array."""
    return isinstance(features, SparseRows)


def is_sparse_matrix(X: object) -> bool:
    """Whether the user gave a sparse matrix, of whatever library."""
    return hasattr(X, "tocsr") and hasattr(X, "shape")


def as_array(rows: SparseRows) -> Array:
    """Sparse rows under the type by which features are known; whoever reads them otherwise asks `is_sparse`."""
    return cast(Array, rows)


def picked(features: Array, rows: Indices | Mask) -> Array:
    """Some rows in one piece of memory, sparse where they are."""
    return features[rows] if is_sparse(features) else np.ascontiguousarray(features[rows])


def stacked(parts: list[Any]) -> Array:
    """The rows of several sparse parts, one after the other."""
    import scipy.sparse

    return as_array(SparseRows(scipy.sparse.vstack([part.tocsr() for part in parts], format="csr")))


def from_parts(parts: dict[str, Array], where: str) -> Any:
    """A matrix of the arrays that scipy.sparse.save_npz writes, which are looked through before they are believed."""
    import scipy.sparse

    found = parts.get("format")
    word = "csr" if found is None else found.item() if found.ndim == 0 else str(found)
    kind = word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
    if kind not in FORMATS:
        raise InputError(f"{where} holds a sparse matrix in the format {kind!r}: save X.tocsr() instead")
    try:
        rows, columns = (int(side) for side in parts["shape"].tolist())
        if rows < 0 or columns < 0:
            raise ValueError("a side of its shape is negative")
        if kind == "coo":
            matrix = scipy.sparse.coo_matrix((parts["data"], (parts["row"], parts["col"])), shape=(rows, columns))
        else:
            make = scipy.sparse.csr_matrix if kind == "csr" else scipy.sparse.csc_matrix
            matrix = make((parts["data"], parts["indices"], parts["indptr"]), shape=(rows, columns))
            matrix.check_format(full_check=True)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        advice = "save it again with scipy.sparse.save_npz"
        raise InputError(f"{where} holds a sparse matrix that is damaged ({error}): {advice}") from error
    return matrix
