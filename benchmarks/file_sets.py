"""Folders and tables for benchmarks: images of known sets, very many small ones, and broken ones."""

import csv
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.append(str(Path(__file__).parent.parent / "tests" / "helpers"))

from image_tools import break_in_place, write_pictures  # every way of breaking a file is known there

BROKEN_EVERY = 20
FILES_A_FOLDER = 1000


def write_folder(root: Path, images: Any, positive: Any, names: tuple[str, str]) -> None:
    """PNG files in two folders, named by their number."""
    for number, (image, side) in enumerate(zip(images, positive, strict=True)):
        folder = root / names[int(side)]
        folder.mkdir(exist_ok=True)
        Image.fromarray(image.squeeze()).save(folder / f"{number:06d}.png")


def write_table(path: Path, images: Any, labels: Any) -> None:
    """One row an image, one column a pixel, and the label."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"pixel{number}" for number in range(images[0].size)), "s"])
        writer.writerows([*image.reshape(-1).tolist(), int(label)] for image, label in zip(images, labels, strict=True))


def write_many(root: Path, images: int, side: int = 16) -> None:
    """Noise, half of the unlabelled images bright in the middle, as all positives are: a twentieth of the images."""
    random = np.random.default_rng(0)
    for name, count, share in (("pos", images // 20, 1.0), ("unl", images - images // 20, 0.5)):
        for number in range(count):
            folder = root / name / f"{number // FILES_A_FOLDER:04d}"
            if number % FILES_A_FOLDER == 0:
                folder.mkdir(parents=True)
            pixels = random.integers(0, 120, (side, side, 3)).astype(np.uint8)
            if random.random() < share:
                pixels[side // 4 : -side // 4, side // 4 : -side // 4] += 100
            (folder / f"{number:07d}.png").write_bytes(_png(pixels))


def write_broken(root: Path, images: int) -> list[str]:
    """Folders `pos` and `unl` with broken files among the good ones; gives the names of the broken ones in order."""
    paths = [
        *write_pictures(root / "pos", images // 10, 1.0),
        *write_pictures(root / "unl", images - images // 10, 0.4, seed=images),
    ]
    chosen = paths[7::BROKEN_EVERY]
    for way, path in enumerate(chosen):
        break_in_place(path, way)
    return [str(path.relative_to(root)) for path in chosen]


def _png(pixels: Any) -> bytes:
    """Written by hand: many times quicker than through pillow."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 1)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
