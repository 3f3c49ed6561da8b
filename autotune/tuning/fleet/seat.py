"""A seat: the process on a machine of the fleet that measures, one request at a time, each in processes of its own."""

from __future__ import annotations

import platform
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from autotune.distribution import version
from autotune.errors import MeasureError, NoReferenceError
from autotune.files import scratch_folder
from autotune.hardware import stolen_s
from autotune.machine_lock import Measuring
from autotune.target import Target
from autotune.tuning.fleet.signature import Signed, Signer, digest
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.pool import Limits, ProcessPool
from autotune.tuning.measure.turns import Rounds, Turns
from cost_models import calibrated

_ROOM = 4 << 30
"""Bytes of files that a seat keeps for later messages."""

Fetch = Callable[[Any], bytes]
"""From where a file's content lies in the cluster to the content."""


class SeatServer:
    """Answers the signed messages of one job: ``measure``, ``check`` and ``turns``.

    It builds nothing: code comes from the searching process. Methods raise MeasureError, and OSError of a full disk.
    """

    def __init__(self, key: bytes, job: str, limits: Limits | None = None) -> None:
        self._signer = Signer(key)
        self._job = job
        self._pool = ProcessPool(0, limits)
        self._scratch = scratch_folder("autotune-seat-")
        self._files = self._scratch.__enter__()
        self._kept: dict[str, str] = {}

    def report(self) -> dict[str, Any]:
        """Return this machine: its target, the package's version, and what was measured of it."""
        own = Target.detect()
        kept = calibrated.find(own)
        return {
            "host": platform.node(),
            "version": version(),
            "target": own.to_json(),
            "calibration": {} if kept is None else dict(kept.trusted),
            **self.ping(),
        }

    def ping(self) -> dict[str, Any]:
        """Return the seconds that a hypervisor has taken of this machine's processors."""
        return {"stolen_s": stolen_s()}

    def answer(self, signed: Signed, contents: Mapping[str, Any], fetch: Fetch) -> dict[str, Any]:
        """Return the answer to a message; ``contents`` are files by their digests, which ``fetch`` gets."""
        message = self._signer.opened(signed)
        with Measuring(self._job, lambda text: None):
            return {**self._answer(message, contents, fetch), **self.ping()}

    def _answer(self, message: dict[str, Any], contents: Mapping[str, Any], fetch: Fetch) -> dict[str, Any]:
        match message.pop("do"):
            case "measure":
                return self._measure(message)
            case "check":
                return self._check(message)
            case "turns":
                return self._turns(message, contents, fetch)
            case other:
                raise MeasureError(f"a seat does not {other}")

    def _measure(self, message: Mapping[str, Any]) -> dict[str, Any]:
        candidate = Candidate(**message["candidate"])
        built = Built(candidate, "", "", payload=message["payload"], fenced=message["fenced"])
        default_ns = message["default_ns"]
        return _outcome(lambda: self._pool.measure(built, float("inf") if default_ns is None else default_ns))

    def _check(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return _outcome(lambda: self._pool.check(BuiltOption(**message["option"])))

    def _turns(self, message: Mapping[str, Any], contents: Mapping[str, Any], fetch: Fetch) -> dict[str, Any]:
        """Interleave versions in one fresh process."""
        self._make_room(message["files"])
        for name, wanted in message["files"].items():
            self._keep(name, wanted, contents, fetch)
        with Turns(message["seed"], first=message["first"]) as turns:
            for path, in_flight in message["versions"]:
                turns.add_file(self._files / path, in_flight)
            rounds = Rounds(**message["rounds"])
            found = turns.readings(message["what"], rounds, lambda: False)
            return {
                "ns": [None if ns is None else np.asarray(ns).tolist() for ns in found],
                "failures": {str(number): why for number, why in turns.failures.items()},
                "took_s": turns.took_s,
            }

    def _keep(self, name: str, wanted: str, contents: Mapping[str, Any], fetch: Fetch) -> None:
        """Have a file here; raises MeasureError where its content is not what the message was signed for."""
        if self._kept.get(name) == wanted:
            return
        data = fetch(contents[wanted])
        if digest(data) != wanted:
            raise MeasureError(f"{name} is not what the job has sent: its SHA-256 is not {wanted}")
        (self._files / Path(name).name).write_bytes(data)
        self._kept[name] = wanted

    def _make_room(self, needed: Container[str]) -> None:
        """Remove the files of earlier messages where all together take too much of the disk."""
        if sum(path.stat().st_size for path in self._files.iterdir()) > _ROOM:
            for name in [name for name in self._kept if name not in needed]:
                (self._files / name).unlink()
                del self._kept[name]

    def close(self) -> None:
        """End its processes."""
        self._pool.close()
        self._scratch.__exit__(None, None, None)


def _outcome(measured: Callable[[], Measurement]) -> dict[str, Any]:
    try:
        return asdict(measured())
    except NoReferenceError as error:
        return {"no_reference": str(error)}


__all__ = ["SeatServer"]
