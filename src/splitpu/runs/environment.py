"""On what a result was computed, so that a figure can be traced and repeated."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import splitpu

_PACKAGES = ("splitpu", "torch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Python and the packages that decide about the numbers."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def source_commit() -> str | None:
    """The commit of the checkout this package runs from, marked -dirty where files were changed; None if installed."""
    package = Path(splitpu.__file__).resolve().parent
    root = package.parent.parent
    if package != root / "src" / "splitpu" or not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
