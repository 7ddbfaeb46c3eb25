"""Questions for other programs and their answers: Label Studio (JSON), Prodigy (JSON lines) and CSV (also FiftyOne's).

Whichever it is, a sample is known by its row number and its name; an answer that names another sample is refused."""

import csv
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from splitpu.errors import InputError
from splitpu.review.answers import Answer, Entry, Journal
from splitpu.review.samples import DRAWN, Samples
from splitpu.utils.files import ends_in, replacing
from splitpu.utils.reading import Guarded, json_loads
from splitpu.utils.text import cell, from_cell

KINDS = ".json (Label Studio), .jsonl (Prodigy) or .csv (FiftyOne, or anything)"
MOST_BYTES = 1 << 17  # of a picture that goes out as it is; of larger ones what the model sees
MOST_ANSWERED = 1 << 30  # of a file of answers, which has the pictures that were asked about in it
Raw = tuple[Any, str, Any, str, Any]  # index, name, answer and reviewer of a sample, and why it was asked
_WORDS: dict[str, Answer] = {
    **dict.fromkeys(("positive", "pos", "accept", "yes", "1", "true", "p"), "positive"),
    **dict.fromkeys(("negative", "neg", "reject", "no", "0", "-1", "false", "n"), "negative"),
    **dict.fromkeys(("skip", "ignore", "unsure"), "skip"),
}


def write_questions(path: Path, samples: Samples, rows: Sequence[int], order: str) -> None:
    """The samples in their order, as tasks that the other program asks."""
    if not ends_in(path, ".json", ".jsonl", ".csv"):
        raise InputError(f"{path} has no ending that says for which program it is: give {KINDS}")
    questions = (_question(samples, row, order) for row in rows)  # one at a time: their pictures are in them
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        if ends_in(path, ".csv"):
            _write_table(file, samples, rows, order)
        elif ends_in(path, ".jsonl"):
            for one in questions:
                shown = {name: one.pop(name) for name in ("text", "image") if name in one}
                file.write(json.dumps({**shown, "label": "positive", "meta": one}) + "\n")
        else:
            tasks = (json.dumps({"data": one, "predictions": [_prediction(one)]}) for one in questions)
            file.writelines(("[" if place == 0 else ",\n") + task for place, task in enumerate(tasks))
            file.write("]\n" if len(rows) else "[]\n")


def _write_table(file: TextIO, samples: Samples, rows: Sequence[int], order: str) -> None:
    """A line a question with room for its answer; of pictures in files also where they are, for FiftyOne."""
    files = [samples.path(row) for row in rows]
    places = files if all(files) else []
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["index", "name", "probability", "why", "answer", *(["filepath"] if places else [])])
    for row, place in zip_longest(rows, places):
        about = _about(samples, row, order)
        line = [about["index"], cell(about["name"]), about["probability"], cell(about["why"]), ""]
        writer.writerow([*line, place] if place else line)


def _about(samples: Samples, row: int, order: str) -> dict[str, Any]:
    share = round(float(samples.probability[row]), 4)
    return {"index": row, "name": samples.names[row], "probability": share, "why": samples.reason(row, order)}


def _question(samples: Samples, row: int, order: str) -> dict[str, Any]:
    """A sample with all that is shown of it: a page of another program may open no files of this machine."""
    found = _about(samples, row, order)
    if samples.kind == "record":
        return found | {"text": "\n".join(f"{fact.column}: {fact.value}" for fact in samples.record(row))}
    own = samples.original(row)
    content, kind = own if own and len(own[0]) <= MOST_BYTES else (samples.picture(row), "image/png")
    return found | {"image": f"data:{kind};base64,{b64encode(content).decode()}"}


def _prediction(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the model says, in the form in which Label Studio shows it beforehand."""
    share = question["probability"]
    value = {"choices": ["positive" if share > 0.5 else "negative"]}
    of = {"from_name": "label", "to_name": "sample", "type": "choices", "value": value}
    return {"model_version": "splitpu", "score": max(share, 1 - share), "result": [of]}


def read_answers(path: Path, samples: Samples, journal: Journal, reviewer: str) -> int:
    """Add the answers in a file to the journal; gives how many were new. Nothing is added where one is wrong."""
    guarded = Guarded(path, f"give the answers as {KINDS}")
    known = {row: said.by for row, said in journal.said().items()}
    with guarded.understood():
        entries = [_entry(one, samples, reviewer) for one in _raw(path, guarded)]
    added = 0
    for entry in entries:
        before = known.get(entry.index, {}).get(entry.reviewer)
        if before is None or before.answer != entry.answer:
            journal.add(entry)
            added += 1
    return added


def _entry(raw: Raw, samples: Samples, reviewer: str) -> Entry:
    index, name, word, who, why = raw
    answer = _WORDS.get(str(word).strip().lower())
    if answer is None:
        raise InputError(f"{word!r:.40} about {name or index!r} is no answer: write positive, negative or skip")
    if index in (None, ""):
        places = [row for row, one in enumerate(samples.names) if one == name]
        if not name or len(places) != 1:
            raise InputError(f"{name!r:.60} names {len(places)} samples of the run: give their index as well")
        index = places[0]
    row = int(index)
    if not 0 <= row < len(samples.data) or samples.data.labelled[row]:
        raise InputError(f"row {row} is no unlabelled row of the run")
    if name and name != samples.names[row]:
        own = samples.names[row]
        raise InputError(f"row {row} is {own!r:.60} in the run, and {name!r:.60} here: another run's answers")
    order = "random" if str(why).startswith(DRAWN) else "imported"  # what was drawn at random is of an audit
    return Entry(row, samples.names[row], answer, who or reviewer, order)


def _raw(path: Path, guarded: Guarded) -> Iterator[Raw]:
    """Every sample that was answered."""
    try:
        if ends_in(path, ".csv"):
            for line in guarded.rows():
                if line.get("answer"):
                    name = from_cell(line.get("name") or "")
                    yield line.get("index"), name, line["answer"], line.get("reviewer") or "", line.get("why")
        elif ends_in(path, ".jsonl"):
            for line in (json_loads(one) for one in guarded.text(MOST_ANSWERED).split("\n") if one.strip()):
                meta = line.get("meta", {})
                if "answer" in line:
                    who = str(line.get("_annotator_id") or "")
                    yield meta.get("index"), meta.get("name", ""), line["answer"], who, meta.get("why")
        elif ends_in(path, ".json"):
            yield from _label_studio(guarded.json(MOST_ANSWERED))
        else:
            guarded.refuse("its ending does not say of which program it is")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: check the path") from None


def _label_studio(tasks: Any) -> Iterator[Raw]:
    """Of whole exports every annotation, of the short form (JSON-MIN) its one answer."""
    for task in tasks:
        about = task.get("data", task)
        for made in task.get("annotations", []):
            who = made.get("completed_by", "")
            who = who.get("email", who.get("id", "")) if isinstance(who, dict) else who
            chosen = [choice for one in made.get("result", []) for choice in one.get("value", {}).get("choices", [])]
            word = "skip" if made.get("was_cancelled") or not chosen else chosen[0]
            yield about.get("index"), about.get("name", ""), word, str(who), about.get("why")
        if "annotations" not in task and task.get("label"):
            who = str(task.get("annotator", ""))
            yield about.get("index"), about.get("name", ""), task["label"], who, about.get("why")
