"""The prediction of a model, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.suggest import counted
from autotune.tuning.report.units import nanoseconds, size

if TYPE_CHECKING:
    from autotune.compiler.forecast import Prediction


def lines_of(found: Prediction) -> list[str]:
    """Return the latency and memory of the model in two lines, then a line a dispatch, the longest first."""
    low, high = map(nanoseconds, found.interval_ns)
    sources = ", ".join(f"{count} {source}" for source, count in found.sources.items())
    memory, threads = found.memory, counted(found.threads, "thread")
    head = [
        f"expected latency {nanoseconds(found.latency_ns)} ({low} to {high}) with {threads}; dispatches: {sources}",
        f"expected memory {size(memory.peak_bytes)}: {size(memory.arena_bytes)} between dispatches, "
        f"{size(memory.scratch_bytes)} of {threads}; {size(memory.constant_bytes)} of constants",
    ]
    order = sorted(found.dispatches, key=lambda dispatch: -dispatch.latency_ns)
    return [
        *head,
        *(
            f"  {found.share(d):6.1%}  {nanoseconds(d.latency_ns):>9}  {d.name}  {d.kind}  {d.source}"
            + (f", {size(d.cold_bytes)} from memory" if d.cold_bytes else "")
            for d in order
        ),
    ]


__all__ = ["lines_of"]
