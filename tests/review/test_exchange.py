"""Questions go to other programs, and their answers come back."""

import base64
import csv
import json
from pathlib import Path

import pytest
from review_tools import image_run, review_of, table_run, volume_run

from splitpu.errors import InputError
from splitpu.review import exchange
from splitpu.review.exchange import read_answers, write_questions
from splitpu.review.server import Review


@pytest.fixture(scope="module")
def review(tmp_path_factory) -> Review:
    return review_of(table_run(tmp_path_factory.mktemp("table")))


def written(review: Review, path: Path) -> list[int]:
    rows = review.rows[:3]
    write_questions(path, review.samples, rows, "gain")
    return rows


def taken(review: Review, path: Path, who: str) -> dict[int, str]:
    read_answers(path, review.samples, review.journal, who)
    return {row: said.by[who].answer for row, said in review.journal.said().items() if who in said.by}


def test_label_studio(review: Review, tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    rows = written(review, path)
    tasks = json.loads(path.read_text())
    assert [task["data"]["index"] for task in tasks] == rows and "colour" in tasks[0]["data"]["text"]
    assert tasks[0]["predictions"][0]["result"][0]["type"] == "choices"
    for task, word in zip(tasks, ("positive", "negative", None), strict=True):  # as an export has it
        result = [] if word is None else [{"type": "choices", "value": {"choices": [word]}}]
        task["annotations"] = [{"completed_by": {"email": "eve"}, "was_cancelled": word is None, "result": result}]
    path.write_text(json.dumps(tasks))
    assert taken(review, path, "eve") == dict(zip(rows, ("positive", "negative", "skip"), strict=True))
    assert read_answers(path, review.samples, review.journal, "eve") == 0  # once is enough
    short = [{"index": rows[0], "name": review.samples.names[rows[0]], "label": "negative", "annotator": 7}]
    path.write_text(json.dumps(short))
    assert taken(review, path, "7") == {rows[0]: "negative"}


def test_prodigy(review: Review, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = written(review, path)
    tasks = [json.loads(line) for line in path.read_text().splitlines()]
    assert tasks[0]["label"] == "positive" and "text" in tasks[0]
    words = ("accept", "reject", "ignore")
    done = [task | {"answer": word, "_annotator_id": "pat"} for task, word in zip(tasks, words, strict=True)]
    path.write_text("\n".join(map(json.dumps, done)))
    assert taken(review, path, "pat") == dict(zip(rows, ("positive", "negative", "skip"), strict=True))


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_answers_come_back_with_all_the_pictures_that_went_out(review: Review, tmp_path: Path, ending: str) -> None:
    """Some hundred photographs are more than a file of settings may be; U+2028 in a text ends no line of the file."""
    path, row = tmp_path / f"tasks.{ending}", review.rows[0]
    shown = {"index": row, "name": review.samples.names[row], "image": "x" * (1 << 26), "text": "one\u2028two"}
    annotation = {"completed_by": ending, "result": [{"value": {"choices": ["negative"]}}]}
    prodigy = {"meta": shown, "answer": "reject", "_annotator_id": ending}
    said = [{"data": shown, "annotations": [annotation]}] if ending == "json" else prodigy
    path.write_text(json.dumps(said, ensure_ascii=False), encoding="utf-8")
    assert taken(review, path, ending) == {row: "negative"}


def test_csv(review: Review, tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    rows = written(review, path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1] + "positive", lines[2] + "0", lines[3]]))
    assert taken(review, path, "kim") == {rows[0]: "positive", rows[1]: "negative"}
    path.write_text(
        f"name,answer\n{review.samples.names[rows[2]].replace(chr(34), chr(34) * 2).join([chr(34)] * 2)},no\n"
    )
    assert taken(review, path, "kim")[rows[2]] == "negative"


@pytest.mark.parametrize("make", [image_run, volume_run])
def test_pictures_are_in_the_file_as_other_pages_may_open_no_files_of_this_machine(
    make, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "data").mkdir()
    review = review_of(make(tmp_path / "data"))
    rows = written(review, tmp_path / "tasks.json")
    written(review, tmp_path / "tasks.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    for row, task, line in zip(rows, json.loads((tmp_path / "tasks.json").read_text()), lines, strict=True):
        start, _, content = task["data"]["image"].partition("base64,")
        own = review.samples.original(row)
        assert start == "data:image/png;" and line["image"] == task["data"]["image"] and "image" not in line["meta"]
        assert base64.b64decode(content) == (own[0] if make is image_run else review.samples.picture(row))
    monkeypatch.setattr(exchange, "MOST_BYTES", 10)  # so that the original is a large one
    written(review, tmp_path / "tasks.json")
    content = json.loads((tmp_path / "tasks.json").read_text())[0]["data"]["image"].partition("base64,")[2]
    assert base64.b64decode(content) == review.samples.picture(rows[0])


def test_fiftyone(tmp_path: Path) -> None:
    """Its CSVDataset wants `filepath`, and writes the columns that it is asked for, in any order."""
    review = review_of(image_run(tmp_path / "data"))
    path = tmp_path / "tasks.csv"
    rows = written(review, path)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [Path(line["filepath"]).name for line in lines] == [Path(review.samples.names[row]).name for row in rows]
    assert all(Path(line["filepath"]).is_absolute() and Path(line["filepath"]).is_file() for line in lines)
    words = ("positive", "negative", "")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["filepath", "answer", "name", "index", "why"])
        for line, word in zip(lines, words, strict=True):
            writer.writerow([Path(line["filepath"]).name, word, line["name"], line["index"], line["why"]])
    assert taken(review, path, "fay") == {rows[0]: "positive", rows[1]: "negative"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("index,name,answer\n30,somebody else,positive\n", "another run's answers"),
        ("index,name,answer\n1,,positive\n", "row 1 is no unlabelled row"),
        ("index,name,answer\n999,,positive\n", "row 999 is no unlabelled row"),
        ("index,name,answer\n30,,perhaps\n", "is no answer"),
        ("name,answer\nnobody,positive\n", "names 0 samples"),
    ],
)
def test_answers_of_another_run_are_refused_whole(review: Review, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "answers.csv"
    good = "index,name,answer\n31,,positive\n"
    path.write_text(text if text.startswith("name") else good + text.partition("\n")[2])
    with pytest.raises(InputError, match=said):
        read_answers(path, review.samples, review.journal, "lee")
    assert not any(entry.reviewer == "lee" for entry in review.journal.entries())
    with pytest.raises(InputError, match="has no ending"):
        write_questions(tmp_path / "x.txt", review.samples, [], "gain")
    with pytest.raises(InputError, match="does not exist"):
        read_answers(tmp_path / "none.csv", review.samples, review.journal, "lee")
