"""The worker of whole models: versions of one are interleaved in one process.

Run as ``python -m autotune.tuning.measure.models``; JSON lines in and out, see :mod:`autotune.workers.serve`. Requests:
``warm_up``, ``load`` (a version), ``profile`` (a turn, dispatch by dispatch) and ``time`` (a turn, the whole model,
its runs one after another or several in flight).
The first run of a turn is never counted: it finds the caches as another model left them. In the runs after it every
dispatch finds them as it does in use.

Each measuring process is a fresh one, so that it loads the runtime and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.errors import MeasureError
from autotune.hardware import busy_s
from autotune.runtime.artifacts.folder import FolderReader
from autotune.runtime.cpu import native
from autotune.runtime.cpu.device import Memory
from autotune.runtime.module import Module
from autotune.runtime.random_inputs import random_inputs
from autotune.tuning.measure.in_flight import keep_in_flight
from autotune.workers.serve import Handler, serve


class TimedVersion(Protocol):
    """A version of the model with its inputs; each reading begins with a run that is not counted."""

    def time(self, runs: int) -> NDArray[Any]:
        """Return nanoseconds of each of some runs."""

    def profiles(self, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds [runs, dispatches]; raises MeasureError where that is not known."""


class _OnHost:
    """A module of this process, or one of several devices."""

    def __init__(self, module: Module, seed: int) -> None:
        self._module = module
        self._inputs = random_inputs(module.specs(), seed)

    def time(self, runs: int) -> NDArray[Any]:
        return self._module.time(self._inputs, warmup=1, repeat=runs)

    def profiles(self, runs: int) -> NDArray[np.float64]:
        return self._module.profiles(self._inputs, runs)


class _InFlight(_OnHost):
    """The same with several requests in flight, where a reading is the time from one answer to the next."""

    def __init__(self, module: Module, seed: int, depth: int) -> None:
        super().__init__(module, seed)
        self._depth = depth

    def time(self, runs: int) -> NDArray[Any]:
        arrays = [self._inputs[spec.name] for spec in self._module.inputs]
        return np.array([keep_in_flight(self._module, arrays, self._depth, runs).period_ns])


_VERSIONS: dict[int, TimedVersion] = {}


class SharedMemory(Memory):
    """Memory of interleaved versions: all have their intermediate values in the same place, so that where that
    happens to lie makes no difference between them."""

    def __init__(self) -> None:
        self._pieces: dict[str, NDArray[np.uint8]] = {}

    def allocate(self, nbytes: int, use: str) -> NDArray[np.uint8]:
        """Return the beginning of the piece for a use; a larger one takes its place for later versions."""
        if use not in self._pieces or self._pieces[use].nbytes < nbytes:
            self._pieces[use] = super().allocate(nbytes, use)
        return self._pieces[use][:nbytes]


_MEMORY = SharedMemory()
_READER = FolderReader()


def warm_up(request: dict[str, Any]) -> dict[str, Any]:
    """Load the executor that the job has compiled; raises MeasureError where the file is not what the job wrote."""
    code = Path(request["executor"]).read_bytes()
    if hashlib.sha256(code).hexdigest() != request["sha256"]:
        raise MeasureError(f"{request['executor']} was changed: its SHA-256 is not {request['sha256']}")
    native.give(code)
    native.executor()
    return {}


def load(request: dict[str, Any]) -> dict[str, Any]:
    """Load ``path``, an image or a program, as a version of the model, with random inputs; nanoseconds of a run."""
    path, seed, depth = Path(request["path"]), request["seed"], request["in_flight"]
    if depth:
        version: TimedVersion = _InFlight(_together(path, depth), seed, depth)
    else:
        version = _OnHost(_placed(path), seed) if path.suffix == ".atm" else _version(path, seed)
    _VERSIONS[request["version"]] = version
    return {"ns": int(version.time(1).min())}


def _version(path: Path, seed: int) -> TimedVersion:
    image = _READER.image(path).without_refusals()
    if not image.target.group_items:
        return _OnHost(Module(image, image.target.threads, memory=_MEMORY), seed)
    from autotune.tuning.measure.device_run import DeviceRun, device_of

    inputs = random_inputs(image.inputs, seed)
    return DeviceRun(image, device_of(image.target), [inputs[spec.name] for spec in image.inputs])


def _together(path: Path, depth: int) -> Module:
    """Return a module whose requests have memory of their own."""
    if path.suffix == ".atm":
        return _placed(path, depth)
    image = _READER.image(path)
    if image.target.group_items:
        raise MeasureError("requests in flight on an OpenCL device are those of a program, not of an image")
    return Module(image.without_refusals(), image.target.threads)


def _placed(path: Path, depth: int | None = None) -> Module:
    from autotune.runtime.artifacts import artifact

    return Module(artifact.load(path), in_flight=depth)


def profile(request: dict[str, Any]) -> dict[str, Any]:
    """Return nanoseconds of each dispatch, the least of ``runs`` runs of one version.

    One of a branch that the inputs do not choose takes one nanosecond in every version: no ratio of it says anything.
    """
    version, runs = _VERSIONS[request["version"]], request["runs"]
    return _turn(lambda: np.maximum(version.profiles(runs).min(axis=0), 1.0))


def time(request: dict[str, Any]) -> dict[str, Any]:
    """Return nanoseconds of each of ``runs`` runs of one version."""
    version, runs = _VERSIONS[request["version"]], request["runs"]
    return _turn(lambda: version.time(runs))


def _turn(read: Callable[[], NDArray[Any]]) -> dict[str, Any]:
    """Return what was read, the seconds that it took, and those that other processes took of the processors
    meanwhile."""
    begin = monotonic(), busy_s() - process_time()
    ns = read()
    return {
        "ns": ns.tolist(),
        "seconds": monotonic() - begin[0],
        "others_s": busy_s() - process_time() - begin[1],
    }


HANDLERS: dict[str, Handler] = {"warm_up": warm_up, "load": load, "profile": profile, "time": time}


def main() -> None:
    """Serve requests until standard input ends."""
    serve(HANDLERS)


if __name__ == "__main__":
    main()

__all__ = ["HANDLERS", "SharedMemory", "TimedVersion", "load", "main", "profile", "time", "warm_up"]
