"""The pages' scripts for Slurm, given to a real Slurm of two nodes on this machine (in Debian: slurm-wlm and munge)."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_tools import must_do
from docs_tools import ROOT, write_pictures, write_scans
from PIL import Image

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or None in [shutil.which(one) for one in PROGRAMS], reason="no Slurm here, or not root"
)

PATIENCE = 60  # seconds for the daemons to find one another
QUICK = "--prior 0.5 --set base.epochs=1 --set split.max_epochs=1 --set student.epochs=1 --set split.tau=0.01"
# The first node, by name, is this machine itself, as the script of several machines asks for it; the GPUs are made up.
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 Gres=gpu:4
NodeName=zz-{host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 Gres=gpu:4
PartitionName=all Nodes=ALL Default=YES
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` reaches the cluster, and jobs find this splitpu."""
    folder, host = tmp_path_factory.mktemp("slurm"), socket.gethostname().partition(".")[0]
    for name in ("state", host, f"zz-{host}"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=folder, ports=free_ports(3)))
    for number in range(4):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-3]\n")
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    folder.chmod(0o711)
    places = {name: folder / f"munge.{name}" for name in ("socket", "key", "pid", "log", "seed")}
    munged = [f"--{name}{'' if name == 'socket' else '-file'}={place}" for name, place in places.items()]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path, "OMP_NUM_THREADS": "1"}
    commands = [["munged", "--foreground", "--force", *munged], ["slurmctld", "-D"]]
    commands += [["slurmd", "-D", "-N", node] for node in (host, f"zz-{host}")]
    daemons = []
    try:
        for command in commands:
            log = (folder / f"{command[0]}.said").open("ab")
            daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            time.sleep(1)  # each has to find the one before
        deadline = time.monotonic() + PATIENCE
        while said(["sinfo", "--noheader", "--format=%T %D"], environment) != "idle 2":
            logs = "\n".join(one.read_text(errors="replace")[-1500:] for one in folder.glob("*.said"))
            assert time.monotonic() < deadline and not any(one.poll() for one in daemons), logs
            time.sleep(0.5)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(PATIENCE)


def said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()


def script_of(page: str) -> str:
    """The one script of a page for `sbatch`."""
    (script,) = re.findall(
        r"^```\w+\n(#!/bin/bash\n.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert "#SBATCH" in script
    return script


def submit(script: str, slurm: dict[str, str]) -> str:
    """Give a script to `sbatch`, here; what the job, or all tasks of an array, said."""
    Path("job.sh").write_text(script)
    ended = subprocess.run(["sbatch", "--wait", "job.sh"], env=slurm, capture_output=True, text=True, check=False)
    told = "\n".join(file.read_text() for file in sorted(Path().glob("slurm-*.out")))
    assert ended.returncode == 0, ended.stderr + told
    return told


def test_one_training_on_two_machines(slurm: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_scans(Path("scans.npz"))
    script = script_of("docs/tutorials/processes.md")
    told = submit(script.replace("--out run", f"--out run {QUICK}"), slurm)
    assert "8 processes" in told and "round 2 student" in told, told
    assert Path("run/report.html").is_file()
    assert len(Path("run/scores.csv").read_text().splitlines()) == 81


def test_an_array_scores_every_image_once(
    slurm: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("confirmed", "scans"):
        write_pictures(Path(folder))
    sides = ["--positives", "confirmed", "--unlabelled", "scans", "--features", "trained"]
    must_do("fit", *sides, *QUICK.split(), "--out", "runs/scans", "--quiet")
    Path("new-images").mkdir()
    random, count = np.random.default_rng(0), 9_000  # three parts of up to 4,096
    for number in range(count):
        Image.fromarray(random.integers(0, 240, (12, 12)).astype(np.uint8)).save(f"new-images/{number:05}.png")
    script = script_of("docs/CLUSTER.md")
    told = submit(script.replace("1-40", "1-3").replace("/40", "/3"), slurm)
    assert len(list(Path().glob("slurm-*.out"))) == 3, told
    must_do("merge", "scores/", "scores.csv")
    names = [line.split(",")[1] for line in Path("scores.csv").read_text().splitlines()[1:]]
    assert sorted(names) == [f"{number:05}.png" for number in range(count)]
