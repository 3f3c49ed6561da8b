"""The pages of stress runs: views of what was run, and of memory meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from autotune.bench.experiment import Column, FrameRows, Record, TableView
from autotune.bench.tables import number
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


def record_of(outcome: Outcome) -> Record:
    """Return one outcome as a row, with the resident bytes after each quarter of its tiles."""
    done = outcome.totals.tiles
    return {
        "where": _where(outcome),
        "devices": outcome.devices,
        "kinds": list(outcome.kinds),
        "clients": outcome.clients,
        **vars(outcome.totals),
        "seconds": outcome.seconds,
        "grown_bytes": outcome.grown_bytes,
        "samples": list(outcome.samples),
        "resident": [
            next(sample for sample in outcome.samples if sample.tiles >= part * done).resident
            for part in _QUARTERS
        ],
        "most": max(sample.peak for sample in outcome.samples),
    }


def _where(outcome: Outcome) -> str:
    devices = f"{outcome.devices} device{'s' if outcome.devices > 1 else ''} ({', '.join(outcome.kinds)})"
    return f"{devices}, {outcome.clients} clients"


def _after(quarter: int) -> Callable[[FrameRows], float]:
    return lambda rows: float(rows.get("resident")[quarter])


VIEWS = (
    TableView(
        "What was run",
        ("where",),
        (
            Column("at a time", "where"),
            *(Column(head, name, "{:,}".format) for name, head in _COUNTS.items()),
            Column("time", "seconds", number(0, " s")),
        ),
    ),
    TableView(
        "Memory",
        ("where",),
        (
            Column("resident after", "where"),
            *(
                Column(f"{part:.0%} of the tiles", _after(quarter), number(scale=2.0**20))
                for quarter, part in enumerate(_QUARTERS)
            ),
            Column("most on devices", "most", number(1, scale=2.0**20)),
        ),
        notes=(
            "MiB of the process after a round, all devices closed and free memory given back (`malloc_trim`); "
            "most bytes in use on all devices of a round",
        ),
    ),
)

__all__ = ["VIEWS", "line", "record_of"]
