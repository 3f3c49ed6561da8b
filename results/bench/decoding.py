"""Decoding word by word beside peers, and beside a sum over the same bytes: how near it is to the memory's speed."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

import autotune
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.options import number
from autotune.bench.tables import number as decimals
from autotune.bench.tables import plain
from autotune.calibration import kernels
from autotune.calibration.probe import Probe, lap_together
from autotune.frontends.zoo_decoders import BLOCK, LLAMA_1B, Decoder, decoder
from autotune.runtime.module import Module
from autotune.target import Target

WORKER = Path(__file__).with_name("worker_decoding.py")
PEERS = ("onnxruntime", "openvino")
_SLICE = 4 << 20
_STEP = 256


def weight_bytes(sizes: Decoder) -> int:
    """Return bytes of weights and scales that a step reads: all but the rows of words that are not looked up."""
    narrow = sizes.groups * sizes.size
    layer = sizes.width * (2 * sizes.width + 2 * narrow + 3 * sizes.inner)
    weights = sizes.layers * layer + sizes.width * sizes.words
    return weights * sizes.bits // 8 + weights // BLOCK * 4


class Ours:
    """A model compiled for one word a step, with its cache."""

    def __init__(self, path: Path, threads: int) -> None:
        self.model: Module = autotune.compile(str(path), shapes={"sequence_length": 1}, threads=threads)
        specs = self.model.specs()
        self.arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
        present = [v for name, v in self.arrays.items() if name.startswith("past")]
        self.out = [np.empty((1, 1, LLAMA_1B.words), np.float32), *present]

    def steps(self, keys: int, count: int) -> list[float]:
        """Return milliseconds of each step, as a caller sees them."""
        self.arrays["input_ids"][:] = 7
        self.arrays["attention_mask"][:] = np.arange(self.arrays["attention_mask"].size) < keys
        given, times = [*self.arrays.values()], list[float]()
        for _ in range(count):
            begin = time.perf_counter()
            self.model(*given, out=self.out)
            times.append(1e3 * (time.perf_counter() - begin))
        return times


class Stream:
    """Each thread reads its half of so many bytes, 4 MiB at a time."""

    def __init__(self, nbytes: int, threads: int) -> None:
        self.probe = Probe(Target.detect(threads))
        self.read = self.probe.kernel(kernels.stream("kernel", self.probe.lanes, _SLICE))
        count = -(-nbytes // (threads * _SLICE))
        self.area = np.ones((threads * count + 1) * _SLICE, np.uint8)
        first = self.area.ctypes.data + -self.area.ctypes.data % 64
        self.parts = [[first + (n * count + i) * _SLICE for i in range(count)] for n in range(threads)]
        self.pool, self.share = ThreadPoolExecutor(threads), nbytes / (threads * count * _SLICE)

    def milliseconds(self) -> float:
        """Return the time of all bytes."""

        def whole(number: int, _: int) -> None:
            for address in self.parts[number]:
                self.read(address, _SLICE // _STEP)

        numbers = [*range(len(self.parts))]
        return 1e-6 * self.share * lap_together(self.pool, whole, numbers, 0)


class Peer:
    """A peer in a process of its own."""

    def __init__(self, python: str, name: str, path: Path, threads: int) -> None:
        command = [python, "-I", str(WORKER), name, str(path), str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def steps(self, keys: int, count: int) -> list[float]:
        """Return milliseconds of each step."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{keys} {count}\n")
        self.process.stdin.flush()
        return list(self._answer()["ms"])

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def measure(
    say: Say, keys: str, threads: int, rounds: int, peer_python: str | None, **sizes: int
) -> Iterator[Sequence[Record]]:
    """Yield rows of each number of cached keys: medians over rounds in which contenders are interleaved."""
    model = replace(LLAMA_1B, layers=sizes["layers"], places=sizes["places"])
    counts = [int(each) for each in keys.split(",")]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "llama.onnx"
        onnx.save(decoder(model), str(path))
        say("compiling")
        contenders: dict[str, Any] = {"autotune": Ours(path, threads)}
        for name in PEERS if peer_python else ():
            contenders[name] = stack.enter_context(Peer(str(peer_python), name, path, threads))
        read = weight_bytes(model)
        stream = Stream(read, threads)
        say("measuring")
        times = _interleaved(contenders, stream, counts, rounds, sizes["steps"])
        whole = float(np.median(times["stream", 0]))
        row = 2 * model.layers * model.groups * model.size * 4
        for count in counts:
            bound = whole * (1 + count * row / read)
            yield [_record(name, count, times[name, count], bound) for name in contenders]
        yield [_record("sum over the weights", 0, times["stream", 0], whole)]


def _interleaved(
    contenders: dict[str, Any], stream: Stream, counts: Sequence[int], rounds: int, steps: int
) -> dict[tuple[str, int], list[float]]:
    """Return milliseconds by contender and keys; the first round, and the first step of each, are not counted."""
    times: dict[tuple[str, int], list[float]] = {}
    for turn in range(rounds + 1):
        for count in counts:
            for name, each in contenders.items():
                found = each.steps(count, steps)[1:]
                times.setdefault((name, count), []).extend(found if turn else [])
        times.setdefault(("stream", 0), []).extend(stream.milliseconds() for _ in range(3 if turn else 0))
    return times


def _record(name: str, keys: int, times: Sequence[float], bound: float) -> Record:
    middle = float(np.median(times))
    return {
        "keys": keys,
        "contender": name,
        "ms": middle,
        "least": min(times),
        "rate": 1e3 / middle,
        "of": bound / middle,
    }


EXPERIMENT = Experiment(
    title="Decoding",
    about="A Llama of 1B parameters: weights of four bits in blocks of 32, a cache of float32 written in place.",
    summary="Measure words a second beside peers and the speed of the memory.",
    example="--peer-python PYTHON",
    options=(
        click.Option(["--keys"], default="1,250,1000", show_default=True, help="Cached keys."),
        number("--layers", LLAMA_1B.layers, "Layers of the model."),
        number("--places", LLAMA_1B.places, "Places of the cache."),
        number("--threads", 2, "Workers."),
        number("--rounds", 3, "Rounds of all contenders."),
        number("--steps", 4, "Steps a round.", least=2),
        click.Option(
            ["--peer-python"], metavar="PYTHON", help="Python that has the peers; without it there are none."
        ),
    ),
    measure=measure,
    views=(
        TableView(
            "Decoding",
            ("keys", "contender"),
            (
                Column("cached keys", "keys", plain),
                Column("by", "contender", plain),
                Column("ms", "ms", decimals(1)),
                Column("least", "least", decimals(1)),
                Column("words a second", "rate", decimals(1)),
                Column("of the memory's speed", "of", decimals(2)),
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
