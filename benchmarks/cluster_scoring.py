"""How much faster two workers of a Ray cluster score images than one, and whether a killed worker costs a row.

Run: python benchmarks/cluster_scoring.py [images] [times] (needs Ray; `make cluster` makes such an environment)

One worker and two take turns over the same images, as nothing else makes a busy machine fair to both. A rate is that of
the parts after the first of each worker, so without the seconds in which Ray and its workers start; the seconds of the
whole command stand beside it. The last time of two workers one of them is killed on the way. Ray's workers give way to
everything else on a machine unless RAY_worker_niceness=0 is set.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from file_sets import write_many
from machine import machine
from watched import splitpu

QUICK = ["base.epochs=1", "engine.threads=1"]


def main(images: str = "200000", times: str = "2") -> None:
    """Print one JSON object."""
    with tempfile.TemporaryDirectory() as place:
        root, count = Path(place), int(images)
        write_many(root / "few", 2000)
        write_many(root / "many", count)
        words = ["--positives", str(root / "few/pos"), "--unlabelled", str(root / "few/unl"), "--prior", "0.52"]
        words += ["--method", "nnpu", "--backbone", "cnn-small", "--quiet", "--out", str(root / "run")]
        subprocess.run(
            splitpu(["fit", *words, *(one for set_ in QUICK for one in ("--set", set_))]), check=True, stdout=sys.stderr
        )
        found: list[dict[str, Any]] = []
        for turn in range(int(times)):
            for workers in (1, 2):
                found.append(scored(root, workers, f"{turn}-{workers}"))
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        killed = scored(root, 2, "killed", kill=True)
        subprocess.run(
            splitpu(["merge", str(root / "killed"), str(root / "merged.csv")]), check=True, stdout=sys.stderr
        )
        killed["rows merged"] = sum(1 for _ in (root / "merged.csv").open()) - 1
        # Before the folder is removed, which takes minutes on a slow disk.
        rates = [sum(one["images a second"] for one in found if one["workers"] == workers) for workers in (1, 2)]
        told = {"images": count, "two workers to one": rates[1] / rates[0], "turns": found, "killed": killed}
        print(json.dumps({**told, **machine()}, indent=2), flush=True)


def scored(root: Path, workers: int, out: str, *, kill: bool = False) -> dict[str, Any]:
    """All images by so many workers, each a node of a cluster with one CPU."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(workers - 1):
        cluster.add_node(**node)
    cluster.wait_for_nodes()
    folder, began = root / out, time.time()
    command = ["predict", str(root / "run"), str(root / "many"), "--out", str(folder), "--ray", cluster.address]
    process = subprocess.Popen(splitpu([*command, "--json"]), stdout=subprocess.PIPE, text=True)
    while len(list(folder.glob("part-*"))) < workers:
        time.sleep(0.05)
    first, done = time.time(), len(list(folder.glob("part-*")))
    if kill:
        os.kill(at_work(cluster)[0], signal.SIGKILL)
    process.communicate()
    assert process.returncode == 0
    ended, load = time.time(), os.getloadavg()[0]
    cluster.shutdown()
    last = max(part.stat().st_mtime for part in folder.glob("part-*"))
    images = 4096 * (len(list(folder.glob("part-*"))) - done)
    rate = images / (last - first)
    return {"workers": workers, "images a second": rate, "seconds in all": ended - began, "load": load}


def at_work(cluster: Any) -> list[int]:
    """The processes of this cluster that are scoring a part."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and "ray::_carried_out" in (place / "cmdline").read_text():
                found.append(int(place.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
