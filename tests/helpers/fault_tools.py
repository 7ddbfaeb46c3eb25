"""Writing what a forger would write: files whose checksums fit though what they say was changed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from splitpu.runs import folder as folders
from splitpu.runs.folder import Request
from splitpu.utils.reading import Guarded, sealed


def forge(path: Path, change: dict[str, Any] | Callable[[dict[str, Any]], Any]) -> None:
    """Change a sealed file, and seal it and what knows its checksum again."""
    found = Guarded(path).sealed()
    changed = change(found) if callable(change) else found | change
    path.write_text(json.dumps(sealed(changed or found), indent=2))
    if path.name == "request.json":
        config = path.with_name("config.toml")
        lines = config.read_text().splitlines()[:-1]
        config.write_text("\n".join([*lines, folders._bond(Request.read(path))]) + "\n")
    if path.name != "result.json":
        vouch(path.parent)


def vouch(run: Path) -> None:
    """Have the result of a run know the files beside it as they are."""
    result = run / "result.json"
    if result.exists():
        forge(
            result,
            lambda stored: {**stored, "files": {name: Guarded(run / name).checksum() for name in stored["files"]}},
        )
