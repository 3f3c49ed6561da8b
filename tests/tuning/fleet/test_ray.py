"""Jobs on a cluster of Ray, in processes of this machine, of which any may be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import autotune
from autotune.database import Database
from autotune.database.records import Run
from autotune.frontends.zoo_built import mlp
from autotune.tuning.jobs.events import TuningEvent
from results.bench.fleet.nodes import RayNodes
from tests.database.server import Server

pytest.importorskip("ray")

WORKLOADS = 12
TRIALS = 4 * WORKLOADS
"""More than are under way when the nodes are killed: the last are measured by the node that joins."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """A cluster without nodes: a process has one in its life, as Ray keeps much of the first."""
    with RayNodes(tmp_path_factory.mktemp("nodes")) as found:
        yield found


def test_the_nodes_of_a_job_are_killed_and_another_joins(cluster: RayNodes, tmp_path: Path) -> None:
    """Every candidate is stored once, by the node that has measured it."""
    database, model = tmp_path / "tuning.db", tmp_path / "mlp.onnx"
    onnx.save(mlp(8, [*range(16, 17 + 8 * WORKLOADS, 8)]), model)
    killed, joined = [cluster.add(), cluster.add()], []

    def callback(event: TuningEvent) -> None:
        if event.event == "measured" and killed:
            if not joined:
                joined.append(cluster.add())
            cluster.kill(killed.pop())

    report = autotune.tune(
        str(model),
        budget=autotune.Budget(trials=TRIALS),
        database=database,
        threads=1,
        time_model=False,
        fleet=cluster.address,
        quiet=True,
        callback=callback,
    )
    runs = list[Run]()
    with Database(database, read_only=True) as store:
        store.each_record(runs.append)
    assert len(runs) == report.trials == TRIALS
    assert set(Counter((run.key, run.trace_key, run.code) for run in runs).values()) == {1}
    assert all("/" in run.host for run in runs)
    assert runs[-1].host.endswith(joined[0].id)


SEARCHING = """
import sys
import autotune
from autotune.tuning.report.progress import JsonLines

model, database, fleet, trials = sys.argv[1:]
progress = JsonLines(sys.stdout)
budget = autotune.Budget(trials=int(trials))
autotune.tune(model, budget=budget, database=database, threads=1, time_model=False, fleet=fleet, progress=progress)
"""


def test_a_killed_searching_process_and_a_restarted_server_lose_nothing(
    cluster: RayNodes, tmp_path: Path, server: Server
) -> None:
    """The next process goes on with the same job; nothing is stored twice or said to be measured twice."""
    url, model = server.create(), tmp_path / "mlp.onnx"
    onnx.save(mlp(8, [*range(16, 17 + 8 * WORKLOADS, 8)]), model)
    said, jobs = list[str](), set[str]()
    cluster.add()
    cluster.add()
    command = [sys.executable, "-c", SEARCHING, str(model), url, cluster.address, str(TRIALS)]
    for restarted, killed in ((4, TRIALS // 3), (TRIALS, TRIALS)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            count = 0
            for event in map(json.loads, process.stdout):
                jobs |= {event["job"]} if event["event"] == "started" else set()
                if event["event"] != "measured":
                    continue
                said.append(event["workload"] + event["trace"])
                count += 1
                if count == restarted:
                    server.stop("immediate")
                    server.start()
                if count == killed:
                    process.kill()
        assert process.returncode == (-signal.SIGKILL if killed < TRIALS else 0)
    with Database(url, read_only=True) as store:
        stored = [run.key.workload + run.trace_key for run in store.records()]
    assert len(jobs) == 1
    assert len(stored) == len({*stored}) == TRIALS
    assert len(said) == len({*said})
    assert {*said} <= {*stored}
