"""Two minutes of the campaign; all of it is `make faults`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import hostile
import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")
PATIENT = os.environ | {"OMP_NUM_THREADS": "1", "FAULTS_SECONDS": "90"}  # tests share their cores with others


def campaign(*words: object) -> str:
    """In a process of its own, which may fork: the one that runs the tests has threads."""
    command = [sys.executable, str(CAMPAIGN), "--hands", "1", *map(str, words)]
    done = subprocess.run(command, env=PATIENT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kills_mutations_power_losses_full_memory_and_two_at_once() -> None:
    counts = {"kills": 10, "mutations": 90, "hostile": 30, "power": 8, "memory": 4, "two": 2}
    said = campaign("--seed", 1000, *(word for part, count in counts.items() for word in (f"--{part}", count)))
    assert "0 faults in all" in said and "mutations: 90 tried" in said


FOUND = [  # each took the memory, the time or the process, or was taken for what it is not
    "model of shape [4000, 4000, 3]",
    "20,000 members",
    "NaN weights",
    "a lacking tensor",
    'model says {"inputs": "x"}',
    'model says {"config": {"members": 100000000}}',
    "model.safetensors is a pipe",
    "model.json is a pipe",
    "model.json is /dev/zero",
    "request.json is invalid UTF-8",
    "result.json is deep nesting",
    "request.json is 5,000 digits",
    "split.csv is invalid UTF-8",
    "config.toml is deep nesting",
    "an .npz of 4 GB",
    "a deflated DICOM of 3 GB",
    "a .nii.gz of 3.2 GB",
    "Parquet of 60 million rows",
    "a PNG of 1 x 88 million pixels",
    "CSV: a line of 1 GB",
    "CSV: invalid UTF-8",
    "--set engine.threads=100000",
    "--set members=100000000",
    "--set rounds=9223372036854775808",
    "--config: a key of 20,000 parts",
    "--config: 5,000 digits",
    "Parquet ns 1600000000000000001",
    "Parquet duration 123456789001",
    "Parquet s 10000000000000",
    "names of files",
    "names of rows",
]


def test_what_was_found_by_others() -> None:
    known = {case.name for case in hostile.cases()}
    shapes = [name for name in known if name.startswith(".npy ")][:6]
    assert set(FOUND) <= known, set(FOUND) - known
    said = campaign(*(word for name in [*FOUND, *shapes] for word in ("--case", name)))
    assert "0 faults in all" in said


@pytest.mark.parametrize("name", ["a PNG of 1 x 88 million pixels", "--config: a key of 20,000 parts"])
def test_what_is_refused_is_refused_before_it_takes_memory(name: str) -> None:
    """Each took more than a gigabyte in one process, which is below what the campaign calls a fault."""
    said = campaign("--case", name)
    assert int(re.findall(r"largest (\d+) MB", said)[0]) < 700


@pytest.mark.parametrize("seed", [0, 1])
def test_other_seeds_try_other_things(seed: int) -> None:
    """A campaign that always does the same would soon find nothing."""
    import random

    from mutations import ALL

    text = b'{"a": [1, 2.5, "x"], "b": {"c": null}}\n' * 3
    made = {change(text, random.Random(f"{seed} {at}")) for change in ALL.values() for at in range(20)}
    assert len(made) > 100
