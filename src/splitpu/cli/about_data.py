"""What there is to say about the data, said once and before anything long: who waits should know of a mistake."""

from collections.abc import Iterable

from splitpu.cli.progress import ProgressDisplay
from splitpu.listening import Note
from splitpu.runs.sources import LoadedData


def tell_of_data(draws: Iterable[LoadedData], display: ProgressDisplay) -> None:
    """Say once for all runs what there is to say about their data."""
    for warning in dict.fromkeys(warning for draw in draws for warning in draw.warnings):
        display.note(warning)


def all_but_of_data(note: Note, loaded: LoadedData) -> Note:
    """Pass on what a run says, but for what `tell_of_data` has said before it."""

    def passed_on(text: str) -> None:
        if text not in loaded.warnings:
            note(text)

    return passed_on
