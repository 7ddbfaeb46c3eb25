"""One DICOM file -> its slices. What is wrong with a file comes back as words that hold nothing of its contents."""

import hashlib
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, BinaryIO

import numpy as np

from splitpu.data.images.decode import BadImage, reasons_in_words, refuse_irregular
from splitpu.data.volumes.isolated import DECODER
from splitpu.data.volumes.spec import Slice, SliceValues, Vector, all_finite
from splitpu.utils.reading import most_unpacked, too_much_unpacked

MOST_VALUES = 2**29  # in a file; more is a mistake or meant to do harm
MOST_IN_A_FRAME = 2**27  # each of which takes dozens of bytes while it is being read
_MOST_FRAMES = 2**16
_DEFLATED = "1.2.840.10008.1.2.1.99"  # the transfer syntax of files that are compressed as a whole
_AT_ONCE = 1 << 20  # bytes
_STARTS_WITHOUT_PREAMBLE = (b"\x02\x00", b"\x08\x00", b"\x00\x02", b"\x00\x08")  # groups 2 and 8, either byte order
_WHO = ("PatientName", "PatientID", "OtherPatientIDs", "OtherPatientNames", "PatientBirthName")


class NotASlice(BadImage):
    """A file that is no mistake, but shows nothing: a report, say, or a table of contents."""


class _NeedsAnother(BadImage):
    """The library that is left out is the only one that can do it."""


def read_dicom(path: str, part: int) -> tuple[list[Slice], bytes, set[str]]:
    """The slices of a file without their values, its checksum, and who the patient is, to be compared with only."""
    import pydicom

    with _opened(path) as file:
        checksum = hashlib.file_digest(file, "sha256")
        file.seek(0)
        stored = pydicom.dcmread(file, stop_before_pixels=True, force=True)
        who: set[str] = set()
        for keyword in _WHO:
            value = stored.get(keyword) or ()
            several = isinstance(value, list | tuple) or type(value).__name__ == "MultiValue"
            who |= {str(one) for one in (value if several else [value]) if str(one).strip()}
        return list(_slices(stored, part, checksum.hexdigest(), file)), checksum.digest(), who


def load_frames(path: str, frames: Sequence[int]) -> dict[int, SliceValues]:
    """The values of some frames in the unit of the scanner; bright means much, whatever the file's convention.

    What only gdcm can decompress is left to a process of its own: damaged bytes make gdcm end the process it works in.
    """
    try:
        return decoded_here(path, frames, without="gdcm")
    except _NeedsAnother:
        return DECODER.frames(path, frames)


def decoded_here(path: str, frames: Sequence[int], *, without: str = "") -> dict[int, SliceValues]:
    """The same in this process, by any library but one."""
    import pydicom
    from pydicom.pixels.decoders.base import get_decoder
    from pydicom.pixels.utils import pixel_array

    with _opened(path) as file:
        stored = pydicom.dcmread(file, force=True)
        if not any(keyword in stored for keyword in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
            raise BadImage("is cut short: the pixels are missing")
        _frames(stored, file)
        library = ""  # none where none is needed, or any will do
        syntax = stored.file_meta.get("TransferSyntaxUID")
        if without and syntax is not None and syntax.is_compressed and syntax.is_encapsulated:
            able = get_decoder(syntax).available_plugins
            library = next((one for one in able if one != without), "")
            if not library and without in able:
                raise _NeedsAnother
        pixels = ((frame, pixel_array(stored, index=frame, decoding_plugin=library)) for frame in frames)
        return {frame: _measured(some, stored, frame) for frame, some in pixels}


def _slices(stored: Any, part: int, checksum: str, file: BinaryIO) -> Iterator[Slice]:
    if "Rows" not in stored or "Columns" not in stored:
        # Reports and tables of contents are no mistake; a file that says it is an image and has none is damaged.
        kind = stored.get("SOPClassUID") or stored.file_meta.get("MediaStorageSOPClassUID")
        if not kind:
            raise BadImage("is not a DICOM file")
        if "Image" in str(getattr(kind, "name", "")):
            raise BadImage("is cut short or damaged: the size of the image is missing")
        raise NotASlice("is a DICOM file without an image")
    frames = _frames(stored, file)
    for frame in range(frames):
        position = _tag(stored, frame, "PlanePositionSequence", "ImagePositionPatient")
        turned = _tag(stored, frame, "PlaneOrientationSequence", "ImageOrientationPatient")
        if frames == 1:  # else it is the place of the first frame only
            position = position or stored.get("ImagePositionPatient")
        number = _number(stored.get("InstanceNumber"))
        yield Slice(
            part=part,
            frame=frame,
            height=int(stored.Rows),
            width=int(stored.Columns),
            series=str(stored.get("SeriesInstanceUID", "")),
            description=" ".join(str(stored.get("SeriesDescription", "") or "").split()),
            position=_vector(position, 3),
            orientation=_vector(turned or stored.get("ImageOrientationPatient"), 6),
            number=math.inf if number is None else number,
            identity=f"{stored.get('SOPInstanceUID', '')} {checksum}",
        )


def _frames(stored: Any, file: BinaryIO) -> int:
    """How many there are, none of which may be empty or beyond all measure."""
    frames = max(1, int(_number(stored.get("NumberOfFrames")) or 1))
    values = int(stored.Rows) * int(stored.Columns) * frames * int(stored.get("SamplesPerPixel", 1) or 1)
    if values < 1:
        raise BadImage("has an image of no size")
    if values > MOST_VALUES or values // frames > MOST_IN_A_FRAME or frames > _MOST_FRAMES:
        raise BadImage(f"claims more than {MOST_VALUES / 1e6:.0f} million values or {_MOST_FRAMES:,} frames: part it")
    if 4 * values > most_unpacked(os.fstat(file.fileno()).st_size):
        raise BadImage(too_much_unpacked(4 * values))
    return frames


def _tag(stored: Any, frame: int, group: str, keyword: str) -> Any:
    """A value from the group of a frame, or of all frames; files of several frames keep most things there."""
    own = stored.get("PerFrameFunctionalGroupsSequence") or []
    shared = stored.get("SharedFunctionalGroupsSequence") or []
    for place in (*own[frame : frame + 1], *shared[:1]):
        inner = place.get(group)
        if inner and keyword in inner[0]:
            return inner[0].get(keyword)
    return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _vector(value: Any, length: int) -> Vector | None:
    try:
        numbers = tuple(float(one) for one in value)
    except (TypeError, ValueError):
        return None
    return numbers if len(numbers) == length and all(map(math.isfinite, numbers)) else None


def _measured(pixels: Any, stored: Any, frame: int) -> SliceValues:
    """Stored numbers -> measured ones: the table or the line of the scanner, padding as dark as the darkest pixel."""
    from pydicom.pixels.processing import apply_color_lut, apply_modality_lut

    if str(stored.get("PhotometricInterpretation", "")) == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, stored)
    if pixels.ndim == 3:  # colours, which pydicom has made red, green and blue
        return np.asarray(pixels[..., :3].astype(np.float32).mean(axis=-1), dtype=np.float32)
    padding = _number(stored.get("PixelPaddingValue"))
    shown = np.ones(pixels.shape, np.bool_) if padding is None else pixels != padding
    tags = ("RescaleSlope", "RescaleIntercept")
    slope, intercept = (_number(_tag(stored, frame, "PixelValueTransformationSequence", one)) for one in tags)
    if slope is None and _number(stored.get("RescaleSlope")) != 0:
        values = np.asarray(apply_modality_lut(pixels, stored), dtype=np.float32)
    else:  # a slope of 0 is a mistake that would leave nothing of the picture
        values = np.asarray(pixels * (slope or 1.0) + (intercept or 0.0), dtype=np.float32)
    values = all_finite(values)
    if shown.any():
        values = np.where(shown, values, values[shown].min())
    return np.asarray(-values if str(stored.get("PhotometricInterpretation", "")) == "MONOCHROME1" else values)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Only regular files, and only what begins as a DICOM file does; what goes wrong with them is said in words."""
    import pydicom.config

    settings = pydicom.config.settings
    before = settings.reading_validation_mode
    _silence_gdcm()
    try:
        settings.reading_validation_mode = pydicom.config.IGNORE
        with reasons_in_words(_reason, log="pydicom"):
            refuse_irregular(path)
            with open(path, "rb") as file:
                beginning = file.read(132)
                if beginning[128:] != b"DICM" and beginning[:2] not in _STARTS_WITHOUT_PREAMBLE:
                    known = os.path.splitext(path)[1].lower() in ("", ".dcm", ".dicom", ".ima")
                    raise (BadImage if known else NotASlice)("is not a DICOM file")
                _refuse_bomb(file)
                file.seek(0)
                yield file
    finally:
        settings.reading_validation_mode = before


def _refuse_bomb(file: BinaryIO) -> None:
    """Unpack a file that is compressed as a whole without keeping it: pydicom would take it into memory at once."""
    from pydicom.filereader import _read_file_meta_info, read_preamble  # as it finds the beginning itself

    file.seek(0)
    read_preamble(file, True)
    if _read_file_meta_info(file).get("TransferSyntaxUID") != _DEFLATED:
        return
    unpacked, most, stream = 0, most_unpacked(os.fstat(file.fileno()).st_size), zlib.decompressobj(-zlib.MAX_WBITS)
    packed = file.read(_AT_ONCE)
    while packed and not stream.eof:
        unpacked += len(stream.decompress(packed, _AT_ONCE))
        if unpacked > most:
            raise BadImage(too_much_unpacked(unpacked))
        packed = stream.unconsumed_tail or file.read(_AT_ONCE)


def _reason(error: Exception) -> str:
    """Never the decoder's own words: they may quote a tag, and with it the patient."""
    match error:
        case OSError(errno=number, strerror=reason):
            return f"cannot be read ({reason if number else 'its end is missing'})"
        case NotImplementedError() | RuntimeError():
            return "cannot be decoded: it is damaged, or compressed in a way that needs pip install 'splitpu[dicom]'"
    return f"is cut short or damaged ({type(error).__name__})"


@cache
def _silence_gdcm() -> None:
    """It writes to standard error about files that we report on ourselves."""
    with suppress(Exception):
        import gdcm

        for stream in ("DebugOff", "WarningOff", "ErrorOff"):
            getattr(gdcm.Trace, stream)()
