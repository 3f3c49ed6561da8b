"""Compiled models in memory, behind :class:`autotune.runtime.module.Module`: a program here or on devices, buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.image import TensorSpec
from autotune.runtime.recording import Recording
from autotune.runtime.requests.request import Request

Inputs: TypeAlias = Sequence[Any] | Mapping[str, Any]
Results: TypeAlias = list[NDArray[Any]]
MAX_RUNS = 1_000_000


class ModelInMemory(Protocol):
    """A compiled model in memory; the methods are those of the module, with arrays in order."""

    @property
    def threads(self) -> int:
        """Workers, those of all devices."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it runs on."""

    @property
    def in_flight(self) -> int:
        """Return the limit of requests whose parts run at once on several devices; 1 on one."""

    def call(self, arrays: tuple[Any, ...], out: Results | None) -> Results:
        """Return the outputs, in ``out`` if that is given."""

    def submit_all(
        self, requests: Iterable[Sequence[Any]], timeout: float | None, deadline: float | None
    ) -> list[Request[Results]]:
        """Run several requests in the background."""

    def time(
        self, arrays: Sequence[Any], out: Results | None, warmup: int, repeat: int, min_ns: int
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run."""

    def recording(self, arrays: Sequence[Any], runs: int, in_flight: int) -> Recording:
        """Return runs with what every worker did."""

    def close(self) -> None:
        """Free its memory, after the runs in progress."""

    def describe(self) -> str:
        """Return what is special about it, for people."""


class LoadedCase(ModelInMemory, Protocol):
    """One program in memory: the arrays have its shapes."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of a call, in order."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call, in order."""

    @property
    def in_place(self) -> Mapping[int, int]:
        """Return the number of the input whose memory an output may have, by that of the output."""

    def answer(self, arrays: tuple[Any, ...], out: Results | None, request: Request[Results]) -> Results:
        """Return the same as ``call`` of a request in the background; raises what it ends with."""


def times_of(run: Callable[[], object], warmup: int, repeat: int, min_ns: int) -> NDArray[np.int64]:
    """Return nanoseconds of each run as a caller sees it: see :meth:`autotune.runtime.module.Module.time`."""
    times = list[int]()
    for number in range(warmup + MAX_RUNS):
        begin = time.perf_counter_ns()
        run()
        if number >= warmup:
            times.append(time.perf_counter_ns() - begin)
        if len(times) >= repeat and sum(times) >= min_ns:
            break
    return np.asarray(times, np.int64)


__all__ = ["MAX_RUNS", "Inputs", "LoadedCase", "ModelInMemory", "Results", "times_of"]
