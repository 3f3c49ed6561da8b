"""A model that several clients ask at once, beside ONNX Runtime: rates, latencies, right answers and memory."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import autotune
from autotune.bench.problem import Case, Problem, write_inputs, write_onnx
from autotune.bench.systems import System
from autotune.bench.tables import Table, duration, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import MeasureError
from autotune.runtime import artifact
from autotune.suggest import counted
from autotune.workers.process import Died, WorkerProcess

OURS = "autotune"
WAYS = ("call", "submit", "submit_all", "await")
"""How clients ask our modules: threads that call, or one thread that submits singly, in batches or as coroutines."""
_SCRIPT = Path(__file__).with_name("worker_requests.py")
_START_S = 300.0
_QUARTERS = 4


@dataclass(frozen=True)
class Served:
    """What the clients of one system saw who kept so many requests on their way.

    ``latencies_ns`` counts requests by latency, to 1 %; ``rss_bytes`` is the memory of the process at the start and
    after each quarter.
    """

    model: str
    system: str
    way: str
    in_flight: int
    requests: int
    wrong: int
    wall_ns: int
    processor_ns: int
    longest_ns: int
    latencies_ns: Mapping[float, int]
    rss_bytes: tuple[int, ...]

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.wall_ns * 1e9

    def latency_ns(self, part: float) -> float:
        """So that this part of the requests took no longer."""
        left = part * self.requests
        for latency in sorted(self.latencies_ns):
            left -= self.latencies_ns[latency]
            if left <= 0:
                return min(latency, float(self.longest_ns))
        return float(self.longest_ns)


@dataclass(frozen=True)
class _Entry:
    """A process that serves, and a way to ask it."""

    system: str
    way: str
    worker: WorkerProcess

    def ask(self, in_flight: int, seconds: float) -> dict[str, object]:
        request = {"way": self.way, "in_flight": in_flight, "seconds": seconds}
        try:
            return self.worker.call(request, seconds + _START_S, "serving")
        except Died as death:
            raise MeasureError(f"{self.system} ended while it served: {death}") from death


def measure(
    cases: Iterable[Case],
    peers: Sequence[System],
    threads: int,
    in_flight: Sequence[int],
    ways: Sequence[str],
    seconds: float,
    say: Callable[[str], None],
) -> list[Served]:
    """Serve every model with so many requests on their way, for ``seconds`` in all each, in turns of a quarter.

    Raises MeasureError for a process that fails, and what compiling the model raises.
    """
    found = list[Served]()
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            entries = _entries(case.build(), peers, threads, ways, Path(folder))
            try:
                found += _in_turns(case.name, entries, in_flight, seconds, say)
            finally:
                for entry in entries:
                    entry.worker.close()
    return found


def _entries(
    problem: Problem, peers: Sequence[System], threads: int, ways: Sequence[str], folder: Path
) -> list[_Entry]:
    """Everybody; ways to ask one system share its process."""
    artifact.save(
        compile_in_detail(CompileRequest(problem.graph, threads=threads)).image, folder / "model.atm"
    )
    paths = write_inputs(problem, folder / "mine", peer=False).values()
    root = str(Path(autotune.__file__).parents[1])
    ours = _worker(sys.executable, "autotune", root, folder / "model.atm", threads, paths)
    entries = [_Entry(OURS, way, ours) for way in ways]
    for peer in peers:
        if problem.model is None:
            raise MeasureError("a model without an ONNX form cannot be given to ONNX Runtime")
        write_onnx(problem.model, folder / "model.onnx")
        paths = write_inputs(problem, folder / "theirs", peer=True).values()
        for each in dict.fromkeys((threads, 1)):
            name = f"{peer.label}, {counted(each, 'thread')}"
            worker = _worker(peer.command[0], "onnxruntime", "-", folder / "model.onnx", each, paths)
            entries.append(_Entry(name, "call", worker))
    return entries


def _worker(
    python: str, system: str, root: str, model: Path, threads: int, inputs: Iterable[str]
) -> WorkerProcess:
    command = (python, "-I", str(_SCRIPT), system, root, str(model), str(threads), *inputs)
    return WorkerProcess(command, start_s=_START_S, name=f"server of {system}")


def _in_turns(
    model: str,
    entries: Sequence[_Entry],
    in_flight: Sequence[int],
    seconds: float,
    say: Callable[[str], None],
) -> list[Served]:
    served: dict[tuple[str, str, int], Served] = {}
    for quarter in range(_QUARTERS):
        say(f"{model}: part {quarter + 1} of {_QUARTERS}")
        for count in in_flight:
            for entry in entries:
                key = entry.system, entry.way, count
                if quarter == 0:
                    entry.ask(count, min(1.0, seconds / 10))  # threads and arenas are made, caches filled
                now = _served(model, entry, count, entry.ask(count, seconds / _QUARTERS))
                served[key] = _joined(served[key], now) if key in served else now
    return list(served.values())


def _served(model: str, entry: _Entry, in_flight: int, said: Mapping[str, object]) -> Served:
    facts: dict[str, object] = dict(said)
    buckets, rss = facts.pop("buckets"), facts.pop("rss_bytes")
    assert isinstance(buckets, dict)
    assert isinstance(rss, list)
    return Served(
        model,
        entry.system,
        entry.way,
        in_flight,
        latencies_ns={float(latency): count for latency, count in buckets.items()},
        rss_bytes=tuple(rss),
        **facts,  # type: ignore[arg-type]
    )


def _joined(before: Served, now: Served) -> Served:
    return Served(
        before.model,
        before.system,
        before.way,
        before.in_flight,
        before.requests + now.requests,
        before.wrong + now.wrong,
        before.wall_ns + now.wall_ns,
        before.processor_ns + now.processor_ns,
        max(before.longest_ns, now.longest_ns),
        dict(Counter(before.latencies_ns) + Counter(now.latencies_ns)),
        (*before.rss_bytes, now.rss_bytes[-1]),
    )


_COLUMNS = (
    *("requests/s", "against one at a time", "median", "p99", "p99.9", "longest"),
    *("processor a request", "requests", "wrong", "memory at the start and after each quarter"),
)


def tables(found: Sequence[Served], threads: str) -> list[Table]:
    """One a model: each system and way, by how many requests were on their way."""
    note = (
        "`call`: each client is a thread that calls (ONNX Runtime: `session.run`); `submit`, `submit_all`, `await`: "
        "one thread asks for all. A client checks each answer, bit for bit, and then asks for the next; memory is that "
        "of the process, which all rows of a system share"
    )
    made = []
    for model in dict.fromkeys(each.model for each in found):
        mine = [each for each in found if each.model == model]
        alone = {each.system: each.rate for each in reversed(mine) if each.in_flight == 1}
        rows = [
            (f"{each.system}, {each.way}, {each.in_flight} in flight", *_cells(each, alone.get(each.system)))
            for each in mine
        ]
        made.append(Table(f"{model}, {threads}", ("system", *_COLUMNS), tuple(rows), (note,)))
    return made


def _cells(each: Served, alone: float | None) -> tuple[str, ...]:
    memory = " ".join(f"{rss / 1e6:.1f}" for rss in each.rss_bytes)
    return (
        f"{each.rate:.4g}",
        ratio(None if alone is None else each.rate / alone),
        *(duration(each.latency_ns(part)) for part in (0.5, 0.99, 0.999)),
        duration(float(each.longest_ns)),
        duration(each.processor_ns / max(1, each.requests)),
        str(each.requests),
        str(each.wrong),
        f"{memory} MB",
    )


__all__ = ["OURS", "WAYS", "Served", "measure", "tables"]
