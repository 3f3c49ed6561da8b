"""A process that serves a model to clients of its own and says what they saw, as JSON lines.

Run as a script by any Python that has NumPy and the system. Arguments: ``autotune`` or ``onnxruntime``, the folder to
import it from or ``-``, the model, how many threads, and the inputs as .npy files, in order. Each request has one of
several inputs; what comes back is compared, bit for bit, with what the same input gave when nothing else ran.
"""

from __future__ import annotations

import asyncio
import json
import math
import runpy
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Answer = list[Any]
_VARIANTS = 16
_STEPS = 64  # buckets of latencies a factor of two: their bounds are 1.1 % apart
_LIFETIME = Path(__file__).parents[2] / "autotune" / "workers" / "lifetime.py"


class Client:
    """Asks one request at a time, each with the next input, and keeps what it saw in little memory."""

    def __init__(self, inputs: Sequence[list[Any]], expected: Sequence[list[bytes]], first: int) -> None:
        self._inputs = inputs
        self._expected = expected
        self._number = first
        self.buckets: Counter[int] = Counter()
        self.requests = self.wrong = self.longest_ns = 0

    def next(self) -> tuple[int, list[Any]]:
        """Return the number of the next input, and its arrays."""
        self._number = (self._number + 1) % len(self._inputs)
        return self._number, self._inputs[self._number]

    def saw(self, number: int, answer: Answer, ns: int) -> None:
        """Check an answer and count how long it took."""
        self.requests += 1
        self.wrong += [each.tobytes() for each in answer] != self._expected[number]
        self.buckets[int(math.log2(max(1, ns)) * _STEPS)] += 1
        self.longest_ns = max(self.longest_ns, ns)


def calling(run: Callable[..., Answer], clients: Sequence[Client], end: float) -> None:
    """Each client is a thread that calls."""

    def ask(client: Client) -> None:
        while time.monotonic() < end:
            number, arrays = client.next()
            begin = time.perf_counter_ns()
            answer = run(*arrays)
            client.saw(number, answer, time.perf_counter_ns() - begin)

    if len(clients) == 1:
        ask(clients[0])
        return
    threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def submitting(module: Any, clients: Sequence[Client], end: float) -> None:
    """One thread keeps as many requests on their way as there are clients."""
    client, ended = clients[0], deque[tuple[int, Any, int]]()
    room = threading.Semaphore(len(clients))

    def done(number: int, begin: int) -> Callable[[Any], None]:
        def note(request: Any) -> None:
            ended.append((number, request, time.perf_counter_ns() - begin))
            room.release()

        return note

    while time.monotonic() < end:
        room.acquire()
        while ended:
            number, request, ns = ended.popleft()
            client.saw(number, request.result(), ns)
        number, arrays = client.next()
        begin = time.perf_counter_ns()
        module.submit(*arrays).add_done_callback(done(number, begin))
    for _ in clients:
        room.acquire()
    for number, request, ns in ended:
        client.saw(number, request.result(), ns)


def batching(module: Any, clients: Sequence[Client], end: float) -> None:
    """One thread hands over as many requests as there are clients in one step, and waits for all."""
    client = clients[0]
    while time.monotonic() < end:
        chosen = [client.next() for _ in clients]
        begin = time.perf_counter_ns()
        requests = module.submit_all([arrays for _, arrays in chosen])
        for (number, _), request in zip(chosen, requests, strict=True):
            answer = request.result()
            client.saw(number, answer, time.perf_counter_ns() - begin)


def awaiting(module: Any, clients: Sequence[Client], end: float) -> None:
    """Each client is a coroutine of one event loop."""

    async def ask(client: Client) -> None:
        while time.monotonic() < end:
            number, arrays = client.next()
            begin = time.perf_counter_ns()
            answer = await module.submit(*arrays)
            client.saw(number, answer, time.perf_counter_ns() - begin)

    async def main() -> None:
        await asyncio.gather(*(ask(client) for client in clients))

    asyncio.run(main())


_WAYS: dict[str, Callable[[Any, Sequence[Client], float], None]] = {
    "call": calling,
    "submit": submitting,
    "submit_all": batching,
    "await": awaiting,
}


class Server:
    """A loaded model with its inputs and the answers of each when nothing else ran."""

    def __init__(self, system: str, model: str, threads: int, paths: Sequence[str]) -> None:
        self._run = _autotune(model, threads) if system == "autotune" else _onnxruntime(model, threads)
        base = [np.load(path, allow_pickle=False) for path in paths]
        self._inputs = [
            [np.roll(array.reshape(-1), 7 * number).reshape(array.shape) for array in base]
            for number in range(_VARIANTS)
        ]
        self._expected = [[each.tobytes() for each in self._run(*arrays)] for arrays in self._inputs]

    def serve(self, way: str, in_flight: int, seconds: float) -> dict[str, Any]:
        """Let so many clients ask for a while."""
        clients = [Client(self._inputs, self._expected, 3 * number) for number in range(in_flight)]
        rss, begin, busy = resident(), time.perf_counter_ns(), time.process_time_ns()
        _WAYS[way](self._run, clients, time.monotonic() + seconds)
        wall, spent = time.perf_counter_ns() - begin, time.process_time_ns() - busy
        buckets: Counter[int] = sum((client.buckets for client in clients), Counter())
        return {
            "requests": sum(client.requests for client in clients),
            "wrong": sum(client.wrong for client in clients),
            "wall_ns": wall,
            "processor_ns": spent,
            "longest_ns": max(client.longest_ns for client in clients),
            "buckets": {str(2 ** ((bucket + 0.5) / _STEPS)): count for bucket, count in buckets.items()},
            "rss_bytes": [rss, resident()],
        }


def _autotune(model: str, threads: int) -> Any:
    import autotune

    return autotune.load(model, threads)


def _onnxruntime(model: str, threads: int) -> Callable[..., Answer]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *arrays: list(session.run(None, dict(zip(names, arrays, strict=True))))


def resident() -> int:
    """Bytes of this process in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    return 0


def main() -> None:
    """Load, say so, and serve until nobody asks any more."""
    if not __package__:
        runpy.run_path(str(_LIFETIME))["die_with_parent"]()
    system, folder, model, threads, *inputs = sys.argv[1:]
    if folder != "-":
        sys.path.insert(0, folder)
    server = Server(system, model, int(threads), inputs)
    version = getattr(sys.modules[system], "__version__", "")
    print(json.dumps({"ready": system, "version": str(version).split("-")[0]}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        print(json.dumps(server.serve(request["way"], request["in_flight"], request["seconds"])), flush=True)


if __name__ == "__main__":
    main()
