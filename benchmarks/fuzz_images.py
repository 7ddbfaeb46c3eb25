"""Mutated image and DICOM files: every one must give an image or a reason, in time; nothing else may happen.

Run: python benchmarks/fuzz_images.py [files] [seed] [images | dicom]
"""

import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from splitpu.data.images.decode import BadImage, ImageSpec, decode, read_header
from splitpu.data.images.scan import Entry
from splitpu.data.volumes.reader import Patient, VolumeReader
from splitpu.data.volumes.spec import VolumeSpec

SLOWEST_ALLOWED = 5.0  # seconds for one file
SPEC = ImageSpec(32, 32, 3, 8)
VOLUME_SPEC = VolumeSpec(2, 32, 32)
LARGEST_SEED = 150_000  # bytes of a DICOM file to begin with

Seeds = list[tuple[str, bytes]]  # what a name ends with, and a good file


def image_seeds() -> Seeds:
    """Good images of every kind that is read."""
    random = np.random.default_rng(0)
    colour = Image.fromarray(random.integers(0, 256, (40, 48, 3)).astype(np.uint8))
    deep = Image.fromarray(random.integers(0, 65536, (40, 48)).astype(np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds: list[tuple[str, Image.Image, dict[str, object]]] = [
        ("png", colour, {}),
        ("png", colour.convert("RGBA"), {}),
        ("png", colour.convert("P"), {"transparency": 3}),
        ("png", deep, {"exif": exif}),
        ("jpg", colour, {"exif": exif}),
        ("jpg", colour.convert("CMYK"), {"progressive": True}),
        ("tif", colour, {}),
        ("tif", colour, {"compression": "tiff_lzw"}),
        ("tif", colour, {"compression": "jpeg"}),
        ("tif", colour.convert("1"), {"compression": "group4"}),
        ("tif", deep, {"compression": "tiff_deflate"}),
        ("webp", colour.convert("RGBA"), {"lossless": True}),
        ("webp", colour, {"quality": 50}),
    ]
    made = []
    for suffix, image, options in kinds:
        buffer = io.BytesIO()
        image.save(buffer, {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper()), **options)
        made.append((suffix, buffer.getvalue()))
    return made


def dicom_seeds() -> Seeds:
    """The real files that pydicom brings along: compressed and not, colours, several frames, other byte orders."""
    import pydicom.data

    folder = Path(pydicom.data.__file__).parent / "test_files"
    some = [path for path in sorted(folder.glob("*.dcm")) if path.stat().st_size <= LARGEST_SEED]
    return [("dcm", path.read_bytes()) for path in some]


def read_image(path: Path) -> None:
    """As the cache does it."""
    read_header(path)
    decoded = decode(path, SPEC)
    assert decoded.shape == SPEC.shape and decoded.dtype == SPEC.dtype


def read_patient(path: Path) -> None:
    """As the cache does it, for a patient with this one file."""
    reader = VolumeReader()
    source = Patient(str(path.parent), 0, 0, number=1, parts=(Entry(str(path)),))
    reader.header(source)
    decoded, _ = reader.decode(source, VOLUME_SPEC)
    assert decoded.shape == VOLUME_SPEC.shape and decoded.dtype == VOLUME_SPEC.dtype and decoded.any()


# Good files, how they are read, and where their headers begin and end: a DICOM file begins with 128 bytes of nothing.
KINDS: dict[str, tuple[Callable[[], Seeds], Callable[[Path], None], tuple[int, int]]] = {
    "images": (image_seeds, read_image, (0, 120)),
    "dicom": (dicom_seeds, read_patient, (132, 2000)),
}


def mutated(content: bytes, random: np.random.Generator, header: tuple[int, int]) -> bytes:
    """Flip, cut, repeat, overwrite or insert, a few times over; most often near the beginning, where headers are."""
    data = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        reach = len(data) if random.random() < 0.5 else min(len(data), header[1])
        at = int(random.integers(min(header[0], max(0, reach - 1)), max(1, reach)))
        match int(random.integers(0, 6)):
            case 0 if data:
                data[at] ^= 1 << int(random.integers(0, 8))
            case 1:
                del data[max(1, at) :]
            case 2:
                data[at:at] = data[at : at + int(random.integers(1, 64))]
            case 3:
                data[at : at + 4] = int(random.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF])).to_bytes(4, "big")
            case 4:
                data[at:at] = random.bytes(int(random.integers(1, 64)))
            case _:
                del data[at : at + int(random.integers(1, 32))]
    return bytes(data)


def main(files: int = 2000, seed: int = 0, kind: str = "images") -> int:
    """Try so many files; the exit code is 1 if one of them did something unexpected."""
    make, read, header = KINDS[kind]
    random, good = np.random.default_rng(seed), make()
    images, reasons, slowest, failures = 0, 0, 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            suffix, content = good[number % len(good)]
            path = Path(folder) / f"{number}.{suffix}"
            path.write_bytes(mutated(content, random, header))
            began = time.perf_counter()
            try:
                read(path)
                images += 1
            except BadImage as error:
                reasons += 1
                if "\n" in str(error) or not str(error):
                    raise AssertionError(f"the reason is not one line: {error!s:.200}") from error
            except BaseException as error:
                failures += 1
                print(f"file {number} ({suffix}): {type(error).__name__}: {error}")
            took = time.perf_counter() - began
            slowest = max(slowest, took)
            if took > SLOWEST_ALLOWED:
                failures += 1
                print(f"file {number} ({suffix}) took {took:.1f} s")
            path.unlink()
    outcome = f"{images} read, {reasons} reasons, {failures} failures"
    print(f"{files} {kind} files: {outcome}, slowest {1000 * slowest:.0f} ms")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:3]), *sys.argv[3:]))
