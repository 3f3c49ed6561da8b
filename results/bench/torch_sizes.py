"""torch.compile at twelve sizes a model: with us behind it, by inductor, and eager, in processes of their own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.options import check_known
from autotune.bench.side_by_side import Competitor, Pace, SideBySide, difference
from autotune.bench.systems import System
from autotune.bench.tables import number
from autotune.workers.process import python_module
from results.bench.torch_compile import COMPARED, LABELS, OPTIONS, READY

MODELS = (
    "perceptron",
    "perceptron_bf16",
    "experts",
    "sound",
    "causal",
    "causal_bf16",
    "windowed",
    "grouped",
    "flex",
    "bert",
    "llama",
    "mixtral",
    "t5_encoder",
    "gpt2_decode",
    "resnet18",
    "lraspp",
    "regnety",
    "unet",
    "mixer",
    "vit",
)
"""The names of :data:`results.bench.held_out.sized.SIZED`, which is only there with PyTorch."""
SYSTEMS = {
    way: System(
        f"torch-sizes-{way}", label, "name", (*python_module("results.bench.worker_torch_sizes"), way)
    )
    for way, label in LABELS.items()
}


def measure(
    say: Say, names: Sequence[str], threads: int, rounds: int, keep: Path | None
) -> Iterator[Sequence[Record]]:
    """Yield a record for each way of each model: the time of a call of each of twelve sizes, one behind the other.

    ``error`` is our largest difference to eager PyTorch, relative to the largest value. Of models that have records in
    ``keep`` these are yielded; others' are written there.
    """
    check_known(names, MODELS, "model")
    for name in names or MODELS:
        kept = keep / f"{name}-{threads}.json" if keep is not None else None
        if kept is not None and kept.is_file():
            yield json.loads(kept.read_text())
            continue
        say(f"{name}: eager, inductor and autotune, interleaved")
        records = _records(name, threads, rounds)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(records))
        yield records


def _records(name: str, threads: int, rounds: int) -> list[Record]:
    """Measure a model in all ways."""
    entries = [Competitor(way, system, name, {}) for way, system in SYSTEMS.items()]
    pace = Pace(rounds, 1)
    with tempfile.TemporaryDirectory() as scratch, SideBySide(threads, Path(scratch), pace) as running:
        found = running.run(entries)
    ours, eager = found["autotune"], found["eager"]
    both = not ours.failure and not eager.failure
    error = difference(ours.outputs[:-1], eager.outputs[:-1], np.asarray) if both else None
    return [
        {
            "model": name,
            "threads": threads,
            "way": way,
            "min_ns": each.latency.min_ns if each.latency else None,
            "ready_s": None if each.failure else each.load_s,
            "failure": each.failure or None,
            "programs": None if ours.failure else int(ours.outputs[-1]),
            "error": error,
        }
        for way, each in found.items()
    ]


ABOUT = (
    "Models by `torch.compile(model, dynamic=True)` at twelve sizes each (batches of 2 to 16, lengths of 7 to 128, "
    "sides of 96 to 352), untuned, beside inductor and eager PyTorch, in inference mode, weights fixed by both "
    "compilers: each in a process of its own, interleaved. A model counts only where every graph of it is compiled, "
    "none twice for a bucket."
)


def _notes(rows: FrameRows) -> Iterator[str]:
    yield (
        "latencies are minima of twelve calls from Python, one of each size; programs: those compiled for the "
        "buckets of all sizes; ready: compiling for all sizes, and two calls of each"
    )
    for row in rows:
        if row["failure"]:
            yield f"{row['model']}, {row['way']}: {' '.join(row['failure'].split())[:300]}"


EXPERIMENT = Experiment(
    title="torch.compile at many sizes",
    about=ABOUT,
    summary="Measure torch.compile at twelve sizes a model, by us and by inductor; NAMES are models (all by default).",
    example="bert experts --rounds 4 -o results/torch-sizes.md",
    options=(
        *OPTIONS,
        options.folder(
            "--keep", "Keep records in this folder, and do not measure models again that have some there."
        ),
    ),
    measure=measure,
    views=(
        TableView(
            "torch.compile at twelve sizes, {threads}",
            ("model",),
            (*COMPARED, Column("programs", "programs", number(0)), *READY),
            last="geometric mean",
            notes=_notes,
        ),
    ),
)

__all__ = ["EXPERIMENT", "MODELS"]
