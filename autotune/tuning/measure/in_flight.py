"""Requests that are kept in flight: how soon one answer follows another, and what each request waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from autotune.runtime.module import Module


@dataclass(frozen=True, eq=False)
class InFlightTimes:
    """Nanoseconds from one answer to the next, in the mean, and from the submission of each request to its answer."""

    period_ns: float
    latencies_ns: NDArray[np.int64]


def keep_in_flight(
    module: Module, arrays: Sequence[NDArray[Any]], depth: int, requests: int
) -> InFlightTimes:
    """Submit a request whenever fewer than ``depth`` are in flight; raises what a request failed with.

    Of all requests the first and the last ``depth`` are not counted: fewer are in flight beside those.
    """
    total = requests + 2 * depth
    begins, ends = np.zeros(total, np.int64), np.zeros(total, np.int64)
    room, made = threading.Semaphore(depth), list[Future[Any]]()

    def over(number: int, _request: Future[Any]) -> None:
        ends[number] = time.perf_counter_ns()
        room.release()

    for number in range(total):
        room.acquire()
        begins[number] = time.perf_counter_ns()
        made.append(module.submit(*arrays))
        made[-1].add_done_callback(partial(over, number))
    for request in made:
        request.result()
    for _ in range(depth):
        room.acquire()  # a result is there before the functions were called that note when
    answers = np.sort(ends)
    period = (answers[depth + requests - 1] - answers[depth - 1]) / requests
    counted = slice(depth, depth + requests)
    return InFlightTimes(float(period), (ends - begins)[counted])


__all__ = ["InFlightTimes", "keep_in_flight"]
