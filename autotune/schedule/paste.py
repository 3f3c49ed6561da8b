"""Running the Python text of a trace without running Python: only schedule steps are understood."""

from __future__ import annotations

import ast
from typing import Any

from autotune import te
from autotune.errors import ScheduleError
from autotune.schedule import legality
from autotune.schedule.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.schedule.trace import PRIMITIVES, RESERVED
from autotune.te.tensor import Operation

_TE = {"thread_axis": te.thread_axis, "intrinsic_named": te.intrinsic_named}


def run_python(text: str, schedule: Schedule) -> Schedule:
    """Apply what ``Trace.to_python`` printed to a schedule, called ``s`` in the text; returns the schedule.

    The text is parsed and walked, never evaluated: calls of primitives on ``s`` and ``s["stage"]``, their results
    under names, and ``te.thread_axis`` and ``te.intrinsic_named`` as arguments. Raises ScheduleError naming
    the line for anything else, and for a step that does not apply.

    >>> from autotune.lower.examples import chain, loops
    >>> s, A, B, C = chain(8)
    >>> s = run_python('outer, inner = s["C"].split(s["C"].loop_named("i"), factor=4)\\ns["C"].unroll(inner)', s)
    >>> print(loops(s, C))
    for (i.outer, 0, 2) {
      unrolled (i.inner, 0, 4) {
        C[i.outer * 4 + i.inner] = B[i.outer * 4 + i.inner] * 2f
      }
    }
    """
    try:
        lines = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ScheduleError(f"not a schedule: {error}") from error
    walker = _Walker(schedule)
    schedule.replaying = True
    try:
        for line in lines:
            try:
                walker.line(line)
            except (ScheduleError, TypeError, KeyError, IndexError) as error:
                raise ScheduleError(f"line {line.lineno}, {ast.unparse(line)}: {error}") from error
        legality.check(schedule, "the schedule")
    finally:
        schedule.replaying = False
    return schedule


class _Walker:
    def __init__(self, schedule: Schedule) -> None:
        self.names: dict[str, Any] = {"s": schedule}

    def line(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.value(node.value)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
            self._assign(node.targets[0], self.value(node.value))
        else:
            raise ScheduleError("only calls of schedule primitives are understood here")

    def _assign(self, target: ast.expr, result: Any) -> None:
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        results = list(result) if isinstance(target, ast.Tuple) else [result]
        for name, value in zip(targets, results, strict=True):
            if not isinstance(name, ast.Name) or name.id in RESERVED:
                raise ScheduleError(f"cannot assign to {ast.unparse(name)}")
            self.names[name.id] = value

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
        ):
            number = node.operand.value
            if isinstance(number, int | float):
                return -number
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        if isinstance(node, ast.Subscript):
            owner, key = self.value(node.value), self.value(node.slice)
            if isinstance(owner, Schedule) and isinstance(key, str):
                return owner.stage_named(key)
            if isinstance(owner, list) and isinstance(key, int):
                return owner[key]
        if isinstance(node, ast.Attribute) and node.attr in ("tensor", "op"):
            owner = self.value(node.value)
            if isinstance(owner, Stage):
                return getattr(owner, node.attr)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise ScheduleError(f"{ast.unparse(node)} is not understood here")

    def _call(self, node: ast.Call) -> Any:
        function = self._function(node.func)
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args += self.value(arg.value)
            else:
                args.append(self.value(arg))
        named = {word.arg: self.value(word.value) for word in node.keywords if word.arg is not None}
        return function(*args, **named)

    def _function(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "te" and node.attr in _TE:
                return _TE[node.attr]
            owner = self.value(node.value)
            known = node.attr in PRIMITIVES or node.attr == "loop_named"
            if (isinstance(owner, Schedule | Stage) and known) or (
                isinstance(owner, Operation) and node.attr == "output"
            ):
                found = getattr(owner, node.attr, None)
                if found is not None:
                    return found
        raise ScheduleError(f"{ast.unparse(node)} is not a schedule primitive")


__all__ = ["run_python"]
