"""Ray as the cluster of a fleet: an actor a seat, which takes the resource ``autotune_seat`` of its node.

Ray keeps no state that matters: what was measured is in the database, and actors are made again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from autotune.distribution import install
from autotune.errors import MeasureError, MissingExtraError, first_line
from autotune.tuning.fleet.cluster import SeatLost

RESOURCE = "autotune_seat"
"""The custom resource of nodes that measure: one for each timing that may run on them at a time."""
_LOOK_S = 5.0
"""A seat that works is asked so often whether it lives."""
_SILENT_S = 15.0
"""One that does not say so for as long is lost."""
_LONGEST_S = 1800.0
"""No message takes longer."""


class RayCluster:
    """A cluster of Ray by its address: ``auto``, HOST:PORT of its head, or ray://HOST:PORT of a client server.

    Raises MissingExtraError without the package, and MeasureError where no cluster answers.
    """

    def __init__(self, address: str) -> None:
        self._ray = _ray()
        self._mine = not self._ray.is_initialized()
        if self._mine:
            self._connect(address)
        self._actor = _seat_actor()

    def _connect(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="error", namespace="autotune")
        except Exception as error:
            raise MeasureError(
                f"no fleet at {address}: {first_line(error)}\n"
                f"  `ray start --head --resources='{{\"{RESOURCE}\": 1}}'` starts one, docs/fleet.md says more"
            ) from error

    def places(self) -> Mapping[str, str]:
        """Return the names of live nodes by the places for a seat on them."""
        found = {}
        for node in self._ray.nodes():
            for number in range(int(node["Resources"].get(RESOURCE, 0)) if node["Alive"] else 0):
                suffix = f"#{number + 1}" if number else ""
                place = f"{node['NodeID']}{suffix}"
                found[place] = f"{node['NodeManagerHostname']}/{node['NodeID'][:6]}{suffix}"
        return found

    def seat(self, place: str, key: bytes, job: str) -> RaySeat:
        """Return a seat on a node; it waits for the resource, which another job may have."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = NodeAffinitySchedulingStrategy(place.partition("#")[0], soft=False)
        made = self._actor.options(num_cpus=0, resources={RESOURCE: 1}, scheduling_strategy=node)
        return RaySeat(self._ray, made.remote(key, job))

    def put(self, data: bytes) -> object:
        """Return a reference to data in the object store."""
        return self._ray.put(data)

    def close(self) -> None:
        """Leave the cluster, unless the user has joined it."""
        if self._mine:
            self._ray.shutdown()


class RaySeat:
    """A seat that is an actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def report(self) -> dict[str, Any]:
        """Return what the seat says of itself; raises SeatLost."""
        return self._wait(self._actor.report.remote())

    def answer(self, text: str, mac: str, contents: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a signed message, as long as the seat says that it lives; raises SeatLost."""
        asked, waited = self._actor.answer.remote(text, mac, dict(contents)), 0.0
        while not self._ready(asked):
            waited += _LOOK_S
            if waited >= _LONGEST_S:
                raise SeatLost(f"a message took longer than {_LONGEST_S:g} s")
            self._look()
        return self._wait(asked)

    def _ready(self, asked: Any) -> bool:
        return bool(self._ray.wait([asked], timeout=_LOOK_S)[0])

    def _look(self) -> None:
        """Raise SeatLost for a seat that is frozen or cut off."""
        self._wait(self._actor.ping.options(concurrency_group="life").remote(), _SILENT_S)

    def _wait(self, asked: Any, limit_s: float | None = None) -> dict[str, Any]:
        try:
            return dict(self._ray.get(asked, timeout=limit_s))
        except self._ray.exceptions.GetTimeoutError:
            raise SeatLost(f"it did not answer for {limit_s:g} s") from None
        except self._ray.exceptions.RayTaskError as error:
            raise SeatLost(f"it failed: {_last_line(error)}") from error
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise SeatLost(first_line(error)) from error

    def close(self) -> None:
        """End the actor and its processes."""
        with contextlib.suppress(Exception):  # the node, or the whole cluster, may be gone
            self._ray.kill(self._actor, no_restart=True)


def _seat_actor() -> Any:
    """Return the class of actors: it measures in one thread, and says in another that it lives."""
    import ray

    class AutotuneSeat:
        def __init__(self, key: bytes, job: str) -> None:
            from autotune.tuning.fleet.seat import SeatServer

            self._seat = SeatServer(key, job)

        def report(self) -> dict[str, Any]:
            return self._seat.report()

        def answer(self, text: str, mac: str, contents: dict[str, Any]) -> dict[str, Any]:
            from autotune.tuning.fleet.signature import Signed

            return self._seat.answer(Signed(text, mac), contents, ray.get)

        def ping(self) -> dict[str, Any]:
            return self._seat.ping()

    return ray.remote(concurrency_groups={"life": 1}, max_restarts=0, max_task_retries=0)(AutotuneSeat)


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"a fleet takes the package ray, which is not installed: {install('fleet')}"
        ) from error
    return ray


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


__all__ = ["RESOURCE", "RayCluster", "RaySeat"]
