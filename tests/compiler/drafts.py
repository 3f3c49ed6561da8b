"""Graphs that are drawn operator by operator, each value with its numbers and what rounding may change of them.

A draft knows the numbers of every value three times: as the NumPy reference gives them, and twice with errors added at
each operator that rounds. So a node is refused where its result is not finite, or hangs on rounding (an index of nearly
equal elements, a comparison, a number cut to an integer), and what is left may be compared element by element.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.graph import ops
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import ABSENT, Graph

Array = NDArray[Any]

MAX_ELEMENTS = 5000
LARGEST = 1e4
"""The largest magnitude of a float, so that errors of a sum are small ones."""
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17)
FLOATS = ("float32",)
ANY_FLOAT = ("float32", "float32", "float16", "bfloat16", "float64")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, "int64", "int32")
ROUNDING = {"float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-6, "float32": 4e-6}
SUMS = frozenset({"contraction", "convolution", "attention", "winograd", "strassen"})
EXACT = frozenset(
    {
        "Abs",
        "Neg",
        "Relu",
        "Round",
        "Floor",
        "Ceil",
        "Sign",
        "Identity",
        "Dropout",
        "Max",
        "Min",
        "Clip",
        "Where",
    }
    | {
        "MaxPool",
        "GlobalMaxPool",
        "MaxPoolIndices",
        "ReduceMax",
        "ReduceMin",
        "TopK",
        "Trilu",
        "Unique",
        "BitCast",
        "BlockFactors",
    }
)
"""Operators whose floating results are some of their operands' elements, or follow from them without rounding."""
BLENDS = frozenset({"Interpolate", "GridSample", "DeformedColumns", "If", "Loop"})
"""Operators that move elements and compute with them, too: their results are rounded."""


VARIANTS = 4
"""Runs of the reference: as it is, and with errors."""


class Unfit(Exception):
    """The node cannot be compared: too large, not finite, or other numbers after other roundings."""


@dataclass(frozen=True)
class Drawn:
    """A graph, its inputs, the results of the reference, and how far each element may be off."""

    graph: Graph
    feed: dict[str, Array]
    expected: dict[str, Array]
    slack: dict[str, Array]


class Draft:
    """Appends operators to a graph. ``sums`` is the error of a product, relative to its largest element."""

    def __init__(self, rng: random.Random, sums: float) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(1 << 30))
        self.sums = sums
        self.b = GraphBuilder("drawn")
        self.values: list[str] = []
        self.arrays: dict[str, list[Array]] = {}
        self.feed: dict[str, Array] = {}
        self.made = 0
        self.read: set[str] = set()
        self.count = 0

    # values -------------------------------------------------------------------------------------

    def shape(self, value: str) -> tuple[int, ...]:
        return self.b.type_of(value).shape

    def rank(self, value: str) -> int:
        return len(self.shape(value))

    def dtype(self, value: str) -> str:
        return self.b.type_of(value).dtype

    def array(self, value: str) -> Array:
        """Its numbers as the reference gives them."""
        return self.arrays[value][0]

    def size(self) -> int:
        return self.rng.choice(SIZES)

    def either(self, axis: int, rank: int) -> int:
        """The axis as it is, or counted from the end."""
        return axis - self.rng.choice((0, rank))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, dtypes: Sequence[str] = FLOATS, ranks: Collection[int] = (1, 2, 3, 4)) -> str:
        """A value of one of the types and ranks, one of the latest; a new input or a cast where there is none."""
        dtype = self.rng.choice(list(dtypes))
        found = [v for v in self.values if self.rank(v) in ranks and self.dtype(v) == dtype]
        if found and not self.chance(0.05):
            return self.rng.choice(found[-5:])
        like = [
            v for v in self.values if self.rank(v) in ranks and self.dtype(v) not in ("bool", "float8_e4m3fn")
        ]
        if like and dtype in (*ROUNDING, "int32", "int64") and self.chance(0.3):
            return self.node("Cast", self.rng.choice(like[-5:]), to=dtype)
        return self.input(self.some_shape(self.rng.choice(sorted(ranks))), dtype)

    def some_shape(self, rank: int) -> tuple[int, ...]:
        while True:
            shape = tuple(
                self.rng.choice((1, 2)) if i == 0 and rank > 2 else self.size() for i in range(rank)
            )
            if np.prod(shape) <= MAX_ELEMENTS // 2:
                return shape

    def random(self, shape: Sequence[int], dtype: str, scale: float = 1.0) -> Array:
        """Normal numbers, small integers or flags."""
        if dtype == "bool":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if dtype in INTEGERS:
            low = 0 if dtype.startswith("u") else -9
            return self.numbers.integers(low, 10, shape).astype(dtype)
        return (self.numbers.standard_normal(shape) * scale).astype(np.float32).astype(np.dtype(dtype))

    def input(self, shape: Sequence[int], dtype: str) -> str:
        self.count += 1
        name = self.b.input(f"x{self.count}", tuple(shape), dtype)
        self.feed[name] = self.random(shape, dtype)
        self.arrays[name] = [self.feed[name]] * VARIANTS
        self.values.append(name)
        return name

    def constant(self, array: Array) -> str:
        self.count += 1
        name = self.b.constant(f"k{self.count}", array)
        self.arrays[name] = [array] * VARIANTS
        return name

    def normal(self, *shape: int, dtype: str = "float32", scale: float = 1.0) -> str:
        return self.constant(self.random(shape, dtype, scale))

    def positive(self, *shape: int, dtype: str = "float32") -> str:
        return self.constant(self.numbers.uniform(0.5, 2, shape).astype(np.dtype(dtype)))

    def operand(self, array: Array) -> str:
        """A constant, or an input of the model with these numbers."""
        if self.chance(0.7):
            return self.constant(array)
        self.count += 1
        name = self.b.input(f"x{self.count}", array.shape, array.dtype.name)
        self.feed[name] = array
        self.arrays[name] = [array] * VARIANTS
        return name

    # nodes --------------------------------------------------------------------------------------

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Append a node and give its first result; raises Unfit or GraphError."""
        return self.nodes(op, *inputs, **attrs)[0]

    def hidden(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node whose result only its caller reads: it may be anything."""
        return self.nodes(op, *inputs, check=False, **attrs)[0]

    def nodes(self, op: str, *inputs: str, check: bool = True, **attrs: Any) -> tuple[str, ...]:
        definition = ops.get(op)
        types = [None if v == ABSENT else self.b.type_of(v) for v in inputs]
        full, found = definition.complete_and_infer(types, attrs)
        if any(not 0 < t.size <= MAX_ELEMENTS for t in found):
            raise Unfit
        runs = [
            definition.reference([None if v == ABSENT else self.arrays[v][k] for v in inputs], full)
            for k in range(VARIANTS)
        ]
        results = [
            [np.asarray(self._rounded(op, run[i], k)) for k, run in enumerate(runs)]
            for i in range(len(found))
        ]
        if check and not all(map(_stable, results)):
            raise Unfit
        self.count += 1
        self.made += 1
        self.read.update(inputs)
        names = tuple(f"{op.lower()}{self.count}" + (f".{i}" if i else "") for i in range(len(found)))
        self.b.nodes(op, inputs, names, **attrs)
        for name, result in zip(names, results, strict=True):
            self.arrays[name] = result
            if check:
                self.values.append(name)
        return names

    def _rounded(self, op: str, result: Array, variant: int) -> Array:
        """The result with an error: upwards in one variant, downwards in the last, in any direction in the other."""
        level = ROUNDING.get(result.dtype.name)
        kind = ops.get(op).kind
        if not variant or level is None or op in EXACT or (kind == "movement" and op not in BLENDS):
            return result
        exact = result.astype(np.float64)
        signs = {1: 1.0, 3: -1.0}.get(variant)
        if signs is None:
            signs = self.numbers.choice((-1.0, 1.0), result.shape)
        error = level * np.abs(exact)
        if kind != "elementwise":
            largest = np.abs(exact).max(initial=0, where=np.isfinite(exact))
            error = error + max(level, self.sums if kind in SUMS else 0) * largest
        return (exact + signs * error).astype(result.dtype)

    def apart(self, x: str, y: str) -> bool:
        """Return whether no rounding changes how elements of two values compare.

        Their errors are taken to be independent: where both follow from the same numbers, every variant may have them
        on the same side.
        """
        if x == y:
            return True
        first, second = (np.stack(self.arrays[v]).astype(np.float64) for v in (x, y))
        low, high = (first.min(0), second.min(0)), (first.max(0), second.max(0))
        exact = (low[0] == high[0]) & (low[1] == high[1])
        return bool((exact | (high[0] < low[1]) | (high[1] < low[0])).all())

    def drawn(self) -> Drawn:
        """The graph of what was drawn; its outputs are the values that nothing reads, and some others."""
        made = [v for v in self.values if v not in self.feed]
        outputs = {v for v in made if v not in self.read or self.chance(0.05)}
        graph = self.b.graph(*sorted(outputs, key=self.values.index)).pruned()
        expected = {v: self.array(v) for v in graph.outputs}
        slack = {v: _slack(self.arrays[v]) for v in graph.outputs}
        return Drawn(graph, {v: self.feed[v] for v in graph.inputs}, expected, slack)


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def _stable(variants: Sequence[Array]) -> bool:
    plain = variants[0]
    if not _is_float(plain) or plain.dtype.itemsize == 1:
        return all(v.tobytes() == plain.tobytes() for v in variants[1:])
    wide = [v.astype(np.float64) for v in variants]
    if not all(np.isfinite(w).all() and np.abs(w).max(initial=0) <= LARGEST for w in wide):
        return False
    limit = 30 * max(ROUNDING[plain.dtype.name], 1e-3) * max(1e-3, np.abs(wide[0]).max(initial=0))
    return all(np.abs(w - wide[0]).max(initial=0) <= limit for w in wide[1:])


def _slack(variants: Sequence[Array]) -> Array:
    """Several times what the added errors changed, and a little of the largest magnitude."""
    plain = variants[0]
    if not _is_float(plain) or plain.dtype.itemsize == 1:
        return np.zeros(plain.shape)
    wide = [v.astype(np.float64) for v in variants]
    spread = np.max([np.abs(w - wide[0]) for w in wide[1:]], axis=0)
    largest = np.abs(wide[0]).max(initial=0)
    floor = 4 * ROUNDING[plain.dtype.name] * largest + 1e-6
    return np.asarray(4 * spread + 2 * spread.max(initial=0) + floor)


__all__ = ["ANY_FLOAT", "FLOATS", "INTEGERS", "NUMBERS", "Draft", "Drawn", "Unfit"]
