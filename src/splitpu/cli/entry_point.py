"""From the words of the command line to an exit code: what a user did wrong is one sentence and code 2."""

import gc
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from cyclopts import CycloptsError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from splitpu.cli import let_go_of_output
from splitpu.cli.options import as_options
from splitpu.errors import NO_MEMORY, DiskFull, InputError, Interrupted, SplitPUError, about_memory
from splitpu.utils.files import in_a_command, means_no_room
from splitpu.utils.signals import started_together
from splitpu.utils.text import printable

_ours: list[bool] = []  # not empty once this process is known to be there for one command
WRONG_INPUT = 2
COMMANDS_WITH_TWO_SIDES = ("splitpu fit", "splitpu compare", "splitpu prior", "splitpu evaluate")
TRAINING_COMMANDS = ("splitpu fit", "splitpu compare")  # which take settings
WORDS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
OTHER_WORDS = {word: ours for ours, theirs in WORDS["other_programs"].items() for word in theirs}
IN_SEVERAL_PROCESSES = ("fit", "resume", "compare")  # the last says why it does not share its work among them


@contextmanager
def quick_start() -> Iterator[None]:
    """Import what is heavy inside the block.

    No garbage is collected there: importing torch makes hundreds of thousands of objects, none of them garbage, and
    none of them needs to be looked at again later."""
    if not _ours:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; anything unexpected is a bug and keeps its traceback."""
    if argv is None:
        _ours.append(True)
        _make_output_safe()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if started_together() > 1 and words and not words[0].startswith("-") and words[0] not in IN_SEVERAL_PROCESSES:
            # Every process that torchrun starts would do the whole work, and all would write the same files.
            raise InputError(f"splitpu {words[0]} works in one process: start it without torchrun.")
        from splitpu.cli.app import app

        code = app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        return _complain(_in_words(error))
    except RunStopped as stopped:
        print(printable(str(stopped)), file=sys.stderr)
        return stopped.code
    except SplitPUError as error:
        return _complain(str(error))
    except (MemoryError, RuntimeError, ImportError) as error:  # the last: of a library that no room is left for
        if not about_memory(error):
            raise
        return _complain(NO_MEMORY)
    except (BrokenPipeError, SystemExit) as left:
        if not isinstance(left, BrokenPipeError) and not isinstance(left.__context__, BrokenPipeError):
            raise  # rich leaves with a code of its own where the pipe is broken
        let_go_of_output()  # nobody reads it any more, as with `head`
        return 141  # a broken pipe
    except OSError as error:
        if error.filename is None:
            if refused := output_refused():
                return _complain(refused)
            raise
        return _complain(f"{error.filename} cannot be used: {error.strerror}")
    return code if isinstance(code, int) else 0


def _in_words(error: CycloptsError) -> str:
    """What is wrong with the words, and where to look the right ones up."""
    command = " ".join(["splitpu", *(error.command_chain or ())])
    if isinstance(error, UnknownCommandError):
        return _about_command((error.unused_tokens or [""])[0], command)
    sentence, training = str(error), command in TRAINING_COMMANDS
    if isinstance(error, UnusedCliTokensError):
        unused = error.unused_tokens or []
        words = " ".join(map(shlex.quote, unused))
        wrong = f"{words} {'is one word' if len(unused) == 1 else 'are words'} too many"
        if command in COMMANDS_WITH_TWO_SIDES and all(Path(word).is_dir() for word in unused):
            return f"{wrong}: give folders as --positives FOLDER --unlabelled FOLDER."  # other programs take two
        if training and all("=" in word for word in unused):
            return f"{wrong}: write --set before every single setting."
        return f"{wrong}: {command} --help says which options take which words."
    if isinstance(error, UnknownOptionError):
        option = error.token.keyword or error.token.value
        if option == "--resume":
            return "continue a run with: splitpu resume RUN"
        from splitpu.config.parse import VALUE_TYPES

        # Most options that are not there are settings, which have options only where they are needed every day.
        if training and (key := option.removeprefix("--").replace("-", "_")) in VALUE_TYPES:
            return f"{option} is a setting: give it as --set {key}=..."
        if "?" not in sentence:  # with one it names the option that was probably meant
            settings = ", and settings are given as --set base.epochs=20" if training else ""
            return f"{sentence} {command} --help lists the options{settings}."
    return sentence


def _about_command(word: str, command: str) -> str:
    """What was probably meant, or else all there are, in the order in which most people need them."""
    from splitpu.cli.app import app
    from splitpu.config.parse import nearest

    part = app if command == "splitpu" else app[command.removeprefix("splitpu ")]
    known = [name for name in part if not name.startswith("-")]
    if command == "splitpu reproduce" and not word.startswith("-") and word not in OTHER_WORDS:
        return f"{word} is not a command of {command}: run an experiment with splitpu reproduce run {word}."
    plain = word.removeprefix("--").lower()
    if meant := OTHER_WORDS.get(plain) or nearest(plain, known):
        return f"{word} is not a command; did you mean {command} {meant}?"
    return f"{word} is not a command of {command}; there are {', '.join(known)}."


def _make_output_safe() -> None:
    """Who closes standard output (`>&-`) wants to hear nothing, which is no reason to fail.

    Python has no stream there then, and the next file that is opened would take the place of the closed one. Names of
    files may hold letters that the terminal's encoding lacks: they are spelt out."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - while the process lives
        if isinstance(stream := getattr(sys, name), TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complain(sentence: str) -> int:
    print(f"splitpu: {printable(as_options(' '.join(sentence.split())))}", file=sys.stderr)
    return WRONG_INPUT


class RunStopped(Interrupted):
    """A signal, or the death of another process, ended the command; the message says how to go on."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def continue_with(run: Path) -> str:
    """How a run goes on."""
    return f"continue with: splitpu resume {in_a_command(run)}"


@contextmanager
def resumable(run: Path) -> Iterator[None]:
    """Inside the block there is a run that can be gone on with: the same command would be told that it is there."""
    try:
        yield
    except DiskFull as full:
        raise DiskFull(full.wrong, f"free some space and {continue_with(run)}") from full


def output_refused(advice: str = "") -> str:
    """Why nothing can be written to standard output, and the `advice` besides to run it again; nothing if it can."""
    try:
        print(flush=True)  # a large answer is not kept after it was refused, so that to flush alone proves nothing
    except OSError as error:
        let_go_of_output()
        wrong = "standard output could not be written"
        if means_no_room(error):
            return str(DiskFull(wrong, advice) if advice else DiskFull(wrong))
        return f"{wrong}: {error.strerror}{'; ' if advice else '.'}{advice}"
    return ""
