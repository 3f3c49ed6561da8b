"""The devices of a model's parts with reasons, as text and as JSON; and programs of several devices."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from autotune.cli.options import proofs_json, proofs_lines
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation
    from autotune.passes.placement.affinity import Affinities
    from autotune.passes.placement.propagate import Home
    from autotune.tuning.placement.device_times import Expected


def affinity_lines(found: Affinities) -> list[str]:
    """Return a line an input, operation, output and transfer: its device and why, and the devices that
    it could be on."""
    from autotune.tuning.report.units import size

    graph, homes = found.graph, found.homes
    count = Counter(home.device for home in homes.nodes.values())
    shares = ", ".join(f"{counted(number, 'op')} on {device}" for device, number in sorted(count.items()))
    moved = sum(crossing.nbytes for crossing in found.crossings)
    lines = [
        f"affinity of {graph.name}: {shares}; {counted(len(found.crossings), 'transfer')}, {size(moved)}"
    ]
    rows: list[tuple[str, Home | None]] = [
        *((f"input {value}", home) for value, home in homes.inputs.items()),
        *((f"{n.name} ({n.op})", homes.nodes.get(n.present_outputs[0])) for n in graph.nodes),
        *((f"output {value}", home) for value, home in homes.outputs.items()),
    ]
    name_width = max(len(name) for name, _ in rows)
    width = max(len(home.device) for _, home in rows if home is not None)
    lines += [f"  {name:<{name_width}}  {_home_text(home, width)}" for name, home in rows]
    for crossing in found.crossings:
        where, readers = f"{crossing.source} -> {crossing.destination}", ", ".join(crossing.readers)
        lines.append(f"  transfer {crossing.value}  {where}, {size(crossing.nbytes)}, for {readers}")
    return lines


def _home_text(home: Home | None, width: int) -> str:
    if home is None:
        return f"{'-':<{width}}  a constant, wherever it is read"
    others = "; ".join(f"{device}: {reason}" for device, reason in home.possible)
    return f"{home.device:<{width}}  {home.reason}" + (f"  (possible too: {others})" if others else "")


def affinity_json(found: Affinities) -> dict[str, Any]:
    """Return the same for a JSON document."""
    graph, homes = found.graph, found.homes
    return {
        "inputs": {value: _home_json(home) for value, home in homes.inputs.items()},
        "ops": [
            {"name": node.name, "op": node.op} | _home_json(homes.nodes[node.present_outputs[0]])
            for node in graph.nodes
            if node.present_outputs[0] in homes.nodes
        ],
        "outputs": {value: _home_json(home) for value, home in homes.outputs.items()},
        "transfers": [vars(crossing) for crossing in found.crossings],
    }


def _home_json(home: Home) -> dict[str, Any]:
    return {"device": home.device, "reason": home.reason, "possible": dict(home.possible)}


def placed_json(done: Compilation, where: str | None) -> dict[str, Any]:
    """Return a compilation for several devices, for a JSON document."""
    program = done.program
    assert done.affinities is not None  # devices are named
    return {
        "database": where,
        "devices": program.devices,
        "coverage": str(done.coverage),
        "decisions": [decision.to_json() for decision in done.coverage.decisions],
        "dispatches": [dispatch.to_json() for dispatch in done.coverage.dispatches],
        "steps": [vars(step) for step in program.steps],
        "transferred_bytes": program.transferred_bytes,
        "proofs": proofs_json(done),
        "affinity": affinity_json(done.affinities),
    }


def placed_lines(done: Compilation, where: str | None, *, details: bool = True) -> list[str]:
    """Return the same as text: a line a step and a dispatch or, without ``details``, a few lines."""
    from autotune.tuning.report.units import size

    program = done.program
    runs = sum(step.kind == "run" for step in program.steps)
    moves = counted(len(program.steps) - runs, "transfer")
    return [
        f"{counted(runs, 'part')} on {', '.join(program.devices)}; {moves}, {size(program.transferred_bytes)} a run",
        *([str(program), done.coverage.details()] if details else [str(done.coverage)]),
        *proofs_lines(done, details=details),
        f"schedules from {where or 'the cost model: there is no database'}",
    ]


def expected_lines(expected: Expected) -> list[str]:
    """Return the makespan that is expected of a run, what each device and its copies take of it, and
    when each step is on."""
    from autotune.tuning.report.units import nanoseconds

    def time(seconds: float) -> str:
        return nanoseconds(1e9 * seconds)

    lanes = [
        f"{lane} busy {time(busy)} ({busy / expected.seconds:.0%})"
        for lane, busy in expected.run.busy.items()
    ]
    tasks = [task for task in expected.run.tasks if task.lane]
    width = max(len(task.lane) for task in tasks)
    return [
        f"makespan: {time(expected.seconds)} expected; {', '.join(lanes)}",
        *(f"  {task.lane:<{width}}  {time(task.begin)} to {time(task.end)}" for task in tasks),
    ]


def expected_json(expected: Expected) -> dict[str, Any]:
    """Return the same for a JSON document, in seconds."""
    tasks = [vars(task) for task in expected.run.tasks if task.lane]
    return {"seconds": expected.seconds, "busy_seconds": expected.run.busy, "tasks": tasks}


__all__ = [
    "affinity_json",
    "affinity_lines",
    "expected_json",
    "expected_lines",
    "placed_json",
    "placed_lines",
]
