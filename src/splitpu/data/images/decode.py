"""One image file -> one array. What is wrong with a file comes back as words, whatever the file does to the decoder."""

import hashlib
import logging
import math
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from splitpu.config.presets import SMALL
from splitpu.errors import from_extra
from splitpu.types import Array
from splitpu.utils.reading import most_unpacked, too_much_unpacked

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
IN_WORDS = "PNG, JPEG, TIFF or WebP"

_SIXTEEN_BIT = ("I;16", "I;16B", "I;16L", "I;16N", "I")
_GREY = ("1", "L", "LA", "La", *_SIXTEEN_BIT)
_WITH_ALPHA = ("RGBA", "LA", "PA", "La", "RGBa")
_BYTE_TO_SIXTEEN_BIT = 257  # 255 * 257 = 65535
_LONGEST_SIDE = 65_535  # what JPEG can have
_MOST_BYTES_A_PIXEL = 8  # four channels of 16 bits
Size = tuple[int, int]  # height and width
_ORIENTATION = 0x0112  # the EXIF tag
# What it asks for from 2 on, in the words of pillow.
_TURNS = ["FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90"]
_SIDEWAYS = (5, 6, 7, 8)  # its values for which height and width change places
_READ_WITH = {"image": ("images", "pillow"), "DICOM": ("dicom", "pydicom"), "NIfTI": ("volumes", "nibabel")}
RUNGS = (32, 64, 96, 128, 224)  # sides that images of mixed sizes are brought to
# What some hundred images can teach does not need more pixels, and three times as many take a laptop hours.
_LARGEST_OF_FEW, _LARGEST = RUNGS[-2:]
_FACTS = [("checksum", "V32"), ("height", "i4"), ("width", "i4"), ("grey", "?"), ("depth", "u1"), ("slices", "i4")]


@dataclass(frozen=True)
class ImageSpec:
    """The one form that all images of a set are brought into."""

    height: int
    width: int
    channels: int  # 1 = grey, 3 = RGB
    depth: int  # bits a channel: 8 is kept as uint8, 16 as float32 from 0 to 65535
    kind: ClassVar[Literal["images"]] = "images"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.depth == 8 else np.float32)


class Remark(NamedTuple):
    """Something to tell about a row that was read all the same; the words of the kinds are the reader's."""

    kind: str
    part: int  # which of the files that make up the row; -1 = all of them together
    text: str


Remarks = Mapping[int, Sequence[Remark]]  # by the position of the row


class Header(NamedTuple):
    """What can be known of an image without decoding it, and the checksum of the whole file."""

    checksum: bytes
    height: int  # upright, after the EXIF rotation
    width: int
    grey: bool
    depth: int
    slices: int = 1  # more of them make a volume
    remarks: tuple[Remark, ...] = ()


class BadImage(Exception):
    """A file that gives no image; the text says why."""


def refuse_irregular(path: str | Path) -> None:
    """Only regular files are read (a pipe would wait for ever), and only such as hold anything."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise BadImage("is not a regular file")
    if found.st_size == 0:
        raise BadImage("is empty (0 bytes)")


@contextmanager
def reasons_in_words(reason: Callable[[Exception], str], *, log: str | None = None) -> Iterator[None]:
    """Turn whatever a decoder raises into BadImage, in words that `reason` finds, and silence it and its `log`."""
    logger = logging.getLogger(log)
    level = logger.level
    try:
        if log is not None:
            logger.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except BadImage:
        raise
    except MemoryError as error:
        raise BadImage("needs more memory than there is") from error
    except Exception as error:  # a decoder given damaged bytes may raise anything at all
        raise BadImage(reason(error)) from error
    finally:
        logger.setLevel(level)


def require_reader_of(files: Literal["image", "DICOM", "NIfTI"]) -> None:
    """Say which extra to install, before anything is begun that needs it."""
    extra, library = _READ_WITH[files]
    needed = library if library == "pillow" else f"{library} and pillow"
    for package in ("PIL.Image", "PIL" if library == "pillow" else library):
        from_extra(package, extra, f"{files} files are read with {needed}")


def read_header(path: str | Path) -> Header:
    """Size and kind of an image; raises BadImage for a file that cannot be one."""
    from PIL import Image

    with _opened(path) as (file, image):
        if image.format == "PNG":  # has checksums inside, which decoding does not look at
            image.verify()
            file.seek(0)
            image = Image.open(file, formats=FORMATS)
        width, height = reversed(image.size) if _orientation(image) in _SIDEWAYS else image.size
        if image.mode == "F":
            raise BadImage("has floating-point pixels: save it with 8 or 16 bits")
        grey, depth = image.mode in _GREY, 16 if image.mode in _SIXTEEN_BIT else 8
        file.seek(0)
        return Header(hashlib.file_digest(file, "sha256").digest(), height, width, grey, depth)


def decode(path: str | Path, spec: ImageSpec) -> Array:
    """The pixels of a file in the form asked for; raises BadImage where there are none.

    Upright by its EXIF tag, transparent parts laid over white, the first of several frames, and resized as a whole:
    nothing is cropped away, so the proportions may change."""
    from PIL import Image

    with _opened(path) as (_, image):
        orientation = _orientation(image)
        longer = 2 * max(spec.height, spec.width)
        image.draft(None, (longer, longer))  # lets JPEG decode at a lower resolution, which is many times quicker
        sixteen = image.mode in _SIXTEEN_BIT
        if sixteen:  # as floats, which pillow can turn and resize without loss
            values = np.asarray(image).astype(np.float32)
            if values.min() < 0 or values.max() > 65535:
                raise BadImage("has values outside 0 to 65535: save it with 8 or 16 bits")
            plain: Any = Image.fromarray(values)
        else:
            if image.mode in _WITH_ALPHA or "transparency" in image.info:
                over = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")
            plain = image.convert("L" if spec.channels == 1 else "RGB")
        if 2 <= orientation <= 8:
            plain = plain.transpose(Image.Transpose[_TURNS[orientation - 2]])
        resized = plain.resize((spec.width, spec.height), Image.Resampling.BILINEAR)
        pixels = np.asarray(resized).reshape(spec.height, spec.width, -1)
    if sixteen and spec.depth == 8:
        pixels = (pixels / _BYTE_TO_SIXTEEN_BIT).round()
    elif not sixteen and spec.depth == 16:
        pixels = pixels.astype(np.float32) * _BYTE_TO_SIXTEEN_BIT
    return np.broadcast_to(pixels, spec.shape).astype(spec.dtype)


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[Any, Any]]:
    """Only regular files, and only the formats we mean to read; what goes wrong with them is said in words."""
    from PIL import Image

    with reasons_in_words(_reason):
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        refuse_irregular(path)
        with open(path, "rb") as file, Image.open(file, formats=FORMATS) as image:
            # Before anything is decoded: a file of a few kilobytes may claim pixels that fill the memory.
            if max(image.size) > _LONGEST_SIDE:
                raise BadImage(f"claims a side of more than {_LONGEST_SIDE:,} pixels: make it smaller")
            needed = math.prod(image.size) * _MOST_BYTES_A_PIXEL
            if needed > most_unpacked(os.fstat(file.fileno()).st_size):
                raise BadImage(too_much_unpacked(needed))
            yield file, image


def _reason(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    said = " ".join(str(error).split())
    match error:
        case Image.DecompressionBombWarning() | Image.DecompressionBombError():
            return f"claims more than {(Image.MAX_IMAGE_PIXELS or 0) / 1e6:.0f} million pixels: make it smaller"
        case UnidentifiedImageError():
            return f"is not a {IN_WORDS} image, or its beginning is damaged"
        case OSError(errno=number, strerror=reason):
            return f"cannot be read ({reason or said})" if number else f"is cut short or damaged ({reason or said})"
        case SyntaxError():  # what pillow raises for checksums that do not hold, among other things
            return f"is cut short or damaged ({said[:120]})"
    return f"is damaged ({type(error).__name__}: {said[:120]})"


def _orientation(image: Any) -> int:
    if image.format == "TIFF":
        return 1  # pillow turns these by itself, and no others
    if image.format == "PNG" and not {"exif", "Raw profile type exif"} & set(image.info):
        return 1  # pillow would decode the whole picture to find out whether a tag follows it
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF data say nothing about the picture itself
        return 1


@dataclass(frozen=True, eq=False)
class Headers:
    """What is known of many images, a line a file, in little memory; that of a file in `reasons` means nothing."""

    facts: Array  # as in Header
    reasons: dict[int, str]  # position of a file that cannot be an image -> why
    remarks: dict[int, tuple[Remark, ...]]  # position of a file that there is something to say about

    @classmethod
    def collect(cls, found: Iterable[Header | str], files: int) -> "Headers":
        """Headers, or the reasons why there is none, as they come in."""
        headers = cls(np.zeros(files, _FACTS), {}, {})
        for position, header in enumerate(found):
            if isinstance(header, str):
                headers.reasons[position] = header
                continue
            headers.facts[position] = header[:-1]
            if header.remarks:
                headers.remarks[position] = header.remarks
        return headers

    def good(self) -> Array:
        """Positions of the files that have a header."""
        return np.delete(np.arange(len(self.facts)), list(self.reasons))

    def of_good(self, fact: str) -> Array:
        """One fact of all files that have a header."""
        known: Array = self.facts[fact][self.good()]
        return known

    def sides(self) -> Array:
        return np.stack([self.of_good("height"), self.of_good("width")], axis=1)


def choose_spec(headers: Headers, size: Size | None = None) -> ImageSpec:
    """The form for a set: its own size where all images share one that is not too large, else a smaller or common one.

    Too large is more than 224 pixels, and more than 128 where there are fewer than 5,000 images. Larger ones keep their
    proportions, with that many for the longer side. Mixed sizes become squares: the largest of 32, 64, 96, 128 and 224
    that the median shorter side reaches and that is not too large. Grey only if all images are; 16 bits if any has."""
    grey = headers.of_good("grey")
    height, width = size or usual_size(headers.sides())
    return ImageSpec(height, width, 1 if len(grey) and grey.all() else 3, int(headers.of_good("depth").max(initial=8)))


def usual_size(sides: Array) -> Size:
    """Height and width for images of these sizes, as `choose_spec` says."""
    largest = _LARGEST_OF_FEW if len(sides) < SMALL else _LARGEST
    if len(sides) and (sides == sides[0]).all():
        height, width = sides[0].tolist()
        shrink = min(1.0, largest / max(height, width))
        return max(1, round(height * shrink)), max(1, round(width * shrink))
    shorter = float(np.median(sides.min(axis=1))) if len(sides) else 0
    side = max((rung for rung in RUNGS if rung <= min(shorter, largest)), default=RUNGS[0])
    return side, side
