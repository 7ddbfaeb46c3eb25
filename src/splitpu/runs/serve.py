"""`splitpu serve`: one endpoint that scores an image or rows of a table, and one page to try it with.

It listens on the loopback address unless told otherwise, answers to that address only (a page that was made to point
here is refused), and reads what it is sent as the command line reads files, with the same limits."""

import json
import tempfile
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from splitpu.data.sources import read_new_rows
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError, SplitPUError
from splitpu.evaluation.calibration import sigmoid
from splitpu.model import Model
from splitpu.report.contents import TEMPLATES
from splitpu.runs.folder import RunFolder

MOST_BYTES = 64 << 20  # of one request
_KINDS = {"text/csv": ".csv", "application/x-npy": ".npy"}
_KINDS |= {"image/png": ".png", "image/jpeg": ".jpg", "image/tiff": ".tif", "image/webp": ".webp"}
_PAGES = {"/": ("serve.html", "text/html"), "/serve.js": ("serve.js", "text/javascript")}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class LocalServer(ThreadingHTTPServer):
    """What every server of ours has in common: an address of this machine, and requests of its own page alone."""

    daemon_threads = True

    def __init__(self, handler: type["LocalHandler"], host: str, port: int) -> None:
        try:
            super().__init__((host, port), handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"{host}, port {port} cannot be used ({error}): give another --port") from None

    def refuses(self, headers: Mapping[str, str]) -> bool:
        """Whether a request comes from another page, or from one that was made to point here by another name.

        Who listens to other machines takes any name, but no other page."""
        host, origin = headers.get("Host", ""), headers.get("Origin")
        name = host.rpartition(":")[0].strip("[]") if ":" in host else host
        ours = self.server_address[0] not in _LOOPBACK or name in _LOOPBACK
        site = headers.get("Sec-Fetch-Site", "same-origin")
        return not ours or origin not in (None, f"http://{host}") or site not in ("same-origin", "none")


class LocalHandler(BaseHTTPRequestHandler):
    """Answers what the server does not refuse; a mistake of who asks is one sentence in JSON."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "splitpu", ""
    timeout = 60  # seconds for a request that does not come to its end
    policy = "default-src 'none'"  # what the page may load

    get: Any  # what a page asks for
    post: Any  # what a page sends

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing of what is asked is written down."""

    def do_GET(self) -> None:
        self._answered(self.get)

    def do_POST(self) -> None:
        self._answered(self.post)

    def _answered(self, work: Callable[[], None]) -> None:
        try:
            if self.server.refuses(cast(Mapping[str, str], self.headers)):
                raise PermissionError("requests of other pages are refused")
            work()
        except PermissionError as error:
            self.close_connection = True  # what else was sent is not read
            self.send(HTTPStatus.FORBIDDEN, {"error": str(error)})
        except (SplitPUError, ValueError, KeyError, IndexError, RecursionError) as error:
            self.send(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
        except OSError as error:
            self.send(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})

    def send(self, status: HTTPStatus, content: Any, kind: str = "application/json") -> None:
        """Bytes as they are, anything else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{self.policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "private, max-age=3600" if kind.startswith("image/") else "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class ScoringServer(LocalServer):
    """Serves the final model of a run until it is closed; `POST /score` with an image or a CSV gives JSON."""

    def __init__(self, run: RunFolder, *, host: str = "127.0.0.1", port: int = 8000, device: str = "auto") -> None:
        self.model, self.hardware = Model.load(run.path), Hardware.choose(device)
        kind = (self.model.inputs or {}).get("kind", self.model.preprocessing.kind)
        self.facts = {"run": run.path.name, "kind": kind}
        self._one_at_a_time = threading.Lock()
        super().__init__(_Handler, host, port)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{self.server_address[0]!s}:{self.server_port}/"

    def score(self, content: bytes, ending: str) -> list[dict[str, Any]]:
        """Name, probability and decision of every row that was sent."""
        with tempfile.TemporaryDirectory(prefix="splitpu-serve-") as folder:
            path = Path(folder) / f"sent{ending}"
            path.write_bytes(content)
            try:
                rows = read_new_rows(path, self.model, strict=True)
                self.model.preprocessing.check(rows.features, "what was sent")
            except SplitPUError as error:
                raise InputError(str(error).replace(str(path), "what was sent")) from error
            with self._one_at_a_time:
                decision = self.model.decision(rows.features, self.hardware)
        names = rows.names or [""] * len(decision)
        return [
            {"name": name, "probability": float(f"{share:.6g}"), "decision": self.model.classes[int(logit > 0)]}
            for name, share, logit in zip(names, sigmoid(decision), decision, strict=True)
        ]


class _Handler(LocalHandler):
    server: ScoringServer
    policy = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; img-src blob:"

    def get(self) -> None:
        if self.path == "/facts":
            return self.send(HTTPStatus.OK, self.server.facts)
        if self.path not in _PAGES:
            return self.send(HTTPStatus.NOT_FOUND, {"error": "there is nothing here: POST to /score"})
        name, kind = _PAGES[self.path]
        self.send(HTTPStatus.OK, (TEMPLATES / name).read_bytes(), f"{kind}; charset=utf-8")

    def post(self) -> None:
        length, kind = self.headers.get("Content-Length", ""), self.headers.get_content_type()
        if self.path != "/score" or not length.isdecimal() or int(length) > MOST_BYTES or kind not in _KINDS:
            self.close_connection = True  # what else was sent is not read
            known = ", ".join(_KINDS)
            raise InputError(f"POST at most {MOST_BYTES >> 20} MB to /score, with a Content-Type of {known}")
        self.send(HTTPStatus.OK, {"scores": self.server.score(self.rfile.read(int(length)), _KINDS[kind])})
