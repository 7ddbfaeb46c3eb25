"""Showing how training goes: bars on a terminal, a few plain lines elsewhere, nothing when asked to be quiet."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from splitpu.cli.display import note_line
from splitpu.engine.stage import EpochRecord, Observer, Stage, StageOutcome
from splitpu.types import Watch
from splitpu.utils.text import printable

_LINES_A_STAGE = 10
_LONGEST_SILENCE = 5.0  # seconds, to which those of one step are added
_REDRAW_SECONDS = 0.1  # a step may take only milliseconds


class ProgressDisplay(Observer):
    """Shows nothing but notes."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def __reduce__(self) -> tuple[type["ProgressDisplay"], tuple[()]]:
        return ProgressDisplay, ()  # in another process there is nobody who watches

    def note(self, *texts: str) -> None:
        """Say warnings in one line each, once: several runs in one command may have the same to say."""
        for text in (text for text in texts if text and text not in self._noted):
            self._noted.add(text)
            self._print(note_line(text))

    def _print(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Say what is being done; only to those who watch."""

    def watch(self, what: str, done: int, of: int) -> None:
        """Show how far something countable has got before training; only to those who watch."""

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Lend `watch`, and leave the terminal as it was whatever happens."""
        yield self.watch

    def __enter__(self) -> "ProgressDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        return None


def choose_display(*, quiet: bool) -> ProgressDisplay:
    """What suits the place that standard error goes to."""
    if quiet:
        return ProgressDisplay()
    return BarDisplay() if sys.stderr.isatty() else LineDisplay()


class LineDisplay(ProgressDisplay):
    """Ten lines a stage and its last one, for log files, and a sign of life wherever these are far apart."""

    def __init__(self) -> None:
        super().__init__()
        self._replayed, self._shown, self._last = 0, 0, time.monotonic()
        self._counting = ("", 0.0, 0)  # what is counted, since when, and from which number on

    def _print(self, text: str) -> None:
        super()._print(text)
        self._last = time.monotonic()

    say = _print

    def _is_late(self) -> bool:
        return time.monotonic() - self._last > _LONGEST_SILENCE

    def watch(self, what: str, done: int, of: int) -> None:
        if self._counting[0] != what:
            self._counting = (what, time.monotonic(), done)
        if done == of or self._is_late():
            _, since, first = self._counting
            left = (time.monotonic() - since) / max(1, done - first) * (of - done)
            ending = f" ({left:.0f} s left)" if left >= 1 and done > first else ""
            self.say(f"{what}: {done:,} of {of:,}{ending}")

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        if self._is_late():
            self.say(f"{stage.name}: epoch {epoch + 1}/{stage.epochs}, step {step + 1} of {steps}")

    def stage_started(self, stage: Stage, done: int) -> None:
        self._replayed, self._shown = done, 0
        if done:
            self.say(f"{stage.name}: {done} of {stage.epochs} epochs restored")

    def epoch_done(self, record: EpochRecord) -> None:
        tenth = -(-record.epochs // _LINES_A_STAGE)
        if record.epoch > self._replayed and (record.epoch % tenth == 0 or record.epoch == record.epochs):
            self._line(record)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        if outcome.history and outcome.history[-1].epoch > max(self._shown, self._replayed):
            self._line(outcome.history[-1])

    def _line(self, record: EpochRecord) -> None:
        self._shown = record.epoch
        left = record.seconds * (record.epochs - record.epoch)
        ending = f"  ({left:.0f} s left)" if left >= 1 else ""
        self.say(f"{record.stage}: epoch {record.epoch}/{record.epochs}  {terms_in_words(record)}{ending}")


class BarDisplay(ProgressDisplay):
    """One bar a stage, and under them the terms of the last epoch."""

    def __init__(self) -> None:
        super().__init__()
        console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}", markup=False),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            expand=True,
        )
        self._terms = Text("", no_wrap=True, overflow="ellipsis", style="dim")
        # The terms come and go with the bars; notes are printed above them.
        self._live = Live(Group(self._bars, self._terms), console=console, refresh_per_second=8)
        self._task = TaskID(0)  # of the stage that runs
        self._drawn = 0.0

    def __enter__(self) -> "BarDisplay":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.update(self._bars)
        self._live.stop()

    def _print(self, text: str) -> None:
        self._live.console.print(printable(text), markup=False, soft_wrap=True)

    say = _print

    def watch(self, what: str, done: int, of: int) -> None:
        self._terms.plain = f"{what}: {done:,} of {of:,}"

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        counting = Progress(console=self._live.console, transient=True)
        task = counting.add_task("")

        def watch(what: str, done: int, of: int) -> None:
            counting.start()
            counting.update(task, description=what, completed=done, total=of, visible=done < of)

        try:
            yield watch
        finally:
            counting.stop()  # which also brings the cursor back

    def stage_started(self, stage: Stage, done: int) -> None:
        self._task = self._bars.add_task(stage.name, total=stage.epochs, epoch=done, epochs=stage.epochs)
        self._bars.update(self._task, completed=done)

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        now = time.monotonic()
        if now - self._drawn > _REDRAW_SECONDS:
            self._drawn = now
            self._bars.update(self._task, completed=epoch + (step + 1) / steps)

    def epoch_done(self, record: EpochRecord) -> None:
        self._bars.update(self._task, completed=record.epoch, epoch=record.epoch)
        self._terms.plain = f"{record.stage}  {terms_in_words(record)}"

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        done = len(outcome.history)
        self._bars.update(self._task, total=done, completed=done, epoch=done)


def terms_in_words(record: EpochRecord) -> str:
    """Every term of an epoch."""
    agreement = {} if record.agreement is None else {"agreement": record.agreement}
    return "  ".join(f"{name} {value:.3g}" for name, value in {**record.terms, **agreement}.items())
