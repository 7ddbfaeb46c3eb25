"""The server: one endpoint with the answers of `predict`, deaf to other pages and to what is too much."""

import csv
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_tools import must_do
from webdriver import opened_browser

from splitpu.runs.folder import RunFolder
from splitpu.runs.serve import MOST_BYTES, ScoringServer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ScoringServer, Path]]:
    folder, random = tmp_path_factory.mktemp("served"), np.random.default_rng(0)
    with (folder / "rows.csv").open("w") as file:
        file.write("a,b,label\n")
        for number in range(80):
            a, b = random.normal(size=2) + 2 * (number % 2)
            file.write(f"{a},{b},{int(number % 4 == 1)}\n")
    words = ["--label", "label", "--method", "logistic", "--prior", 0.5, "--out", folder / "run", "--quiet"]
    must_do("fit", folder / "rows.csv", *words)
    server = ScoringServer(RunFolder(folder / "run"), port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, folder
    server.shutdown()
    server.server_close()


def ask(server: ScoringServer, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, sent)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_answers_are_those_of_predict(served: tuple[ScoringServer, Path], tmp_path: Path) -> None:
    server, folder = served
    (tmp_path / "new.csv").write_text("a,b\n0.1,0.2\n2.5,3\n")
    must_do("predict", folder / "run", tmp_path / "new.csv", "--out", tmp_path / "scores.csv")
    status, body = ask(server, "POST", "/score", (tmp_path / "new.csv").read_bytes(), Content_Type="text/csv")
    assert status == 200
    with (tmp_path / "scores.csv").open(newline="") as file:
        expected = [(float(row["probability"]), row["decision"]) for row in csv.DictReader(file)]
    assert [(one["probability"], str(one["decision"])) for one in json.loads(body)["scores"]] == expected


def test_the_page_and_its_script(served: tuple[ScoringServer, Path]) -> None:
    server, _ = served
    assert ask(server, "GET", "/")[0] == ask(server, "GET", "/serve.js")[0] == 200
    assert json.loads(ask(server, "GET", "/facts")[1]) == {"run": "run", "kind": "table"}
    assert ask(server, "GET", "/../model.json")[0] == 404


def test_a_file_is_dropped_and_rows_are_pasted(served: tuple[ScoringServer, Path], tmp_path: Path) -> None:
    server, _ = served
    with opened_browser(tmp_path) as browser:
        browser.go(server.address)
        browser.wait(lambda: browser.text("#run") == "run (table)")
        browser.run("document.querySelector('#rows').value = 'a,b\\n0.1,0.2\\n2.5,3'")
        browser.run("document.querySelector('#score').click()")
        rows = browser.wait(lambda: browser.text("#scores")).splitlines()
        assert len(rows) == 3 and rows[2].startswith("row 1") and rows[2].endswith("1")
        browser.run(
            "const all = new DataTransfer(); all.items.add(new File(['a,c\\n1,2'], 'new.csv'));"
            "document.querySelector('#drop').dispatchEvent(new DragEvent('drop', { dataTransfer: all }))"
        )
        assert "'b'" in browser.wait(lambda: browser.text("#said").removeprefix("scoring ..."))


def test_wrong_requests_get_a_sentence(served: tuple[ScoringServer, Path]) -> None:
    server, _ = served
    status, body = ask(server, "POST", "/score", b"c,d\n1,2\n", Content_Type="text/csv")
    assert status == 400 and "what was sent" in json.loads(body)["error"] and "/tmp" not in json.loads(body)["error"]
    assert ask(server, "POST", "/score", b"GIF89a", Content_Type="image/gif")[0] == 400
    assert ask(server, "POST", "/elsewhere", b"a,b\n1,2\n", Content_Type="text/csv")[0] == 400
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest("POST", "/score")
    connection.putheader("Content-Type", "text/csv")
    connection.putheader("Content-Length", str(MOST_BYTES + 1))
    connection.endheaders()
    assert connection.getresponse().status == 400


def test_other_pages_are_refused(served: tuple[ScoringServer, Path]) -> None:
    server, _ = served
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "GET", "/", Host="evil.example:80")[0] == 403
    assert ask(server, "POST", "/score", b"a,b\n1,2\n", Content_Type="text/csv", Origin="http://evil.example")[0] == 403
