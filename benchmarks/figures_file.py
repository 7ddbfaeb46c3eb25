"""Figures that are measured once: written the moment they are known, shown one a line."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import in_words, machine

from splitpu.utils.files import write_text


class Figures:
    """The JSON file: what is in it is not measured again."""

    def __init__(self, path: Path | None) -> None:
        say(in_words())
        self.path = path
        self.known: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}

    def once(self, key: str, measure: Callable[[], Any]) -> Any:
        """The figure of that name, measured if need be, written at once."""
        if key not in self.known:
            say(f"... {key}")
            started = time.perf_counter()
            found = measure()
            say(f"    {time.perf_counter() - started:.1f} s")
            self.put(key, found)
        return self.known[key]

    def put(self, key: str, found: Any) -> Any:
        """Write a figure down."""
        self.known[key] = found
        if self.path is not None:
            write_text(self.path, json.dumps({**self.known, "machine": machine()}, indent=2))
        return found


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def show(name: str, found: Any, depth: int = 0) -> None:
    """One figure a line."""
    if isinstance(found, dict):
        print(f"{'  ' * depth}{name}")
        for key, value in found.items():
            show(key, value, depth + 1)
    else:
        short = (
            [round(one, 4) for one in found] if isinstance(found, list) and found and type(found[0]) is float else found
        )
        print(f"{'  ' * depth}{name:<28} {f'{short:.5g}' if isinstance(short, float) else short}")
