"""`splitpu predict`, `export` and `embed`: scores by the model of a run, the model itself, and vectors of images."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from splitpu.cli.display import check_out, print_facts, print_json, print_note
from splitpu.cli.inspect import ToReview, check_review, lay_out
from splitpu.cli.options import ClusterWords, DataWords, PredictWords
from splitpu.cli.progress import choose_display
from splitpu.cli.several_runs import run_grid
from splitpu.cli.train import size_for_encoder
from splitpu.data.array_files import read_features, read_names
from splitpu.data.features import canonical_features
from splitpu.data.images.folders import parse_size, read_images, reader_for
from splitpu.data.public.datasets import NAMED_SETS, load_named
from splitpu.data.sources import NewRows, read_new_rows
from splitpu.data.tables.read import write_csv, write_parquet, write_rows
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.evaluation.calibration import sigmoid
from splitpu.methods.frozen_features import encoder_for, pictures_of
from splitpu.model import Model
from splitpu.networks.embeddings import embed, sensible_processes
from splitpu.onnx_export import DECISION, INPUT, PROBABILITY, export_onnx
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid import Fate, Grid, InTurn, Progress
from splitpu.runs.results import is_list_of_skipped, write_skipped
from splitpu.runs.scoring import COLUMNS, Inputs, Part, ScoresFolder, parse_shard, shard_of
from splitpu.runs.serve import ScoringServer
from splitpu.types import Bytes, Vectors, Watch
from splitpu.utils.files import ends_in, in_a_command, replacing
from splitpu.utils.text import listed
from splitpu.utils.warnings import Note

_COLUMNS = ("index", "name", "probability", "decision")
Each = Literal["row", "view", "slice"]
_EMBEDDED = (".npy", ".npz", ".parquet")


def run_predict(run: str, path: Path, *, asked: PredictWords, cluster: ClusterWords, device: str, json: bool) -> None:
    """Score the rows of a file or the images of a folder with the final model of a run."""
    folder, out, top, copy_to = RunFolder.find_trained(run), asked.out, asked.top, asked.copy_to
    if asked.shard is not None or cluster.ray is not None:
        if out is None or top is not None or copy_to is not None:
            raise InputError("--shard and --ray write parts into a folder: give it with --out, without --top.")
        return _score_in_parts(folder, path, out, asked, cluster, device=device, json=json)
    check_out(out, "scores", read=path)
    if (top is None) != (copy_to is None):
        raise InputError("--top and --copy-to go together: they say how many samples to put into which folder.")
    if asked.link and copy_to is None:
        raise InputError("--link goes with --top and --copy-to: it makes links there instead of copies.")
    if copy_to is not None and not path.is_dir():
        raise InputError(f"--top and --copy-to are for folders of images or patients, and {path} is not one.")
    check_review(copy_to, top)
    model = Model.load(folder.path)
    with choose_display(quiet=json).watching() as watch:
        rows = read_new_rows(path, model, strict=asked.strict, watch=watch)
    model.preprocessing.check(rows.features, str(path))
    decision = model.decision(rows.features, Hardware.choose(device))
    probabilities = sigmoid(decision)
    names = rows.names or [""] * len(decision)
    shares = [float(f"{share:.6g}") for share in probabilities.tolist()]
    labels = [model.classes[int(positive)] for positive in decision > 0]
    lines = list(zip(range(len(labels)), names, shares, labels, strict=True))
    if out is not None:
        write_rows(out, _COLUMNS, lines)
    _account_for_files(rows, out)
    reviewed = 0
    if copy_to is not None and rows.files is not None:
        order = np.argsort(-probabilities, kind="stable")[:top].tolist()
        likeliest = [ToReview(rows.files[row].path, rows.files[row].name, probabilities[row]) for row in order]
        reviewed = lay_out(copy_to, likeliest, link=asked.link)
    positive = int((decision > 0).sum())
    if json:
        summary: dict[str, Any] = {"run": str(folder.path), "rows": len(lines), "positive": positive}
        if rows.files is not None or rows.skipped:
            skipped = [{"name": one.name, "why": one.why, "bad": one.bad} for one in rows.skipped]
            summary |= {"skipped": skipped, "copied": reviewed}
        listing = [dict(zip(_COLUMNS, line, strict=True)) for line in lines] if out is None else []
        print_json(summary | ({"scores": listing} if out is None else {"out": str(out)}))
    elif out is None:
        write_csv(sys.stdout, _COLUMNS, lines)
    else:
        print(f"{out}: {len(lines):,} rows, {positive:,} of them positive")
    if reviewed:
        print_note(f"the {reviewed:,} samples most likely to be positive are in {copy_to}")


def _score_in_parts(
    folder: RunFolder, path: Path, out: Path, asked: PredictWords, cluster: ClusterWords, *, device: str, json: bool
) -> None:
    """Score one shard of the parts, here or over a cluster; those that are there already are left as they are."""
    display, model = choose_display(quiet=json), Model.load(folder.path)
    if not path.exists():
        raise InputError(f"{path} does not exist: check the path")
    inputs = Inputs.find(path, model)
    scores = ScoresFolder.planned(out, folder, path, inputs)
    every = scores.parts(inputs, folder.path.absolute(), device=device, strict=asked.strict)
    parts = shard_of(every, *parse_shard(asked.shard or "1/1"))
    executor = cluster.executor(scores.plan_file.absolute(), device, threads=1)
    rows = sum(map(len, parts))
    with display.watching() as watch:
        grid = Grid(parts, scores, progress=_RowsScored(watch, display.note, rows))
        run_grid(grid, executor or InTurn(), how_to_go_on="run the same command to go on with the parts that are left")
    left = sum(not file.exists() for file in scores.files())
    if json:
        whole = {"rows_in_all": len(inputs), "parts": len(scores.files()), "parts_left": left}
        return print_json({"run": str(folder.path), "out": str(out), "rows": rows, **whole})
    print(f"{out}: {rows:,} of {len(inputs):,} rows in {len(parts):,} of {len(scores.files()):,} parts")
    last = f"splitpu merge {in_a_command(out)} scores.csv makes one file of them"
    print_note(f"parts left to other shards: {left:,}" if left else f"all parts are there; {last}")


class _RowsScored(Progress[Part]):
    """How many rows of the shard have a score."""

    def __init__(self, watch: Watch, note: Note, rows: int) -> None:
        self._watch, self._note, self._rows, self._done = watch, note, rows, 0

    def note(self, unit: Part, text: str) -> None:
        self._note(f"{unit.name}: {text}")

    def became(self, unit: Part, what: Fate, detail: Any = None) -> None:
        if what == "done":
            self._done += detail
            self._watch("scoring", self._done, self._rows)


def run_merge(folder: Path, out: Path, *, json: bool) -> None:
    """One file of all parts, in the order of the input."""
    check_out(out, "scores")
    lines = list(ScoresFolder(folder).lines())
    write_rows(out, COLUMNS, lines)
    without = sum(line[-1] != "" for line in lines)
    if json:
        return print_json({"scores": str(folder), "out": str(out), "rows": len(lines), "without_score": without})
    print(f"{out}: {len(lines):,} rows, {without:,} of them without a score (column why)")


def _account_for_files(rows: NewRows, out: Path | None) -> None:
    """Say which files have no score; the whole list lies beside the scores."""
    print_note(*rows.warnings)
    if out is None:
        return
    listing = out.with_name(f"{out.stem}.skipped.csv")
    if rows.skipped:
        write_skipped(listing, rows.skipped)
        print_note(f"{listing} lists every file that has no score, and why")
    elif is_list_of_skipped(listing):  # of earlier scores, in whose place the new ones are
        listing.unlink()


def run_serve(run: str, *, host: str, port: int, device: str) -> None:
    """Answer until Ctrl-C."""
    with ScoringServer(RunFolder.find_trained(run), host=host, port=port, device=device) as server:
        print(server.address, flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def run_export(run: str, file: Path | None, *, json: bool) -> None:
    """Write the final model of a run in another format."""
    folder = RunFolder.find_trained(run)
    written = folder.path / "model.onnx" if file is None else file
    if not ends_in(written, ".onnx"):
        raise InputError(f"{written} does not end in .onnx: give it the ending .onnx.")
    model = Model.load(folder.path)
    done = export_onnx(model, written)
    shape = ["count", *done.shape]
    if json:
        facts = {"run": str(folder.path), "onnx": str(written), "input": INPUT, "dtype": done.dtype, "shape": shape}
        return print_json(facts | {"outputs": [PROBABILITY, DECISION], "largest_difference": done.difference})
    # A table has fewer columns than the network has inputs: whoever uses the file has to make the one of the other.
    is_table = (model.inputs or {}).get("kind") == "table"
    stored = "the table's columns as numbers, made as `inputs` in model.json says" if is_table else "as stored"
    rows = f"{done.dtype}, ({', '.join(map(str, shape))}), {stored}"
    print_facts(
        {
            "written": written,
            "takes": f"{INPUT}: {rows}: it scales them itself",
            "gives": f"{PROBABILITY} of being positive, and {DECISION}: whether it is above 1/2",
            "checked": f"with onnxruntime; largest difference in a probability {done.difference:.1g}",
        }
    )


def run_embed(*inputs: str, out: Path, backbone: str, each: Each, json: bool, **words: Any) -> None:
    """Write embeddings of images or volumes, and what their rows are called, for other tools."""
    if not inputs:
        raise InputError("nothing was given to embed: name folders of images, one .npy or .npz file, or a named set.")
    for word in inputs:
        check_out(out, "embeddings", read=Path(word), endings=_EMBEDDED)
    if each == "view" and ends_in(out, ".parquet"):
        raise InputError("--each view gives several vectors a row, which a table cannot hold: write a .npy or .npz.")
    display = choose_display(quiet=json)
    with display.watching() as watch:
        rows = _rows_to_embed(inputs, DataWords(**words), watch)
        pictures, names = pictures_of(rows.features), list(rows.names or map(str, range(len(rows.features))))
        made, plan = encoder_for(backbone, rows.features.shape[1:])
        count = len(names)
        if each == "slice":
            if rows.features.ndim != 5:
                raise InputError("--each slice is for volumes, and these are images: leave it out.")
            count *= rows.features.shape[1]  # at most: slices that show nothing are left out
            named: list[str] = []
            pictures, names = _slices(pictures, names, named), named
        display.say(f"encoder: {backbone}; what is computed is kept, so a command that was stopped goes on from there")
        processes = sensible_processes(count)
        vectors = embed(pictures, made, plan, watch=lambda done: watch("embedding", done, count), processes=processes)
    found = vectors if each == "view" else vectors.mean(axis=1)
    listing = _write_vectors(out, found, names)
    _account_for_files(rows, out)
    facts = {"out": str(out), "names": str(listing), "shape": list(found.shape), "encoder": made.name}
    if json:
        print_json(facts | {"views": plan.names, "skipped": len(rows.skipped)})
    else:
        print(f"{out}: {' x '.join(map(str, found.shape))} numbers; what each row is called is in {listing.name}")


def _rows_to_embed(inputs: Sequence[str], words: DataWords, watch: Watch) -> NewRows:
    """Folders together, or one file of arrays, or one named set with its training rows first."""
    folders = [Path(word) for word in inputs]
    if all(map(Path.is_dir, folders)):
        size = parse_size(words.size or size_for_encoder(folders))
        reader = reader_for(folders, series=words.series, slices=words.slices)
        found = read_images(folders, reader=reader, size=size, strict=words.strict, watch=watch)
        features = canonical_features(found.pixels, channels="last")
        return NewRows(features, found.names, found.files, found.skipped, tuple(found.in_words("given")))
    if len(inputs) > 1:
        raise InputError(f"{listed(inputs)} are not all folders: give folders, or one file, or one named set.")
    (word,) = inputs
    if word in NAMED_SETS:
        named = load_named(word)
        parts = {"train": named.features_train, "test": named.features_test}
        names = [f"{part}-{row}" for part, rows in parts.items() for row in range(len(rows))]
        return NewRows(np.concatenate(list(parts.values())), tuple(names))
    if not ends_in(word, ".npy", ".npz"):
        raise InputError(f"{word} is nothing with images in it: give a folder, a .npy or .npz file, or a named set.")
    called = read_names(word)
    return NewRows(canonical_features(read_features(word), word), None if called is None else tuple(called))


def _slices(volumes: Iterable[Bytes], names: Sequence[str], called: list[str]) -> Iterator[Bytes]:
    """Slices that show anything; what each is `called` is known when it has been seen."""
    for name, volume in zip(names, volumes, strict=True):
        for number in np.flatnonzero(volume.reshape(len(volume), -1).any(axis=1)).tolist():
            called.append(f"{name}/slice-{number}")
            yield volume[number]


def _write_vectors(out: Path, vectors: Vectors, names: Sequence[str]) -> Path:
    """The file, whole or not at all; gives the file in which the rows are named: itself or one beside it."""
    with replacing(out) as temporary:
        if ends_in(out, ".parquet"):
            columns = {f"e{number}": column.tolist() for number, column in enumerate(vectors.T)}
            write_parquet(temporary, {"name": list(names), **columns})
        else:
            with temporary.open("wb") as file:
                if ends_in(out, ".npz"):
                    np.savez(file, X=vectors, names=np.array(names))
                else:
                    np.save(file, vectors)
    if not ends_in(out, ".npy"):
        return out
    listing = out.with_suffix(".names.csv")
    write_rows(listing, ("row", "name"), list(enumerate(names)))
    return listing
