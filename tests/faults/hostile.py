"""Files made to do harm, as a table of makers: each lays its files into a folder and gives the command that meets them.

Bombs are small on the disk and enormous once unpacked. Blocks of zeros are compressed once and repeated.
"""

import csv
import gzip
import json
import os
import random
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fault_tools import forge, vouch
from forked import Ended
from mutations import ALL, IN_PLACE
from subjects import QUICK

Words = list[object]
Maker = Callable[[Path, Path, random.Random], Words]
BLOCK = 1 << 24


@dataclass(frozen=True)
class Case:
    """A maker, and whether what it makes may be used: most of it has to be refused."""

    name: str
    make: Maker
    refused: bool = True
    judge: Callable[[Ended, Path], str | None] | None = None

    def judged(self, ended: Ended, folder: Path) -> str | None:
        if self.refused and ended.code == 0:
            return f"was taken: {ended.out[-200:]}"
        return None if self.judge is None else self.judge(ended, folder)


# -------------------------------------------------------------------------------------------------------- run folders


def run_of(place: Path, folder: Path, kind: str = "network") -> Path:
    shutil.copytree(place / kind / "run", folder / "run")
    return folder / "run"


def predict(place: Path, run: Path) -> Words:
    return ["predict", run, place / "new.npz"]


def _forged(place: Path, folder: Path, rng: random.Random, change: dict[str, Any], kind: str = "network") -> Words:
    run = run_of(place, folder, kind)
    forge(run / "model.json", change)
    return ["predict", run, place / {"table": "table.csv", "images": "pictures/u"}.get(kind, "new.npz")]


def _tensors(
    place: Path, folder: Path, rng: random.Random, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> Words:
    """Weights of another kind, whose checksum the description knows."""
    from hashlib import sha256

    from safetensors.numpy import load_file, save_file

    run = run_of(place, folder)
    save_file(change(load_file(run / "model.safetensors")), run / "model.safetensors")
    forge(run / "model.json", {"weights": sha256((run / "model.safetensors").read_bytes()).hexdigest()})
    return predict(place, run)


def _no_numbers(value: float, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: np.full_like(one, value) if one.dtype.kind == "f" else one for name, one in tensors.items()}


def _many_members(count: int, tensors: dict[str, Any]) -> dict[str, Any]:
    nothing = np.zeros((0,), np.float32)
    return tensors | {f"{part}/members.{number}.x": nothing for number in range(count) for part in ("final", "base")}


def _lacking(tensors: dict[str, Any]) -> dict[str, Any]:
    return dict(list(tensors.items())[1:])


def _other_type(kind: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: one.astype(kind) for name, one in tensors.items()}


_COMMANDS: tuple[Callable[[Path, Path], Words], ...] = (
    predict,
    lambda place, run: ["info", run],
    lambda place, run: ["resume", run, "--quiet"],
    lambda place, run: ["hard", run],
    lambda place, run: ["evaluate", run],
)
_READ_BY = {
    "model.json": (0, 2, 4),
    "model.safetensors": (0, 2, 4),
    "request.json": (1, 2, 3, 4),
    "result.json": (0, 1, 2, 3),
}
_READ_BY |= {"config.toml": (1,), "split.csv": (3,), "scores.csv": (3,)}


def _in_place_of(place: Path, folder: Path, rng: random.Random, name: str, lay: Callable[[Path], object]) -> Words:
    """Something that is no such file lies where a file of the run should."""
    run = run_of(place, folder)
    (run / name).unlink()
    lay(run / name)
    return _COMMANDS[rng.choice(_READ_BY[name])](place, run)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


INSTEAD: dict[str, Callable[[Path], object]] = {
    **IN_PLACE,
    "3 GB of nothing": _sparse,
    "invalid UTF-8": lambda path: path.write_bytes(b'{"a": "\xff\xfe\xc3("}'),
    "deep nesting": lambda path: path.write_text("[" * 100_000),
    "deep tables": lambda path: path.write_text('{"a":' * 50_000),
    "5,000 digits": lambda path: path.write_text('{"seeds": ' + "9" * 5000 + "}"),
    "NaN": lambda path: path.write_text('{"a": NaN, "b": Infinity}'),
    "many empty lists": lambda path: path.write_text("[" + "[]," * 8_000_000 + "[]]"),
}


def _wrong_result(place: Path, folder: Path, rng: random.Random) -> Words:
    run = run_of(place, folder)
    name = rng.choice(
        ["models", "rounds", "files", "final", "warnings", "prior", "rows", "figures", "method", "seconds_total"]
    )
    forge(run / "result.json", {name: rng.choice([None, 3, "x", [], {}, [1], {"a": 1}, [{"model": 3}], True])})
    return _COMMANDS[rng.choice((1, 2, 3))](place, run)


def _wrong_request(place: Path, folder: Path, rng: random.Random) -> Words:
    run = run_of(place, folder)
    stored = json.loads((run / "request.json").read_text())
    stored[rng.choice(["source", "seed", "prior", "device", "precision", "prior_estimate", "doubts"])] = rng.choice(
        [{}, "x", [], -1, {"npz": 3}]
    )
    from splitpu.utils.reading import sealed

    stored.pop("sha256")
    (run / "request.json").write_text(json.dumps(sealed(stored)))
    vouch(run)
    return _COMMANDS[rng.choice((1, 2, 4))](place, run)


# -------------------------------------------------------------------------------------------------------------- bombs


def _deflated(parts: Sequence[tuple[bytes, int]], wbits: int = -15) -> bytes:
    """Blocks, each so many times, as one stream; what is repeated is compressed once."""
    made = []
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    for block, times in parts:
        made.append(packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH))
        if times > 1:
            raw = zlib.compressobj(9, zlib.DEFLATED, -15)
            made.append((raw.compress(block) + raw.flush(zlib.Z_FULL_FLUSH)) * (times - 1))
    end = zlib.compressobj(9, zlib.DEFLATED, -15)
    made.append(end.flush(zlib.Z_FINISH))
    return b"".join(made)


def _npz_bomb(place: Path, folder: Path, rng: random.Random, size: int = 4 << 30) -> Words:
    rows = size // 24
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    header += f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, 3), }}".encode().ljust(117) + b"\n"
    times = rows * 24 // BLOCK
    content = _deflated([(header, 1), (bytes(BLOCK), times)])
    path = folder / "bomb.npz"
    length, name = len(header) + times * BLOCK, b"X.npy"
    large = length >= 1 << 32
    extra = struct.pack("<HHQQ", 1, 16, length, len(content)) if large else b""
    sizes = (0xFFFFFFFF, 0xFFFFFFFF) if large else (len(content), length)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 45, 0, 8, 0, 0, 0, *sizes, len(name), len(extra)) + name + extra
    central = struct.pack(
        "<4s6H3I5H2I", b"PK\x01\x02", 45, 45, 0, 8, 0, 0, 0, *sizes, len(name), len(extra), 0, 0, 0, 0, 0
    )
    central += name + extra
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local) + len(content), 0)
    path.write_bytes(local + content + central + end)
    return ["predict", place / "network" / "run", path]


def _npz_that_lies(place: Path, folder: Path, rng: random.Random) -> Words:
    """The archive says that a member is small, its header that it is large."""
    with zipfile.ZipFile(folder / "lies.npz", "w") as archive:
        shape = rng.choice(["(10**12, 3)", "(99999999999, 3)", "(-4, 3)", "(2, 3)", "(0, 3)", "(3,)"]).replace(
            "10**12", "1" + "0" * 12
        )
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header + bytes(24))
    return ["predict", place / "network" / "run", folder / "lies.npz"]


def _npy(place: Path, folder: Path, rng: random.Random, described: str) -> Words:
    header = described.encode("latin1").ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(rng.choice((0, 24, 240)))
    (folder / "odd.npy").write_bytes(content)
    if rng.random() < 0.5:
        return ["predict", place / "network" / "run", folder / "odd.npy"]
    return [
        "fit",
        "--positives",
        folder / "odd.npy",
        "--unlabelled",
        folder / "odd.npy",
        "--out",
        folder / "out",
        *QUICK,
    ]


_NPY = [
    f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}"
    for kind, order, shape in [
        ("<f8", "False", "(-1, 3)"),
        ("<f8", "False", "(4, -3)"),
        ("<f8", "False", "(99999999999, 99999999)"),
        ("<f8", "False", "(9223372036854775807, 3)"),
        ("<f8", "False", "(10000000000000000000000, 3)"),
        ("<f8", "False", "('a', 3)"),
        ("<f8", "False", "(1.5, 3)"),
        ("<f8", "False", "3"),
        ("<f8", "False", "()"),
        ("<f8", "False", "(True, 3)"),
        ("<f8", "3", "(1, 3)"),
        ("|O", "False", "(1, 3)"),
        ("<U999999999", "False", "(1, 3)"),
        ("|V0", "False", "(1, 3)"),
        ("|S0", "False", "(99999999999, 3)"),
        ("<c16", "False", "(1, 3)"),
        ("<M8[ns]", "False", "(1, 3)"),
        ("x", "False", "(1, 3)"),
    ]
] + [
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1, 3), }",
    "[" * 100,
    "{}",
    "__import__('os').system('x')",
    "9" * 110,
]


def _fit_images(folder: Path) -> Words:
    sides = ["--positives", folder / "p", "--unlabelled", folder / "u"]
    return ["fit", *sides, "--prior", "0.4", "--features", "trained", "--out", folder / "out", *QUICK]


def _only_images(folder: Path, content: bytes, ending: str) -> Words:
    for side in ("p", "u"):
        (folder / side).mkdir()
        for number in range(3):
            (folder / side / f"{number}.{ending}").write_bytes(content)
    return _fit_images(folder)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png_bomb(
    place: Path, folder: Path, rng: random.Random, width: int, height: int, bits: int = 8, kind: int = 2
) -> Words:
    raw = (width * {0: 1, 2: 3, 6: 4}[kind] * bits // 8 + 1) * height
    blocks = max(1, raw // BLOCK)
    content = _deflated([(bytes(BLOCK if raw >= BLOCK else raw), blocks)], 15) + b"\0\0\0\0"
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return _only_images(
        folder, b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", content) + _chunk(b"IEND", b""), "png"
    )


def _jpeg_of_enormous_sides(place: Path, folder: Path, rng: random.Random) -> Words:
    from io import BytesIO

    from PIL import Image

    file = BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG")
    content = bytearray(file.getvalue())
    at = content.index(b"\xff\xc0")
    content[at + 5 : at + 9] = struct.pack(">HH", 65500, rng.choice((65500, 1000)))
    return _only_images(folder, bytes(content), "jpg")


def _tiff_of_enormous_sides(place: Path, folder: Path, rng: random.Random) -> Words:
    tags = {
        256: 60_000,
        257: rng.choice((60_000, 1400)),
        258: 8,
        259: rng.choice((1, 5, 8)),
        262: 1,
        273: 8,
        277: 1,
        278: 60_000,
        279: 100,
    }
    written = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    content = b"II*\x00" + struct.pack("<I", 200) + bytes(192) + struct.pack("<H", len(tags)) + written + bytes(4)
    return _only_images(folder, content, "tif")


def _gzip_bomb(header: bytes, size: int) -> bytes:
    first, block = gzip.compress(header, 9), gzip.compress(bytes(BLOCK), 9)
    return first + block * (size // BLOCK)


def _nifti(shape: Sequence[int], kind: int = 64) -> bytes:
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, len(shape), *shape, *[1] * (7 - len(shape)))
    struct.pack_into("<hh", header, 70, kind, 64)
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 1, 1, 1, 1)
    struct.pack_into("<f", header, 108, 352)
    header[344:348] = b"n+1\0"
    return bytes(header)


def _volumes(folder: Path, content: bytes, name: str) -> Words:
    for side in ("p", "u"):
        for number in range(2):
            (folder / side / f"case{number}").mkdir(parents=True)
            (folder / side / f"case{number}" / name).write_bytes(content)
    return _fit_images(folder)


def _nifti_bomb(place: Path, folder: Path, rng: random.Random) -> Words:
    return _volumes(folder, _gzip_bomb(_nifti((1024, 1024, 400)), 1024 * 1024 * 400 * 8), "scan.nii.gz")


def _nifti_of_odd_shape(place: Path, folder: Path, rng: random.Random) -> Words:
    shape = rng.choice([(-4, 4, 4), (32767, 32767, 32767), (0, 4, 4), (4, 4), (4, 4, 4, -1), (30000, 30000, 1)])
    name = rng.choice(["scan.nii", "scan.nii.gz"])
    content = _nifti(shape, rng.choice((64, 2, 32, 0, 128))) + bytes(512)
    return _volumes(folder, gzip.compress(content) if name.endswith("gz") else content, name)


def _element(group: int, element: int, kind: bytes, value: bytes) -> bytes:
    value += b"\0" * (len(value) % 2)
    long = kind in (b"OB", b"OW", b"UN")
    length = struct.pack("<2xI", len(value)) if long else struct.pack("<H", len(value))
    return struct.pack("<HH", group, element) + kind + length + value


def _dicom(body: bytes, syntax: bytes) -> bytes:
    meta = _element(2, 0x10, b"UI", syntax) + _element(2, 2, b"UI", b"1.2.840.10008.5.1.4.1.1.2")
    return bytes(128) + b"DICM" + _element(2, 0, b"UL", struct.pack("<I", len(meta))) + meta + body


def _dicom_tags(rows: int, columns: int, frames: int) -> bytes:
    tags = [
        (0x08, 0x16, b"UI", b"1.2.840.10008.5.1.4.1.1.2"),
        (0x28, 2, b"US", struct.pack("<H", 1)),
        (0x28, 4, b"CS", b"MONOCHROME2"),
    ]
    tags += [
        (0x28, 8, b"IS", str(frames).encode()),
        (0x28, 0x10, b"US", struct.pack("<H", rows)),
        (0x28, 0x11, b"US", struct.pack("<H", columns)),
    ]
    tags += [
        (0x28, 0x100, b"US", struct.pack("<H", 16)),
        (0x28, 0x101, b"US", struct.pack("<H", 16)),
        (0x28, 0x102, b"US", struct.pack("<H", 15)),
        (0x28, 0x103, b"US", b"\0\0"),
    ]
    return b"".join(_element(*tag) for tag in tags)


def _dicom_bomb(place: Path, folder: Path, rng: random.Random) -> Words:
    size = 3 << 30
    pixels = struct.pack("<HH", 0x7FE0, 0x10) + b"OW" + struct.pack("<2xI", size)
    body = _deflated([(_dicom_tags(512, 512, 1) + pixels, 1), (bytes(BLOCK), size // BLOCK)])
    return _volumes(folder, _dicom(body, b"1.2.840.10008.1.2.1.99"), "slice.dcm")


def _dicom_of_odd_size(place: Path, folder: Path, rng: random.Random) -> Words:
    rows, columns, frames = rng.choice([(65535, 65535, 1), (0, 512, 1), (512, 512, 10**9), (512, 512, -5), (4, 4, 2)])
    body = _dicom_tags(rows, columns, frames) + _element(0x7FE0, 0x10, b"OW", bytes(32))
    return _volumes(folder, _dicom(body, b"1.2.840.10008.1.2.1"), "slice.dcm")


def _dicom_of_many_frames(place: Path, folder: Path, rng: random.Random) -> Words:
    rows, columns, frames = rng.choice([(1, 1, 4 * 10**8), (2, 2, 10**8), (1, 1, 70_000)])
    body = _dicom_tags(rows, columns, frames) + _element(0x7FE0, 0x10, b"OW", bytes(32))
    return _volumes(folder, _dicom(body, b"1.2.840.10008.1.2.1"), "slice.dcm")


def _dicom_bomb_in_hiding(place: Path, folder: Path, rng: random.Random) -> Words:
    """Its header is long, and says another length of itself than it has."""
    size = 3 << 30
    pixels = struct.pack("<HH", 0x7FE0, 0x10) + b"OW" + struct.pack("<2xI", size)
    body = _deflated([(_dicom_tags(512, 512, 1) + pixels, 1), (bytes(BLOCK), size // BLOCK)])
    filling = _element(2, 1, b"OB", bytes(rng.choice((2, 3 << 20))))
    meta = filling + _element(2, 0x10, b"UI", b"1.2.840.10008.1.2.1.99")
    length = _element(2, 0, b"UL", struct.pack("<I", rng.choice((0, 12, len(meta) + 9)))) if rng.random() < 0.7 else b""
    return _volumes(folder, bytes(128) + b"DICM" + length + meta + body, "slice.dcm")


def _dicom_of_runs(place: Path, folder: Path, rng: random.Random) -> Words:
    """Runs of equal values that a few bytes stand for, many frames of them."""
    rows = columns = 8000
    plane = rows * columns
    segment = (b"\x81\x00" * (plane // 128 + 1))[: 2 * (plane // 128 + 1)]
    header = struct.pack("<16I", 2, 64, 64 + len(segment), *[0] * 13)
    frame = header + segment + segment
    items = struct.pack("<HHI", 0xFFFE, 0xE000, 0)
    for _ in range(8):
        items += struct.pack("<HHI", 0xFFFE, 0xE000, len(frame)) + frame
    body = _dicom_tags(rows, columns, 8) + struct.pack("<HH", 0x7FE0, 0x10) + b"OB" + struct.pack("<2xI", 0xFFFFFFFF)
    body += items + struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    return _volumes(folder, _dicom(body, b"1.2.840.10008.1.2.5"), "slice.dcm")


def _dicom_of_deep_sequences(place: Path, folder: Path, rng: random.Random) -> Words:
    begin = struct.pack("<HH2s2xI", 0x40, 0x275, b"SQ", 0xFFFFFFFF) + struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)
    body = begin * 20_000 + _dicom_tags(16, 16, 1) + _element(0x7FE0, 0x10, b"OW", bytes(512))
    return _volumes(folder, _dicom(body, b"1.2.840.10008.1.2.1"), "slice.dcm")


def _nifti_with_notes(place: Path, folder: Path, rng: random.Random) -> Words:
    """What lies between header and values is enormous, without end, or many million things."""
    header = bytearray(_nifti((8, 8, 8)))
    size, offset = rng.choice([(2**31 - 16, 352.0), (-1, 1e9), (8, 1e30), (16, 3e9), (0, 1e9), (2**31 - 16, 0.0)])
    struct.pack_into("<f", header, 108, offset)
    header[348] = 1
    note = struct.pack("<ii", size, 6)
    if size in (8, 16):
        block = gzip.compress(note.ljust(size, b"\0") * (BLOCK // size), 9)
        return _volumes(folder, gzip.compress(bytes(header)) + block * 200, "scan.nii.gz")
    return _volumes(folder, _gzip_bomb(bytes(header) + note, 3 << 30), "scan.nii.gz")


# ------------------------------------------------------------------------------------------------------------- tables


def _parquet(
    place: Path, folder: Path, rng: random.Random, columns: Callable[[], dict[str, Any]], times: int = 1
) -> Words:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(columns())
    with pyarrow.parquet.ParquetWriter(folder / "odd.parquet", table.schema) as writer:
        for _ in range(times):
            writer.write_table(table)
    return [
        "fit",
        folder / "odd.parquet",
        "--label",
        "label",
        "--prior",
        "0.5",
        "--out",
        folder / "out",
        "--quiet",
        "--method",
        "nnpu",
        *QUICK[:-5],
        "--set",
        "engine.threads=1",
    ]


def _long_words(place: Path, folder: Path, rng: random.Random) -> Words:
    """One long word, or ones that begin alike, many times: the file says it once."""
    import pyarrow
    import pyarrow.parquet

    long, rows = "x" * rng.choice((100_000, 1_000_000)), 10_000
    coded = rng.choice(("RLE_DICTIONARY", "DELTA_BYTE_ARRAY"))
    words = pyarrow.array([long + ("" if coded == "RLE_DICTIONARY" else str(row)) for row in range(20)])
    few = pyarrow.table({"a": words, "label": _labels(20)})
    more = {"use_dictionary": ["a"]} if coded == "RLE_DICTIONARY" else {"column_encoding": {"a": coded}}
    more = {"use_dictionary": False, **more, "compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    with pyarrow.parquet.ParquetWriter(folder / "odd.parquet", few.schema, **more) as writer:
        for _ in range(rows // 2000):
            writer.write_table(pyarrow.concat_tables([few] * 100), row_group_size=2000)
    return ["fit", folder / "odd.parquet", "--label", "label", "--prior", "0.5", "--out", folder / "out", "--quiet"]


def _labels(rows: int) -> list[int]:
    return [int(row % 4 == 0) for row in range(rows)]


def _column(kind: str, value: Any, rows: int = 40) -> dict[str, Any]:
    import pyarrow

    kinds = {
        "ns": pyarrow.timestamp("ns"),
        "duration": pyarrow.duration("ns"),
        "us": pyarrow.timestamp("us"),
        "s": pyarrow.timestamp("s"),
        "date": pyarrow.date64(),
        "time": pyarrow.time64("ns"),
        "decimal": pyarrow.decimal128(38, 0),
        "map": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
        "struct": pyarrow.struct([("a", pyarrow.int64())]),
        "binary": pyarrow.binary(),
        "int64": pyarrow.int64(),
        "float": pyarrow.float64(),
    }
    odd = pyarrow.array([value] * rows, kinds[kind]) if not isinstance(value, pyarrow.Array) else value
    return {"odd": odd, "a": [float(row % 7) for row in range(rows)], "label": _labels(rows)}


def _csv(place: Path, folder: Path, rng: random.Random, content: bytes, label: str = "label") -> Words:
    (folder / "odd.csv").write_bytes(content)
    if rng.random() < 0.3:
        return ["predict", place / "table" / "run", folder / "odd.csv"]
    return [
        "fit",
        folder / "odd.csv",
        "--label",
        label,
        "--prior",
        "0.5",
        "--out",
        folder / "out",
        "--quiet",
        "--method",
        "nnpu",
        "--set",
        "base.epochs=1",
    ]


def _line_without_end(place: Path, folder: Path, rng: random.Random) -> Words:
    with (folder / "odd.csv").open("wb") as file:
        file.write(b"a,b,label\n1,2,")
        for _ in range(1024):
            file.write(b"7" * (1 << 20))
    return ["fit", folder / "odd.csv", "--label", "label", "--prior", "0.5", "--out", folder / "out", "--quiet"]


def _special_table(place: Path, folder: Path, rng: random.Random, lay: Callable[[Path], object], ending: str) -> Words:
    path = folder / f"odd.{ending}"
    lay(path)
    if ending == "toml":
        return ["fit", place / "tiny.npz", "--config", path, "--out", folder / "out", *QUICK]
    if ending in ("pth", "safetensors"):
        sides = ["--positives", place / "pictures/p", "--unlabelled", place / "pictures/u"]
        return ["fit", *sides, "--prior", "0.4", "--weights", path, "--out", folder / "out", *QUICK]
    if rng.random() < 0.5:
        return ["predict", place / ("network" if ending.startswith("np") else "table") / "run", path]
    quick = ["--method", "nnpu", "--set", "base.epochs=1", "--set", "engine.threads=1", "--quiet"]
    return ["fit", path, "--label", "label", "--prior", "0.5", "--out", folder / "out", *quick]


# ------------------------------------------------------------------------------------------------- settings and names


def _settings(place: Path, folder: Path, rng: random.Random, setting: str) -> Words:
    return ["fit", place / "tiny.npz", "--prior", "0.5", "--out", folder / "out", "--quiet", "--set", setting]


def _config(place: Path, folder: Path, rng: random.Random, content: bytes) -> Words:
    (folder / "odd.toml").write_bytes(content)
    return [
        "fit",
        place / "tiny.npz",
        "--prior",
        "0.5",
        "--config",
        folder / "odd.toml",
        "--out",
        folder / "out",
        "--quiet",
    ]


_KINDS = (
    "png",
    "jpg",
    "tif",
    "webp",
    "nii",
    "nii.gz",
    "dcm",
    "parquet",
    "npy",
    "npz",
    "csv",
    "toml",
    "pth",
    "safetensors",
)
NAMES = ["=1+1", "+cmd", "@SUM(A1)", "-2+3", "a\rb", "a\nb", "a\x1b[31mred", "a\tb", "\u202egnp", "a,b", 'a"b', "'=x"]


def _named_images(place: Path, folder: Path, rng: random.Random) -> Words:
    from PIL import Image

    for number, name in enumerate(NAMES):
        pixels = np.full((8, 8, 3), 20 * number, np.uint8)
        (folder / "new").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / "new" / f"{name}.png")
    (folder / "new" / "\x1b]0;title\x07.png").write_bytes(b"no image")
    return ["predict", place / "images" / "run", folder / "new", "--out", folder / "said.csv"]


def _named_rows(place: Path, folder: Path, rng: random.Random) -> Words:
    np.savez(folder / "new.npz", X=np.zeros((len(NAMES), 3)), names=np.array(NAMES))
    return ["predict", place / "network" / "run", folder / "new.npz", "--out", folder / "said.csv"]


def _no_formula(ended: Ended, folder: Path) -> str | None:
    if ended.code != 0:
        return f"was refused: {ended.err[-200:]}"
    with (folder / "said.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    if len(lines) != len(NAMES):
        return f"has {len(lines)} lines for {len(NAMES)} rows"
    bad = [
        line["name"]
        for line in lines
        if line["name"][:1] in ("=", "+", "@", "\t", "\r") or line["name"].startswith("-2+")
    ]
    return f"has a formula: {bad[0]!r}" if bad else None


def _pickle(path: Path) -> None:
    import pickle

    class Harm:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, (f"touch {path.parent}/executed",)

    path.write_bytes(pickle.dumps(Harm()))


def _not_executed(ended: Ended, folder: Path) -> str | None:
    return "executed code" if (folder / "executed").exists() else None


def _bomb_of_weights(path: Path) -> None:
    """An archive as torch writes it, but compressed: 4 GB of zeros."""
    import torch

    torch.save({"conv1.weight": torch.zeros(4)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as file:
                for block in [bytes(BLOCK)] * 160 if name.endswith("data/0") else [content]:
                    file.write(block)


def _endless_channels(path: Path) -> None:
    """A first layer of a billion channels, each of which is the same number."""
    import torch

    torch.save({"conv1.weight": torch.zeros(1).expand(64, 10**9, 7, 7)}, path)


def _labels_file(place: Path, folder: Path, rng: random.Random, lay: Callable[[Path], object]) -> Words:
    lay(folder / "labels.csv")
    images = ["fit", "--unlabelled", place / "pictures/u", "--labels", folder / "labels.csv", "--prior", "0.4"]
    return [*images, "--features", "trained", "--out", folder / "out", *QUICK]


def _long_line(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(1024):
            file.write(b"7" * (1 << 20))


def _damaged(place: Path, folder: Path, rng: random.Random, kind: str) -> Words:
    """A data file of the user's in which something is not as it was."""

    def harmed(content: bytes) -> bytes:
        return rng.choice([*ALL.values()])(content, rng)

    if kind in ("png", "jpg", "tif", "webp"):
        from io import BytesIO

        from PIL import Image

        (folder / "new").mkdir()
        for number, path in enumerate(sorted((place / "pictures" / "u").iterdir())[:12]):
            file = BytesIO()
            Image.open(path).save(file, {"jpg": "jpeg", "tif": "tiff"}.get(kind, kind))
            content = file.getvalue()
            (folder / "new" / f"{number}.{kind}").write_bytes(content if number else harmed(content))
        return ["predict", place / "images" / "run", folder / "new", "--out", folder / "said.csv"]
    if kind in ("nii", "nii.gz"):
        content = _nifti((8, 8, 6)) + rng.randbytes(8 * 8 * 6 * 8)
        return _volumes(folder, harmed(gzip.compress(content) if kind == "nii.gz" else content), f"scan.{kind}")
    if kind == "dcm":
        body = _dicom_tags(16, 16, 1) + _element(0x7FE0, 0x10, b"OW", rng.randbytes(512))
        return _volumes(folder, harmed(_dicom(body, b"1.2.840.10008.1.2.1")), "slice.dcm")
    path = folder / f"odd.{kind}"
    if kind == "parquet":
        import pyarrow.csv
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.csv.read_csv(place / "table.csv"), path)
    elif kind == "npy":
        np.save(path, np.load(place / "new.npz")["X"])
    elif kind in ("safetensors", "pth"):
        import torch
        from safetensors.torch import save_file

        tensors = {"conv1.weight": torch.randn(64, 3, 7, 7), "bn1.weight": torch.ones(64)}
        torch.save(tensors, path) if kind == "pth" else save_file(tensors, path)
    elif kind == "toml":
        path.write_text('rounds = 1\nmethod = "nnpu"\n[base]\nepochs = 1\nlearning_rate = 0.001\n')
    else:
        shutil.copy(place / ("table.csv" if kind == "csv" else "new.npz"), path)
    path.write_bytes(harmed(path.read_bytes()))
    return _special_table(place, folder, rng, lambda _: None, kind)


def _safetensors_that_lies(path: Path) -> None:
    header = json.dumps({"conv1.weight": {"dtype": "F32", "shape": [2**40, 64], "data_offsets": [0, 2**48]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))


def _folder_of_traps(place: Path, folder: Path, rng: random.Random) -> Words:
    for side in ("p", "u"):
        (folder / side).mkdir()
        os.mkfifo(folder / side / "a.png")
        (folder / side / "b.png").symlink_to("/dev/zero")
        (folder / side / "c.png").symlink_to("c.png")
        (folder / side / "d").symlink_to("..")
        deep = folder / side
        for _ in range(60):
            deep = deep / "deep"
            deep.mkdir()
    return _fit_images(folder)


def cases() -> list[Case]:
    """All of them."""
    import pyarrow

    made = [
        *(
            Case(f"{name} is {what}", partial(_in_place_of, name=name, lay=lay))
            for name in _READ_BY
            for what, lay in INSTEAD.items()
        ),
        Case("wrong types in result.json", _wrong_result, refused=False),
        Case("wrong types in request.json", _wrong_request, refused=False),
    ]
    shapes: list[Any] = [[4000, 4000, 3], [2**40], [10**9, 3], "x", [-1], [0], [], [1.5], None, [[3]], [3, 3, 3, 3, 3]]
    for shape in shapes:
        given = {
            "preprocessing": {
                "kind": "images" if isinstance(shape, list) and len(shape) == 3 else "vectors",
                "shape": shape,
                "offset": 0.0,
                "scale": 1.0,
                "mean": [0.0] * 3,
                "std": [1.0] * 3,
            }
        }
        made.append(Case(f"model of shape {shape}", partial(_forged, change=given)))
    for side in (4000, 60_000, 10**9):
        of_images = {
            "preprocessing": {
                **{"kind": "images", "shape": [side, side, 3], "offset": 0.0, "scale": 1.0},
                **{"mean": [0.5] * 3, "std": [0.2] * 3},
            },
            "inputs": {"kind": "images", "height": side, "width": side, "channels": 3, "depth": 8},
        }
        made.append(
            Case(f"a model of images of {side} pixels a side", partial(_forged, change=of_images, kind="images"))
        )
    changes: list[dict[str, Any]] = [
        {"inputs": "x"},
        {"inputs": {"kind": "table"}},
        {"inputs": {"kind": "table", "columns": 3}},
    ]
    changes += [{"network": name} for name in ("learner", "nothing", "", 3, "resnet18")]
    changes += [{"threshold": one} for one in (None, {"final": "x", "base": 0}, {"final": 1e400, "base": 0}, {})]
    changes += [{"calibration": one} for one in ("x", {}, {"curve": 3}, [1])]
    changes += [
        {"config": one} for one in ({"rounds": 2**63}, {"members": 10**8}, {"x": 1}, [], {"engine": {"threads": 10**5}})
    ]
    changes += [{"classes": one} for one in ([], [1], "ab", [[1], [2]], None)] + [
        {"prior": "x"},
        {"scenario": 3},
        {"frozen": {}},
        {"frozen": "x"},
    ]
    made += [Case(f"model says {json.dumps(one)[:50]}", partial(_forged, change=one)) for one in changes]
    specs: list[Any] = [
        {"kind": "trees", "columns": 3, "nodes": 10**8, "trees": 5, "depth": 500, "shares": True, "rounded": True},
        {"kind": "x"},
        {},
        None,
        "x",
    ]
    specs += [
        {"kind": "average", "members": [{"kind": "average", "members": []}] * 60},
        {"kind": "kernel", "columns": 10**7, "landmarks": 10**8},
    ]
    made += [
        Case(
            f"learner {str(one)[:40]}", partial(_forged, change={"learners": {"final": one, "base": one}}, kind="table")
        )
        for one in specs
    ]
    made += [
        Case("NaN weights", partial(_tensors, change=partial(_no_numbers, np.nan))),
        Case("infinite weights", partial(_tensors, change=partial(_no_numbers, np.inf))),
        Case("20,000 members", partial(_tensors, change=partial(_many_members, 20_000))),
        Case("a lacking tensor", partial(_tensors, change=_lacking)),
        Case("weights of whole numbers", partial(_tensors, change=partial(_other_type, "int64")), refused=False),
        Case("weights of 16 bits", partial(_tensors, change=partial(_other_type, "float16")), refused=False),
        Case("an .npz of 4 GB", _npz_bomb),
        Case("an .npz that lies", _npz_that_lies, refused=False),
        *(Case(f".npy {described[:60]}", partial(_npy, described=described)) for described in _NPY),
        Case("a PNG of 1 x 88 million pixels", partial(_png_bomb, width=1, height=88_000_000)),
        Case("a PNG of 80 million x 1 pixels", partial(_png_bomb, width=80_000_000, height=1)),
        Case(
            "a PNG of 9,000 x 9,000 pixels and 16 bits",
            partial(_png_bomb, width=9000, height=9000, bits=16, kind=6),
            refused=False,
        ),
        Case("a PNG of 2 billion pixels", partial(_png_bomb, width=2**30, height=2)),
        Case("a JPEG of 65,500 pixels a side", _jpeg_of_enormous_sides),
        Case("a TIFF of 60,000 pixels a side", _tiff_of_enormous_sides),
        Case("a .nii.gz of 3.2 GB", _nifti_bomb),
        *(Case(f"NIfTI of an odd shape {number}", _nifti_of_odd_shape) for number in range(4)),
        Case("a deflated DICOM of 3 GB", _dicom_bomb),
        *(Case(f"DICOM of an odd size {number}", _dicom_of_odd_size, refused=False) for number in range(4)),
        Case("traps instead of images", _folder_of_traps),
        *(Case(f"DICOM of many frames {number}", _dicom_of_many_frames) for number in range(2)),
        *(Case(f"a deflated DICOM in hiding {number}", _dicom_bomb_in_hiding) for number in range(3)),
        Case("a DICOM of runs", _dicom_of_runs),
        Case("a DICOM of deep sequences", _dicom_of_deep_sequences, refused=False),
        *(Case(f"NIfTI with notes {number}", _nifti_with_notes, refused=False) for number in range(4)),
        *(
            Case(
                f"a PNG of 8,100 x 8,100 pixels, {bits} bits, kind {kind}",
                partial(_png_bomb, width=8100, height=8100, bits=bits, kind=kind),
                refused=False,
            )
            for bits, kind in ((8, 0), (16, 0), (8, 2), (16, 2), (8, 6), (16, 6))
        ),
    ]
    many = {"a": np.zeros(1_000_000), "b": np.zeros(1_000_000), "label": (np.arange(1_000_000) % 2).astype(np.int8)}
    made.append(Case("Parquet of 60 million rows", partial(_parquet, columns=lambda: many, times=60)))
    odd: list[tuple[str, Any]] = [
        ("ns", 1_600_000_000_000_000_001),
        ("duration", 123_456_789_001),
        ("us", 3 * 10**17),
        ("s", 10**13),
        ("date", 10**17),
    ]
    odd += [
        ("time", 12_345_678_901),
        ("decimal", 10**30),
        ("map", [("a", 1)]),
        ("struct", {"a": 1}),
        ("binary", b"\xff\xfe"),
        ("int64", 2**63 - 1),
    ]
    odd += [("float", float("inf")), ("float", float("nan")), ("ns", -(2**63) + 1), ("s", -(10**13)), ("float", 1e308)]
    made += [
        Case(
            f"Parquet {kind} {str(value)[:20]}", partial(_parquet, columns=partial(_column, kind, value)), refused=False
        )
        for kind, value in odd
    ]
    names: list[dict[str, Any]] = [
        {"label": _labels(40)},
        {"": [1.0] * 40, "label": _labels(40)},
        {"a\x1b[31m\r": [1.0, 2.0] * 20, "label": _labels(40)},
        {"label": pyarrow.nulls(40)},
    ]
    made += [
        Case(f"Parquet with columns {number}", partial(_parquet, columns=lambda one=one: one), refused=False)
        for number, one in enumerate(names)
    ]
    rows = b"".join(b"%d,%d,%d\n" % (row, row % 7, row % 4 == 0) for row in range(40))
    texts = {
        "invalid UTF-8": b"a,b,label\n\xff\xfe,2,1\n" + rows,
        "NUL": b"a,b,label\n1,\x00,1\n" + rows,
        "a cell of 300 KB": b"a,b,label\n1," + b"x" * 300_000 + b",1\n" + rows,
        "an open quote": b'a,b,label\n1,"' + rows * 2000,
        "100,000 columns": b",".join(b"c%d" % at for at in range(100_000)) + b",label\n" + b"1," * 100_000 + b"1\n",
        "5,000 digits": b"a,b,label\n" + b"9" * 5000 + b",1,1\n" + rows,
        "infinite": b"a,b,label\n1e999,1,1\nnan,-inf,0\n" + rows,
        "UTF-16": ("a,b,label\n" + rows.decode()).encode("utf-16"),
        "one line": b"a,b,label",
        "nothing": b"",
        "control characters in the heading": b"a\x1b[31m,b\x07,label\n" + rows,
        "the same column twice": b"a,a,label\n" + rows,
        "uneven": b"a,b,label\n1,2\n" + rows,
        "carriage returns": b"a,b,label\r" + rows.replace(b"\n", b"\r"),
        "a bell in a word": b"a,b,label\n" + rows.replace(b",1\n", b",\x07ill\n").replace(b",0\n", b",well\n"),
    }
    made += [Case(f"CSV: {name}", partial(_csv, content=text), refused=False) for name, text in texts.items()]
    made.append(Case("CSV: a line of 1 GB", _line_without_end))
    endings = ("csv", "parquet", "npz", "npy", "toml", "safetensors", "pth")
    made += [
        Case(f".{ending} is {what}", partial(_special_table, lay=lay, ending=ending))
        for ending in endings
        for what, lay in IN_PLACE.items()
    ]
    made += [
        Case("weights that execute code", partial(_special_table, lay=_pickle, ending="pth"), judge=_not_executed),
        Case("weights that lie", partial(_special_table, lay=_safetensors_that_lies, ending="safetensors")),
        Case("weights that are a bomb", partial(_special_table, lay=_bomb_of_weights, ending="pth")),
        Case("weights of a billion channels", partial(_special_table, lay=_endless_channels, ending="pth")),
        Case("Parquet with long words", _long_words),
        *(Case(f"labels are {what}", partial(_labels_file, lay=lay)) for what, lay in INSTEAD.items() if what != "NaN"),
        Case("labels are a line of 1 GB", partial(_labels_file, lay=_long_line)),
        *(
            Case(f"damaged .{kind} {number}", partial(_damaged, kind=kind), False)
            for kind in _KINDS
            for number in range(4)
        ),
        Case("names of files", _named_images, refused=False, judge=_no_formula),
        Case("names of rows", _named_rows, refused=False, judge=_no_formula),
    ]
    settings = [
        "engine.threads=100000",
        "members=100000000",
        "rounds=9223372036854775808",
        "base.epochs=1" + "0" * 400,
        "base.batch_size=" + "9" * 5000,
    ]
    settings += [
        ".".join(["a"] * 20_000) + "=1",
        "base.epochs=" + "[" * 20_000,
        "puupl.members=99999999",
        "engine.pieces=99999999999",
        "x" * 200_000 + "=1",
    ]
    made += [Case(f"--set {one[:40]}", partial(_settings, setting=one)) for one in settings]
    configs = {
        "a key of 20,000 parts": b".".join([b"a"] * 20_000) + b" = 1",
        "a heading of 20,000 parts": b"[" + b".".join([b"a"] * 20_000) + b"]\nx = 1",
        "deep lists": b"a = " + b"[" * 20_000,
        "deep tables": b"a = " + b"{a = " * 5_000,
        "5,000 digits": b"rounds = " + b"9" * 5000,
        "invalid UTF-8": b"rounds = \xff\xfe",
        "NUL": b"rounds = 1\x00",
        "2 to the power of 63": b"rounds = 9223372036854775808",
        "NaN": b"split.tau = nan",
        "infinite": b"split.tau = inf",
        "100 MB": b"# " + b"x" * (100 << 20),
        "a date": b"rounds = 1979-05-27",
        "dates": b"[base]\nepochs = 1979-05-27T07:32:00Z",
    }
    made += [Case(f"--config: {name}", partial(_config, content=text)) for name, text in configs.items()]
    return made
