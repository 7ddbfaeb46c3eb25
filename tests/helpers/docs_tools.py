"""The commands of the pages for users, and small files of the kinds that they name, so that each can really be run."""

import csv
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]
PIECES = re.compile(
    r"^ *```(?P<language>\w*)\n(?P<block>.*?)^ *```|^#+ (?P<heading>[^\n]+)$", flags=re.DOTALL | re.MULTILINE
)
INLINE = re.compile(r"`([^`\n]+)`")
PROGRAMS = ("splitpu", "torchrun", "curl", "pip", "python", "make", "ray")
ROWS = 620  # above 600 no networks are tried on a table, which is what takes time


class Shown(NamedTuple):
    """A command as a page shows it."""

    page: str
    section: str
    line: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line, comments=True)


def shown_commands(page: str) -> Iterator[Shown]:
    """Those of its blocks and those in the running text, in the order of the page, under the last heading."""
    section, text, at = "", (ROOT / page).read_text(encoding="utf-8"), 0
    for piece in PIECES.finditer(text):
        yield from (Shown(page, section, words) for words in _in_text(text[at : piece.start()]))
        at = piece.end()
        if piece["heading"]:
            section = piece["heading"]
        elif piece["language"] in ("", "bash", "sh"):
            lines = [line.strip() for line in piece["block"].splitlines()]
            yield from (Shown(page, section, line) for line in lines if line.split(" ")[0] in PROGRAMS)
    yield from (Shown(page, section, words) for words in _in_text(text[at:]))


def _in_text(text: str) -> Iterator[str]:
    """Whole commands; one that is only named, such as `splitpu predict`, is not."""
    alone = r"splitpu (methods|demo|data list|data get cifar10|fit --help)|make \w+|python .+|"
    alone += r"\w+ \w+ .*(RUN|=|\.|-|,).*|splitpu reproduce .+"
    for words in INLINE.findall(text):
        if words.split(" ")[0] in PROGRAMS and "..." not in words and re.fullmatch(alone, words):
            yield words


def write_files(section: str, words: list[str], here: Path) -> None:
    """What these words name and is not there yet, of the kind that the section is about."""
    for word in words:
        made = here / word.rstrip("/")
        writer = _writer(section, word)
        if writer is not None and not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            writer(made)


def _writer(section: str, word: str) -> Callable[[Path], None] | None:
    name = word.rstrip("/")
    if name in ("ill", "patients") or (section == "Volumes" and name in ("known", "others")):
        return write_patients
    if word.endswith("/") and name in SHARES:
        return write_pictures
    return FILES.get(word)


SHARES = {  # of positives in a folder of pictures
    **dict.fromkeys(("confirmed", "known", "a", "b", "test-positive", "more-confirmed"), 1.0),
    **dict.fromkeys(("scans", "others", "c", "new", "folder", "all", "new-images"), 0.4),
    "test-negative": 0.0,
}


def write_pictures(folder: Path) -> None:
    """Noise of 12 x 12 pixels, positives brighter on the left; every folder has other pictures."""
    folder.mkdir()
    random = np.random.default_rng(sum(map(ord, folder.name)))
    count = 24 if SHARES[folder.name] == 1 else 60
    for number in range(count):
        pixels = random.integers(0, 130, (12, 12))
        pixels[:, :6] += 110 * (number < count * SHARES[folder.name])
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{folder.name}-{number:03}.png")


def write_photo(path: Path) -> None:
    Image.fromarray(np.random.default_rng(5).integers(0, 240, (20, 16, 3)).astype(np.uint8)).save(path)


def write_patients(folder: Path) -> None:
    """Folders of DICOM files, of two series each, and one NIfTI file."""
    import nibabel
    from volume_tools import scan, write_series

    known = folder.name in ("ill", "known")
    for number in range(12 if known else 22):
        bright = known or number % 2 == 0
        volume = scan(bright, seed=number + 100 * known)
        if number == 0:
            folder.mkdir(parents=True)
            nibabel.save(nibabel.Nifti1Image(volume.transpose(2, 1, 0), np.eye(4)), folder / "whole T1 CE.nii")
            continue
        person = folder / f"person{number}"
        write_series(person, volume, description="T1 CE", number=f"{number}-4711")
        write_series(person / "more", volume[:2], description="T2", number=f"{number}-4711")


def write_names(path: Path) -> None:
    """Of the pictures in all/, the first twelve are known: labels beside a folder."""
    lines = [["name", "label"], *([f"all-{number:03}.png", int(number < 12)] for number in range(60))]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)


def people(seed: int) -> tuple[list[str], list[list[object]], np.ndarray, np.ndarray]:
    """The heading and the rows of a table, who is positive, and of whom that is known."""
    random = np.random.default_rng(seed)
    truth = random.random(ROWS) < 0.35
    known = truth & (random.random(ROWS) < 0.4)
    numbers = random.normal(size=(ROWS, 3)) + 1.6 * truth[:, None]
    wards, topics = random.choice(["north", "south"], ROWS), np.where(truth, "fever cough", "broken bone")
    rows = [
        [f"patient {at // 2:04}", ward, f"2026-03-{at % 28 + 1:02}", f"{topic} {at % 7}", *map(float, values)]
        for at, (ward, topic, values) in enumerate(zip(wards, topics, numbers, strict=True))
    ]
    return ["patient", "ward", "seen_on", "title", "age", "pressure", "sugar"], rows, truth, known


def write_table(label: str, positive: object = 1, other: object = 0, *, seed: int = 0, true: bool = False):
    """A writer of a table with such a column of labels; with none, of rows to score."""

    def write(path: Path) -> None:
        heading, rows, truth, known = people(seed)
        if path.parent.name.startswith("FILES"):
            heading = ["seen on" if name == "seen_on" else name for name in heading]
        if label:
            heading = [*heading, label]
            rows = [[*row, positive if one else other] for row, one in zip(rows, truth if true else known, strict=True)]
        if path.suffix == ".parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(
                pyarrow.table({name: [row[at] for row in rows] for at, name in enumerate(heading)}), path
            )
            return
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([heading, *rows])

    return write


def write_texts(path: Path) -> None:
    random = np.random.default_rng(2)
    kinds = (
        ["best", "ever", "amazing", "perfect", "buy", "now"],
        ["room", "was", "small", "near", "the", "station", "quiet"],
    )
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["review", "fake"])
        for number in range(ROWS):
            table.writerow([" ".join(random.choice(kinds[number % 3 > 0], 9)) + f" {number}", int(number % 9 == 0)])


def write_documents(path: Path) -> None:
    """A Parquet table with a column of embeddings."""
    import pyarrow
    from pyarrow import parquet

    _, rows, _, known = people(3)
    parquet.write_table(pyarrow.table({"embedding": [row[-3:] for row in rows], "relevant": known.astype(int)}), path)


def write_scans(path: Path) -> None:
    """Arrays X and s of small pictures, without test rows."""
    random = np.random.default_rng(4)
    truth = np.arange(80) % 2 == 0
    pixels = random.integers(0, 130, (80, 12, 12)) + 110 * truth[:, None, None] * (np.arange(12) < 6)
    np.savez(path, X=pixels.astype(np.uint8), s=(truth & (np.arange(80) % 6 == 0)).astype(int))


def write_vectors(share: float, count: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        random = np.random.default_rng(count)
        truth = random.random(count) < share
        np.save(path, (random.normal(size=(count, 4)) + 2 * truth[:, None]).astype(np.float32))

    return write


def write_settings(path: Path) -> None:
    """The file of settings that the guide shows, as it shows it."""
    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/GUIDE.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    path.write_text(shown, encoding="utf-8")


FILES: dict[str, Callable[[Path], None]] = {
    "patients.csv": write_table("confirmed"),
    "clinic.csv": write_table("diagnosis", "yes", ""),
    "visits.csv": write_table("confirmed"),
    "table.csv": write_table("s"),
    "table.parquet": write_table("status", "ill", "unknown"),
    "test.csv": write_table("status", "ill", "well", seed=1, true=True),
    "later.csv": write_table("confirmed", seed=1),
    "new.csv": write_table("", seed=1),
    "@new.csv": lambda path: write_table("", seed=1)(path.with_name("new.csv")),
    "reviews.csv": write_texts,
    "documents.parquet": write_documents,
    "names.csv": write_names,
    "photo.jpg": write_photo,
    "scans.npz": write_scans,
    "known.npy": write_vectors(1.0, 120),
    "others.npy": write_vectors(0.4, 500),
    "known-test.npy": write_vectors(1.0, 50),
    "negative-test.npy": write_vectors(0.0, 51),
    "my.toml": write_settings,
}
