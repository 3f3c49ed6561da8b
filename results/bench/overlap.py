"""The gain of concurrent dispatches, in an order that lets them overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.suites import models
from autotune.bench.tables import duration, number, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.runtime.conflicts import done_before
from autotune.runtime.image import ModuleImage
from autotune.tuning.measure.gain import gain_of
from results.bench.texts import interval

MODELS = (
    "inception_v1",
    "inception_v2",
    "encoder",
    "squeezenet",
    "shufflenet",
    "mobilenetv2",
    "densenet121",
    "mlp",
    "tiny_cnn",
)


def measure(say: Say, names: Sequence[str], threads: int, processes: int) -> Iterator[Sequence[Record]]:
    """Measure both versions of each model, interleaved in so many fresh processes. Raises what compiling does."""
    for case in models.models(names or MODELS):
        say(f"{case.name}: with and without overlap, in {processes} processes")
        graph = case.build().graph
        after = compile_in_detail(CompileRequest(graph, threads=threads)).image
        before = without(compile_in_detail(CompileRequest(graph, threads=threads, order="memory")).image)
        beside = [count - done for count, done in enumerate(done_before(after.commands))]
        gain = gain_of(before, after, 0, lambda: False, processes, patience_s=float("inf"))
        record = {
            "model": case.name,
            "threads": threads,
            "commands": len(beside),
            "beside": sum(each > 0 for each in beside),
            "arena_before": before.arena_bytes,
            "arena_after": after.arena_bytes,
        }
        if gain is not None:
            record |= {"before_ns": gain.before.median_ns, "after_ns": gain.after.median_ns}
            record |= {"ratio": gain.ratio.median, "interval": gain.ratio.interval}
        yield [record]


def without(image: ModuleImage) -> ModuleImage:
    """The same where each command waits for the one before."""
    return replace(image, commands=tuple(replace(command, beside=0) for command in image.commands))


def _arena(rows: FrameRows) -> float:
    return float(rows.get("arena_after") / max(1, rows.get("arena_before")))


ABOUT = (
    "The speed-up of concurrent independent dispatches, in an order that alternates between branches: "
    "untuned models as they are compiled, beside the same in the model's own order with a barrier after each command. "
    "Both are interleaved in fresh processes."
)

EXPERIMENT = Experiment(
    title="Dispatches beside each other",
    about=ABOUT,
    summary="Compare models with and without overlapping dispatches; NAMES are zoo models or ONNX files.",
    example="inception_v1 squeezenet -o results/overlap.md",
    options=(
        options.words(),
        options.workers(),
        options.number("--processes", 18, "Fresh processes.", least=6),
    ),
    measure=measure,
    views=(
        TableView(
            "Dispatches beside each other, {threads}",
            ("model",),
            (
                Column("model", "model"),
                Column("commands", "commands"),
                Column("beside others", "beside"),
                Column("arena", "arena_after", number(2, " MB", 1e6)),
                Column("÷ before", _arena, ratio),
                Column("before", "before_ns", duration),
                Column("with overlap", "after_ns", duration),
                Column("÷ before", "ratio", ratio),
                Column("95 %", "interval", interval),
            ),
            notes=(
                "before: the model's order, a barrier after each command; medians of processes, and the interval of "
                "their ratios",
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT", "without"]
