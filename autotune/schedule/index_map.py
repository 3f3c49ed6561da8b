"""Index maps: the layout change of ``transform_layout``, as data."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from autotune.errors import ScheduleError
from autotune.schedule.knob import Config, Value
from autotune.schedule.knob_expression import Expression, combined_expression
from autotune.schedule.knob_value import KnobVar
from autotune.te.expr import Binary, Const, Expr, IterVar, Var, as_expr, const
from autotune.te.printer import expr_text
from autotune.te.traversal import nodes


@dataclass(frozen=True)
class IndexMap:
    """New indices as texts over the old ones ``i0, i1, ...``: ``("i1 // 16", "i0", "i1 % 16")``.

    Only variables, integers, ``+ - *``, ``//`` and ``%`` are understood; texts are parsed, never evaluated.
    """

    texts: tuple[str, ...]
    with_knobs: tuple[str, ...] = field(default=(), compare=False)
    """The texts as a schedule function wrote them, with names of knobs; empty where it used none."""

    @staticmethod
    def of(value: IndexMapLike) -> IndexMap:
        """Return the map itself, its texts, or a Python function of the old indices; raises ScheduleError."""
        if isinstance(value, IndexMap):
            return value
        if callable(value):
            return IndexMap.from_callable(value)
        if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
            return IndexMap(tuple(map(str, value)))
        raise ScheduleError(
            f"index map: it must be a function of the old indices, or a list of texts over i0, i1, ...; got {value!r}"
        )

    @staticmethod
    def from_callable(function: Callable[..., Any]) -> IndexMap:
        """Return the map that a Python function of the old indices computes."""
        try:
            rank = len(inspect.signature(function).parameters)
            result = function(*(Var(f"i{n}") for n in range(rank)))
            if isinstance(result, IndexMap):
                return result
            return IndexMap.from_indices(result if isinstance(result, list | tuple) else (result,))
        except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError) as error:
            raise ScheduleError(
                f"index map: the function must take the old indices and return the new ones ({error})"
            ) from error

    @staticmethod
    def from_indices(indices: Sequence[Any]) -> IndexMap:
        """Return the map to indices that were computed from variables ``i0, i1, ...``, and from knob values."""
        exprs = [as_expr(index) for index in indices]
        texts = tuple(map(expr_text, exprs))
        knobs: dict[str, Value] = {}
        for var in (node for e in exprs for node in nodes(e) if isinstance(node, KnobVar)):
            knobs |= var.values
        return IndexMap(IndexMap(texts).bound(knobs).texts, texts) if knobs else IndexMap(texts)

    def bound(self, config: Config) -> IndexMap:
        """Return the map with the values of ``config`` for the knobs that its texts name."""
        values: dict[str, Expr] = {name: const(v) for name, v in config.items() if type(v) is int}
        named = [text for text in self.texts if not values.keys().isdisjoint(_NAME.findall(text))]
        if not named:
            return self
        rank = 1 + max((int(n) for text in self.texts for n in _INDEX.findall(text)), default=-1)
        values |= {f"i{n}": Var(f"i{n}") for n in range(rank)}
        return IndexMap(tuple(expr_text(_parse(t, values)) if t in named else t for t in self.texts))

    def apply(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the new indices of an element."""
        values = {f"i{n}": index for n, index in enumerate(indices)}
        return tuple(_parse(text, values) for text in self.texts)

    def new_extents(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return extents that hold every element of ``shape`` (padding included)."""
        return tuple(_extent(text, shape) for text in self.texts)

    def pads(self, shape: Sequence[int]) -> bool:
        """Return whether the new layout has elements that ``shape`` does not have."""
        return math.prod(self.new_extents(shape)) != math.prod(shape)

    @property
    def pieces(self) -> list[Piece]:
        """Of each new index the old one, and expressions of knobs: what that is divided by, and its remainder of what.

        A remainder of 0 means that none is taken.
        """
        return [
            _piece_with_knobs(ast.parse(text, mode="eval").body) for text in self.with_knobs or self.texts
        ]

    def inverse(self, shape: Sequence[int], new: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the old indices in terms of the new ones.

        Each old index must appear as itself, or as ``i // c`` and ``i % c`` (nested divisions included); raises
        ScheduleError for any other map.
        """
        pieces: dict[int, list[tuple[int, int, Expr]]] = {n: [] for n in range(len(shape))}
        for number, (text, variable) in enumerate(zip(self.texts, new, strict=True)):
            old, stride, modulus = _piece(text)
            if modulus == 1:  # an axis of one place, which tells nothing about the old indices
                if not self.with_knobs or self.pieces[number][1] != 1:
                    continue
                old = self.pieces[number][0]  # of more places with other values of knobs
            if old not in pieces:
                raise ScheduleError(
                    f"index map {self.texts}: there is no index i{old} in a rank {len(shape)} tensor"
                )
            pieces[old].append((stride, modulus, variable))
        result: list[Expr] = []
        for old, parts in pieces.items():
            parts.sort(key=lambda p: (p[0], p[1] == 0))
            reach = 1
            total: Expr = const(0)
            for stride, modulus, variable in parts:
                if stride != reach:
                    raise ScheduleError(
                        f"index map {self.texts} cannot be inverted: i{old} is not covered once"
                    )
                total = total + variable * stride
                reach = stride * modulus if modulus else 0
            if reach != 0 and reach < shape[old]:
                raise ScheduleError(f"index map {self.texts} cannot be inverted: i{old} is cut at {reach}")
            result.append(total)
        return tuple(result)


Piece: TypeAlias = tuple[int, Expression, Expression]
"""An old index, what it is divided by, and the remainder of what is taken then."""

_NAME = re.compile(r"[^\W\d]\w*")
_INDEX = re.compile(r"\bi(\d+)\b")

IndexMapLike: TypeAlias = IndexMap | Sequence[str] | Callable[..., Any]
"""An index map as ``transform_layout`` takes it."""

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}


def _parse(text: str, values: dict[str, Expr]) -> Expr:
    def go(node: ast.expr) -> Expr:
        if isinstance(node, ast.Name) and node.id in values:
            return values[node.id]
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return const(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            from autotune.te.expr import binary

            return binary(_OPERATORS[type(node.op)], go(node.left), go(node.right))
        raise ScheduleError(f"index map: cannot read {text!r}; use i0, i1, ... with + - * // % and integers")

    try:
        return go(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, ValueError) as error:
        raise ScheduleError(f"index map: cannot read {text!r} ({error})") from error


def _extent(text: str, shape: Sequence[int]) -> int:
    old, stride, modulus = _piece(text)
    if old >= len(shape):
        raise ScheduleError(
            f"index map: {text!r} names an index that a rank {len(shape)} tensor does not have"
        )
    outer = -(-shape[old] // stride)
    return modulus or outer


@functools.lru_cache(maxsize=4096)
def _piece(text: str) -> tuple[int, int, int]:
    """Return ``(index, stride, modulus)`` of ``(i // stride) % modulus``; modulus 0 means unbounded.

    A remainder of 1 is read as the constant 0, an axis of one place: modulus 1, of the first index.
    """
    names = {f"i{n}": IterVar(f"i{n}", 1, "data") for n in range(16)}
    numbers = {v: n for n, v in enumerate(names.values())}
    expr = _parse(text, dict(names))

    def go(node: Expr) -> tuple[int, int, int]:
        if isinstance(node, IterVar):
            return numbers[node], 1, 0
        if isinstance(node, Const) and node.value == 0:
            return 0, 1, 1
        if isinstance(node, Binary) and node.op in ("//", "%") and isinstance(node.b, Const):
            old, stride, modulus = go(node.a)
            value = int(node.b.value)
            if value < 1 or (modulus and modulus % value):
                raise ScheduleError(f"index map: {text!r} does not divide evenly")
            if node.op == "//":
                return old, stride * value, modulus // value
            return old, stride, value
        raise ScheduleError(f"index map: {text!r} is not an index, a quotient or a remainder of one")

    return go(expr)


def _piece_with_knobs(node: ast.expr) -> tuple[int, Expression, Expression]:
    if isinstance(node, ast.Name) and _INDEX.fullmatch(node.id):
        return int(node.id[1:]), 1, 0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
        (old, stride, modulus), value = _piece_with_knobs(node.left), _expression(node.right)
        if isinstance(node.op, ast.Mod):
            return old, stride, value
        rest = modulus if modulus == 0 else combined_expression("//", modulus, value)
        return old, combined_expression("*", stride, value), rest
    return 0, 1, 1


def _expression(node: ast.expr) -> Expression:
    if isinstance(node, ast.Name):
        return ("knob", node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _expression(node.left), _expression(node.right)
        return combined_expression(_OPERATORS[type(node.op)], left, right)
    return ast.literal_eval(node)


__all__ = ["IndexMap", "IndexMapLike"]
