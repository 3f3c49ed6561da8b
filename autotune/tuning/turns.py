"""Versions of a whole model that take turns in a process of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.runtime import artifact
from autotune.tuning.measure.pool import WORKER
from autotune.tuning.paired import Readings
from autotune.workers.pool import WorkerPool
from autotune.workers.process import Died, WorkerProcess

if TYPE_CHECKING:
    from autotune.runtime.image import ModuleImage

_LOAD_S = 300.0
_TURN_S = 60.0
_ROLE = "versions"

Answering: TypeAlias = "Future[dict[str, Any]]"


@dataclass(frozen=True)
class Rounds:
    """How often versions take turns: up to ``most`` rounds, fewer when time is up, but ``least`` or none.

    ``processes``: in so many fresh ones, each time in another order: where arrays happen to lie makes a few percent.
    A turn fills about ``turn_ns``. The first version has a turn at the beginning of a round and after each ``every``
    others (0: it is one of them), so that it is read in the same moments as they are.
    """

    most: int
    least: int = 1
    processes: int = 2
    turn_ns: float = 30e6
    every: int = 0

    def order(self, versions: Sequence[int], number: int) -> Iterator[int]:
        """The versions of a round in the order of their turns, each round begun by another.

        >>> [*Rounds(8, every=2).order([0, 1, 2, 3], number=1)]
        [0, 2, 3, 0, 1]
        """
        interleaved = bool(self.every) and versions[:1] == [0]
        others = list(versions[1:] if interleaved else versions)
        start = number % max(1, len(others))
        others = [*others[start:], *others[:start]]
        if not interleaved:
            yield from others
            return
        for first in range(0, max(1, len(others)), self.every):
            yield 0
            yield from others[first : first + self.every]


class Turns:
    """Images of one model in one worker process; a version that ends the process takes no further turns.

    What the caller gave as a list comes back as one in the same order, with None for those. Once all are loaded,
    the least number of rounds is read, whatever the time: fewer say nothing.
    """

    def __init__(self, images: Sequence[ModuleImage], seed: int, command: Sequence[str] = WORKER) -> None:
        self._images = dict(enumerate(images))
        self._count = len(images)
        self._seed = seed
        self._command = command
        self._workers = WorkerPool()
        self._loaded = False
        self._run_ns: dict[int, float] = {}
        self.failures: dict[int, str] = {}
        """Why a version takes no further turns, by its number."""

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *error: object) -> None:
        self._workers.close()

    def _end_process(self) -> None:
        self._loaded = False
        self._workers.kill(_ROLE)

    def profile(self, rounds: Rounds, out_of_time: Callable[[], bool]) -> list[Readings | None]:
        """Latencies [rounds, dispatches] of each version; all None when there is no time."""
        return self._turns("profile", rounds, out_of_time)

    def time(self, rounds: Rounds, out_of_time: Callable[[], bool]) -> list[Readings | None]:
        """Latencies [rounds, runs] of each version as a whole."""
        return self._turns("time", rounds, out_of_time)

    def _turns(self, do: str, rounds: Rounds, out_of_time: Callable[[], bool]) -> list[Readings | None]:
        taken: dict[int, list[NDArray[np.float64]]] = {number: [] for number in self._images}
        done, again = 0, -(-rounds.most // rounds.processes)
        if out_of_time():
            return [None] * self._count
        while self._images and done < rounds.most and (done < rounds.least or not out_of_time()):
            if done and done % again == 0:
                self._end_process()
            if not self._loaded and not self._load_all(out_of_time, reverse=done // again % 2 == 1):
                if out_of_time():
                    break
                taken, done = {number: [] for number in self._images}, 0
            elif self._round(do, rounds, taken, number=done):
                done += 1
            else:
                taken, done = {number: [] for number in self._images}, 0
        enough = done >= rounds.least or done == rounds.most
        return [
            np.asarray(taken[number], np.float64) if enough and number in self._images else None
            for number in range(self._count)
        ]

    def _round(
        self, do: str, rounds: Rounds, taken: Mapping[int, list[NDArray[np.float64]]], number: int
    ) -> bool:
        """One round; says whether all versions lived. What had several turns counts by their median."""
        found: dict[int, list[list[float]]] = {version: [] for version in self._images}
        for version in rounds.order(list(self._images), number):
            runs = int(np.clip(rounds.turn_ns / self._run_ns[version], 2, 30))
            answer = self._ask(version, {"do": do, "version": version, "runs": runs}, _TURN_S)
            if answer is None:
                return False
            found[version].append(answer["ns"])
        for version, turns in found.items():
            taken[version].append(np.median(turns, axis=0))
        return True

    def _load_all(self, out_of_time: Callable[[], bool], *, reverse: bool) -> bool:
        """Load all versions in a fresh process; says whether all of them lived and time was left.

        One is written while the process loads the one before.
        """
        if not self._workers.has(_ROLE):
            self._workers.add(_ROLE, WorkerProcess(self._command))
        self._loaded = True
        order = sorted(self._images, reverse=reverse)
        with tempfile.TemporaryDirectory(prefix="autotune-turns-") as folder:
            loading: tuple[int, Path, Answering] | None = None
            for number in order:
                path = Path(folder) / f"{number}.atm"
                artifact.save(self._images[number], path)
                if loading is not None and not self._is_loaded(*loading):
                    return False
                request = {"do": "load", "version": number, "path": str(path), "seed": self._seed}
                loading = number, path, self._submit(request, _LOAD_S)
                if out_of_time():
                    self._end_process()
                    return False
            return loading is not None and self._is_loaded(*loading)

    def _is_loaded(self, number: int, path: Path, loading: Answering) -> bool:
        """Wait until a version is loaded; says whether it is."""
        answer = self._answer(number, loading)
        path.unlink()  # they can be large, and a killed job leaves its folder
        if answer is None:
            return False
        self._run_ns.setdefault(number, max(1.0, answer["ns"]))
        return True

    def _submit(self, request: Mapping[str, Any], limit_s: float) -> Answering:
        return self._workers.submit(
            _ROLE, lambda worker: worker.call(request, limit_s, str(request["do"]), None)
        )

    def _ask(self, number: int, request: Mapping[str, Any], limit_s: float) -> dict[str, Any] | None:
        return self._answer(number, self._submit(request, limit_s))

    def _answer(self, number: int, answering: Answering) -> dict[str, Any] | None:
        """The answer, or None after the version ended the process: the others begin again without it."""
        try:
            return answering.result()
        except Died as death:
            self.failures[number] = str(death)
            del self._images[number]
            self._end_process()
            return None


__all__ = ["Rounds", "Turns"]
