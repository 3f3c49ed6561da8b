"""A model of a package as two systems run it: compiled for its ranges, and by ONNX Runtime in another process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import autotune
from autotune.graph.ir import Array
from autotune.workers.process import WorkerProcess
from results.bench.wheels.media import Media
from results.bench.wheels.shipped import Inputs, Shipped

Run: TypeAlias = Callable[[Inputs], Mapping[str, Array]]
"""Inputs by name -> results by name."""
_SCRIPT = Path(__file__).with_name("worker.py")
_REQUEST_S = 300.0


@dataclass(frozen=True)
class Peer:
    """ONNX Runtime in a process of its own; files go through ``folder``."""

    worker: WorkerProcess
    folder: Path

    def runs(self, model: Path) -> Run:
        """Return what runs a model's file."""

        def run(inputs: Inputs) -> Mapping[str, Array]:
            given, results = self.folder / "inputs.npz", self.folder / "results.npz"
            np.savez(given, **inputs)  # type: ignore[arg-type]
            request = {"model": str(model), "inputs": str(given), "outputs": str(results)}
            names = self.worker.call(request, _REQUEST_S, "a request of ONNX Runtime")["names"]
            with np.load(results) as found:
                return {name: found[f"arr_{index}"] for index, name in enumerate(names)}

        return run


@contextmanager
def peer(python: str, folder: Path) -> Iterator[Peer]:
    """Start ONNX Runtime by a Python that has it, and end it."""
    worker = WorkerProcess((python, "-I", str(_SCRIPT)), name="worker of ONNX Runtime")
    try:
        yield Peer(worker, folder)
    finally:
        worker.close()


@dataclass(frozen=True)
class Both:
    """A model in both systems: ``seconds`` were taken to compile it into ``module``."""

    module: Any
    seconds: float
    peer: Run

    def run(self, inputs: Inputs) -> Mapping[str, Array]:
        """Return our results by name."""
        found: Mapping[str, Array] = self.module.run(dict(inputs))
        return found


@contextmanager
def both(shipped: Shipped, media: Media, other: Peer, threads: int) -> Iterator[Both]:
    """Compile a model of the folder's wheels for its ranges; raises what compiling raises."""
    content = media.read(media.model(shipped.package, shipped.file))
    path = other.folder / shipped.file
    path.write_bytes(content)
    begin = time.perf_counter()
    if shipped.ranges:
        compiled = autotune.compile_for_sizes(content, dict(shipped.ranges), threads=threads)
    else:
        compiled = autotune.compile(content, threads=threads)
    with compiled as module:
        yield Both(module, time.perf_counter() - begin, other.runs(path))


def difference(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float:
    """Return the largest difference of a result, relative to its largest value; infinite where shapes or whole
    numbers are others."""
    worst = 0.0
    for name, wanted in theirs.items():
        found = ours[name]
        if found.shape != wanted.shape or (wanted.dtype.kind in "biu" and (found != wanted).any()):
            return float("inf")
        if wanted.size:
            apart = np.abs(found.astype(np.float64) - wanted).max() / max(1e-6, float(np.abs(wanted).max()))
            worst = max(worst, float(apart))
    return worst


__all__ = ["Both", "Peer", "Run", "both", "difference", "peer"]
