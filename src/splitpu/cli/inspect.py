"""`splitpu info`, `hard`, `methods` and `data`: what is read from files, without torch, and laid out for review."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.cli.display import check_out, print_facts, print_json, print_note, print_table, show_result
from splitpu.cli.entry_point import WORDS, continue_with
from splitpu.data.images.folders import FolderSource, reader_for
from splitpu.data.images.scan import contents
from splitpu.data.public.cifar10 import CIFAR10
from splitpu.data.public.datasets import MNIST, load_named
from splitpu.data.public.download import cache_folder, load_cached
from splitpu.data.public.medical import LOCAL_SETS, local_file
from splitpu.data.public.named_set import SETS, true_prior
from splitpu.data.sources import check_still_there
from splitpu.data.tables.read import write_rows
from splitpu.data.volumes.reader import VolumeReader
from splitpu.errors import InputError
from splitpu.evaluation.metrics import most_doubtful
from splitpu.methods.registry import methods as all_methods
from splitpu.runs.folder import RunFolder
from splitpu.utils.files import check_free, disk_errors_in_words, drafted, ends_in
from splitpu.utils.reading import Guarded
from splitpu.utils.text import from_cell, listed

_LONGEST_NAME = 255  # bytes, on nearly every file system
_DOWNLOADED = {"mnist": MNIST, "cifar10": CIFAR10}


def run_info(run: str | None, *, json: bool) -> None:
    """This installation, or a run."""
    if run is not None:
        return _show_run(RunFolder.find_one(run), json=json)
    from splitpu.config.presets import preset_names
    from splitpu.engine.hardware import Hardware
    from splitpu.networks.build import network_names
    from splitpu.runs.folder import source_commit, versions

    facts: dict[str, Any] = {
        **versions(),
        "commit": source_commit(),
        "device": Hardware.choose("auto").describe(),
        "networks": list(network_names()),
        "presets": preset_names(),
        "cache": str(cache_folder()),
    }
    if json:
        return print_json({**facts, "sets": sets_here()})
    print_facts({name: ", ".join(value) if isinstance(value, list) else value or "-" for name, value in facts.items()})
    print_table(sets_here(), ("name", "what", "state"))


def _show_run(folder: RunFolder, *, json: bool) -> None:
    request, config = folder.request(), folder.config()
    result = folder.read_result() if folder.finished else None
    used = request.backbone if result is None else result["network"]
    asked: dict[str, Any] = {
        "run": str(folder.path),
        "state": folder.state,
        "data": request.source.where,
        "scenario": request.source.scenario,
        "method": config.method,
        "prior": request.prior,
        "preset": request.preset,
        "backbone": used if used == request.backbone else f"{request.backbone}: {used}",
        **({} if config.members == 1 else {"members": config.members}),
        "seed": request.seed,
        "device": request.device,
    }
    lines = folder.read_metrics()
    if lines and result is None:
        last = lines[-1]
        asked["reached"] = f"{last['stage']}, epoch {last['epoch']} of {last['epochs']}"
    if json:
        return print_json({**asked, "result": result})
    if result is not None:  # it says these again, and more of them
        del asked["run"], asked["prior"]
    elif request.prior_is_open:
        asked["prior"] = request.prior_source
    elif request.prior is not None:
        asked["prior"] = f"{request.prior:.4g}"
    print_facts({name: "not given" if value is None else value for name, value in asked.items()})
    if result is not None:
        show_result(folder, result, json=False)
    else:
        print(continue_with(folder.path))


@dataclass(frozen=True)
class ToReview:
    """A sample that is a file, or a folder of files, and what the model makes of it."""

    path: str
    name: str
    probability: float


def check_review(folder: Path | None, top: int | None) -> None:
    """Refuse, before anything is computed, what could overwrite something."""
    if top is not None and top < 1:
        raise InputError(f"--top {top} is not a number of samples; give 1 or more.")
    if folder is not None:
        check_free(folder, "--copy-to")


def lay_out(folder: Path, samples: Sequence[ToReview], *, link: bool) -> int:
    """Copy or link samples, named by rank and probability; the folder is there when all are. Gives how many."""
    digits = len(str(len(samples)))
    with disk_errors_in_words(folder), drafted(folder) as draft:
        for rank, sample in enumerate(samples, start=1):
            place = f"{rank:0{digits}d}_{sample.probability:.3f}_"
            flat = sample.name.replace("/", "__")
            ending = next((one for one in (".nii.gz", ".nii") if ends_in(sample.path, one)), "")
            if not ends_in(sample.name, ending) and not os.path.isdir(sample.path):
                flat += ending  # patients that are one file each are called without it; programs that show it need one
            while len(os.fsencode(place + flat)) > _LONGEST_NAME:  # the end of a name tells most
                flat = flat[1:]
            target = draft / (place + flat)
            if link:
                os.symlink(sample.path, target)
            elif os.path.isdir(sample.path):
                _copy_folder(sample.path, target)
            else:
                _copy_file(sample.path, target)
    return len(samples)


def _copy_folder(folder: str, target: Path) -> None:
    """What a reader finds in a patient's folder: no links that lead nowhere or in circles, and no pipes."""
    target.mkdir()
    true_path = Path(os.path.realpath(folder))
    closed = {str(one) for one in (true_path, *true_path.parents)}
    for found in contents(folder, closed, lambda path: "" if os.path.isfile(path) else "is not a regular file"):
        if not found.why:
            copy = target / os.path.relpath(found.path, folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(found.path, copy)


def _copy_file(path: str, target: Path) -> None:
    try:
        shutil.copyfile(path, target)
    except PermissionError as error:
        if error.filename != path:
            raise
        sentence = f"{path} may not be read ({error.strerror}): change that, or lay out links with --link."
        raise InputError(sentence) from error


@dataclass(frozen=True)
class HardSample:
    """A sample on which a fresh network did not follow the model that taught the last round, or not surely enough."""

    index: int
    name: str
    probability: float  # of being positive, as the final model has it
    decision: int | str  # as `splitpu predict` has it
    teacher_probability: float  # on the scale of the final model: calibrated by the same map, if that is
    rounds: str  # in which it was hard, such as "1 2"
    why: str


def hard_samples(folder: RunFolder, result: Mapping[str, Any]) -> list[HardSample]:
    """The hard samples of the last round, those that give most reason to doubt first, as in the report."""
    if result["method"] != "split-pu":
        wrong = f"{folder.path} was trained with method '{result['method']}'"
        raise InputError(f"{wrong}, which does not tell hard samples from easy ones; only split-pu does.")
    if not result["rounds"]:
        raise InputError(f"{folder.path} has no rounds, so no sample was found hard: train with --rounds 1 or more.")
    folder.check_files(folder.split.name, folder.scores.name)
    with Guarded(folder.split).understood():
        last, hard_in = list[dict[str, str]](), dict[str, list[str]]()
        for line in (line for line in Guarded(folder.split).rows() if line["set"] == "hard"):
            hard_in.setdefault(line["index"], []).append(line["round"])
            if line["round"] == str(result["rounds"][-1]["round"]):
                last.append(line)
        by_index = {line["index"]: line for line in Guarded(folder.scores).rows()}
        scores = [by_index[line["index"]] for line in last]
        # The final model's, be it the last student or, where that was not taken, its teacher.
        said = np.array([float(score["probability"]) for score in scores])
        teacher = np.array([float(line["teacher_probability"]) for line in last])
        order = most_doubtful(teacher, said, np.ones(len(last), dtype=np.bool_), len(last)).tolist()
        decisions = [score["decision"] for score in scores]
        return [
            HardSample(
                index=int(last[at]["index"]),
                name=from_cell(last[at]["name"]),
                probability=float(said[at]),
                decision=int(decisions[at]) if decisions[at].removeprefix("-").isdigit() else decisions[at],
                teacher_probability=float(teacher[at]),
                rounds=" ".join(hard_in[last[at]["index"]]),
                why=_why(last[at]["taught"] == "positive", last[at]["learned"] == "positive", bool(said[at] > 0.5)),
            )
            for at in order
        ]
    raise AssertionError  # what goes wrong in the block is raised


def _why(taught: bool, learned: bool, said: bool) -> str:
    """What a fresh network was taught and made of that; and what the final model says, if not what was taught."""
    words = {True: "positive", False: "negative"}
    outcome = words[learned] + (", but less surely than others" if learned == taught else "")
    changed = "" if taught == said else f"; now {words[said]}"
    return f"taught {words[taught]}, learned {outcome}{changed}"


SHOWN = 20  # samples in the table, if nothing else was said
_COLUMNS = tuple(field.name for field in fields(HardSample))
_BY_NUMBER = re.compile(r"(.*/)?patient-\d{4,}")


def run_hard(run: str, *, top: int | None, out: Path | None, copy_to: Path | None, link: bool, json: bool) -> None:
    """List the hard samples of a finished run, the most doubtful first, and lay their files out for review."""
    folder = RunFolder.find_one(run)
    source = folder.request().source
    result = folder.read_result()
    if link and copy_to is None:
        raise InputError("--link goes with --copy-to: it makes links there instead of copies.")
    check_out(out, "hard samples")
    check_review(copy_to, top)
    if copy_to is not None and not isinstance(source, FolderSource):
        other = f"{folder.path} was trained on {source.where}"
        raise InputError(f"--copy-to is for runs from folders, and {other}: --out lists its hard samples.")
    found = hard_samples(folder, result)
    wanted = found[:top]
    # The files come first: where some have moved, nothing is written at all.
    files = _files_of(wanted, source) if copy_to is not None and isinstance(source, FolderSource) else []
    if copy_to is not None and files:
        lay_out(copy_to, files, link=link)
    if out is not None:
        write_rows(out, _COLUMNS, [astuple(sample) for sample in wanted])
    last = result["rounds"][-1]
    if json:
        summary = {"run": str(folder.path), "round": last["round"], "agreement": last["agreement"], "hard": len(found)}
        listing: dict[str, Any] = {"samples": [asdict(sample) for sample in wanted]}
        return print_json(summary | {"copied": len(files)} | (listing if out is None else {"out": str(out)}))
    unlabelled = last["easy"] + last["hard"]
    if out is not None:
        print(f"{out}: {len(wanted):,} of {len(found):,} hard samples among {unlabelled:,} unlabelled ones")
    elif wanted:
        shown = wanted if top is not None else wanted[:SHOWN]
        columns = ["name", "probability", "teacher_probability", "rounds", "why"]
        rows = [{**asdict(sample), "name": sample.name or f"row {sample.index}"} for sample in shown]
        print_table(rows, columns, title=f"{len(shown):,} of {len(found):,} hard samples, the most doubtful first")
        if len(shown) < len(found):
            print_note(f"--top {len(found)} shows all of them, --out hard.csv writes them to a file")
    else:
        print_note(f"none of the {unlabelled:,} unlabelled samples was hard in round {last['round']}")
    if files:
        print_note(f"the {len(files):,} most doubtful samples are in {copy_to}")


def _files_of(samples: Sequence[HardSample], folders: FolderSource) -> list[ToReview]:
    """Where the samples lie now; that they lie where the run found them is the only way to tell which they are."""
    roots = folders.training_folders
    check_still_there(roots)
    reader = reader_for(roots, series=folders.series, slices=folders.slices)
    paths = {file.given_name: file.path for file in reader.find(roots).files}
    lost = [sample.name for sample in samples if sample.name not in paths]
    by_number = [name for name in lost if _BY_NUMBER.fullmatch(name)]
    if by_number and isinstance(reader, VolumeReader):
        wrong = f"{by_number[0]} is known only by its number, as its folder names the patient, so it cannot be copied"
        raise InputError(f"{wrong}: leave out --copy-to, and find it by its place in the order of the folders.")
    if lost:
        wrong = f"{len(lost):,} of {len(samples):,} hard samples are no longer where the run found them"
        raise InputError(f"{wrong} ({listed(lost)}): put them back, or leave out --copy-to.")
    return [ToReview(paths[sample.name], sample.name, sample.probability) for sample in samples]


def run_methods(*, json: bool) -> None:
    """Which methods there are, and when to use which."""
    needs = WORDS["needs"].items()
    listed_methods = [
        {
            "name": method.name,
            "title": method.title,
            "when": method.summary,
            "assumes": method.assumes,
            "needs": [what for need, what in needs if getattr(method, need)] or ["nothing besides the data"],
            "settings": [section for section in method.sections if section not in ("rounds", "threshold")],
            "citation": method.citation,
        }
        for method in all_methods().values()
    ]
    if json:
        return print_json({"methods": listed_methods})
    width = max(len(name) for name in all_methods())
    for facts in listed_methods:
        print(f"{facts['name']:<{width}}  {facts['when']}")
        for what in ("assumes", "needs", "settings", "citation"):
            value = facts[what]
            print(f"{'':<{width}}    {what}: {', '.join(value) if isinstance(value, list) else value}")
    print("\nChoose one with: splitpu fit DATA --method NAME")
    print("Put several side by side with: splitpu compare DATA --method NAME,NAME")


def sets_here() -> list[dict[str, str]]:
    """Every named set, and whether it is on this machine."""
    return [{"name": name, "what": about["what"], "state": _state(name)} for name, about in SETS.items()]


def run_data_list(*, json: bool) -> None:
    """Which sets there are."""
    if json:
        return print_json({"cache": str(cache_folder()), "sets": sets_here()})
    print_table(sets_here(), ("name", "what", "state"))
    print_facts({"cache": cache_folder()})


def run_data_get(name: str, *, json: bool) -> None:
    """Have a set on this machine."""
    named = load_named(name, progress=lambda line: print(line, file=sys.stderr))
    facts = {
        "name": name,
        "description": named.description,
        "positive": named.positive_meaning,
        "training_rows": len(named.features_train),
        "test_rows": len(named.features_test),
        "prior": round(true_prior(named), 4),
        "cache": str(cache_folder()) if name in _DOWNLOADED else "not needed",
    }
    if json:
        print_json(facts)
    else:
        print_facts({key.replace("_", " "): value for key, value in facts.items()})


def _state(name: str) -> str:
    if name in LOCAL_SETS:
        path = local_file(name)
        return f"read from {path}" if path is not None else f"needs {LOCAL_SETS[name]['file']} in $SPLITPU_DATA"
    if name not in _DOWNLOADED:
        return "comes with scikit-learn"
    found = load_cached(_DOWNLOADED[name], cache_folder(), checked=False)
    return "not downloaded" if found is None else "in the cache"
