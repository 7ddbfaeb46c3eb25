"""Arrays in .npz and .npy files: what is read of them, and what is refused."""

import numpy as np
import pytest

from splitpu.data.array_files import read_features, read_names, read_npz
from splitpu.data.pudata import PUData
from splitpu.errors import InputError


def test_reading_arrays(tmp_path):
    X, s = np.eye(3), np.array([1, 0, 0])
    np.savez(tmp_path / "a.npz", X=X, s=s, X_test=X, y_test=s, names=np.array(["a", "b", "c"]), other=s)
    arrays = read_npz(tmp_path / "a.npz")
    assert set(arrays) == {"X", "s", "X_test", "y_test", "names"}
    np.testing.assert_array_equal(arrays["X"], X)
    np.testing.assert_array_equal(read_features(str(tmp_path / "a.npz")), X)
    np.savez_compressed(tmp_path / "single.npz", pictures=X)
    np.testing.assert_array_equal(read_features(tmp_path / "single.npz"), X)
    np.save(tmp_path / "a.npy", X)
    assert isinstance(read_features(tmp_path / "a.npy"), np.memmap)
    (tmp_path / "a.npy").rename(tmp_path / "A.NPY")
    np.testing.assert_array_equal(read_features(tmp_path / "A.NPY"), X)
    assert read_names(tmp_path / "A.NPY") is None


def test_names_may_be_bytes(tmp_path):
    names = np.array(["r0", "röntgen", "r2"])
    np.savez(tmp_path / "a.npz", X=np.eye(3), s=[1, 1, 0], names=np.char.encode(names, "utf-8"))
    assert read_names(tmp_path / "a.npz") == names.tolist()
    assert PUData.from_arrays(**read_npz(tmp_path / "a.npz")).names == tuple(names.tolist())


def truncated(path):
    np.savez(path, X=np.eye(30), s=np.ones(30))
    path.write_bytes(path.read_bytes()[:-100])


def damaged_inside(path):
    np.savez(path, X=np.arange(3000.0).reshape(30, 100), s=np.ones(30))
    content = bytearray(path.read_bytes())
    content[2000:2100] = bytes(100)
    path.write_bytes(content)


def with_a_stranger(path):
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", "no array")
        archive.writestr("s", "no array")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is not a file"),
        (lambda path: path.write_bytes(b""), "is not a .npz file"),
        (lambda path: path.write_text("X,s\n1,0\n"), "is not a .npz file"),
        (truncated, "is not a .npz file, or is cut short"),
        (damaged_inside, "'X' in .* is damaged"),
        (with_a_stranger, "'X' in .* is not an array"),
        (lambda path: np.savez(path, X=np.eye(2)), r"has no array 's' \(it holds 'X'\)"),
        (lambda path: np.savez(path, a=np.eye(2)), "has no array 'X' and no array 's'"),
        (lambda path: np.savez(path, X=np.eye(2), s=[1, 0], y_test=[1]), "holds 'y_test' without 'X_test'"),
        (lambda path: np.savez(path, X=np.eye(2), s=[1, 0], X_test=[1]), "holds 'X_test' without 'y_test'"),
        (lambda path: np.savez(path, X=np.array([[1], [None]], object), s=[1, 0]), "holds Python objects"),
    ],
)
def test_files_that_cannot_be_training_data(tmp_path, write, said):
    path = tmp_path / "mine.npz"
    write(path)
    with pytest.raises(InputError, match=said) as caught:
        read_npz(path)
    assert "mine.npz" in str(caught.value)


def test_files_that_cannot_be_features(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.eye(2))
    with pytest.raises(InputError, match=r"two.npz has no array 'X' \(it holds 'a', 'b'\)"):
        read_features(tmp_path / "two.npz")
    np.save(tmp_path / "objects.npy", np.array([None]))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "two.npz").rename(tmp_path / "zip.npy")
    np.save(tmp_path / "short.npy", np.eye(9))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-9])
    for name in ("objects", "empty", "zip", "short", "absent"):
        with pytest.raises(InputError, match=f"{name}.npy"):
            read_features(tmp_path / f"{name}.npy")
