"""Small image files for tests, and every way in which a file can be broken."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image


def picture(positive: bool, seed: int, side: int = 8) -> npt.NDArray[np.uint8]:
    """Noise; positives are bright in the middle."""
    pixels = np.random.default_rng([seed, positive]).integers(0, 120, (side, side, 3)).astype(np.uint8)
    if positive:
        pixels[side // 4 : -side // 4, side // 4 : -side // 4] += 100
    return pixels


def write_pictures(folder: Path, count: int, share: float, seed: int = 0, side: int = 8) -> list[Path]:
    """PNG files, the first `share` of them positive."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"image{number:04d}.png" for number in range(count)]
    for number, path in enumerate(paths):
        Image.fromarray(picture(number < share * count, seed + number, side)).save(path)
    return paths


def small_folders(place: Path) -> list[object]:
    """The options that name folders of 12 positives, 48 unlabelled and 2 x 8 test images."""
    write_pictures(place / "pos", 12, 1.0, seed=0)
    write_pictures(place / "unl", 48, 0.5, seed=1000)
    write_pictures(place / "test-pos", 8, 1.0, seed=2000)
    write_pictures(place / "test-neg", 8, 0.0, seed=3000)
    return ["--positives", place / "pos", "--unlabelled", place / "unl"]


def bomb() -> bytes:
    """A PNG of some hundred bytes that claims 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 9)) + chunk(b"IEND", b"")
    )


def break_in_place(path: Path, way: int) -> None:
    """Break a good PNG in one of ten ways."""
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 8] = b"\0" * 8
    path.unlink()
    match way % 10:
        case 0:
            path.write_bytes(b"")
        case 1:
            path.write_bytes(whole[: len(whole) // 2])
        case 2:
            path.write_bytes(whole[:20])
        case 3:
            path.write_text("this is a text, whatever it is called")
        case 4:
            path.write_bytes(bomb())
        case 5:
            os.symlink(path.name, path)  # leads to itself
        case 6:
            os.symlink("nowhere.png", path)
        case 7:
            os.mkfifo(path)  # would wait for ever
        case 8:
            path.write_bytes(bytes(damaged))
        case 9:
            os.symlink("..", path)  # a folder that holds itself
