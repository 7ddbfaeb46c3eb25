"""One NIfTI file -> its slices."""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from splitpu.data.images.decode import BadImage, reasons_in_words, refuse_irregular
from splitpu.data.volumes.dicom import MOST_VALUES
from splitpu.data.volumes.spec import Slice, SliceValues, all_finite
from splitpu.utils.reading import most_unpacked, too_much_unpacked

_FARTHEST = 1 << 24  # bytes before the first value
_THICKER = 1.5  # an axis whose voxels are this much longer than all others is the one that was sliced


def read_nifti(path: str, part: int) -> tuple[list[Slice], bytes, set[str]]:
    """As `read_dicom`; such a file does not say who the patient is."""
    with _nibabel_in_words(path):
        with open(path, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").digest()
        image, axes = _upright(path)
        count, height, width = (int(image.shape[axis]) for axis in axes)
        of_all = Slice(part, 0, height, width, series=path, description=os.path.basename(path))
        return [replace(of_all, frame=frame) for frame in range(count)], checksum, set()


def load_nifti(path: str, frames: Sequence[int]) -> dict[int, SliceValues]:
    """The values of some slices, upright and in the order in which a DICOM series of the same scan would have them."""
    with _nibabel_in_words(path):
        image, axes = _upright(path)
        values = np.asanyarray(image.dataobj)
        if values.ndim > 3:  # several volumes, one after the other in time: the first
            values = values.reshape(*values.shape[:3], -1)[..., 0]
        arranged = np.transpose(all_finite(values.astype(np.float32, copy=False)), axes)
        # These axes lead to the right, to the front and up; pictures run the other way along their rows and columns,
        # and slices seen from the front follow one another to the back.
        seen = arranged[::-1, ::-1, ::-1] if axes[0] == 1 else arranged[:, ::-1, ::-1]
        return {frame: np.asarray(seen[frame]) for frame in frames}


def _upright(path: str) -> tuple[Any, tuple[int, int, int]]:
    """The image with its axes to the right, to the front and up; and its axes of slices, rows and columns."""
    import nibabel

    library: Any = nibabel
    image = _read_without_extensions(path)
    shape = image.shape
    if not 0 <= image.dataobj.offset <= _FARTHEST:
        raise BadImage("says that its values begin beyond all measure")
    if len(shape) < 3 or min(shape) < 1:
        raise BadImage(f"has {len(shape)} axes, and a volume needs three")
    if int(np.prod(shape, dtype=np.float64)) > MOST_VALUES:
        raise BadImage(f"claims more than {MOST_VALUES / 1e6:.0f} million values: make it smaller")
    kind = np.dtype(image.get_data_dtype())
    if kind.kind not in "biuf":
        raise BadImage("has values that are no plain numbers")
    needed = math.prod(map(int, shape)) * kind.itemsize
    if needed > most_unpacked(os.path.getsize(path)):
        raise BadImage(too_much_unpacked(needed))
    if len(shape) > 3:
        image = image.slicer[(slice(None),) * 3 + (slice(0, 1),) * (len(shape) - 3)]
    upright = library.as_closest_canonical(image)
    # The axis with the thickest voxels was sliced; the one along the body, if none stands out.
    sizes = [float(size) for size in upright.header.get_zooms()[:3]]
    thickest = int(np.argmax(sizes))
    sliced = thickest if sizes[thickest] > _THICKER * max(sizes[:thickest] + sizes[thickest + 1 :]) else 2
    column, row = (axis for axis in range(3) if axis != sliced)
    return upright, (sliced, row, column)


def _read_without_extensions(path: str) -> Any:
    """Other programs' notes, which may lie between header and values, are never read: they may be of any size."""
    from nibabel.nifti1 import Nifti1Extensions, Nifti1Header, Nifti1Image
    from nibabel.nifti2 import Nifti2Header, Nifti2Image
    from nibabel.openers import ImageOpener

    with ImageOpener(path, "rb") as file:
        size = file.read(4)
    second = 540 in (int.from_bytes(size, "little"), int.from_bytes(size, "big"))
    plain: Any = Nifti2Image if second else Nifti1Image
    none = type("NoExtensions", (Nifti1Extensions,), {"from_fileobj": classmethod(lambda own, *_: own())})
    header = type("Header", (Nifti2Header if second else Nifti1Header,), {"exts_klass": none})
    own: Any = type("Image", (plain,), {"header_class": header})
    found = own.from_filename(path)
    return plain(found.dataobj, found.affine, found.header)  # nibabel does less for classes that it does not know


@contextmanager
def _nibabel_in_words(path: str) -> Iterator[None]:
    with reasons_in_words(_reason, log="nibabel.global"), np.errstate(all="ignore"):
        refuse_irregular(path)
        yield


def _reason(error: Exception) -> str:
    """Never the decoder's own words: they may quote the header."""
    return f"is no NIfTI file, or cut short or damaged ({type(error).__name__})"
