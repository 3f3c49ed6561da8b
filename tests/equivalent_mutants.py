"""Mutants of :mod:`tests.source_mutants` that no test can catch, each with the reason."""

from __future__ import annotations

_EMPTY = "a plan without values has no rows, and their columns do not matter"
_STEPS = "steps = 1 + max((value.last for value in plan.lifetimes), default={})"
_HEADER = "if len(data) {} _LOCAL_HEADER.size or data[:4] != MAGIC:"
_INSIDE = "inside: bool = worker {} 0 or enter(state, worker, run)"
_NODES = (
    "if node {} loop.var:",
    "return rewrite_expr(expr, lambda node: value if node {} var else None, {{}})",
)

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("autotune/passes/memory/plan_memory.py", _STEPS.format("0"), _STEPS.format("1")): _EMPTY,
    ("autotune/passes/memory/plan_memory.py", _STEPS.format("0"), _STEPS.format(" -1")): _EMPTY,
    (
        "autotune/runtime/artifacts/archive.py",
        _HEADER.format("<"),
        _HEADER.format("!="),
    ): "a file gives no more bytes than it was asked for",
    (
        "autotune/runtime/cpu/walk.py",
        _INSIDE.format("=="),
        _INSIDE.format("<="),
    ): "workers count from 0",
    **{
        ("autotune/lower/partition.py", node.format("is"), node.format("==")): "equal nodes are the same one"
        for node in _NODES
    },
}
"""By file, the line as it is, and the line as it would be."""
