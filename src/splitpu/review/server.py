"""The page for reviewers: a small server of the standard library, for this machine alone.

It listens on the loopback address only. Every address begins with a random token, which nobody else can guess; requests
that name another host (as a page does that was made to point here) or come from another page are refused. The page asks
nothing of any other place, and an answer is on disk before it is confirmed."""

import hmac
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from splitpu.data.pudata import PUData
from splitpu.data.tables.read import shown
from splitpu.errors import InputError
from splitpu.review.answers import SIGN, Entry, Journal, Said
from splitpu.review.order import Order, audit
from splitpu.review.samples import Samples
from splitpu.runs.serve import LocalHandler, LocalServer
from splitpu.types import Mask
from splitpu.utils.reading import json_loads
from splitpu.utils.text import listed

_FILES = {"": ("review.html", "text/html"), "review.css": ("review.css", "text/css")}
_FILES |= {"review.js": ("review.js", "text/javascript")}
MOST_SENT = 10_000  # bytes of a request
MOST_LISTED = 200  # samples in one answer
STATES = ("open", "answered", "positive", "negative", "skip", "disagreement", "all")


class Review:
    """One reviewer's view of a run: the samples in their order, and what was said of them."""

    def __init__(self, samples: Samples, journal: Journal, *, reviewer: str, order: Order) -> None:
        self.samples, self.journal, self.reviewer, self.order = samples, journal, reviewer, order
        Entry(0, "", "skip", reviewer)  # refuses a name that is none
        self.rows: list[int] = samples.order(order).tolist()
        self.places = {row: place for place, row in enumerate(self.rows)}
        self._table_time = 0.0

    def listing(self, wanted: Mapping[str, str]) -> dict[str, Any]:
        """The samples that are in a state and have a text in their names, a few of them; and how far the review is.

        Which few: `count` from `start` on, or from `start` places behind the row `beside`, where it is listed."""
        state, text = wanted.get("state", "open"), wanted.get("text", "").casefold()
        start, count = int(wanted.get("start", 0)), int(wanted.get("count", 1))
        if state not in STATES:
            raise InputError(f"{state!r:.40} is no state of a sample: one of {', '.join(STATES)}")
        said = self.journal.said()
        rows = [row for row in self.rows if self._in_state(said.get(row), state) and text in self.name(row).casefold()]
        if "beside" in wanted:  # which may have left the list
            start = start + rows.index(beside) if (beside := int(wanted["beside"])) in rows else 0
        some = rows[start : start + min(count, MOST_LISTED)] if start >= 0 and count > 0 else []
        found = [self.brief(row, said.get(row)) for row in some]
        for one in found if "grid" in wanted else ():
            one["values"] = self.values(one["index"])
        return {"samples": found, "total": len(rows), "progress": self.progress(said)}

    def _in_state(self, said: Said | None, state: str) -> bool:
        mine = None if said is None else said.by.get(self.reviewer)
        if state in ("all", "open", "answered"):
            return state == "all" or (mine is None) == (state == "open")
        if state == "disagreement":  # of others nothing is shown before one has answered
            return said is not None and mine is not None and said.verdict == "disagreement"
        return mine is not None and mine.answer == state

    def name(self, row: int) -> str:
        return self.samples.names[row] or f"row {row}"

    def brief(self, row: int, said: Said | None) -> dict[str, Any]:
        """What a list shows of a sample."""
        mine = None if said is None else said.by.get(self.reviewer)
        others = [] if said is None or mine is None else [one for one in said.by.values() if one is not mine]
        about: dict[str, Any] = {"index": row, "place": self.places.get(row), "name": self.name(row)}
        about |= {"probability": round(float(self.samples.probability[row]), 4), "mine": mine.answer if mine else None}
        return about | {"others": [{"reviewer": one.reviewer, "answer": one.answer} for one in others]}

    def values(self, row: int) -> list[str]:
        """How a record begins, for the grid."""
        record = self.samples.written(row).items() if self.samples.kind == "record" else ()
        return [f"{name}: {shown(one)[:80]}" for name, one in list(record)[:3]]

    def whole(self, row: int) -> dict[str, Any]:
        """All that is shown of a sample."""
        samples = self.samples
        if not 0 <= row < len(samples.data):
            raise InputError(f"there is no row {row}")
        found = self.brief(row, self.journal.said().get(row)) | {
            "kind": samples.kind,
            "teacher": round(float(samples.teacher[row]), 4),
            "decision": bool(samples.decision[row]),
            "why": samples.reason(row, self.order),
            **dict(zip(("slices", "middle"), samples.slices(row), strict=True)),
            "nearest": [{"index": one, "name": self.name(one)} for one in samples.nearest(row)],
        }
        if samples.kind == "record":
            found["record"] = [asdict(fact) for fact in samples.record(row)]
            for near in found["nearest"]:
                near["record"] = {name: shown(one) for name, one in samples.written(near["index"]).items()}
        return found

    def answer(self, row: int, answer: str, known: str | None) -> None:
        """Have an answer on disk; `known` is what the page believes was answered before."""
        if row not in self.places:
            raise InputError(f"row {row} is not asked about: it is labelled, or there is none")
        mine = self.brief(row, self.journal.said().get(row))["mine"]
        if mine != known:
            raise InputError(f"another window changed it to {mine or 'not answered'}: answer again if that is wrong")
        why = self.samples.reason(row, self.order)
        self.journal.add(Entry(row, self.samples.names[row], answer, self.reviewer, self.order, why))  # type: ignore[arg-type]
        self.write_table()

    def write_table(self, *, at_least_every: float = 2.0) -> None:
        """Keep `answers.csv` fresh, without writing it for every one of many answers."""
        if time.monotonic() - self._table_time >= at_least_every:
            self.journal.write_table()
            self._table_time = time.monotonic()

    def progress(self, said: dict[int, Said] | None = None) -> dict[str, Any]:
        """How much is answered, and what an audit says so far."""
        said = self.journal.said() if said is None else said
        mine = [one.by[self.reviewer] for row, one in said.items() if self.reviewer in one.by and row in self.places]
        counts = {word: sum(entry.answer == word for entry in mine) for word in ("positive", "negative", "skip")}
        differ = sum(one.verdict == "disagreement" for one in said.values())
        counts |= {"answered": len(mine), "total": len(self.rows), "disagreement": differ}
        return counts | {"audit": audit_of(self.samples.data, self.samples.decision, said)}


def audit_of(data: PUData, decisions: Mask, said: dict[int, Said]) -> dict[str, Any] | None:
    """Accuracy and prior by the answers that were given in random order; rows answered in another one are known."""
    known = data.labels_known.copy()
    drawn = {row: all(entry.order == "random" for entry in one.by.values()) for row, one in said.items()}
    decided = {row: SIGN[one.verdict] for row, one in said.items() if one.verdict in SIGN}
    for row, sign in decided.items():
        known[row] = 0 if drawn[row] else sign
    rows = np.array([row for row in decided if drawn[row]], dtype=np.int64)
    truth = np.array([decided[row] > 0 for row in rows.tolist()], dtype=bool)
    signs = known[data.population]
    found = audit(truth, decisions[rows], int((signs == 0).sum()), (int((signs > 0).sum()), int((signs < 0).sum())))
    return None if found is None else found | {"undecided": sum(drawn.values()) - len(rows)}


class _Handler(LocalHandler):
    """Answers requests of the page, and refuses all others."""

    server: "ReviewServer"
    policy = "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'"

    def get(self) -> None:
        self._get(*self._behind_token())

    def post(self) -> None:
        self._post(self._behind_token()[0])

    def _behind_token(self) -> tuple[str, dict[str, list[str]]]:
        """Path and query behind the token; PermissionError without it."""
        split = urlsplit(self.path)
        token, _, rest = split.path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise PermissionError("the address lacks the token that 'splitpu review' printed")
        return rest, parse_qs(split.query)

    def _get(self, path: str, query: dict[str, list[str]]) -> None:
        review = self.server.review
        if path in _FILES:
            name, kind = _FILES[path]
            content = resources.files("splitpu.review").joinpath("templates", name).read_bytes()
            return self.send(HTTPStatus.OK, content, f"{kind}; charset=utf-8")
        part, _, rest = path.partition("/")
        first = {name: values[0] for name, values in query.items()}
        if part == "list":
            about = {"reviewer": review.reviewer, "order": review.order}
            return self.send(HTTPStatus.OK, review.listing(first) | about)
        if part == "sample":
            return self.send(HTTPStatus.OK, review.whole(int(rest)))
        if part in ("picture", "original"):
            row = int(rest)
            if not 0 <= row < len(review.samples.data):
                raise InputError(f"there is no row {row}")
            content, kind = (review.samples.original(row) if part == "original" else None) or (b"", "image/png")
            content = content or review.samples.picture(row, int(first["at"]) if "at" in first else None)
            return self.send(HTTPStatus.OK, content, kind)
        return self.send(HTTPStatus.NOT_FOUND, {"error": "there is nothing here"})

    def _post(self, path: str) -> None:
        review = self.server.review
        length = int(self.headers.get("Content-Length", -1))
        if not 0 <= length <= MOST_SENT or self.headers.get_content_type() != "application/json":
            self.close_connection = True
            raise ValueError("send one short JSON object")
        sent = json_loads(self.rfile.read(length))
        if not isinstance(sent, dict):
            raise ValueError("send one short JSON object")
        if path == "answer":
            if type(sent.get("index")) is not int or sent.get("answer") not in ("positive", "negative", "skip"):
                raise ValueError("send an index and an answer: positive, negative or skip")
            review.answer(sent["index"], sent["answer"], sent.get("known"))
            return self.send(HTTPStatus.OK, review.progress())
        if path == "undo":
            taken = review.journal.undo(review.reviewer, review.order)
            review.write_table()
            return self.send(HTTPStatus.OK, {"index": None if taken is None else taken.index} | review.progress())
        return self.send(HTTPStatus.NOT_FOUND, {"error": "there is nothing here"})


class ReviewServer(LocalServer):
    """Serves one review on the loopback address until it is closed."""

    def __init__(self, review: Review, port: int = 0, token: str | None = None) -> None:
        self.review, self.token = review, token or secrets.token_urlsafe(24)
        super().__init__(_Handler, "127.0.0.1", port)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def start(self) -> threading.Thread:
        """Serve in a thread."""
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        return thread


def disagreements(journal: Journal) -> str:
    """Which samples reviewers do not agree on, in words; nothing where there are none."""
    found = [said.name or f"row {said.index}" for said in journal.said().values() if said.verdict == "disagreement"]
    return f"{len(found):,} samples have two different answers and are left out: {listed(found)}" if found else ""
