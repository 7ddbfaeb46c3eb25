"""Small finished runs to review, and a server for one."""

import csv
from pathlib import Path

import numpy as np

from splitpu.cli import main
from splitpu.report.charts import encode_png
from splitpu.review.answers import Journal
from splitpu.review.order import Order
from splitpu.review.samples import Samples
from splitpu.review.server import Review, ReviewServer
from splitpu.runs.folder import RunFolder

NASTY = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
TINY = [
    f"--set={one}" for one in ("learner=network", "base.epochs=1", "split.max_epochs=1", "student.epochs=1", "rounds=1")
]


def table_run(folder: Path, rows: int = 80) -> RunFolder:
    """A table with a category, a text and names that are markup; the truth is the sign of its first column."""
    rng = np.random.default_rng(0)
    truth = np.arange(rows) < rows // 2
    x = rng.normal(size=(rows, 2)) + 2.5 * truth[:, None]
    path = folder / "patients.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "age", "size", "colour", "note", "label"])
        for row in range(rows):
            note = f"{NASTY} seen on day {row}, " + "and nothing else was written " * 3
            colour = "red" if truth[row] else "blue"
            writer.writerow([f"{NASTY}{row}", *(f"{one:.3f}" for one in x[row]), colour, note, int(row < rows // 4)])
    words = ["fit", str(path), "--label", "label", "--names", "id", "--ignore", "note", "--prior", "0.5"]
    assert main([*words, "--set=learner=logistic", "--out", str(folder / "run"), "--quiet"]) == 0
    return RunFolder(folder / "run")


def text_run(folder: Path, rows: int = 80) -> RunFolder:
    """Texts about fruit or about tools; every third labelled one is a greeting of two words."""
    rng = np.random.default_rng(0)
    path = folder / "texts.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in range(rows):
            words = [f"{'tool' if row >= rows // 2 else 'fruit'}{kind}" for kind in rng.choice(30, 8, replace=False)]
            labelled = row < rows // 4
            writer.writerow(["thanks everybody" if labelled and row % 3 == 0 else " ".join(words), int(labelled)])
    words = ["fit", str(path), "--label", "label", "--prior", "0.5", "--text", "text", "--set=learner=logistic"]
    assert main([*words, "--out", str(folder / "run"), "--quiet"]) == 0
    return RunFolder(folder / "run")


def image_run(folder: Path, rows: int = 48) -> RunFolder:
    """Pictures in two folders: bright in the middle, or not."""
    rng = np.random.default_rng(0)
    for side in ("known", "others"):
        (folder / side).mkdir(parents=True)
    for row in range(rows):
        pixels = rng.integers(0, 90, size=(24, 24, 1), dtype=np.uint8)
        if row < rows // 2:
            pixels[8:16, 8:16] += 150
        (folder / ("known" if row < rows // 4 else "others") / f"p{row:03d}.png").write_bytes(encode_png(pixels))
    words = ["fit", "--positives", str(folder / "known"), "--unlabelled", str(folder / "others"), "--prior", "0.5"]
    assert main([*words, *TINY, "--size", "24", "--out", str(folder / "run"), "--quiet"]) == 0
    return RunFolder(folder / "run")


def volume_run(folder: Path, rows: int = 48) -> RunFolder:
    """Volumes of six slices."""
    rng = np.random.default_rng(0)
    volumes = rng.integers(1, 90, size=(rows, 6, 16, 16, 1), dtype=np.uint8)
    volumes[: rows // 2, 2:5, 5:11, 5:11] += 150
    names = [f"v{row}" for row in range(rows)]
    np.savez(folder / "volumes.npz", X=volumes, s=(np.arange(rows) < rows // 4).astype(int), names=names)
    words = ["fit", str(folder / "volumes.npz"), "--prior", "0.5", *TINY]
    assert main([*words, "--out", str(folder / "run"), "--quiet"]) == 0
    return RunFolder(folder / "run")


def review_of(run: RunFolder, reviewer: str = "ann", order: Order = "gain") -> Review:
    samples = Samples(run)
    return Review(samples, Journal(run.path, len(samples.data)), reviewer=reviewer, order=order)


def served(run: RunFolder, reviewer: str = "ann", order: Order = "gain") -> ReviewServer:
    server = ReviewServer(review_of(run, reviewer, order))
    server.start()
    return server
