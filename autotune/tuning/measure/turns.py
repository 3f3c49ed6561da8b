"""Interleaved versions of a whole model in a process of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.database.records import HUNG
from autotune.files import scratch_folder
from autotune.hardware import usable_cores
from autotune.runtime.artifacts import artifact
from autotune.runtime.artifacts.folder import FolderWriter
from autotune.runtime.cpu.native import machine_code
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.tuning.compare.paired import Readings
from autotune.tuning.measure.whole_model import UNWATCHED, Profile, Watch
from autotune.workers.cores import CORES
from autotune.workers.pool import WorkerPool
from autotune.workers.process import Died, WorkerProcess, python_module

if TYPE_CHECKING:
    from autotune.runtime.image import ModuleImage

Settled = Callable[[Sequence[Readings | None]], Collection[int]]
"""By what was read so far: the numbers of the versions that take no more turns."""

PROGRAM_SUFFIX = ".atm"
EXECUTOR = "executor.o"
"""The file of the executor's machine code, beside the versions; it is of the machine that measures."""
"""Of the file of a version that is a program of several devices."""
WORKER = python_module("autotune.tuning.measure.models")
_LOAD_S = 300.0
_TURN_S = 60.0
_AHEAD = 8
"""Processes that are started ahead: each takes memory, and the first one waits until all have started."""


@dataclass(frozen=True)
class Rounds:
    """The number of interleaved rounds: up to ``most``, fewer when time is up, but ``least`` or none.

    ``processes``: in so many fresh ones, each time in another order: where arrays happen to lie makes a few percent.
    A turn fills about ``turn_ns``. The first version has a turn at the beginning of a round and after each ``every``
    others (0: it is one of them), so that it is read in the same moments as they are. ``part``: where time is up before
    all are loaded, those that are loaded are interleaved.
    """

    most: int
    least: int = 1
    processes: int = 2
    turn_ns: float = 30e6
    every: int = 0
    part: bool = False

    def order(self, versions: Sequence[int], number: int) -> Iterator[int]:
        """Yield the versions of a round in the order of their turns, each round begun by another.

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


class FreshProcesses:
    """Worker processes that have read nothing yet. Some are started early, as starting takes longer than reading.

    No process is handed out while another one starts: that would disturb its readings. ``executor`` is the file with
    the executor's machine code and its SHA-256: it is compiled once for all of them.
    """

    def __init__(self, command: Sequence[str], executor: tuple[Path, str]) -> None:
        self._command = command
        path, digest = executor
        self._greeting = {"do": "warm_up", "executor": str(path), "sha256": digest}
        self._workers = WorkerPool()
        self._starting: dict[str, Future[None]] = {}
        self._count = 0
        self._later = 0
        self._current = ""

    def start(self, count: int) -> None:
        """Start ``count`` more in the background; of many the last ones when the first are used up, on all cores."""
        self._later += max(0, count - _AHEAD)
        self._start(min(count, _AHEAD))

    def _start(self, count: int) -> None:
        for _ in range(count):
            role = f"process {self._count}"
            self._count += 1
            self._workers.add(role, WorkerProcess(self._command, greeting=self._greeting))
            self._starting[role] = self._workers.submit(role, WorkerProcess.start)

    def next(self) -> None:
        """End the process in use and turn to the next one, as soon as all have started; raises MeasureError."""
        self.end()
        if not self._starting:
            together = max(1, min(self._later, usable_cores()))
            self._later -= min(self._later, together)
            self._start(together)
        for started in self._starting.values():
            started.result()
        self._current = next(iter(self._starting))
        del self._starting[self._current]

    @property
    def in_use(self) -> bool:
        """Return whether there is a process in use."""
        return bool(self._current)

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answer of the process in use; raises Died."""
        return self._workers.call(self._current, request, limit_s, str(request["do"]))

    def end(self) -> None:
        """End the process in use."""
        if self._current:
            self._workers.kill(self._current)
            self._current = ""

    def close(self) -> None:
        """End all processes."""
        self._workers.close()


class Turns:
    """Interleaved versions of one model in worker processes; one that ends its process is left out afterwards.

    Each reading of all versions begins in a fresh process; ``first`` counts those before, which began in other orders.
    Results are in the order in which versions were added: None for those that ended a process or were not loaded. Once
    versions are loaded, the least number of rounds is read even when time is up: fewer say nothing.
    """

    def __init__(self, seed: int, command: Sequence[str] = WORKER, first: int = 0) -> None:
        self._seed = seed
        self._command = command
        self._open = ExitStack()
        self._paths: list[Path] = []
        self._dispatches: list[list[tuple[str, str]]] = []
        self._runs: list[list[int]] = []
        """The name and workload key of each dispatch of a version, in the order in which it executes them."""
        self._in_flight: list[int] = []
        self._left: list[int] = []
        """The versions that have not ended a process."""
        self._run_ns: dict[int, float] = {}
        self._readings = first
        self._took_s = np.zeros(2)
        """Of the turns of the last measurement: seconds, and those that other processes took of all processors."""
        self.host = ""
        """The node of a fleet that alone has measured last."""
        self.failures: dict[int, str] = {}
        """Why a version takes no further turns, by its number."""

    def __enter__(self) -> Turns:
        self.folder = self._open.enter_context(scratch_folder("autotune-turns-"))
        self._writer = FolderWriter(self.folder)
        self._processes = FreshProcesses(self._command, _write_executor(self.folder))
        self._open.callback(self._processes.close)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def at_once(self) -> int:
        """Return the number of processes that measure concurrently: one on a machine."""
        return 1

    def start(self, processes: int) -> None:
        """Start processes ahead, while versions are still made."""
        self._processes.start(processes)

    def add(self, version: ModuleImage | DeviceProgram, in_flight: int = 0) -> None:
        """Add one more version; one of several devices can be timed as a whole only.

        With so many requests ``in_flight`` its times are those from one answer to the next. Raises ArtifactError,
        OSError.
        """
        number = len(self._paths)
        of_host = () if isinstance(version, DeviceProgram) else version.dispatches
        if isinstance(version, DeviceProgram):
            path = self.folder / f"program{number}{PROGRAM_SUFFIX}"
            artifact.save(version, path)
        else:
            path = self._writer.add(version)
        dispatches = [(each.name, each.workload_key) for each in of_host]
        self.add_file(path, in_flight, dispatches, [each.runs for each in of_host])

    def add_file(
        self,
        path: Path,
        in_flight: int = 0,
        dispatches: Sequence[tuple[str, str]] = (),
        runs: Sequence[int] = (),
    ) -> None:
        """Add one more version that is a file: a manifest in a folder of images, or a program.

        ``dispatches`` are the name and workload key of each, ``runs`` how often a run of the model runs each.
        """
        self._dispatches.append([*dispatches])
        self._runs.append([*runs])
        self._in_flight.append(in_flight)
        self._left.append(len(self._paths))
        self._paths.append(path)

    def profile(
        self,
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        settled: Settled = lambda read: (),
    ) -> list[Readings | None]:
        """Return latencies [rounds, dispatches] of each version; all None when there is no time.

        As soon as the least number of rounds was read, ``settled`` says after each process which versions take no more
        turns: they have fewer rounds than the first one. When it is the only one left, nothing more is read.
        """
        return self.readings("profile", rounds, out_of_time, settled)

    def profiles(
        self,
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        """Return :meth:`profile` of each version by its dispatches; ``watch`` follows it."""

        def named(read: Sequence[Readings | None]) -> list[Profile | None]:
            each = zip(self._dispatches, read, self._runs, strict=True)
            return [
                None if ns is None else Profile(mine, ns, self.load, runs, self.host)
                for mine, ns, runs in each
            ]

        return self._watched("profile", rounds, out_of_time, named, watch)

    def whole(
        self, rounds: Rounds, out_of_time: Callable[[], bool], watch: Watch = UNWATCHED
    ) -> list[Profile | None]:
        """Return the latencies of each version as a whole, the median of a turn, as if it were one dispatch; ``watch``
        follows it."""

        def of_runs(read: Sequence[Readings | None]) -> list[Profile | None]:
            return [
                None if ns is None else Profile.of_whole(np.median(ns, axis=1), self.load, self.host)
                for ns in read
            ]

        return self._watched("time", rounds, out_of_time, of_runs, watch)

    def _watched(
        self,
        do: str,
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        profiles: Callable[[Sequence[Readings | None]], list[Profile | None]],
        watch: Watch,
    ) -> list[Profile | None]:
        found = profiles(self.readings(do, rounds, out_of_time, lambda read: watch.settled(profiles(read))))
        for number, reason in self.failures.items():
            watch.failed(number, reason)
        return found

    def time(self, rounds: Rounds, out_of_time: Callable[[], bool]) -> list[Readings | None]:
        """Return latencies [rounds, runs] of each version as a whole."""
        return self.readings("time", rounds, out_of_time)

    def readings(
        self,
        do: str,
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        settled: Settled = lambda read: (),
    ) -> list[Readings | None]:
        """Return latencies of each version: with ``profile`` [rounds, dispatches], with ``time`` [rounds, runs]."""
        self._took_s = np.zeros(2)
        taken: dict[int, list[NDArray[np.float64]]] = {}
        resting: set[int] = set()
        done, again = 0, -(-rounds.most // rounds.processes)
        self._processes.end()
        with ExitStack() as quiet:
            while self._left and done < rounds.most and (done < rounds.least or not out_of_time()):
                if done and done % again == 0:
                    self._processes.end()
                    if done >= rounds.least:
                        resting |= {*settled(self._arrays(taken))} - {0}
                    if len(taken) > 1 and resting >= taken.keys() - {0}:
                        break
                if not self._processes.in_use:
                    quiet.close()  # builders go on while versions are loaded
                    loaded = self._load(rounds, out_of_time, resting)
                    if not loaded:
                        break
                    if {*loaded, *resting} != taken.keys():
                        taken, done = {number: [] for number in loaded}, 0
                        if resting:  # one of the others ended this process: all begin again
                            resting = set()
                            self._processes.end()
                            continue
                    quiet.enter_context(CORES.measure())
                if self._round(do, rounds, {n: taken[n] for n in taken if n not in resting}, number=done):
                    done += 1
                else:
                    done, resting = 0, set()
        enough = done >= rounds.least or done == rounds.most
        return self._arrays(taken) if enough else [None] * len(self._paths)

    def _arrays(self, taken: Mapping[int, list[NDArray[np.float64]]]) -> list[Readings | None]:
        """Return the latencies of each version, as far as they were measured."""
        numbers = range(len(self._paths))
        return [np.asarray(taken[n], np.float64) if n in taken else None for n in numbers]

    def _round(
        self, do: str, rounds: Rounds, taken: Mapping[int, list[NDArray[np.float64]]], number: int
    ) -> bool:
        """Read one round; False when a version ended its process. Of several turns of a version the median counts."""
        found: dict[int, list[list[float]]] = {version: [] for version in taken}
        for version in rounds.order(list(taken), number + self._readings):
            runs = int(np.clip(rounds.turn_ns / self._run_ns[version], 2, 30))
            answer = self._ask(version, {"do": do, "version": version, "runs": runs}, _TURN_S)
            if answer is None:
                return False
            found[version].append(answer["ns"])
            self._took_s += [answer["seconds"], answer["others_s"]]
            if do == "profile":  # builders may have disturbed the run that loading has timed
                self._run_ns[version] = max(1.0, min(self._run_ns[version], float(np.sum(answer["ns"]))))
        for version, turns in found.items():
            taken[version].append(np.median(turns, axis=0))
        return True

    @property
    def took_s(self) -> tuple[float, float]:
        """Return the seconds that the turns of the last measurement took, and those that other processes took of all
        processors meanwhile."""
        return float(self._took_s[0]), float(self._took_s[1])

    @property
    def load(self) -> float:
        """Return the processors that other processes took during the last measurement, in the mean."""
        seconds, others_s = self._took_s
        return max(0.0, float(others_s / seconds)) if seconds else 0.0

    def _load(self, rounds: Rounds, out_of_time: Callable[[], bool], resting: Container[int]) -> list[int]:
        """Load the versions in a fresh process, every other time in the opposite order, without those that are
        ``resting``; those that are loaded."""
        while self._left:
            self._processes.next()
            step = -1 if self._readings % 2 else 1
            loaded = list[int]()
            for number in [n for n in self._left if n not in resting][::step]:
                if out_of_time():
                    if rounds.part and len(loaded) > 1:
                        return loaded
                    self._processes.end()
                    return []
                request = {"do": "load", "version": number, "path": str(self._paths[number])}
                request["in_flight"] = self._in_flight[number]
                answer = self._ask(number, {**request, "seed": self._seed}, _LOAD_S)
                if answer is None:
                    break
                self._run_ns.setdefault(number, max(1.0, answer["ns"]))
                loaded.append(number)
            else:
                self._readings += 1
                return sorted(loaded)
        return []

    def _ask(self, number: int, request: Mapping[str, Any], limit_s: float) -> dict[str, Any] | None:
        """Return the answer, or None after the version ended the process: the others begin again without it."""
        try:
            return self._processes.ask(request, limit_s)
        except Died as death:
            self.failures[number] = f"{HUNG}{death}" if death.timed_out else str(death)
            self._left.remove(number)
            self._processes.end()
            return None


def _write_executor(folder: Path) -> tuple[Path, str]:
    """Return the executor's machine code as a file, and its SHA-256."""
    code, path = machine_code(), folder / EXECUTOR
    path.write_bytes(code)
    return path, hashlib.sha256(code).hexdigest()


__all__ = ["EXECUTOR", "PROGRAM_SUFFIX", "WORKER", "FreshProcesses", "Rounds", "Turns"]
