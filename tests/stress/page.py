"""What stress runs are shown as: tables of what was run, and of memory meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.bench.tables import Table
from tests.stress.run import Outcome

_COUNTS = {
    "graphs": "graphs",
    "dispatches": "dispatches",
    "copies": "copies",
    "tiles": "tiles",
    "errors": "ended with an error",
    "cancelled": "as cancelled",
    "lost_devices": "devices lost",
    "refused_allocations": "allocations refused",
    "given_up": "waits given up",
    "held_back": "graphs held back",
}
_QUARTERS = (0.25, 0.5, 0.75, 1.0)


def line(outcome: Outcome) -> str:
    """One outcome in a line."""
    totals = outcome.totals
    return (
        f"{_where(outcome)}: {totals.graphs} graphs, {totals.dispatches} dispatches, {totals.tiles} tiles in "
        f"{outcome.seconds:.0f} s; memory grew by {outcome.grown_bytes / 2**20:.1f} MiB"
    )


def values(outcome: Outcome) -> dict[str, Any]:
    """One outcome as JSON."""
    return {
        "devices": outcome.devices,
        "kinds": list(outcome.kinds),
        "clients": outcome.clients,
        **vars(outcome.totals),
        "seconds": outcome.seconds,
        "grown_bytes": outcome.grown_bytes,
        "samples": [vars(sample) for sample in outcome.samples],
    }


def tables(found: Sequence[Outcome]) -> list[Table]:
    """What was run, a row each; and memory by how much of it was done."""
    rows = [
        (_where(each), *(f"{getattr(each.totals, name):,}" for name in _COUNTS), f"{each.seconds:.0f} s")
        for each in found
    ]
    ran = Table("What was run", ("at a time", *_COUNTS.values(), "time"), tuple(rows))
    columns = ("resident after", *(f"{part:.0%} of the tiles" for part in _QUARTERS), "most on devices")
    note = (
        "MiB of the process after a round, all devices closed and free memory given back (`malloc_trim`); "
        "most bytes in use on all devices of a round"
    )
    memory = Table("Memory", columns, tuple(_memory(each) for each in found), (note,))
    return [ran, memory]


def _where(outcome: Outcome) -> str:
    devices = f"{outcome.devices} device{'s' if outcome.devices > 1 else ''} ({', '.join(outcome.kinds)})"
    return f"{devices}, {outcome.clients} clients"


def _memory(outcome: Outcome) -> tuple[str, ...]:
    done = outcome.totals.tiles
    after = [next(s for s in outcome.samples if s.tiles >= part * done).resident for part in _QUARTERS]
    most = max(sample.peak for sample in outcome.samples)
    return (_where(outcome), *(f"{nbytes / 2**20:.0f}" for nbytes in after), f"{most / 2**20:.1f}")


__all__ = ["line", "tables", "values"]
