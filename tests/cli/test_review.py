"""`splitpu review` hands questions out and takes answers in; `splitpu refit` trains with them."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import must_refuse, run_cli
from review_tools import image_run, table_run, volume_run

from splitpu.data.sources import source_from_dict
from splitpu.review.answers import Entry, Journal
from splitpu.runs.folder import RunFolder, load_request
from splitpu.runs.report_data import changes


def answered(run: RunFolder, truth, count: int = 12) -> dict[int, int]:
    """Answers of an oracle about some unlabelled rows."""
    journal, told = Journal(run.path), {}
    for row in load_request(run.request()).data.unlabelled[::3][:count].tolist():
        journal.add(Entry(row, "", "positive" if truth[row] else "negative", "ann"))
        told[row] = 1 if truth[row] else -1
    return told


@pytest.mark.parametrize("make", [table_run, image_run, volume_run])
def test_a_refit_learns_the_answers_and_can_be_resumed_and_evaluated(make, tmp_path: Path, capsys) -> None:
    run = make(tmp_path)
    rows = len(load_request(run.request()).data)
    truth = np.arange(rows) < rows // 2
    told = answered(run, truth)
    assert {1, -1} == {*told.values()}
    out = tmp_path / "again"
    code, said, _ = run_cli(capsys, "refit", run.path, "--out", out, "--quiet")
    assert code == 0 and "change" in said
    again = RunFolder(out)
    request = again.request()
    assert dict(request.source.answers) == told and request.source.review_of == str(run.path.resolve())
    assert request.prior == run.request().prior
    data = load_request(request).data
    assert data.answers is not None and {row: int(data.answers[row]) for row in told} == told
    result, before = again.read_result(), run.read_result()
    assert (result["labelled"], result["unlabelled"]) == (before["labelled"], before["unlabelled"])
    report = again.report.read_text()
    assert "What the answers changed" in report and "splitpu refit RUN" in run.report.read_text()
    lines = changes(before, result, len(told))
    assert all(one["before"] in report and one["an answer"] in report for one in lines)
    gain = float(lines[-1]["after"]) - float(lines[-1]["before"])
    assert float(lines[-1]["an answer"]) == pytest.approx(gain / len(told), abs=1.1e-3 / len(told))
    if make is table_run:  # estimates, which tell little without their intervals
        assert " to " in lines[0]["before"] and "may be chance" in report
    assert run_cli(capsys, "resume", out)[0] == 0
    if make is table_run:  # which alone has figures without rows kept out
        assert run_cli(capsys, "evaluate", out)[0] == 0
    lines = [line.split(",") for line in (out / "split.csv").read_text().splitlines()[1:]]
    easy = {int(line[1]) for line in lines if "easy" in line}
    assert easy >= set(told)
    assert (run.path / "answers.csv").exists()
    # A review of the refit asks about the others, and a second refit keeps the answers of the first.
    other = next(row for row in data.unlabelled.tolist() if row not in told)
    Journal(out).add(Entry(other, "", "negative", "ann"))
    assert run_cli(capsys, "refit", out, "--out", tmp_path / "third", "--quiet")[0] == 0
    assert dict(RunFolder(tmp_path / "third").request().source.answers) == told | {other: -1}


def test_an_audit_tells_the_refit_its_prior(tmp_path: Path, capsys) -> None:
    given = table_run(tmp_path, rows=200)
    out = tmp_path / "estimated"
    table = tmp_path / "patients.csv"
    words = ["--label", "label", "--names", "id", "--ignore", "note", "--set=learner=logistic", "--quiet"]
    assert run_cli(capsys, "fit", table, *words, "--out", out)[0] == 0
    run = RunFolder(out)
    truth = np.arange(200) < 100
    data = load_request(run.request()).data
    for one, right in ((run, truth), (given, ~truth)):
        journal = Journal(one.path)
        for row in np.random.default_rng(0).permutation(data.unlabelled)[:120].tolist():
            journal.add(Entry(row, "", "positive" if right[row] else "negative", "ann", "random"))
    code, said, _ = run_cli(capsys, "refit", run.path, "--out", tmp_path / "again", "--quiet", "--json")
    result = json.loads(said)
    low, high = result["prior_interval"]
    assert code == 0 and low <= 0.5 <= high and high - low < 0.1
    again = RunFolder(tmp_path / "again").request()
    assert again.prior_source == "estimated by 120 answers in random order" and low <= again.prior <= high
    # A prior that was given stays, and the audit's is said where it is another one.
    code, _, noted = run_cli(capsys, "refit", given.path, "--out", tmp_path / "third")
    assert code == 0 and "by 120 answers in random order it is" in noted
    assert RunFolder(tmp_path / "third").request().prior == 0.5


def test_questions_go_out_and_answers_come_back_with_one_command_each(tmp_path: Path, capsys) -> None:
    run = table_run(tmp_path)
    must_refuse(capsys, "refit", run.path, saying="nobody has answered anything")
    tasks = tmp_path / "tasks.jsonl"
    code, said, _ = run_cli(capsys, "review", run.path, "--to", tasks, "--top", "4", "--order", "random", "--json")
    assert code == 0 and json.loads(said)["written"] == 4
    lines = [json.loads(line) | {"answer": "accept"} for line in tasks.read_text().splitlines()]
    tasks.write_text("\n".join(map(json.dumps, lines)))
    code, said, _ = run_cli(capsys, "review", run.path, "--from", tasks, "--as", "bob", "--json")
    assert code == 0 and json.loads(said)["added"] == 4
    assert {entry.order for entry in Journal(run.path).entries()} == {"random"}  # so they are an audit
    _, said, noted = run_cli(capsys, "review", run.path, "--from", tasks, "--as", "bob")
    assert "by 4 answers in random order: prior" in said + noted
    assert [sign for _, sign in Journal(run.path).labels()] == [1] * 4
    assert (run.path / "answers.csv").read_text().count("bob") == 4
    must_refuse(capsys, "review", run.path, "--from", tmp_path / "none.csv", saying="does not exist")
    must_refuse(capsys, "review", tmp_path / "nothing", saying="there is no run folder")


def test_a_source_without_answers_is_written_as_it_always_was(tmp_path: Path) -> None:
    source = table_run(tmp_path).request().source
    assert "answers" not in source.to_dict() and source_from_dict(source.to_dict()) == source
