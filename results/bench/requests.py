"""A model that several clients ask at once, beside ONNX Runtime: rates, latencies, right answers and memory."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, over
from autotune.bench.interleaved import interleaved
from autotune.bench.problem import Problem, write_inputs, write_onnx
from autotune.bench.suites import models
from autotune.bench.systems import System, find_peers
from autotune.bench.tables import duration, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import MeasureError
from autotune.runtime.artifacts import artifact
from autotune.suggest import counted
from autotune.workers.process import Died, WorkerProcess

OURS = "autotune"
WAYS = ("call", "submit", "submit_all", "await")
"""The ways to call our modules: threads that call, or one thread that submits singly, in batches or as coroutines."""
_SCRIPT = Path(__file__).with_name("worker_requests.py")
_START_S = 300.0
_QUARTERS = 4
_PARTS = (50, 99, 99.9)
"""Percentiles of latencies that are shown."""
MODELS = ("tiny_cnn", "mlp", "encoder", "squeezenet", "mobilenetv2")


@dataclass(frozen=True)
class Served:
    """The clients' view of one system, with so many concurrent requests.

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
    say: Say,
    names: Sequence[str],
    threads: int,
    in_flight: Sequence[int],
    ways: Sequence[str],
    seconds: float,
    peers: str,
    peer_pythons: Sequence[str],
) -> Iterator[Sequence[Record]]:
    """Serve every model with so many requests on their way, for ``seconds`` in all each, in interleaved quarters.

    Raises MeasureError for a process that fails, and what compiling the model raises.
    """
    systems = find_peers([] if peers == "none" else [peers], peer_pythons)
    for case in models.models(names or MODELS):
        with tempfile.TemporaryDirectory() as folder:
            entries = _entries(case.build(), systems, threads, ways, Path(folder))
            try:
                found = _in_turns(case.name, entries, in_flight, seconds, say)
            finally:
                for entry in entries:
                    entry.worker.close()
        alone = {each.system: each.rate for each in reversed(found) if each.in_flight == 1}
        yield [
            {"threads": threads, **asdict(each), "rate": each.rate, "alone_rate": alone.get(each.system)}
            | {f"p{part}_ns": each.latency_ns(part / 100) for part in _PARTS}
            for each in found
        ]


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
    model: str, entries: Sequence[_Entry], in_flight: Sequence[int], seconds: float, say: Say
) -> list[Served]:
    order = {
        f"{entry.system}, {entry.way}, {count}": (entry, count) for count in in_flight for entry in entries
    }
    served = dict[str, Served]()
    for entry, count in order.values():
        entry.ask(count, min(1.0, seconds / 10))  # threads and arenas are made, caches filled
    turns = {name: partial(entry.ask, count, seconds / _QUARTERS) for name, (entry, count) in order.items()}
    say(f"{model}: {_QUARTERS} parts of {seconds / _QUARTERS:.1f} s for each of {len(turns)}")
    for _, name, said in interleaved(turns, _QUARTERS):
        now = _served(model, *order[name], said)
        served[name] = _joined(served[name], now) if name in served else now
    return [served[name] for name in order]


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


ABOUT = (
    "A model that clients ask who keep several requests on their way, beside ONNX Runtime with as many threads and "
    "with one: requests per second, latency as a client sees it, processor time of the whole process, answers that "
    "differ from those of the same input when nothing else ran, and memory. Systems are interleaved, each in "
    "a process of its own."
)


def _name(rows: FrameRows) -> str:
    return f"{rows.get('system')}, {rows.get('way')}, {rows.get('in_flight')} in flight"


EXPERIMENT = Experiment(
    title="Several requests at once",
    about=ABOUT,
    summary="Measure several requests on their way and one at a time; NAMES are zoo models or ONNX files.",
    example="squeezenet --in-flight 1,8 -o results/requests.md",
    options=(
        options.words(),
        options.workers(),
        options.numbers(
            "--in-flight", "1,8", "Numbers of requests on their way, each measured by itself.", int, 1
        ),
        options.listed(
            "--ways",
            "call,submit",
            "How ours is asked: call (threads), submit, submit_all (batches), await (coroutines).",
            known=lambda: WAYS,
            what="way to ask",
        ),
        options.seconds("--seconds", 60.0, "For each system, way and number, in four parts."),
        *options.onnxruntime(),
    ),
    measure=measure,
    views=(
        TableView(
            "{model}, {threads}",
            ("system", "way", "in_flight"),
            (
                Column("system", _name),
                Column("requests/s", "rate", "{:.4g}".format),
                Column("against one at a time", over("rate", "alone_rate"), ratio),
                Column("median", "p50_ns", duration),
                Column("p99", "p99_ns", duration),
                Column("p99.9", "p99.9_ns", duration),
                Column("longest", "longest_ns", lambda ns: duration(float(ns))),
                Column(
                    "processor a request",
                    lambda rows: rows.get("processor_ns") / max(1, rows.get("requests")),
                    duration,
                ),
                Column("requests", "requests"),
                Column("wrong", "wrong"),
                Column(
                    "memory at the start and after each quarter",
                    "rss_bytes",
                    lambda found: " ".join(f"{rss / 1e6:.1f}" for rss in found) + " MB",
                ),
            ),
            ("model",),
            notes=(
                "`call`: each client is a thread that calls (ONNX Runtime: `session.run`); `submit`, `submit_all`, "
                "`await`: one thread asks for all. A client checks each answer, bit for bit, and then asks for the "
                "next; memory is that of the process, which all rows of a system share",
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT", "OURS", "WAYS", "Served"]
