"""The command line; imports torch only when a command needs it."""

from splitpu.cli.entry import main

__all__ = ["main"]
