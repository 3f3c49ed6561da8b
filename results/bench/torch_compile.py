"""torch.compile with us behind it beside inductor and eager PyTorch, each in processes of its own, interleaved."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, at, over
from autotune.bench.side_by_side import Competitor, Pace, SideBySide, difference
from autotune.bench.systems import System
from autotune.bench.tables import duration, geometric_mean, number, ratio, scientific
from autotune.workers.process import python_module
from results.bench.held_out import measure as held_out

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


def measure(say: Say, names: Sequence[str], threads: int, rounds: int) -> Iterator[Sequence[Record]]:
    """Build, compile and time each architecture in all ways, interleaved; yield a record for each way.

    ``error`` is our largest difference to eager PyTorch, relative to the largest value.
    """
    held_out.check_names(names)
    held_out.chosen(names)
    for name in names or MODELS:
        say(f"{name}: eager, inductor and autotune, interleaved")
        entries = [Competitor(way, system, name, {}) for way, system in SYSTEMS.items()]
        pace = Pace(rounds, 1)
        with tempfile.TemporaryDirectory() as scratch, SideBySide(threads, Path(scratch), pace) as running:
            found = running.run(entries)
        ours, eager = found["autotune"], found["eager"]
        both = not ours.failure and not eager.failure
        error = difference(ours.outputs, eager.outputs, np.asarray) if both else None
        yield [
            {
                "model": name,
                "threads": threads,
                "way": way,
                "min_ns": each.latency.min_ns if each.latency else None,
                "ready_s": None if each.failure else each.load_s,
                "failure": each.failure or None,
                "error": error,
            }
            for way, each in found.items()
        ]


ABOUT = (
    'Models of torchvision, timm and transformers with random weights by `torch.compile(model, backend="autotune")`, '
    "untuned, beside inductor (max-autotune, weights frozen) and eager PyTorch, in inference mode and float32: each in "
    "a process of its own, interleaved. A model counts only where every graph of it is compiled."
)

_times = {way: at("min_ns", way=way) for way in LABELS}

OPTIONS = (
    options.words(),
    options.workers("Threads of each."),
    options.number("--rounds", 8, "Turns that each gets."),
)
COMPARED = (
    Column("model", "model"),
    *(Column(label, _times[way], duration) for way, label in LABELS.items()),
    Column("÷ inductor", over(_times["autotune"], _times["inductor"]), ratio, geometric_mean),
    Column("÷ eager", over(_times["autotune"], _times["eager"]), ratio, geometric_mean),
    Column("max. error", "error", scientific),
)
"""Columns of latencies beside inductor and eager PyTorch."""
READY = (
    Column("inductor ready", at("ready_s", way="inductor"), number(0, " s")),
    Column("autotune ready", at("ready_s", way="autotune"), number(0, " s")),
)
"""Columns of the times until both are compiled."""


def _notes(rows: FrameRows) -> Iterator[str]:
    yield (
        "latencies are minima of calls from Python; ready: building the model, compiling and two calls, by the same "
        "worker; inductor with max-autotune and freezing"
    )
    for row in rows:
        if row["failure"]:
            yield f"{row['model']}, {row['way']}: {' '.join(row['failure'].split())[:300]}"


EXPERIMENT = Experiment(
    title="torch.compile",
    about=ABOUT,
    summary="Measure torch.compile by us and by inductor; NAMES are architectures of `held-out` (ten by default).",
    example="bert mixer --rounds 4 -o results/torch.md",
    options=OPTIONS,
    measure=measure,
    views=(
        TableView(
            "torch.compile, {threads}",
            ("model",),
            (*COMPARED, *READY),
            last="geometric mean",
            notes=_notes,
        ),
    ),
)

__all__ = ["COMPARED", "EXPERIMENT", "LABELS", "MODELS", "OPTIONS", "READY"]
