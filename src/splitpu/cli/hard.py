"""`splitpu hard`."""

import re
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from typing import Any

from splitpu.cli.output import print_json, print_note, print_table
from splitpu.cli.review import ReviewOptions, ToReview, check_review, lay_out
from splitpu.cli.table_out import check_out, write_out
from splitpu.data.folders import FolderSource, reader_for
from splitpu.data.volumes import VolumeReader
from splitpu.errors import InputError
from splitpu.listing import listed
from splitpu.runs.folder import RunFolder
from splitpu.runs.hard import HardSample, hard_samples
from splitpu.runs.sources import check_still_there

SHOWN = 20  # samples in the table, if nothing else was said
_COLUMNS = tuple(field.name for field in fields(HardSample))
_BY_NUMBER = re.compile(r"(.*/)?patient-\d{4,}")


def run_hard(run: str, asked: ReviewOptions) -> int:
    """List the hard samples of a finished run, the most doubtful first, and lay their files out for review."""
    folder = RunFolder.find_one(run)
    source = folder.request().source
    result = folder.read_result()
    if asked.link and asked.copy_to is None:
        raise InputError("--link goes with --copy-to: it makes links there instead of copies.")
    check_out(asked.out, "hard samples")
    check_review(asked.copy_to, asked.top)
    if asked.copy_to is not None and source.folders is None:
        raise InputError(
            f"--copy-to is for runs from folders, and {folder.path} was trained on {source.where}: --out lists its "
            "hard samples."
        )
    found = hard_samples(folder, result)
    wanted = found[: asked.top]
    # The files come first: where some have moved, nothing is written at all.
    files = [] if asked.copy_to is None or source.folders is None else _files_of(wanted, source.folders)
    if asked.copy_to is not None and files:
        lay_out(asked.copy_to, files, link=asked.link)
    if asked.out is not None:
        write_out(asked.out, _COLUMNS, [astuple(sample) for sample in wanted])
    _tell(folder, result["rounds"][-1], found, wanted, len(files), asked)
    return 0


def _tell(
    folder: RunFolder,
    last: dict[str, Any],
    found: Sequence[HardSample],
    wanted: Sequence[HardSample],
    laid_out: int,
    asked: ReviewOptions,
) -> None:
    summary = {"run": str(folder.path), "round": last["round"], "agreement": last["agreement"], "hard": len(found)}
    if asked.json:
        listing: dict[str, Any] = {"samples": [asdict(sample) for sample in wanted]}
        print_json(summary | {"copied": laid_out} | (listing if asked.out is None else {"out": str(asked.out)}))
        return
    unlabelled = last["easy"] + last["hard"]
    if asked.out is not None:
        print(f"{asked.out}: {len(wanted):,} of {len(found):,} hard samples among {unlabelled:,} unlabelled ones")
    elif wanted:
        shown = wanted if asked.top is not None else wanted[:SHOWN]
        columns = ["name", "probability", "teacher_probability", "rounds", "why"]
        rows = [{**asdict(sample), "name": sample.name or f"row {sample.index}"} for sample in shown]
        print_table(rows, columns, title=f"{len(shown):,} of {len(found):,} hard samples, the most doubtful first")
        if len(shown) < len(found):
            print_note(f"--top {len(found)} shows all of them, --out hard.csv writes them to a file")
    else:
        print_note(f"none of the {unlabelled:,} unlabelled samples was hard in round {last['round']}")
    if laid_out:
        print_note(f"the {laid_out:,} most doubtful samples are in {asked.copy_to}")


def _files_of(samples: Sequence[HardSample], folders: FolderSource) -> list[ToReview]:
    """Where the samples lie now; that they lie where the run found them is the only way to tell which they are."""
    roots = [*folders.positives, *folders.unlabelled]
    check_still_there(roots)
    reader = reader_for(roots, series=folders.series, slices=folders.slices)
    paths = {file.given_name: file.path for file in reader.find(roots).files}
    lost = [sample.name for sample in samples if sample.name not in paths]
    by_number = [name for name in lost if _BY_NUMBER.fullmatch(name)]
    if by_number and isinstance(reader, VolumeReader):
        raise InputError(
            f"{by_number[0]} is known only by its number, as its folder names the patient, so it cannot be copied: "
            "leave out --copy-to, and find it by its place in the order of the folders."
        )
    if lost:
        raise InputError(
            f"{len(lost):,} of {len(samples):,} hard samples are no longer where the run found them ({listed(lost)}): "
            "put them back, or leave out --copy-to."
        )
    return [ToReview(paths[sample.name], sample.name, sample.probability) for sample in samples]
