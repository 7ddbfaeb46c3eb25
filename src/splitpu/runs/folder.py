"""The run folder: which file is where, whether the run is finished, and who may write to it; what was asked for, in a
form by which the same can be asked for again; and on what a result was computed, so that a figure can be traced."""

import dataclasses
import errno
import json
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, count
from os.path import lexists
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np

import splitpu
from splitpu.config.parse import config_to_dict, config_to_toml, read_config
from splitpu.config.schema import Config
from splitpu.data.public.download import Progress
from splitpu.data.sources import LoadedData, RowForm, Source, check_still_there, source_from_dict
from splitpu.errors import DiskError, InputError
from splitpu.prior.estimate import TO_BE_ESTIMATED, ResolvedPrior
from splitpu.types import Floats, Watch
from splitpu.utils.files import (
    Taken,
    check_free,
    check_place,
    disk_errors_in_words,
    drafted,
    full_disk_named_as,
    held_alone,
    in_a_command,
    remove_leftovers,
    write_text,
)
from splitpu.utils.reading import Guarded, checked, digest_of, write_sealed

RUNS = Path("runs")
SEEDS_LIST = "seeds.json"  # in a folder that holds one run a seed
MODEL_FILES = ("model.json", "model.safetensors")
COMPARISON = "comparison.json"  # in a folder that holds the runs of several methods
_BELONGS = "# of the run in this folder: "
_RESULT: dict[str, Any] = {  # what is asked of `result.json` by whoever reads it
    **dict.fromkeys(("rows", "labelled", "unlabelled", "test_rows"), int),
    **dict.fromkeys(("method", "network", "final", "scenario", "prior_source"), str),
    **dict.fromkeys(("warnings",), list[str]),
    "models": [{"model": str, "threshold": float, "positive_rate_unlabelled": float, "test": dict[str, Any] | None}],
    "rounds": [{"round": int, "easy": int, "hard": int, "agreement": float | None, "noise": dict[str, Any] | None}],
    "prior": float | None,
    "seconds_total": float,
    "files": dict[str, str],
}
_EPOCH: dict[str, Any] = {"stage": str, "epoch": int, "epochs": int}  # and of a line of `metrics.jsonl`
KEEPING_ROWS = "--set selection.held_out=0.2 --set selection.criterion=none"
NOT_JUDGED = (
    "no figures without known truth: the model was trained on all labelled rows, which would flatter it. Train with "
    f"{KEEPING_ROWS} to have rows kept out for them, or give rows whose truth is known with --test"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything a run depends on besides its configuration."""

    source: Source
    fingerprint: str = ""  # of the training data
    prior: float | None = None  # if the method does without
    preset: str = "default"
    backbone: str = "auto"
    seed: int = 0
    device: str = "auto"  # in a folder as chosen: a checkpoint is only good for the kind of device it was made on
    precision: Literal["fp32", "bf16"] = "fp32"  # as chosen, too
    form: str = ""  # a checksum of the data's columns, names and classes, and of the test rows
    settings: str = ""  # a checksum of the configuration beside it, by which it is known to be this run's, and whole
    keep_checkpoints: bool = False
    prior_source: str = "given"  # in words, or that it is to be estimated
    prior_estimate: dict[str, Any] | None = None  # what the prior rests on, if it was estimated
    doubts: list[str] = field(default_factory=list)  # told when the prior was settled
    weights: dict[str, Any] | None = None  # the file that the network starts from: path, checksum, what was loaded

    @property
    def prior_is_open(self) -> bool:
        """Whether the prior has yet to be estimated, which is the first stage of the run."""
        return self.prior_source == TO_BE_ESTIMATED

    def with_prior(self, found: ResolvedPrior) -> "Request":
        told: dict[str, Any] = {"prior_source": found.source, "prior_estimate": found.to_dict()}
        return dataclasses.replace(self, prior=found.value, **told, doubts=list(found.doubts))

    @property
    def prior_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of a prior that was estimated."""
        if self.prior_estimate is None:
            return None
        low, high = self.prior_estimate["interval"]
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "source": self.source.to_dict()}

    @classmethod
    def read(cls, path: Path) -> "Request":
        guarded = Guarded(path, "copy the run folder again, or start a new run with 'splitpu fit'")
        stored = guarded.sealed()
        with guarded.understood():
            for name, kind in get_type_hints(cls).items():
                checked(stored[name], dict[str, Any] if name == "source" else kind, name)
            request = cls(**{**stored, "source": source_from_dict(stored["source"])})
            checked(request.prior_interval, tuple[float, float] | None, "prior_estimate")
            return request


def _checksum(config: Config) -> str:
    return digest_of(json.loads(json.dumps(config_to_dict(config))))


def _bond(request: Request) -> str:
    """The last line of `config.toml`, by which a request with the same settings and another seed is told apart."""
    later = ("prior", "prior_source", "prior_estimate", "doubts")
    kept = {name: value for name, value in request.to_dict().items() if name not in later}
    return _BELONGS + digest_of(json.loads(json.dumps(kept)))


class RunFolder:
    """One run on disk. `request.json` makes a folder a run; `result.json`, written last, makes the run finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.request_file = path / "request.json"
        self.metrics = path / "metrics.jsonl"
        self.scores = path / "scores.csv"
        self.split = path / "split.csv"
        self.out_of_fold = path / "out_of_fold.npy"
        self.skipped = path / "skipped.csv"
        self.duplicates = path / "duplicates.csv"
        self.result = path / "result.json"
        self.report = path / "report.html"
        self.checkpoints = path / "checkpoints"
        self.lock_file = path / ".lock"

    @classmethod
    def find(cls, name: str | Path) -> "RunFolder":
        """The run at a path, or of that name inside `runs/`."""
        given = Path(name)
        path = given if given.exists() or given.is_absolute() else RUNS / given
        if not path.is_dir():
            raise InputError(f"there is no run folder {given}; 'splitpu fit' makes one and says where.")
        if (path / COMPARISON).exists():
            first = min(path.glob("*/seed*/"), default=path / "nnpu" / "seed0")
            others = f"name one of its runs, such as {first}, or continue with the command that started it."
            raise InputError(f"{path} holds a comparison: {others}")
        return cls(path)

    @classmethod
    def find_one(cls, name: str | Path) -> "RunFolder":
        """The same, where a folder with the runs of several seeds will not do."""
        folder = cls.find(name)
        if (folder.path / SEEDS_LIST).exists():
            first = min(folder.path.glob("seed*/"), default=folder.path / "seed0")
            raise InputError(f"{folder.path} holds the runs of several seeds: name one of them, such as {first}.")
        return folder

    @classmethod
    def find_trained(cls, name: str | Path) -> "RunFolder":
        """The same, where a model is needed: a run that is under way has none yet."""
        folder = cls.find_one(name)
        if folder.state == "unfinished":
            finish = f"finish it with: splitpu resume {in_a_command(folder.path)}"
            raise InputError(f"{folder.path} holds an unfinished run; {finish}")
        if folder.finished:  # Python saves models without a run
            folder.check_files(*MODEL_FILES[:1])
        return folder

    @classmethod
    def free_path(cls, out: Path | None, title: str) -> Path:
        """The path for a new run, refused when something is there already: a run is never overwritten."""
        name = f"{title}-{datetime.now():%Y%m%d-%H%M%S}"
        names = chain([name], (f"{name}-{number}" for number in count(2)))  # several may begin within one second
        out = out or next(path for path in map(RUNS.joinpath, names) if not lexists(path))
        folder = cls(out)
        if folder.finished:
            raise InputError(f"{out} holds a finished run, which is never overwritten; choose another --out.")
        if folder.request_file.exists():
            others = f"choose another --out, or continue it with: splitpu resume {in_a_command(out)}"
            raise InputError(f"{out} holds an unfinished run; {others}")
        check_free(out, "--out")
        check_place(out)
        return out

    @classmethod
    def create(cls, path: Path, request: Request, config: Config) -> "RunFolder":
        """Make the folder with what was asked for, in one move, so that there is never a run without its request."""
        parent_is_new = not path.parent.exists()
        try:
            with disk_errors_in_words(path), full_disk_named_as(path), drafted(path) as draft:
                request = dataclasses.replace(request, settings=_checksum(config))
                write_text(cls(draft).config_file, f"{config_to_toml(config)}{_bond(request)}\n")
                write_sealed(cls(draft).request_file, request.to_dict())
        except OSError as error:
            reason = f"cannot be made into a run folder ({error.strerror})"
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                reason = "was not there a moment ago: another run has taken it meanwhile"
            raise InputError(f"{path} {reason}; choose another --out.") from error
        finally:
            if parent_is_new and not path.exists():
                remove_if_empty(path.parent)
        return cls(path)

    def discard(self) -> None:
        """Remove a run that turned out to be impossible before anything was trained."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.parent == RUNS:
            remove_if_empty(RUNS)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end; a result that is a link to nowhere is refused by whoever reads it."""
        return lexists(self.result)

    @property
    def state(self) -> str:
        return "finished" if self.finished else "unfinished" if self.request_file.exists() else "no run"

    def request(self) -> Request:
        try:
            found = Request.read(self.request_file)
            if self.finished:
                self.check_files(self.request_file.name)
            return found
        except FileNotFoundError:
            inside = sorted(self.path.glob(f"*/{self.request_file.name}"))
            advice = f"; name one of the runs in it, such as {inside[0].parent}" if inside else ""
            raise InputError(f"{self.path} is not a run folder: it has no {self.request_file.name}{advice}.") from None

    def config(self) -> Config:
        """The configuration of the run, down to the number of threads; refused where it is not what the run began with.

        The prior is settled later, and other settings would make a run of two halves that do not match."""
        config = read_config(self.config_file)
        request, guarded = self.request(), Guarded(self.config_file)
        if request.settings != _checksum(config) or guarded.text().splitlines()[-1:] != [_bond(request)]:
            guarded.refuse(f"it is not what the run in {self.path} began with: it is damaged or was changed")
        return config

    def read_result(self) -> dict[str, Any]:
        guarded = Guarded(self.result, "copy the run folder again")
        try:
            with guarded.understood():
                stored: dict[str, Any] = checked(guarded.sealed(), _RESULT)
                return stored
        except FileNotFoundError:
            message = f"{self.path} holds no finished run; continue it with: splitpu resume {in_a_command(self.path)}"
            raise InputError(message) from None

    def check_files(self, *names: str) -> None:
        """Refuse files of a finished run that are not those it wrote: `result.json` knows their checksums."""
        written = self.read_result()["files"]
        for guarded in (Guarded(self.path / name, missing="it is missing") for name in names):
            if written.get(guarded.path.name) != guarded.checksum():
                guarded.refuse("it is not what the run wrote: it is cut short, damaged or was changed")

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`; a last line that a killed process left unfinished does not count."""
        guarded = Guarded(self.metrics, "continue the run, which writes it again")
        try:
            with guarded.understood():
                return [checked(line, _EPOCH) for line in guarded.sealed_lines(cut_short=True)]
        except FileNotFoundError:
            return []

    def read_out_of_fold(self, rows: int) -> Floats | None:
        """What `Training.out_of_fold` was, if the run has it; refused where it cannot be that of so many rows."""
        if self.out_of_fold.name not in self.read_result()["files"]:
            return None
        self.check_files(self.out_of_fold.name)
        guarded = Guarded(self.out_of_fold)
        with guarded.understood():  # mapped, because a header may promise more than a file or a memory holds
            found = np.array(np.load(self.out_of_fold, mmap_mode="r", allow_pickle=False))
            if found.shape != (2, rows) or found.dtype != np.float64 or not np.isfinite(found).all():
                guarded.refuse(f"it does not hold two finite numbers for each of the {rows:,} training rows")
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run alone; the system lets go of the lock when the process dies, however it dies."""
        with ExitStack() as held:
            try:
                with disk_errors_in_words(self.path, advice="make it writable, or go on with a copy in another place."):
                    held.enter_context(held_alone(self.lock_file))
            except Taken:
                raise InputError(f"another process is working on {self.path}; wait for it or stop it.") from None
            yield

    def must_be_there(self) -> None:
        """Refuse to go on with a run whose folder somebody has taken away: what is written then is no run."""
        if not self.request_file.exists():
            self.discard()
            raise InputError(f"{self.path} was removed while the run was at work, so nothing is left: start it again.")

    def sweep(self) -> None:
        """Clear away what killed processes left half written."""
        remove_leftovers(self.path)
        remove_leftovers(self.checkpoints)

    def settle(self) -> None:
        """Refuse a finished run that is damaged, and remove what a process left there that was killed at its end."""
        from splitpu.model import Model  # not above: most of what is done with a folder does without torch

        keep = self.request().keep_checkpoints
        self.check_files(MODEL_FILES[0])
        Model.load(self.path)  # only another copy or another run would bring it back
        self.clear_up(keep_checkpoints=keep)

    def clear_up(self, *, keep_checkpoints: bool = True) -> None:
        """Remove what killed processes left; where there is nothing of the kind, nothing is written at all."""
        if any(self.path.glob(".*")) or any(self.path.glob("checkpoints/.*" if keep_checkpoints else "checkpoints")):
            with suppress(InputError), self.locked():  # whoever else holds it does this, too
                self.tidy(keep_checkpoints=keep_checkpoints)

    def tidy(self, *, keep_checkpoints: bool) -> None:
        """Remove what a run no longer needs that has come so far; for whoever has it `locked`."""
        self.sweep()
        if not keep_checkpoints:
            shutil.rmtree(self.checkpoints, ignore_errors=True)


def load_request(
    request: Request, progress: Progress | None = None, watch: Watch | None = None, model: RowForm | None = None
) -> LoadedData:
    """The data of a run that goes on, or of the run that `model` comes from."""
    check_still_there(request.source.paths)
    loaded = request.source.load(model, own_rows=True, progress=progress, watch=watch).answered(request.source.answers)
    check_unchanged(loaded, request, form=model is None)
    return loaded


def check_unchanged(loaded: LoadedData, request: Request, *, form: bool = True) -> None:
    """Refuse data that are not those that the run began with; those in the form of a model may be described anew."""
    same = loaded.data.fingerprint() == request.fingerprint
    if not same or (form and request.form not in ("", loaded.form())):
        where = request.source.title if request.source.draws_labels else request.source.where
        what = "names, columns, classes or test rows of the data" if same else "training data"
        raise InputError(f"the {what} in {where} changed since the run began; restore them or start a new run.")


@contextmanager
def kept_until_settled(checkpoints: Path) -> Iterator[Path]:
    """Checkpoints that stay where the block is stopped, killed or short of room, and go where it ends or cannot."""
    try:
        yield checkpoints
    except InputError as error:
        if not isinstance(error, DiskError):  # else what is asked for is possible and waits for room
            shutil.rmtree(checkpoints, ignore_errors=True)
        raise
    shutil.rmtree(checkpoints, ignore_errors=True)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that nothing was put into."""
    with suppress(OSError):  # which is what a folder with something in it gives
        folder.rmdir()


def belongs_to_a_run(path: Path) -> bool:
    """Whether a run that is in this file's folder made it, or will."""
    run = RunFolder(path.parent)
    made = {place.name for place in vars(run).values()} | {*MODEL_FILES}
    return run.request_file.exists() and path.name in made


def versions() -> dict[str, str]:
    """Python and the packages that decide about the numbers."""
    found = {"python": platform.python_version()}
    for package in ("splitpu", "torch", "numpy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


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
