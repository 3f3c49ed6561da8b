"""The quality of predictions of whole models, before they are compiled: latency and memory."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.bench.problem import write_inputs
from autotune.bench.side_by_side import Competitor, Pace, SideBySide
from autotune.bench.suites import models
from autotune.bench.systems import OURS
from autotune.compiler import compile_in_detail, predict_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import MeasureError
from autotune.runtime.artifacts import artifact


@dataclass(frozen=True)
class Foreseen:
    """A model on so many threads: what was predicted, with its interval, and what was measured of its default.

    Latencies are in nanoseconds, the median of fresh processes; memory is what the image needs, in bytes.
    """

    model: str
    threads: int
    predicted_ns: float
    interval_ns: tuple[float, float]
    measured_ns: float
    predicted_peak: int
    peak: int
    predicted_constants: int
    constants: int

    @property
    def ratio(self) -> float:
        """Predicted over measured latency."""
        return self.predicted_ns / self.measured_ns

    @property
    def holds(self) -> bool:
        """Return whether the measured latency lies in the predicted interval."""
        low, high = self.interval_ns
        return low <= self.measured_ns <= high

    @property
    def memory_ratio(self) -> float:
        """Predicted over real bytes: arena, scratch memory and constants."""
        return (self.predicted_peak + self.predicted_constants) / max(1, self.peak + self.constants)


def foresee(names: Sequence[str], threads: int, pace: Pace, say: Callable[[str], None]) -> list[Foreseen]:
    """Predict each model, then compile and time it in fresh processes. Raises what these raise."""
    found = []
    for case in models.models(names):
        say(f"{case.name}: predicted, compiled and timed with {threads}")
        problem = case.build()
        said = predict_in_detail(CompileRequest(problem.graph, threads=threads))
        image = compile_in_detail(CompileRequest(problem.graph, threads=threads)).image
        with tempfile.TemporaryDirectory() as folder, SideBySide(threads, Path(folder), pace) as running:
            path = Path(folder) / "default.atm"
            artifact.save(image, path)
            inputs = write_inputs(problem, Path(folder) / "inputs", peer=False)
            reading = running.run([Competitor("default", OURS, str(path), inputs)])["default"]
        if reading.latency is None:
            raise MeasureError(f"{case.name} was not timed: {reading.failure}")
        found.append(
            Foreseen(
                case.name,
                threads,
                said.latency_ns,
                said.interval_ns,
                reading.latency.median_ns,
                said.memory.peak_bytes,
                image.arena_bytes + image.scratch_bytes(threads),
                said.memory.constant_bytes,
                sum(constant.nbytes for constant in image.constants),
            )
        )
    return found


def geometric_error(ratios: Iterable[float]) -> float:
    """The factor that predictions are off by: e to the root mean square of the logarithms of the ratios.

    >>> round(geometric_error([2.0, 0.5]), 3)
    2.0
    """
    squares = [math.log(ratio) ** 2 for ratio in ratios]
    return math.exp(math.sqrt(sum(squares) / len(squares))) if squares else math.nan


__all__ = ["Foreseen", "foresee", "geometric_error"]
