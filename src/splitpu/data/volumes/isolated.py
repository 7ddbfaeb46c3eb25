"""Decoding in a process of its own, for a library that ends the whole process when it is given damaged bytes.

A line of JSON comes in, one and the values go out. If it dies or takes too long, that one file is the reason."""

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from splitpu.data.images.decode import BadImage
from splitpu.data.volumes.spec import SliceValues

LONGEST = 60.0  # seconds for the frames of a file


class DecoderApart:
    """The process, begun when first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def frames(self, path: str, frames: Sequence[int]) -> dict[int, SliceValues]:
        """As `load_frames`, whatever the file does to the decoder."""
        with self._lock:
            answer = self._answer(path, frames)
            if answer is None:  # it may have been ended for another reason before it was asked
                answer = self._answer(path, frames) or {"error": "is damaged so badly that its decoder gave up"}
        if "error" in answer:
            raise BadImage(answer["error"])
        return dict(zip(frames, answer["values"], strict=True))

    def _answer(self, path: str, frames: Sequence[int]) -> dict[str, Any] | None:
        """What the process says; None if it died over it."""
        process, begun = self._running(), time.monotonic()
        # Who takes too long is killed, as a pipe cannot be waited for with a limit everywhere.
        limit = threading.Timer(LONGEST, process.kill)
        limit.start()
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps([path, list(frames)]).encode() + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            if "shape" in answer:
                raw = process.stdout.read(4 * int(np.prod(answer["shape"])))
                answer["values"] = np.frombuffer(raw, np.float32).reshape(answer["shape"])
            return answer
        except (OSError, ValueError):  # it is gone in the middle of its work
            self.stop()
            late = time.monotonic() - begun >= LONGEST
            return {"error": f"takes its decoder longer than {LONGEST:.0f} seconds"} if late else None
        finally:
            limit.cancel()

    def stop(self) -> None:
        """End the process; the next file begins another."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(OSError), process:  # which closes its pipes and waits for its end
                process.kill()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            package = str(Path(__file__).parents[3])
            paths = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
            self._process = subprocess.Popen(
                [sys.executable, "-m", "splitpu.data.volumes.isolated"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what it says there is about files that we report on ourselves
                env={**os.environ, "PYTHONPATH": paths},
            )
        return self._process


def answer_requests(requests: BinaryIO, answers: BinaryIO) -> None:
    """What the process does until nobody asks any more."""
    from splitpu.data.volumes.dicom import decoded_here

    for line in requests:
        path, frames = json.loads(line)
        try:
            values = np.stack([*decoded_here(path, frames).values()]).astype(np.float32)
            content = values.tobytes()
            answer: dict[str, Any] = {"shape": values.shape}
        except BadImage as error:
            content, answer = b"", {"error": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n" + content)
        answers.flush()


DECODER = DecoderApart()
atexit.register(DECODER.stop)

if __name__ == "__main__":
    answer_requests(sys.stdin.buffer, sys.stdout.buffer)
