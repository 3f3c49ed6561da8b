"""Random graphs of joins, slices and what lies between: whatever the placement of values depends on."""

from __future__ import annotations

import math
import random

import numpy as np

from autotune.errors import GraphError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph

_SHAPES = ((2, 3, 8), (4, 6), (1, 4, 4, 8), (2, 2, 3, 4))
_MOST_ELEMENTS = 4096


class _Joins:
    """Builds one graph, operator by operator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(1 << 30))
        self.b = GraphBuilder("joins")
        self.count = 0
        shape = rng.choice(_SHAPES)
        self.values = [self.b.input("x", shape), self.constant(*shape)]
        if rng.random() < 0.3:
            self.values.append(self.b.input("z", shape))

    def constant(self, *shape: int) -> str:
        self.count += 1
        return self.b.constant(f"k{self.count}", self.numbers.standard_normal(shape).astype(np.float32))

    def shape(self, value: str) -> tuple[int, ...]:
        return self.b.type_of(value).shape

    def pick(self) -> str:
        return self.rng.choice(self.values[-6:])

    def axis(self, value: str) -> int:
        return self.rng.randrange(len(self.shape(value)))

    # operators that are dispatches --------------------------------------------------------------

    def unary(self) -> str:
        return self.b.node(self.rng.choice(("Tanh", "Neg", "Relu")), self.pick())

    def binary(self) -> str:
        x = self.pick()
        same = [v for v in self.values if self.shape(v) == self.shape(x)]
        return self.b.node("Add", x, self.rng.choice(same))

    def product(self) -> str:
        x = self.pick()
        inner = self.shape(x)[-1]
        return self.b.node("MatMul", x, self.constant(inner, self.rng.choice((3, 4, 8))))

    def convolution(self) -> str:
        x = self.pick()
        if len(self.shape(x)) != 4:
            raise GraphError("not an image")
        k, channels = self.rng.choice((1, 1, 3)), self.shape(x)[-1]
        w = self.constant(k, k, channels, self.rng.choice((4, 8)))
        return self.b.node("Conv", x, w, layout="NHWC", pads=(k // 2,) * 4)

    def pool(self) -> str:
        x = self.pick()
        if len(self.shape(x)) != 4:
            raise GraphError("not an image")
        return self.b.node("MaxPool", x, layout="NHWC", kernel_shape=(3, 3), pads=(1, 1, 1, 1))

    def softmax(self) -> str:
        x = self.pick()
        return self.b.node("Softmax", x, axis=self.axis(x))

    # operators that may be views ----------------------------------------------------------------

    def concat(self) -> str:
        x = self.pick()
        axis = self.axis(x)

        def outside(value: str) -> list[int]:
            return [extent for d, extent in enumerate(self.shape(value)) if d != axis]

        same_rank = [v for v in self.values if len(self.shape(v)) == len(self.shape(x))]
        fitting = [v for v in same_rank if outside(v) == outside(x)]
        parts = [x, *self.rng.choices(fitting, k=self.rng.randint(1, 3))]
        self.rng.shuffle(parts)
        return self.b.node("Concat", *parts, axis=axis)

    def growth(self) -> str:
        """A value joined with a function of it, several times over; as one join each, or nested."""
        parts = [self.pick()]
        axis, nested = self.axis(parts[0]), self.rng.random() < 0.5
        joined = parts[0]
        for _ in range(self.rng.randint(2, 4)):
            if math.prod(self.shape(joined)) > _MOST_ELEMENTS // 2:
                break
            parts.append(self.b.node("Tanh", joined))
            joined = self.b.node("Concat", *([joined, parts[-1]] if nested else parts), axis=axis)
            if not nested:
                parts = parts if self.rng.random() < 0.8 else [joined]
        return joined

    def split(self) -> str:
        x = self.pick()
        axis = self.axis(x)
        extent = self.shape(x)[axis]
        if extent < 2:
            raise GraphError("nothing to split")
        first = self.rng.randint(1, extent - 1)
        self.count += 1
        names = [f"part{self.count}", f"rest{self.count}"]
        parts = self.b.nodes("Split", [x], names, axis=axis, split=(first, extent - first))
        self.values.append(parts[0])
        return parts[1]

    def slice(self) -> str:
        x = self.pick()
        axis = self.axis(x)
        low = self.rng.randrange(self.shape(x)[axis])
        high = self.rng.randint(low + 1, self.shape(x)[axis])
        step = self.rng.choice((1, 1, 2))
        return self.b.node("Slice", x, starts=(low,), ends=(high,), axes=(axis,), steps=(step,))

    def transpose(self) -> str:
        x = self.pick()
        rank = len(self.shape(x))
        return self.b.node("Transpose", x, perm=tuple(self.rng.sample(range(rank), rank)))

    def reshape(self) -> str:
        """One dimension split, or two neighbours merged, or an extent of 1 more."""
        x = self.pick()
        shape = list(self.shape(x))
        at = self.axis(x)
        way = self.rng.random()
        if way < 0.4 and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif way < 0.8:
            first = self.rng.choice([d for d in range(1, shape[at] + 1) if shape[at] % d == 0])
            shape[at : at + 1] = [first, shape[at] // first]
        else:
            shape.insert(at, 1)
        if len(shape) > 5:
            raise GraphError("too many dimensions")
        return self.b.node("Reshape", x, shape=tuple(shape))


_STEPS = {
    "unary": 3, "binary": 2, "product": 2, "convolution": 2, "pool": 1, "softmax": 1, "concat": 6,
    "growth": 1, "split": 2, "slice": 2, "transpose": 2, "reshape": 4,
}  # fmt: skip


def random_joins(rng: random.Random, most: int = 14) -> Graph:
    """A graph of up to ``most`` steps over one or two inputs; several of its values may be outputs."""
    model = _Joins(rng)
    start = len(model.values)
    for _ in range(rng.randint(3, most)):
        (name,) = rng.choices(list(_STEPS), list(_STEPS.values()))
        try:
            value = getattr(model, name)()
        except GraphError:
            continue
        if math.prod(model.shape(value)) <= _MOST_ELEMENTS:
            model.values.append(value)
    if len(model.values) == start:
        model.values.append(model.unary())
    made = model.values[start:]
    return model.b.graph(*sorted({made[-1], *(v for v in made if rng.random() < 0.15)})).pruned()


__all__ = ["random_joins"]
