"""What it gains that dispatches run beside each other, in an order that lets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.bench.suites import models
from autotune.bench.tables import Table, duration, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.runtime.conflicts import done_before
from autotune.runtime.image import ModuleImage
from autotune.tuning.gain import Gain, gain_of


@dataclass(frozen=True)
class Overlap:
    """A model whose workers meet after each command, in the model's order, and as it is compiled.

    ``beside`` of its ``commands`` may start before the one before them is done; arenas are in bytes.
    """

    model: str
    commands: int
    beside: int
    arena_before: int
    arena_after: int
    gain: Gain | None


def measure(names: Sequence[str], threads: int, processes: int, say: Callable[[str], None]) -> list[Overlap]:
    """Both versions of each model in turns, in so many fresh processes. Raises what compiling does."""
    found = []
    for case in models.models(names):
        say(f"{case.name}: with and without overlap, in {processes} processes")
        graph = case.build().graph
        after = compile_in_detail(CompileRequest(graph, threads=threads)).image
        before = without(compile_in_detail(CompileRequest(graph, threads=threads, order="memory")).image)
        beside = [number - done for number, done in enumerate(done_before(after.commands))]
        gain = gain_of(before, after, 0, lambda: False, processes, patience_s=float("inf"))
        found.append(
            Overlap(
                case.name,
                len(beside),
                sum(each > 0 for each in beside),
                before.arena_bytes,
                after.arena_bytes,
                gain,
            )
        )
    return found


def without(image: ModuleImage) -> ModuleImage:
    """The same where each command waits for the one before."""
    return replace(image, commands=tuple(replace(command, beside=0) for command in image.commands))


def table(found: Sequence[Overlap], threads: str) -> Table:
    """A row a model."""
    return Table(
        f"Dispatches beside each other, {threads}",
        (
            "model",
            "commands",
            "beside others",
            "arena",
            "÷ before",
            "before",
            "with overlap",
            "÷ before",
            "95 %",
        ),
        tuple(_row(each) for each in found),
        (
            "before: the model's order, a barrier after each command; medians of processes, and the interval of their "
            "ratios",
        ),
    )


def _row(each: Overlap) -> tuple[str, ...]:
    counts = (each.model, str(each.commands), str(each.beside), f"{each.arena_after / 1e6:.2f} MB")
    arena = ratio(each.arena_after / max(1, each.arena_before))
    if each.gain is None:
        return (*counts, arena, *("failed",) * 4)
    taken = each.gain.ratio
    interval = "–" if taken.interval is None else " to ".join(map(ratio, taken.interval))
    return (
        *counts,
        arena,
        duration(each.gain.before.median_ns),
        duration(each.gain.after.median_ns),
        ratio(taken.median),
        interval,
    )


__all__ = ["Overlap", "measure", "table", "without"]
