"""The journal: an answer that was confirmed is never lost, and nobody's answer overwrites another's."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from splitpu.errors import InputError
from splitpu.review.answers import Entry, Journal


def answer(journal: Journal, row: int, word: str, who: str = "ann") -> None:
    journal.add(Entry(row, f"s{row}", word, who, "gain", "near the cut"))


def test_the_last_word_of_a_reviewer_counts_and_undo_takes_it_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.labels() == () and journal.undo("ann") is None
    answer(journal, 3, "positive")
    answer(journal, 5, "negative")
    answer(journal, 7, "skip")
    answer(journal, 3, "negative")
    assert Journal(tmp_path).labels() == ((3, -1), (5, -1))
    taken = journal.undo("ann")
    assert taken is not None and (taken.index, taken.answer) == (3, "negative")
    assert journal.labels() == ((3, 1), (5, -1))
    journal.undo("ann"), journal.undo("ann")
    assert journal.labels() == ((3, 1),)
    assert len(journal.path.read_text().splitlines()) == 7  # nothing is ever taken out


def test_two_reviewers_answer_for_themselves_and_a_disagreement_is_no_label(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)  # two servers
    answer(first, 1, "positive", "ann")
    answer(second, 1, "negative", "bob")
    answer(second, 2, "positive", "bob")
    answer(first, 2, "positive", "ann")
    answer(first, 4, "skip", "ann")
    answer(second, 4, "negative", "bob")
    for journal in (first, second):
        assert journal.labels() == ((2, 1), (4, -1))
        assert journal.said()[1].verdict == "disagreement"
    assert second.undo("bob") is not None and first.said()[4].verdict is None  # bob's, not ann's
    first.write_table()
    lines = first.table.read_text().splitlines()
    assert lines[0] == "index,name,answer,reviewers,said,order,time"
    assert lines[1].startswith('1,s1,disagreement,"ann, bob",positive negative,gain,')


def test_a_line_that_was_never_finished_does_not_count_and_the_next_one_does(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    answer(journal, 1, "positive")
    with journal.path.open("ab") as file:
        file.write(b'{"index": 2, "name": "s2", "answ')
    assert Journal(tmp_path).labels() == ((1, 1),)
    answer(Journal(tmp_path), 3, "negative")
    assert Journal(tmp_path).labels() == journal.labels() == ((1, 1), (3, -1))


@pytest.mark.parametrize("change", [lambda line: line.replace("positive", "negative"), lambda line: line[:-9] + "}"])
def test_a_line_that_was_changed_is_refused(tmp_path: Path, change) -> None:
    journal = Journal(tmp_path)
    answer(journal, 1, "positive")
    journal.path.write_text(change(journal.path.read_text().rstrip("\n")) + "\n")
    with pytest.raises(InputError, match=r"answers.jsonl cannot be read"):
        Journal(tmp_path).entries()


def test_what_is_no_answer_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, rows=5)
    with pytest.raises(InputError, match="no training row 5"):
        answer(journal, 5, "positive")
    with pytest.raises(InputError, match="is no answer"):
        answer(journal, 1, "maybe")
    for name in ("", "a\nb", " ann", "x" * 61):
        with pytest.raises(InputError, match="no name for a reviewer"):
            answer(journal, 1, "positive", name)
    assert not journal.path.exists()


def _many(folder: str, who: str) -> None:
    journal = Journal(Path(folder))
    for row in range(100):
        answer(journal, row, "positive", who)


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_many, args=(str(tmp_path), who)) for who in ("ann", "bob")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    entries = Journal(tmp_path).entries()
    assert sorted((one.reviewer, one.index) for one in entries) == [
        (who, row) for who in ("ann", "bob") for row in range(100)
    ]


def test_a_kill_loses_no_confirmed_answer(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from splitpu.review.answers import Entry, Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for row in range(10**6):\n"
        "    journal.add(Entry(row, f's{row}', 'positive', 'ann')); print(row, flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    confirmed = -1
    while confirmed < 20:
        confirmed = int(process.stdout.readline())
    time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split()
    confirmed = int(rest[-1]) if rest else confirmed
    process.wait()
    found = {row for row, _ in Journal(tmp_path).labels()}
    assert found >= set(range(confirmed + 1))
    assert all(json.loads(line) for line in Journal(tmp_path).path.read_text().split("\n")[: confirmed + 1])
