"""A PNG encoder of a few lines: the galleries need nothing more, and so the package needs no imaging library."""

import struct
import zlib
from base64 import b64encode

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> greyscale, RGB, RGBA as the PNG standard numbers them


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Turn uint8 pixels of shape (H, W, 1), (H, W, 3) or (H, W, 4) into the bytes of a PNG file.

    >>> encode_png(np.zeros((2, 2, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in _COLOUR_TYPES or 0 in pixels.shape:
        raise InputError(
            f"The pixels have shape {pixels.shape} and type {pixels.dtype}, which a PNG cannot hold; "
            "give uint8 of shape (height, width, 1, 3 or 4)."
        )
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    # Every scan line starts with the number of its filter; 0 = the bytes as they are.
    lines = np.zeros((height, 1 + width * channels), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, width * channels)
    body = zlib.compress(lines.tobytes(), level=9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def png_address(pixels: npt.NDArray[np.uint8]) -> str:
    """Write pixels as a `data:` address, so that an image lives inside the page itself."""
    return "data:image/png;base64," + b64encode(encode_png(pixels)).decode("ascii")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
