"""What can happen to a file, by a seed: bits flip, ends are lost, types are swapped, files change places."""

import json
import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

_NUMBERS = [-1, 0, 1, 2**31, 2**63, -(2**63), 10**30, 1e308, -1e-300, 0.5]
_ODD = [None, True, False, "", "x", "\x00", "é\r\n=1+1", [], {}, [[]], [None], {"a": 1}, *_NUMBERS]
_RAW = [
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"[" * 3000,
    b'{"a":' * 2000,
    b"\xff\xfe",
    b"\x00",
    b"-0",
]


def flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def lose_beginning(content: bytes, rng: random.Random) -> bytes:
    return content[rng.randrange(len(content) + 1) :]


def empty(content: bytes, rng: random.Random) -> bytes:
    return b""


def garbage(content: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((1, 16, len(content), 4096)))


def zeros(content: bytes, rng: random.Random) -> bytes:
    """As a file system leaves it whose last block never reached the disk."""
    start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + bytes(end - start) + content[end:]


def overwrite(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    new = rng.randbytes(rng.choice((1, 4, 32, 512)))
    return content[:start] + new + content[start + len(new) :]


def insert(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.choice([*_RAW, rng.randbytes(8), b"\n", b"\r", b"\x1b[31m", b","]) + content[start:]


def duplicate(content: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:end] + content[start:end] + content[end:]


def cut_out(content: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + content[min(end, start + 4096) :]


def another_digit(content: bytes, rng: random.Random) -> bytes:
    found = [match.start() for match in re.finditer(rb"[0-9]", content[: 1 << 16])]
    if not found:
        return flip(content, rng)
    at = rng.choice(found)
    return content[:at] + str(rng.randrange(10)).encode() + content[at + 1 :]


def other_number(content: bytes, rng: random.Random) -> bytes:
    """A number written in the text becomes another one, or none at all."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", content[: 1 << 16]))
    if not found:
        return flip(content, rng)
    one = rng.choice(found)
    new = rng.choice([*_RAW, *(repr(number).encode() for number in _NUMBERS), b'"1"', b"null"])
    return content[: one.start()] + new + content[one.end() :]


def swap_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return flip(content, rng)
    one, other = rng.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def drop_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) > 1:
        del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def of_json(content: bytes, rng: random.Random) -> bytes:
    """A value somewhere in it becomes one of another type, is lost, or moves."""
    try:
        lines = content.splitlines()
        is_lines = len(lines) > 1 and lines[0].startswith(b"{") and lines[0].endswith(b"}")
        at = rng.randrange(len(lines)) if is_lines else 0
        found = json.loads(lines[at] if is_lines else content)
    except ValueError:
        return flip(content, rng)
    for _ in range(rng.choice((1, 1, 3))):
        found = _changed(found, rng)
    text = json.dumps(found).encode()
    if not is_lines:
        return text
    lines[at] = text
    return b"\n".join(lines) + b"\n"


def _changed(found: Any, rng: random.Random) -> Any:
    places: list[tuple[Any, Any]] = []

    def walk(one: Any) -> None:
        for key, value in one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ():
            places.append((one, key))
            walk(value)

    walk(found)
    if not places:
        return rng.choice(_ODD)
    parent, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        case 2:
            other, its = rng.choice(places)
            with_that = other[its] if (its in other if isinstance(other, dict) else its < len(other)) else None
            parent[key] = json.loads(json.dumps(with_that))
        case 3 if isinstance(parent[key], list):
            parent[key] = parent[key] * rng.choice((0, 2)) + [rng.choice(_ODD)]
        case _:
            parent[key] = rng.choice(_ODD)
    return found


def of_header(content: bytes, rng: random.Random) -> bytes:
    """The header of a safetensors or .npy file says something else: shapes, types, places; or what it was not given."""
    if content[:6] == b"\x93NUMPY":
        length = struct.unpack("<H", content[8:10])[0]
        header, rest = content[10 : 10 + length].decode("latin1"), content[10 + length :]
        shape = rng.choice(
            ["(-1,)", "(2, -5)", "(99999999999, 99999)", "(2**70,)", "()", "(1.5,)", "('a',)", "(0,)", "(2, 3, 4)"]
        )
        kind = rng.choice(["<f8", "|O", "<U9999999", "V", ">i4", "|V0", "f", "[('a', '<f8')]"])
        if rng.random() < 0.5:
            header = re.sub(r"\([^)]*\)", shape, header)
        else:
            header = re.sub(r"'descr': '[^']*'", f"'descr': {kind!r}", header)
        written = header.encode("latin1", "replace")
        return content[:8] + struct.pack("<H", len(written) & 0xFFFF) + written + rest
    if len(content) < 8 or struct.unpack("<Q", content[:8])[0] > len(content):
        return flip(content, rng)
    length = struct.unpack("<Q", content[:8])[0]
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError:
        return flip(content, rng)
    written = json.dumps(_changed(header, rng)).encode()
    claimed = rng.choice((len(written), len(written), len(written) + 8, 2**62, 0))
    return struct.pack("<Q", claimed) + written + content[8 + length :]


def other_line_ends(content: bytes, rng: random.Random) -> bytes:
    return content.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n")))


def other_encoding(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return b"\xef\xbb\xbf" + content
    return content.decode("latin1").encode("utf-16")


def append(content: bytes, rng: random.Random) -> bytes:
    return content + rng.choice((b"\n", b"\0", content, rng.randbytes(64), b"{}", bytes(1 << 20)))


ALL: dict[str, Mutation] = {
    one.__name__: one
    for one in (
        *(flip, truncate, lose_beginning, empty, garbage, zeros, overwrite, insert, duplicate, cut_out),
        *(another_digit, other_number, swap_lines, drop_line, of_json, of_json, of_header),
        *(other_line_ends, other_encoding, append),
    )
}
_TEXTS = (".json", ".jsonl", ".toml", ".csv")


# What may lie where a file should.
IN_PLACE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a circle of links": lambda path: path.symlink_to(path.name),
}


def mutate(path: Path, rng: random.Random, others: list[Path]) -> str:
    """Do one thing to a file, and say which; `others` are files of other runs that may take its place."""
    if rng.random() < 0.05:
        path.unlink()
        return "removed"
    if rng.random() < 0.02:
        path.unlink()
        name = rng.choice([*IN_PLACE])
        IN_PLACE[name](path)
        return f"made {name}"
    alike = [other for other in others if other.suffix == path.suffix]
    if alike and rng.random() < 0.08:
        other = rng.choice(alike)
        path.write_bytes(other.read_bytes())
        return f"replaced by {other}"
    names = list(ALL)
    if path.suffix in _TEXTS and rng.random() < 0.5:
        names = ["of_json", "other_number", "another_digit", "insert", "drop_line", "swap_lines"]
    elif path.suffix in (".safetensors", ".npy") and rng.random() < 0.5:
        names = ["of_header", "flip", "zeros"]
    name = rng.choice(names)
    path.write_bytes(ALL[name](path.read_bytes(), rng))
    return name
