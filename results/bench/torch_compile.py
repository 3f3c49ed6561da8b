"""torch.compile with us behind it beside inductor and eager PyTorch, each in processes of its own, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autotune.bench.side_by_side import Competitor, Pace, SideBySide, difference
from autotune.bench.systems import System
from autotune.bench.tables import Table, duration, geometric_mean, quotient, ratio, scientific
from autotune.workers.process import python_module

MODELS = (
    "deeplabv3",
    "lraspp",
    "ssdlite",
    "regnety",
    "mobilevit",
    "mixer",
    "bert",
    "t5_encoder",
    "whisper_encoder",
    "gpt2_verify",
)
"""Ten architectures of torchvision, timm and transformers."""
LABELS = {"eager": "PyTorch eager", "inductor": "inductor", "autotune": "autotune"}
SYSTEMS = {
    way: System(f"torch-{way}", label, "name", (*python_module("results.bench.worker_torch_compile"), way))
    for way, label in LABELS.items()
}


@dataclass(frozen=True)
class Row:
    """One architecture: nanoseconds, seconds until it was ready, and failures, by way.

    ``error`` is our largest difference to eager PyTorch, relative to the largest value.
    """

    name: str
    min_ns: dict[str, float] = field(default_factory=dict)
    ready_s: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    error: float | None = None

    def ratio(self, other: str) -> float | None:
        """Our latency over another way's."""
        return quotient(self.min_ns.get("autotune"), self.min_ns.get(other))


def measure(names: Sequence[str], threads: int, pace: Pace, say: Callable[[str], None]) -> Iterator[Row]:
    """Build, compile and time each architecture in all ways."""
    for name in names:
        say(f"{name}: eager, inductor and autotune take turns")
        entries = [Competitor(way, system, name, {}) for way, system in SYSTEMS.items()]
        with tempfile.TemporaryDirectory() as scratch, SideBySide(threads, Path(scratch), pace) as running:
            found = running.run(entries)
        ours, eager = found["autotune"], found["eager"]
        both = not ours.failure and not eager.failure
        yield Row(
            name,
            {way: each.latency.min_ns for way, each in found.items() if each.latency},
            {way: each.load_s for way, each in found.items() if not each.failure},
            {way: each.failure for way, each in found.items() if each.failure},
            difference(ours.outputs, eager.outputs, np.asarray) if both else None,
        )


def tables(rows: Sequence[Row], threads: str) -> list[Table]:
    """A row an architecture, with the geometric means."""
    columns = (
        "model",
        *LABELS.values(),
        "÷ inductor",
        "÷ eager",
        "max. error",
        "inductor ready",
        "autotune ready",
    )
    cells = [
        (
            row.name,
            *(duration(row.min_ns.get(way)) for way in LABELS),
            ratio(row.ratio("inductor")),
            ratio(row.ratio("eager")),
            scientific(row.error),
            *(f"{row.ready_s[way]:.0f} s" if way in row.ready_s else "–" for way in ("inductor", "autotune")),
        )
        for row in rows
    ]
    means = [geometric_mean(row.ratio(other) for row in rows) for other in ("inductor", "eager")]
    cells.append(("geometric mean", "", "", "", *map(ratio, means), "", "", ""))
    notes = (
        "latencies are minima of calls from Python; ready: building the model, compiling and two calls, by the same "
        "worker; inductor with max-autotune and freezing",
        *(
            f"{row.name}, {way}: {' '.join(why.split())[:300]}"
            for row in rows
            for way, why in row.failures.items()
        ),
    )
    return [Table(f"torch.compile, {threads}", columns, tuple(cells), notes)]


__all__ = ["MODELS", "Row", "measure", "tables"]
