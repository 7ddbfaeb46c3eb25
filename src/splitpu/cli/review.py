"""`splitpu review` and `splitpu refit`: ask a person about samples, and train again with what they said."""

import dataclasses
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any

from splitpu.cli.display import print_facts, print_json, print_note, print_table, title_of
from splitpu.cli.options import ReviewWords
from splitpu.errors import InputError
from splitpu.review.answers import Journal
from splitpu.runs.folder import RunFolder
from splitpu.utils.files import in_a_command


def run_review(run: str, *, asked: ReviewWords, json: bool) -> int:
    """Serve the page until somebody stops it; or hand questions to another program, or take its answers."""
    from splitpu.review.samples import Samples
    from splitpu.review.server import Review, ReviewServer, disagreements

    folder = RunFolder.find_trained(run)
    samples = Samples(folder)
    journal = Journal(folder.path, len(samples.data))
    if asked.to is not None or asked.answers is not None:
        return _exchange(folder, samples, journal, asked, json=json)
    server = ReviewServer(Review(samples, journal, reviewer=asked.reviewer, order=asked.order), asked.port)
    if json:
        print_json({"address": server.address, "reviewer": asked.reviewer, "journal": str(journal.path)})
    else:
        print(f"Review {len(server.review.rows):,} samples at {server.address} (Ctrl-C ends it)")
    sys.stdout.flush()  # a program that reads the address waits for it
    if not asked.no_browser:
        webbrowser.open(server.address)
    with suppress(KeyboardInterrupt):
        server.serve_forever()
    server.server_close()
    journal.write_table()
    progress = server.review.progress()
    if not json:
        print_facts({name: progress[name] for name in ("positive", "negative", "skip")})
        _note_audit(progress["audit"])
        print_note(disagreements(journal))
        print(f"Train with these answers: splitpu refit {in_a_command(folder.path)}")
    return 0


def _note_audit(audit: dict[str, Any] | None) -> None:
    if audit is not None:
        for name in ("accuracy", "prior"):
            said = "by {} answers in random order: {} {:.3f} (95 %: {:.3f} to {:.3f})"
            print_note(said.format(audit["answered"], name, *audit[name]))


def _exchange(folder: RunFolder, samples: Any, journal: Journal, asked: ReviewWords, *, json: bool) -> int:
    from splitpu.review.exchange import read_answers, write_questions
    from splitpu.review.server import audit_of

    facts: dict[str, Any] = {"run": str(folder.path)}
    if asked.answers is not None:
        facts["added"] = read_answers(asked.answers, samples, journal, asked.reviewer)
        journal.write_table()
        _note_audit(None if json else audit_of(samples.data, samples.decision, journal.said()))
    if asked.to is not None:
        done = journal.said()
        rows = [row for row in samples.order(asked.order).tolist() if row not in done][: asked.top]
        write_questions(asked.to, samples, rows, asked.order)
        facts |= {"written": len(rows), "to": str(asked.to)}
    (print_json if json else print_facts)(facts)
    return 0


def run_refit(run: str, *, out: Path | None, quiet: bool, json: bool) -> int:
    """Train a new run as the old one was asked for, with the answers of its review."""
    from splitpu.cli.progress import choose_display
    from splitpu.cli.train import train_and_show
    from splitpu.prior.estimate import ResolvedPrior, within_answers
    from splitpu.review.server import audit_of, disagreements
    from splitpu.runs.folder import load_request
    from splitpu.runs.report_data import changes
    from splitpu.runs.run import begin_run

    folder = RunFolder.find_trained(run)
    request = folder.request()
    journal = Journal(folder.path)
    labels = dict(request.source.answers) | dict(journal.labels())
    if not labels:
        asking = f"splitpu review {in_a_command(folder.path)}"
        raise InputError(f"nobody has answered anything about {folder.path}: {asking}")
    journal.write_table()
    display = choose_display(quiet=quiet)
    answers = tuple(sorted(labels.items()))
    source = dataclasses.replace(request.source, answers=answers, review_of=str(folder.path.resolve()))
    path = RunFolder.free_path(out, f"{source.title}-refit")
    with display.watching() as watch:
        loaded = load_request(request, display.say, watch)
    audit = audit_of(loaded.data, loaded.data.labelled, journal.said())  # of which only the prior matters
    plain = dataclasses.replace(loaded, data=dataclasses.replace(loaded.data, answers=None))
    loaded = plain.answered(answers)
    display.note(disagreements(journal))
    # Answers are no sample, unless they are of an audit, so the prior stays; but none is below what was found.
    prior = ResolvedPrior.from_dict(request.prior, request.prior_source, request.prior_estimate, request.doubts)
    if prior.estimate is not None:
        estimate = within_answers(prior.estimate, loaded.data, audit)
        prior = ResolvedPrior(estimate.value, estimate.interval, estimate.source, estimate, estimate.verdicts)
    elif prior.value is not None and audit and not audit["prior"][1] <= prior.value <= audit["prior"][2]:
        by = "by {} answers in random order it is {:.3f} ({:.3f} to {:.3f})".format(audit["answered"], *audit["prior"])
        display.note(f"the prior that was given is {prior.value:.3f}; {by}")
    refitted, _ = begin_run(path, dataclasses.replace(request, source=source), folder.config(), prior, loaded)
    display.say(f"data: {loaded.in_words()}")
    code = train_and_show(refitted, loaded, display, json=json)
    if not json:
        lines = changes(folder.read_result(), refitted.read_result(), len(answers))
        print_table([one | {"figure": title_of(one["figure"])} for one in lines], lines[0], "what the answers changed")
    return code
