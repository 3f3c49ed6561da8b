"""A job on a cluster of Ray whose nodes are killed, and on one that joins: processes of this machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

import autotune
from autotune.database import Database
from autotune.database.records import Run
from autotune.frontends.zoo_built import mlp
from autotune.tuning.jobs.events import TuningEvent
from results.bench.fleet.nodes import RayNodes

pytest.importorskip("ray")

WORKLOADS = 12
TRIALS = 4 * WORKLOADS
"""More than are under way when the nodes are killed: the last are measured by the node that joins."""


def test_the_nodes_of_a_job_are_killed_and_another_joins(tmp_path: Path) -> None:
    """Every candidate is stored once, by the node that has measured it."""
    database, model = tmp_path / "tuning.db", tmp_path / "mlp.onnx"
    onnx.save(mlp(8, [*range(16, 17 + 8 * WORKLOADS, 8)]), model)
    with RayNodes(tmp_path / "nodes") as cluster:
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
