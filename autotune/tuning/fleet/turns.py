"""Interleaved versions of a model on a fleet: a process is a measurement by itself, and each goes to the next seat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.tuning.compare.paired import Readings
from autotune.tuning.fleet.fleet import Answered, SeatWork
from autotune.tuning.fleet.signature import digest
from autotune.tuning.fleet.trust import Ratios, Trust, logs_of_ratios
from autotune.tuning.measure.turns import EXECUTOR, Rounds, Settled, Turns

_MOST = 48
"""Processes of a measurement where there are idle seats for them: each is a measurement by itself."""

Arrays = dict[int, NDArray[np.float64]]


@dataclass(frozen=True)
class _Process:
    """The result of a process on a node: latencies of versions by their numbers, [rounds, dispatches or runs]."""

    node: str
    arrays: Arrays
    ratios: Ratios
    failures: Mapping[int, str]
    took_s: tuple[float, float]
    same_code: float | None
    """The log of the ratio of the first version over itself, loaded twice."""

    @staticmethod
    def of(answered: Answered, numbers: Sequence[int], do: str) -> _Process:
        """Return the answer of a seat, for versions with these numbers; one after them is the first one again."""
        answer = answered.answer
        arrays = {n: np.asarray(ns) for n, ns in enumerate(answer["ns"]) if ns is not None}
        again = arrays.pop(len(numbers), None)
        ratio = None
        if again is not None and 0 in arrays:
            ratio = float(np.median(np.log(_whole(again, do) / _whole(arrays[0], do))))
        failures = {numbers[int(n)]: why for n, why in answer["failures"].items() if int(n) < len(numbers)}
        seconds, others_s = answer["took_s"]
        ratios = logs_of_ratios({n: _whole(array, do) for n, array in arrays.items()}, len(numbers))
        named = {numbers[n]: array for n, array in arrays.items()}
        return _Process(answered.node, named, ratios, failures, (seconds, others_s), ratio)


def _whole(array: NDArray[np.float64], do: str) -> NDArray[np.float64]:
    """Return the latencies of a whole version [rounds]: of dispatches their sum, of runs their median."""
    return np.asarray(array.sum(axis=1) if do == "profile" else np.median(array, axis=1))


class FleetTurns(Turns):
    """:class:`Turns` whose processes are on the seats of a fleet, several at a time.

    What takes several processes is a claim: where there are two nodes at least two of them measure it, and what they
    say of a version is compared: a third one decides between two that differ by more than noise. What takes one process
    is of one node, and now and then of a second one, too.
    """

    def __init__(self, seed: int, trust: Trust) -> None:
        super().__init__(seed)
        self._trust, self._fleet = trust, trust.fleet
        self._used: list[str] = []
        self._first = 0
        self._sent: dict[Path, tuple[str, object]] = {}
        """The digests of files, with handles of their contents."""

    @property
    def at_once(self) -> int:
        """Return the number of processes that measure concurrently."""
        return max(1, len(self._fleet.ready))

    def start(self, processes: int) -> None:
        """Start nothing here."""

    def readings(
        self,
        do: str,
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        settled: Settled = lambda read: (),
    ) -> list[Readings | None]:
        """Return latencies of each version: with ``profile`` [rounds, dispatches], with ``time`` [rounds, runs]."""
        self._took_s, self._used, self.host = np.zeros(2), [], ""
        each = -(-rounds.most // rounds.processes)
        one = replace(rounds, most=each, least=min(each, rounds.least), processes=1)
        numbers = [*self._left]
        if not numbers or out_of_time():
            return [None] * len(self._paths)
        found = self._agreed(self._all(do, one, numbers, rounds.processes), do, one, numbers)
        names = {process.node for process in found}
        self.host = names.pop() if len(names) == 1 else ""
        for process in found:
            self._took_s += process.took_s
            self.failures |= process.failures
        self._left = [number for number in self._left if number not in self.failures]
        return [self._joined(found, number) for number in range(len(self._paths))]

    def _joined(self, found: Sequence[_Process], number: int) -> Readings | None:
        """Return the latencies of a version in all processes, one after the other; None where it ended one."""
        if not found or not all(number in process.arrays for process in found):
            return None
        arrays = [process.arrays[number] for process in found]
        width = min(array.shape[1] for array in arrays)
        return np.concatenate([array[:, :width] for array in arrays])

    def _all(self, do: str, rounds: Rounds, numbers: Sequence[int], least: int) -> list[_Process]:
        """Have so many processes or more measure the versions, the first two of them on two nodes: where seats are idle
        most of them do, and the others are for what comes next."""
        least = max(least, min(2, len(self._fleet.ready))) if least > 1 else least
        count = max(least, min(_MOST, 3 * self._fleet.idle // 4))
        works = [self._begin(do, rounds, numbers, elsewhere=n < 2) for n in range(count)]
        found = [self._ended(work, numbers) for work in works]
        if count == 1 and len(self._fleet.ready) > 1 and self._trust.alone(found[0].node):
            found.append(self._ended(self._begin(do, rounds, numbers, elsewhere=True), numbers))
        return found

    def _begin(self, do: str, rounds: Rounds, numbers: Sequence[int], *, elsewhere: bool) -> SeatWork:
        files = {path.name: self._content(path) for path in self._files()}
        versions = [(self._paths[n].name, self._in_flight[n]) for n in (*numbers, *numbers[:1])]
        message = {
            "do": "turns",
            "what": do,
            "seed": self._seed,
            "first": self._first,
            "rounds": asdict(rounds),
            "files": {name: key for name, (key, _) in files.items()},
            "versions": versions,
        }
        self._first += 1
        return self._fleet.submit(SeatWork(message, dict(files.values()), self._used, elsewhere))

    def _files(self) -> Iterable[Path]:
        """Return the files of all versions, and of what they have in common."""
        return sorted(path for path in self.folder.iterdir() if path.name != EXECUTOR)

    def _content(self, path: Path) -> tuple[str, object]:
        if path not in self._sent:
            data = path.read_bytes()
            self._sent[path] = digest(data), self._fleet.put(data)
        return self._sent[path]

    def _ended(self, work: SeatWork, numbers: Sequence[int]) -> _Process:
        process = _Process.of(self._fleet.result(work), numbers, str(work.message["what"]))
        if process.same_code is not None:
            self._trust.observe_same_code(process.node, process.same_code)
        return process

    def _agreed(
        self, found: list[_Process], do: str, rounds: Rounds, numbers: Sequence[int]
    ) -> list[_Process]:
        """Return the processes of nodes that agree; more are asked where two contradict each other, and none is left
        where nobody can tell who is right."""
        said = self._by_node(found)
        if not self._contradict(said):
            self._trust.agree([name for name, _ in said])
            return found
        more = max(1, 3 - len(said))
        works = [self._begin(do, rounds, numbers, elsewhere=True) for _ in range(more)]
        found = [*found, *(self._ended(work, numbers) for work in works)]
        said = self._by_node(found)
        if len(said) < 3:
            if not self._contradict(said):
                return found
            names = " and ".join(name for name, _ in said)
            self._fleet.say(
                f"{names} contradict each other: set aside, as only a third seat can tell who is right"
            )
            return []
        liars = {said[n][0] for n in self._trust.liars(said)}
        if len(liars) > len(said) // 2:
            return []
        for name in liars:
            self._trust.strike(name, "its ratios contradict those of its peers: " + _example(name, said))
        return [process for process in found if process.node not in liars]

    def _by_node(self, found: Sequence[_Process]) -> list[tuple[str, Ratios]]:
        nodes = dict.fromkeys(process.node for process in found)
        each = {name: [p.ratios for p in found if p.node == name] for name in nodes}
        return [(name, np.median(np.array(ratios), axis=0)) for name, ratios in each.items()]

    def _contradict(self, said: Sequence[tuple[str, Ratios]]) -> bool:
        return any(self._trust.differ(one, other) for n, one in enumerate(said) for other in said[:n])


def _example(name: str, said: Sequence[tuple[str, Ratios]]) -> str:
    """Return the version about which a node differs most from the median of all, in words."""
    mine = next(ratios for other, ratios in said if other == name)
    others = np.nanmedian(np.array([ratios for other, ratios in said if other != name]), axis=0)
    worst = int(np.nanargmax(np.abs(mine - others)))
    return f"{np.exp(-mine[worst]):.2f}× where others have {np.exp(-others[worst]):.2f}×"


def turns_on(trust: Trust) -> Callable[[int], Turns]:
    """Return what makes turns on a fleet by a seed."""
    return lambda seed: FleetTurns(seed, trust)


__all__ = ["FleetTurns", "turns_on"]
