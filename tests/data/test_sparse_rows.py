"""Sparse rows where an array of vectors goes: they stay sparse, and what is wrong with them is said."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from splitpu.data.array_files import read_features, read_labelled, read_npz
from splitpu.data.features import canonical_features
from splitpu.data.leakage import rows_seen
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.sparse_rows import SparseRows, is_sparse
from splitpu.errors import InputError, ModelFileError
from splitpu.evaluation.held_out import hold_out

DENSE = np.array([[0, 2, 0], [1, 0, 0], [0, 0, 0], [3, 0, 4], [0, 2, 0]], dtype=np.float32)
LABELS = [1, 1, 1, 0, 0]


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok"])
def test_any_format_becomes_the_same_rows(kind: str) -> None:
    given = scipy.sparse.csr_matrix(DENSE.astype(np.float64)).asformat(kind)
    rows = canonical_features(given)
    assert is_sparse(rows)
    assert rows.dense().tolist() == DENSE.tolist()
    assert PUData.from_arrays(given, LABELS).fingerprint() == PUData.from_arrays(rows, LABELS).fingerprint()


def test_zeros_and_duplicates_do_not_count_and_the_given_matrix_stays() -> None:
    twice = scipy.sparse.csr_matrix(([1.0, 1.0, 0.0, 1.0], [1, 1, 2, 0], [0, 3, 4]), shape=(2, 3))
    once = scipy.sparse.csr_matrix(np.array([[0, 2, 0], [1, 0, 0]]))
    labels = ["a", "b"], ["a", "b"]
    prints = [HeldOut.from_arrays(one, [0, 1]).fingerprint() for one, _ in zip((twice, once), labels, strict=True)]
    assert prints[0] == prints[1]
    assert twice.nnz == 4


def test_they_are_never_made_an_array() -> None:
    with pytest.raises(InputError, match="toarray"):
        np.asarray(canonical_features(scipy.sparse.csr_matrix(DENSE)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (scipy.sparse.csr_matrix(np.array([[0.0, np.nan], [1.0, 0.0]])), "1 of 2 rows .the first is row 0"),
        (scipy.sparse.csr_matrix(np.array([[0.0, 1e300], [1.0, 0.0]])), "too large"),
        (scipy.sparse.csr_matrix(np.array([[1j]])), "dtype complex"),
        (scipy.sparse.csr_matrix((0, 3)), "no rows or no columns"),
        (scipy.sparse.csr_matrix((2, 20_000_000)), "20,000,000 columns"),
    ],
)
def test_what_cannot_be_used_is_refused(given: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        canonical_features(given)


def test_rows_are_found_again_and_held_out() -> None:
    data = PUData.from_arrays(scipy.sparse.csr_matrix(np.eye(20)), [1] * 10 + [0] * 10)
    left, positives, _ = hold_out(data, 0.2, seed=0)
    assert is_sparse(left.features)
    assert len(left) == 16
    assert rows_seen(data.features, data.features[positives]).all()
    assert not rows_seen(left.features, data.features[positives]).any()


def test_nothing_is_taken_off_them_and_little_is_written_down() -> None:
    fitted = Preprocessing.fit(canonical_features(scipy.sparse.csr_matrix(DENSE)))
    stored = fitted.to_dict()
    assert (set(fitted.mean), set(fitted.std)) == ({0.0}, {1.0})
    assert stored["mean"] == stored["std"] == []
    assert Preprocessing.from_dict(stored) == fitted
    for columns in (0, -1, 2.0, 10**12, True):
        with pytest.raises(ModelFileError):
            Preprocessing.from_dict({**stored, "shape": [columns]})


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_files_of_scipy_are_read(tmp_path: Path, kind: str) -> None:
    scipy.sparse.save_npz(tmp_path / "rows.npz", scipy.sparse.csr_matrix(DENSE).asformat(kind))
    assert SparseRows.checked(read_features(tmp_path / "rows.npz"), "X").dense().tolist() == DENSE.tolist()
    with pytest.raises(InputError, match="--positives and --unlabelled"):
        read_npz(tmp_path / "rows.npz")


def test_parts_of_a_matrix_lie_beside_the_labels(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_matrix(DENSE)
    names = ("data", "indices", "indptr", "shape")
    parts = {f"{name}_{part}": getattr(matrix, part) for name in ("X", "X_test") for part in names}
    np.savez(tmp_path / "all.npz", s=LABELS, y_test=LABELS, **parts)
    assert read_npz(tmp_path / "all.npz")["X"].toarray().tolist() == DENSE.tolist()
    rows, truth = read_labelled(tmp_path / "all.npz")
    assert rows.shape == (5, 3)
    assert truth.tolist() == LABELS
    np.savez(tmp_path / "own.npz", s=LABELS, **{part: getattr(matrix, part) for part in names})
    assert read_npz(tmp_path / "own.npz")["X"].nnz == matrix.nnz


def test_damaged_parts_are_refused(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_matrix(DENSE)
    sound = {part: np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")}
    for wrong in (
        {"indices": sound["indices"] + 7},
        {"indptr": sound["indptr"][::-1]},
        {"shape": np.array([5, -3])},
        {"shape": np.array([5])},
        {"format": np.array(b"bsr")},
    ):
        np.savez(tmp_path / "bad.npz", **{**sound, **wrong})
        with pytest.raises(InputError, match="sparse matrix"):
            read_features(tmp_path / "bad.npz")


def test_sparserows_in_short() -> None:
    import scipy.sparse

    rows = SparseRows(scipy.sparse.csr_matrix(np.eye(3, dtype=np.float32)))
    assert (len(rows), rows.shape, rows[1].tolist(), rows[1:].dense().tolist()) == (
        3,
        (3, 3),
        [0.0, 1.0, 0.0],
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    )
