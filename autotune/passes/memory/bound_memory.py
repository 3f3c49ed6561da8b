"""Outputs that a caller may bind to the memory of an input: a cache that grows in place.

Whether the code of a dispatch allows a result where an operand lies is decided in :mod:`autotune.lower.overwriting`.
Here it is decided for which outputs of a model that is right in the order of its dispatches: what others read of the
input was read before. A user of ONNX Runtime binds the same memory as ``past`` and ``present`` in an IOBinding; of
JAX it is a donated argument.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.passes.memory.taken_memory import Pairs
from autotune.passes.partition import Dispatch, Partition


def bound_memory(parts: Partition, pairs: Callable[[Dispatch], Pairs]) -> dict[str, str]:
    """Return the inputs in whose memory outputs may lie, by the roots of these; each input is that of one at most."""
    outputs = {parts.placements[value].root for value in parts.outputs} - {*parts.inputs, *parts.constants}
    found: dict[str, str] = {}
    for step, dispatch in enumerate(parts.dispatches):
        for result, operand in pairs(dispatch):
            root, source = (parts.placements[value].root for value in (result, operand))
            if root not in outputs or source not in parts.inputs or source in found.values():
                continue
            whole = _is_whole(parts, result) and _is_whole(parts, operand)
            if (
                whole
                and root not in found
                and _reads_first(parts, step, operand)
                and _writes(parts, root) == [step]
            ):
                found[root] = source
    return found


def _is_whole(parts: Partition, value: str) -> bool:
    """Return whether a value is all of its root."""
    reach = parts.reach(value)
    return (reach.begin, reach.end, reach.period) == (0, parts.types[reach.root].size, 0)


def _reads_first(parts: Partition, step: int, operand: str) -> bool:
    """Return whether nothing reads the memory of an operand in another way, or after a step."""
    source, dispatch = parts.placements[operand].root, parts.dispatches[step]
    read = [v for d in parts.dispatches[step:] for v in d.reads if parts.placements[v].root == source]
    return read == [operand] and not dispatch.conditions and not dispatch.repeats


def _writes(parts: Partition, root: str) -> list[int]:
    """Return the steps that write to a root."""
    return [
        step
        for step, dispatch in enumerate(parts.dispatches)
        if any(parts.placements[value].root == root for value in dispatch.outputs)
    ]


__all__ = ["bound_memory"]
