"""Expressions of loop programs as functions of Python: an expression is taken apart once, and run many times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune.errors import InternalError
from autotune.lower.ir import Buffer, Load, nodes, operands
from autotune.te.conversion import converted
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, Not, Select, Var
from autotune.te.values import BINARY, COMPARE, FUNCTIONS

Array = np.ndarray[Any, Any]
Env = dict[Var, Any]
Memory = dict[Buffer, Array]
Known = dict[int, Any]
"""Values of parts that stand in several places of an expression, by their identity."""
Function = Callable[[Env, Memory, Known], Any]


class Evaluator:
    """Values and places of expressions; keeps the function of each that it has met, which must stay alive."""

    def __init__(self) -> None:
        self._functions: dict[int, Function] = {}

    def value(self, node: Expr, env: Env, memory: Memory) -> Any:
        """Return the value of an expression, of whose parts each is worked out once at most."""
        return self._function(node)(env, memory, {})

    def place(self, buffer: Buffer, indices: Sequence[Expr], env: Env, memory: Memory) -> tuple[int, ...]:
        """Return the indices of an element; raises InternalError outside of the buffer."""
        return _inside(buffer, [self._function(index)(env, memory, {}) for index in indices])

    def _function(self, node: Expr) -> Function:
        found = self._functions.get(id(node))
        if found is None:
            found = self._functions[id(node)] = _of_whole(node)
        return found


def _of_whole(root: Expr) -> Function:
    uses = Counter(id(part) for node in nodes(root) for part in operands(node))
    made: dict[int, Function] = {}

    def of(node: Expr) -> Function:
        if id(node) not in made:
            function = _of_node(node, of)
            made[id(node)] = _once(id(node), function) if uses[id(node)] > 1 else function
        return made[id(node)]

    return of(root)


def _once(key: int, function: Function) -> Function:
    def known(env: Env, memory: Memory, done: Known) -> Any:
        if key not in done:
            done[key] = function(env, memory, done)
        return done[key]

    return known


def _of_node(node: Expr, of: Callable[[Expr], Function]) -> Function:
    """Return the function of a node out of those of its parts."""
    if isinstance(node, Const):
        number = np.dtype(node.dtype).type(node.value)
        return lambda env, memory, done: number
    if isinstance(node, Var):
        return lambda env, memory, done: env[node]
    if isinstance(node, Load):
        return _load(node.buffer, [of(index) for index in node.indices])
    if isinstance(node, Binary):
        return _binary(node.op, of(node.a), of(node.b))
    if isinstance(node, Compare):
        return _of_both(COMPARE[node.op], of(node.a), of(node.b))
    if isinstance(node, Select):
        return _select(of(node.cond), of(node.a), of(node.b))
    if isinstance(node, Not):
        a = of(node.a)
        return lambda env, memory, done: not a(env, memory, done)
    if isinstance(node, Cast):
        a, dtype = of(node.a), node.dtype
        return lambda env, memory, done: converted(np.asarray(a(env, memory, done)), dtype)[()]
    if isinstance(node, Call):
        meaning, parts = FUNCTIONS[node.name], [of(part) for part in node.args]
        return lambda env, memory, done: meaning(*[part(env, memory, done) for part in parts])
    raise InternalError(f"unknown expression {type(node).__name__}")


def _load(buffer: Buffer, indices: Sequence[Function]) -> Function:
    def load(env: Env, memory: Memory, done: Known) -> Any:
        return memory[buffer][_inside(buffer, [index(env, memory, done) for index in indices])]

    return load


def _inside(buffer: Buffer, indices: Sequence[Any]) -> tuple[int, ...]:
    place = tuple(map(int, indices))
    for index, extent in zip(place, buffer.shape, strict=True):
        if not 0 <= index < extent:
            raise InternalError(f"access to {buffer.name}{list(place)} outside of its shape {buffer.shape}")
    return place


def _binary(op: str, a: Function, b: Function) -> Function:
    if op == "and":
        return lambda env, memory, done: a(env, memory, done) and b(env, memory, done)
    if op == "or":
        return lambda env, memory, done: a(env, memory, done) or b(env, memory, done)
    return _of_both(BINARY[op], a, b)


def _of_both(meaning: Callable[[Any, Any], Any], a: Function, b: Function) -> Function:
    return lambda env, memory, done: meaning(a(env, memory, done), b(env, memory, done))


def _select(cond: Function, a: Function, b: Function) -> Function:
    return lambda env, memory, done: (a if cond(env, memory, done) else b)(env, memory, done)


__all__ = ["Evaluator"]
