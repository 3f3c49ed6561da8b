"""Nodes of a Ray cluster, in processes of this machine: they come, are killed and frozen like machines.

Each has a home and a lock of its own, so that several of them measure at a time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

import psutil

from autotune.settings import environment_name
from autotune.tuning.fleet.ray_cluster import RESOURCE
from results.bench.fleet.lies import LIES

_STORE = 80 << 20
"""Bytes of the object store of a node, the least that Ray takes."""
_PATIENCE_S = 300.0
"""A node has so long to start."""
_ROOM = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_worker_register_timeout_seconds": "300",
}
"""Ray's own limits, longer than by default: its processes share a busy machine."""
_ROOT = Path(__file__).parents[3]


@dataclass(eq=False)
class RayNode:
    """A node: what it was started with, and Ray's own record of its processes."""

    kind: str
    settings: dict[str, str]
    node: Any
    frozen: bool = False

    @property
    def id(self) -> str:
        """Return the beginning of its identity, with which its name in the fleet ends."""
        return str(self.node.node_id)[:6]

    def processes(self) -> list[psutil.Process]:
        """Return its processes: those that Ray has started, and all that these have."""
        own = [info.process.pid for infos in self.node.all_processes.values() for info in infos]
        found = list[psutil.Process]()
        for pid in own:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                found += [process, *process.children(recursive=True)]
        return found

    def freeze(self) -> None:
        """Stop its processes, as when its machine hangs or is cut off."""
        self.frozen = True
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have its processes go on."""
        self.signal(signal.SIGCONT)
        self.frozen = False

    def pin(self, core: int) -> None:
        """Have its processes, and those that they start, run on one core."""
        for process in self.processes():
            process.cpu_affinity([core])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


class RayNodes:
    """A cluster of Ray without seats, while this is entered; nodes that are added have one each.

    ``folder`` has their homes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.nodes: list[RayNode] = []
        self.kinds: dict[str, str] = {}
        """Of all nodes, those that are gone too, by their identities."""

    def __enter__(self) -> Self:
        for name, value in _ROOM.items():
            os.environ.setdefault(name, value)
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": _STORE, "include_dashboard": False}
        self._cluster = _started(lambda: Cluster(initialize_head=True, head_node_args=head))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in [*self.nodes]:
            self.kill(node)
        self._cluster.shutdown()

    @property
    def address(self) -> str:
        """Return the address of the head, HOST:PORT."""
        return str(self._cluster.address)

    def add(self, kind: str = "", **settings: str) -> RayNode:
        """Return a new node with a seat, whose processes have these settings.

        One of a ``kind`` says what :mod:`results.bench.fleet.lies` makes of its measurements.
        """
        home = self._folder / f"node{self._count}"
        self._count += 1
        home.mkdir(parents=True)
        (home / "sitecustomize.py").write_text(_customised(kind))
        own = {"home": str(home), "locks": str(home), **settings}
        paths = [str(home), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {environment_name(name): value for name, value in own.items()}
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        arguments = {
            "num_cpus": 0,
            "resources": {RESOURCE: 1},
            "object_store_memory": _STORE,
            "env_vars": {**os.environ, **environment},
            "wait": False,
        }
        node = _started(lambda: self._cluster.add_node(**arguments))
        self.nodes.append(RayNode(kind, settings, node))
        self.kinds[self.nodes[-1].id] = kind
        return self.nodes[-1]

    def lives(self, node: RayNode) -> bool:
        """Return whether the head of the cluster counts a node as one of its nodes."""
        return bool(node.node.node_id in self._cluster.global_state._live_node_ids())

    def kill(self, node: RayNode) -> None:
        """End all processes of a node at once, as when its machine is switched off."""
        self.nodes.remove(node)
        node.signal(signal.SIGKILL)
        self._cluster.remove_node(node.node, allow_graceful=False)


def _started(start: Callable[[], Any]) -> Any:
    """Return what is started: Ray gives a node up that takes 30 s, as on a busy machine, and here it has longer."""
    from ray._private import services

    once, end = services.get_node, time.monotonic() + _PATIENCE_S

    def get_node(*arguments: Any) -> Any:
        while True:
            try:
                return once(*arguments)
            except RuntimeError:  # it is not there yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    with mock.patch.object(services, "get_node", get_node):
        return start()


def _customised(kind: str) -> str:
    """Return what each Python process of a node begins with."""
    return f"from results.bench.fleet.lies import lie\n\nlie({kind!r})\n" if kind in LIES else ""


__all__ = ["RayNode", "RayNodes"]
