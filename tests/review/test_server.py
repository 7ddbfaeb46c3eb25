"""The page's server: what it shows, what it refuses, and that an answer is on disk before it is confirmed."""

import http.client
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from review_tools import NASTY, image_run, review_of, served, table_run, text_run, volume_run

from splitpu.cli import main
from splitpu.errors import InputError
from splitpu.review.answers import Journal
from splitpu.review.server import Review, ReviewServer
from splitpu.runs.folder import RunFolder


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> RunFolder:
    return table_run(tmp_path_factory.mktemp("table"))


def ask(
    server: ReviewServer, path: str, sent: Any = None, *, token: str | None = None, **headers: str
) -> tuple[int, Any]:
    """Status and JSON, or bytes, of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    body = None if sent is None else (sent if isinstance(sent, bytes) else json.dumps(sent).encode())
    usual = {} if body is None else {"Content-Type": "application/json"}
    start = server.token if token is None else token
    connection.request("GET" if body is None else "POST", f"/{start}/{path}", body, usual | headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(content) if is_json else content


def test_answers_are_on_disk_and_come_back(table: RunFolder) -> None:
    server = served(table)
    status, found = ask(server, "list?count=3")
    assert status == 200 and found["total"] == 60 and len(found["samples"]) == 3 and found["reviewer"] == "ann"
    rows = [one["index"] for one in found["samples"]]
    begins = ask(server, "list?count=3&grid=1")[1]["samples"][0]["values"]
    assert [value.split(":")[0] for value in begins] == ["id", "age", "size"]
    for row, word in zip(rows, ("positive", "negative", "skip"), strict=True):
        status, progress = ask(server, "answer", {"index": row, "answer": word})
        assert status == 200
        assert Journal(table.path).said()[row].by["ann"].answer == word  # read from the file
    assert (progress["positive"], progress["negative"], progress["skip"], progress["answered"]) == (1, 1, 1, 3)
    assert ask(server, "list?state=negative&count=9")[1]["samples"][0]["index"] == rows[1]
    for by, row in ((1, rows[2]), (-1, rows[0])):
        assert ask(server, f"list?state=all&beside={rows[1]}&start={by}")[1]["samples"][0]["index"] == row
    assert ask(server, f"list?state=all&beside={rows[0]}&start=-1")[1]["samples"] == []
    assert rows[0] not in [one["index"] for one in ask(server, "list?count=100")[1]["samples"]]
    assert ask(server, "undo", {})[1]["index"] == rows[2]
    late = {"index": rows[0], "answer": "negative", "known": None}  # from a window that shows it as open
    status, said = ask(server, "answer", late)
    assert status == 400 and "another window changed it to positive" in said["error"]
    other = served(table, "bob")  # sees nothing of ann's answer before giving one
    assert ask(other, f"sample/{rows[0]}")[1]["others"] == []
    ask(other, "answer", {"index": rows[0], "answer": "negative"})
    assert ask(other, f"sample/{rows[0]}")[1]["others"] == [{"reviewer": "ann", "answer": "positive"}]
    assert ask(server, "list?state=disagreement")[1]["total"] == 1
    assert Journal(table.path).labels() == ((rows[1], -1),)
    assert "disagreement" in (table.path / "answers.csv").read_text()


def test_a_record_is_shown_as_it_was_written(table: RunFolder) -> None:
    review = review_of(table)
    row = review.rows[0]
    shown = review.whole(row)
    facts = {fact["column"]: fact for fact in shown["record"]}
    assert list(facts) == ["id", "age", "size", "colour", "note"]
    assert facts["note"]["value"].startswith(NASTY) and shown["name"] == f"{NASTY}{row}"
    assert facts["colour"]["value"] in ("red", "blue") and not facts["colour"]["number"]
    assert facts["colour"]["positives"] == (1.0 if facts["colour"]["value"] == "red" else 0.0)
    assert facts["age"]["number"] and 0 <= facts["age"]["positives"] <= facts["age"]["everyone"] + 0.5
    assert len(shown["nearest"]) == 4 and all(table_row["index"] < 20 for table_row in shown["nearest"])
    assert shown["why"].startswith("near the cut") and 0 <= shown["teacher"] <= 1


def test_texts_are_likened_by_their_words_and_not_by_how_short_they_are(tmp_path: Path) -> None:
    samples = review_of(text_run(tmp_path)).samples
    assert samples.data.is_sparse
    for row in range(20, 40):  # about fruit: no greeting shares a word with them
        assert all(near % 3 for near in samples.nearest(row))


@pytest.mark.parametrize(
    ("path", "sent", "words", "status"),
    [
        ("list", None, {"token": ""}, 403),
        ("list", None, {"token": "A" * 32}, 403),
        ("answer", {"index": 30, "answer": "positive"}, {"token": "wrong"}, 403),
        ("list", None, {"Host": "evil.example"}, 403),
        ("list", None, {"Origin": "https://evil.example"}, 403),
        ("list", None, {"Origin": "null"}, 403),
        ("list", None, {"Sec-Fetch-Site": "cross-site"}, 403),
        ("answer", {"index": 30, "answer": "positive"}, {"Origin": "http://evil.example"}, 403),
        ("answer", {"index": 30, "answer": "positive"}, {"Content-Type": "text/plain"}, 400),
        ("answer", {"index": 30, "answer": "undo"}, {}, 400),
        ("answer", {"index": True, "answer": "positive"}, {}, 400),
        ("answer", {"index": 1, "answer": "positive"}, {}, 400),  # a labelled row
        ("answer", {"index": 10**9, "answer": "positive"}, {}, 400),
        ("answer", b"[" * 5000, {}, 400),
        ("answer", b'"' + b"x" * 20_000 + b'"', {}, 400),
        ("answer", [1], {}, 400),
        ("sample/-1", None, {}, 400),
        ("sample/..%2f..%2fetc", None, {}, 400),
        ("picture/0", None, {}, 400),  # a table has no pictures
        ("original/99999", None, {}, 400),
        ("../../../../etc/passwd", None, {}, 404),
        ("..%2f..%2fetc/passwd", None, {}, 404),
        ("templates/review.html", None, {}, 404),
        ("review.css/../../answers.py", None, {}, 404),
        ("list?state=evil", None, {}, 400),
        ("list?count=x", None, {}, 400),
    ],
)
def test_what_is_refused(table: RunFolder, path: str, sent: Any, words: dict[str, str], status: int) -> None:
    server = served(table, "mallory")
    found, content = ask(server, path, sent, **words)
    assert found == status and "error" in content
    assert not any(entry.reviewer == "mallory" for entry in Journal(table.path).entries())


def test_the_page_asks_nothing_of_other_places_and_may_not(table: RunFolder) -> None:
    server = served(table)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", urlsplit(server.address).path)
    response = connection.getresponse()
    page = response.read().decode()
    assert response.status == 200 and server.server_address[0] == "127.0.0.1" and len(server.token) >= 32
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert response.headers["X-Content-Type-Options"] == "nosniff" and response.headers["Cache-Control"] == "no-store"
    for name in ("review.js", "review.css"):
        page += ask(server, name)[1].decode()
    assert "http" not in page.replace("https://", "http").replace("http-", "")
    assert "innerHTML" not in page and "eval(" not in page


def test_pictures_are_those_of_the_run_and_slices_can_be_scrolled(tmp_path: Path) -> None:
    images, volumes = image_run(tmp_path / "i"), volume_run_in(tmp_path / "v")
    server = served(images)
    row = server.review.rows[0]
    for path in (f"picture/{row}", f"original/{row}"):
        status, content = ask(server, path)
        assert status == 200 and content.startswith(b"\x89PNG")
    assert content == Path(server.review.samples.path(row)).read_bytes()  # type: ignore[arg-type]
    secret = tmp_path / "secret.png"
    secret.write_bytes(content)
    server.review.samples.names[row] = str(secret)  # whatever a row is called, only what the run found is read
    status, shown = ask(server, f"original/{row}")
    assert status == 200 and shown == ask(server, f"picture/{row}")[1]
    server = served(volumes)
    row = server.review.rows[0]
    assert ask(server, f"sample/{row}")[1]["slices"] == 6 and ask(server, f"sample/{row}")[1]["middle"] == 3
    assert ask(server, "list?grid=1")[1]["samples"][0]["values"] == []
    server.review.samples.data.features[row][:3] = 0  # slices that show nothing
    assert ask(server, f"sample/{row}")[1]["middle"] == 4
    slices = [ask(server, f"picture/{row}?at={at}")[1] for at in (0, 3, 5, 99)]
    assert slices[0] != slices[1] and slices[2] == slices[3]


def volume_run_in(folder: Path) -> RunFolder:
    folder.mkdir()
    return volume_run(folder)


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_hundred_thousand_samples_are_ready_in_two_seconds(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 100_000
    x = rng.normal(size=(rows, 3)).astype(np.float32) + 2 * (np.arange(rows) < 30_000)[:, None]
    labelled = (np.arange(rows) < 500).astype(int)
    path, more = tmp_path / f"many.{kind}", ["--label", "label", "--names", "name"] if kind == "csv" else []
    if kind == "npz":
        np.savez(path, X=x, s=labelled)
    else:
        lines = (f"{NASTY}{row},{','.join(map(str, one.round(3)))},{labelled[row]}" for row, one in enumerate(x))
        path.write_text("\n".join(["name,a,b,c,label", *(line.replace('"', "'") for line in lines)]))
    out = tmp_path / "run"
    words = ["fit", str(path), *more, "--prior", "0.3", "--method", "logistic", "--out", str(out), "--quiet"]
    assert main(words) == 0
    started = time.process_time()
    server = served(RunFolder(out))
    found = ask(server, "list?count=1")[1]
    assert ask(server, f"sample/{found['samples'][0]['index']}")[0] == 200 and found["total"] == 99_500
    spent = time.process_time() - started  # of this process, whatever else the machine does
    assert spent < 2, spent
    started = time.process_time()
    ask(server, "answer", {"index": found["samples"][0]["index"], "answer": "positive"})
    assert time.process_time() - started < 1


def test_a_reviewer_needs_a_name(table: RunFolder) -> None:
    review = review_of(table)
    with pytest.raises(InputError, match="no name for a reviewer"):
        Review(review.samples, review.journal, reviewer="", order="gain")
