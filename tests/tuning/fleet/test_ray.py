"""A job on a cluster of Ray: nodes in processes of this machine, of which one is killed, and one joins.

Slow, as Ray gives processes up by its own clocks where a machine is too busy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.database import Database
from autotune.database.records import Run
from autotune.settings import environment_name
from autotune.tuning.jobs.events import TuningEvent

pytest.importorskip("ray")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that measures nothing."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    head = {
        "num_cpus": 0,
        "object_store_memory": 80 << 20,
        "include_dashboard": False,
        "node_ip_address": "127.0.0.1",
    }
    found = Cluster(initialize_head=True, head_node_args=head)
    yield found
    found.shutdown()


def add_seat(cluster: Any, folder: Path, **settings: str) -> Any:
    """Return a node that measures, with a lock of its own as if it were another machine."""
    folder.mkdir()
    own = {"home": str(folder), "locks": str(folder), **settings}
    environment = {environment_name(name): value for name, value in own.items()}
    return cluster.add_node(
        num_cpus=0,
        resources={"autotune_seat": 1},
        object_store_memory=80 << 20,
        env_vars={**os.environ, **environment},
        node_ip_address="127.0.0.1",
    )


@pytest.mark.slow
def test_a_job_on_nodes_of_which_one_is_killed_and_one_joins(cluster: Any, tmp_path: Path) -> None:
    """Every candidate is stored once, by the node that measured it."""
    add_seat(cluster, tmp_path / "first")
    killed = [add_seat(cluster, tmp_path / "second")]

    def callback(event: TuningEvent) -> None:
        if event.event == "measured" and event.trials >= 6 and killed:
            cluster.remove_node(killed.pop(), allow_graceful=False)
            add_seat(cluster, tmp_path / "third")

    path = tmp_path / "tuning.db"
    report = autotune.tune(
        "zoo:tiny_cnn",
        budget=autotune.Budget(trials=24),
        database=path,
        threads=1,
        fleet=cluster.address,
        quiet=True,
        callback=callback,
    )
    runs = list[Run]()
    with Database(path, read_only=True) as database:
        database.each_record(runs.append)
    assert len(runs) == report.trials == 24
    assert len({(run.key, run.trace_key) for run in runs}) == len(runs)
    assert all(run.host for run in runs)
