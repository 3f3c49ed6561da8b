"""Random small tensor programs, as Python text over size variables, valid for every value of them.

The text is what a failure prints and what the minimiser shrinks: every shape and index is an
expression of ``n0, n1, ...``, so a smaller size gives a smaller legal program with the same loops.
Values are small integers held in floating point, with a bound kept for every tensor, so that sums
and products are exact in any order and three executions can be compared bit by bit; programs that
call exp and the like are compared with a tolerance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune import te
from tests.schedule.random_edges import Value, random_edge

EXACT_LIMIT = {"float32": 2.0**22, "float64": 2.0**50, "int32": 2.0**28}
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 33)
NARROW = {"bool": (0, 1), **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), (0, 3))}
NARROW |= dict.fromkeys(("int8", "int16", "int64", "bfloat16"), (-3, 3))
CUSTOM_REDUCERS = {
    "add": "lambda x, y: x + y, lambda t: te.const(0, t)",
    "larger": "lambda x, y: te.if_then_else(x > y, x, y), te.min_value",
    "smaller": "lambda x, y: te.minimum(x, y), te.max_value",
}
"""Reducers of the user's own: what they combine and start with."""
MAX_ELEMENTS = 1500
MAX_ITERATIONS = 6000


@dataclass(frozen=True)
class Input:
    """A placeholder's name and the range its values are drawn from."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class Program:
    """A tensor program as text; ``sizes`` are the values of n0, n1, ..."""

    sizes: tuple[int, ...]
    lines: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    tolerance: float

    @property
    def source(self) -> str:
        """Python that defines every tensor, given ``te``."""
        names = ", ".join(f"n{k}" for k in range(len(self.sizes)))
        values = ", ".join(map(str, self.sizes))
        return "\n".join([f"{names}{',' * (len(self.sizes) == 1)} = {values},", *self.lines])

    def tensors(self) -> tuple[list[te.Tensor], list[te.Tensor]]:
        """Fresh tensors: (placeholders, outputs)."""
        space: dict[str, Any] = {"te": te}
        exec(compile(self.source, "<program>", "exec"), space)
        return [space[i.name] for i in self.inputs], [space[name] for name in self.outputs]

    def arrays(self, seed: int = 0) -> list[Any]:
        """Values of the placeholders."""
        rng = np.random.default_rng(seed)
        placeholders, _ = self.tensors()
        return [
            rng.integers(i.low, i.high, p.shape, endpoint=True).astype(p.dtype)
            for i, p in zip(self.inputs, placeholders, strict=True)
        ]


@dataclass
class _Source:
    name: str
    bound: float
    exact: bool
    uses: int = 0


@dataclass
class _Axis:
    """A loop of a stage; ``base`` is a dimension that it may read at offsets 0 to ``slack``."""

    name: str
    extent: str
    base: str = ""
    slack: int = 0


@dataclass
class _Writer:
    rng: random.Random
    dtype: str
    allow_functions: bool
    sizes: list[int]
    lines: list[str] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    stages: list[_Source] = field(default_factory=list)
    space: dict[str, Any] = field(default_factory=dict)
    inexact: bool = False

    def __post_init__(self) -> None:
        self.space = {"te": te, **{f"n{k}": n for k, n in enumerate(self.sizes)}}

    # text ---------------------------------------------------------------------------------------

    def number(self, text: str) -> int:
        return int(eval(text, {}, {k: v for k, v in self.space.items() if isinstance(v, int)}))

    def run(self, line: str) -> None:
        exec(compile(line, "<program>", "exec"), self.space)
        self.lines.append(line)

    def size(self) -> str:
        return f"n{self.rng.randrange(len(self.sizes))}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def dims(self, name: str) -> list[str]:
        """The extents of a tensor as text that stays right when sizes change."""
        return [f"{name}.shape[{k}]" for k in range(self.space[name].ndim)]

    def extent(self, text: str) -> int:
        return int(eval(text, {"te": te, **self.space}))

    # reads --------------------------------------------------------------------------------------

    def placeholder(self, shape: list[str], low: int = -3, high: int = 3, dtype: str = "") -> str:
        name = f"P{len(self.inputs)}"
        dims = "".join(f"{d}, " for d in shape)
        self.run(f'{name} = te.placeholder(({dims}), dtype="{dtype or self.dtype}", name="{name}")')
        self.inputs.append(Input(name, low, high))
        return name

    def fresh_read(self, axes: list[_Axis]) -> Value:
        """A read of a new placeholder shaped to fit: subsets, transposes, offsets, strides, sums."""
        chosen = self.rng.sample(axes, self.rng.randint(min(1, len(axes)), min(4, len(axes))))
        shape: list[str] = []
        indices: list[str] = []
        while chosen:
            axis = chosen.pop()
            kind = self.rng.random()
            if kind < 0.55:
                dim, index = axis.extent, axis.name
            elif kind < 0.7:
                offset, stride = self.rng.randint(0, 2), self.rng.randint(1, 3)
                dim = f"({axis.extent} - 1) * {stride} + {offset} + 1"
                index = f"{axis.name} * {stride} + {offset}"
            elif kind < 0.8 and chosen:
                other = chosen.pop()  # a sliding window, or two loops flattened
                if self.chance(0.5):
                    dim = f"{axis.extent} + {other.extent} - 1"
                    index = f"{axis.name} + {other.name}"
                else:
                    dim = f"({axis.extent}) * ({other.extent})"
                    index = f"{axis.name} * ({other.extent}) + {other.name}"
            elif kind < 0.88:
                dim, index = axis.extent, f"{axis.extent} - 1 - {axis.name}"
            elif kind < 0.94:
                dim, index = f"({axis.extent} + 1) // 2", f"{axis.name} // 2"
            else:
                dim, index = "3", f"{axis.name} % 3"
            shape.append(dim)
            indices.append(index)
        if self.chance(0.1) or not shape:
            shape.insert(0, "2")
            indices.insert(0, str(self.rng.randint(0, 1)))
        total = 1
        for dim in shape:
            total *= self.extent(dim)
        if total > MAX_ELEMENTS:
            return Value(f'te.const(1, "{self.dtype}")', 1, True)
        name = self.placeholder(shape)
        return Value(f"{name}[{', '.join(indices)}]", 3, True)

    def narrow_read(self, axes: list[_Axis]) -> Value:
        """A read of a placeholder of another type, converted."""
        axis = self.rng.choice(axes)
        dtype = self.rng.choice(list(NARROW))
        name = self.placeholder([axis.extent], *NARROW[dtype], dtype)
        return Value(f'te.cast({name}[{axis.name}], "{self.dtype}")', 3, True)

    def fitted_index(self, dim: str, axes: list[_Axis]) -> tuple[str, str]:
        """(condition or "", index) of an existing dimension in terms of any axes."""
        axis = self.rng.choice(axes)
        shifted = [a for a in axes if a.base == dim]
        if shifted and self.chance(0.85):
            axis = self.rng.choice(shifted)
            return "", f"{axis.name} + min({self.rng.randint(0, axis.slack)}, {dim} - 1)"
        if self.extent(dim) == self.extent(axis.extent) and dim == axis.extent and self.chance(0.9):
            return "", axis.name
        same = [a for a in axes if a.extent == dim]
        if same and self.chance(0.8):
            return "", self.rng.choice(same).name
        kind = self.rng.random()
        if kind < 0.3:
            return "", f"{axis.name} % {dim}"
        if kind < 0.35:
            other = self.rng.choice(axes)
            return "", f"(({axis.name} * {self.rng.randint(1, 3)} + {other.name}) // 2) % {dim}"
        if kind < 0.6:
            return "", f"te.minimum({axis.name}, {dim} - 1)"
        if kind < 0.9:
            low = self.rng.randint(0, 2)
            return (
                f"{axis.name} >= {low}, {axis.name} < {dim} + {low}",
                f"{axis.name} - {low}" if low else axis.name,
            )
        return "", "0"

    def existing_read(self, source: _Source, axes: list[_Axis]) -> Value:
        """A read of a stage by indices forced into its shape."""
        source.uses += 1
        parts = [self.fitted_index(dim, axes) for dim in self.dims(source.name)]
        read = f"{source.name}[{', '.join(index for _, index in parts)}]"
        conditions = ", ".join(c for c, _ in parts if c)
        if conditions:
            zero = f'te.const(0, "{self.dtype}")'
            read = f"te.if_then_else(te.all({conditions}), {read}, {zero})"
        return Value(read, source.bound, source.exact)

    def gather(self, source: _Source, axes: list[_Axis]) -> Value:
        """A read whose first index comes from a tensor."""
        source.uses += 1
        dims = self.dims(source.name)
        high = self.extent(dims[0]) - 1
        axis = self.rng.choice(axes)
        table = self.placeholder([axis.extent], 0, high, "int32")
        rest = [f"{self.rng.choice(axes).name} % {d}" for d in dims[1:]]
        inside = f"te.minimum({table}[{axis.name}], {dims[0]} - 1)"
        return Value(f"{source.name}[{', '.join([inside, *rest])}]", source.bound, source.exact)

    def guarded_gather(self, source: _Source, axes: list[_Axis]) -> Value:
        """A read by an index from a tensor that may be out of range, which nested conditions keep from being read."""
        source.uses += 1
        dims = self.dims(source.name)
        axis = self.rng.choice(axes)
        table = self.placeholder([axis.extent], -2, self.extent(dims[0]) + 1, "int32")
        index = f"{table}[{axis.name}]"
        rest = [f"{self.rng.choice(axes).name} % {d}" for d in dims[1:]]
        read = f"{source.name}[{', '.join([index, *rest])}]"
        low, high = f"{index} >= 0", f"{index} < {dims[0]}"
        one, two = (f'te.const({n}, "{self.dtype}")' for n in (1, 2))
        if self.chance(0.5):
            text = f"te.if_then_else(te.all({low}, {high}), {read}, {one})"
        else:
            text = f"te.if_then_else({low}, te.if_then_else({high}, {read}, {one}), {two})"
        return Value(text, max(source.bound, 2), source.exact)

    # scalar expressions -------------------------------------------------------------------------

    def leaf(self, axes: list[_Axis]) -> Value:
        kind = self.rng.random()
        if self.stages and kind < 0.45:
            return self.existing_read(self.rng.choice(self.stages), axes)
        if self.stages and kind < 0.5:
            read = self.guarded_gather if self.chance(0.5) else self.gather
            return read(self.rng.choice(self.stages), axes)
        if kind < 0.86:
            return self.fresh_read(axes)
        if kind < 0.92:
            return self.narrow_read(axes)
        if kind < 0.96:
            axis = self.rng.choice(axes)
            return Value(f'te.cast({axis.name}, "{self.dtype}")', self.extent(axis.extent) + 4, True)
        value = self.rng.randint(-2, 2)
        return Value(f'te.const({value}, "{self.dtype}")', abs(value), True)

    def combine(self, a: Value, b: Value) -> Value:
        exact = a.exact and b.exact
        limit = EXACT_LIMIT[self.dtype]
        if exact and max(a.bound, b.bound) < limit / 2048 and self.chance(0.3):
            return random_edge(self.rng, self.dtype, a, b)
        choices: list[Callable[[], Value]] = [
            lambda: Value(f"te.maximum({a.text}, {b.text})", max(a.bound, b.bound), exact),
            lambda: Value(f"te.minimum({a.text}, {b.text})", max(a.bound, b.bound), exact),
        ]
        if a.bound + b.bound < limit:
            sign = self.rng.choice("+-")
            choices += [lambda: Value(f"({a.text} {sign} {b.text})", a.bound + b.bound, exact)] * 3
        if a.bound * b.bound < limit / 64:
            choices += [lambda: Value(f"{a.text} * {b.text}", a.bound * b.bound, exact)] * 3
        if self.allow_functions and self.dtype != "int32":
            self.inexact = True
            quotient = f"({a.text} / (te.abs({b.text}) + 1))"
            choices.append(lambda: Value(quotient, a.bound, False))
        if exact:
            test = f"{a.text} {self.rng.choice(('<', '<=', '>', '>=', '==', '!='))} {b.text}"
            if self.chance(0.2):
                test = f"te.{self.rng.choice(('all', 'any'))}({test}, {b.text} > 0)"
            text = f"te.if_then_else({test}, {b.text}, {a.text})"
            choices.append(lambda: Value(text, max(a.bound, b.bound), exact))
        return self.rng.choice(choices)()

    def unary(self, a: Value) -> Value:
        if self.allow_functions and self.dtype != "int32" and self.chance(0.5):
            self.inexact = True
            small = (
                f'te.maximum(te.minimum({a.text}, te.const(4, "{self.dtype}")), te.const(-4, "{self.dtype}"))'
            )
            name, argument, bound = self.rng.choice(
                [
                    ("exp", small, 55.0),
                    ("tanh", a.text, 1.0),
                    ("erf", small, 1.0),
                    ("sigmoid", small, 1.0),
                    ("sqrt", f"te.abs({a.text})", a.bound**0.5 + 1),
                    ("log", f"te.abs({a.text}) + 1", a.bound + 1),
                    ("rsqrt", f"te.abs({a.text}) + 1", 1.0),
                    ("sin", a.text, 1.0),
                    ("cos", a.text, 1.0),
                    ("tan", f"{small} * 0.25", 2.0),
                    ("sinh", small, 28.0),
                    ("cosh", small, 28.0),
                    ("log1p", f"te.abs({a.text})", a.bound + 1),
                    ("log2", f"te.abs({a.text}) + 1", a.bound + 1),
                    ("log10", f"te.abs({a.text}) + 1", a.bound + 1),
                    ("pow", f'te.abs({small}) + 1, te.const(1.5, "{self.dtype}")', 12.0),
                ]
            )
            return Value(f"te.{name}({argument})", bound, False)
        if self.dtype == "int32" and self.chance(0.5):
            divisor = self.rng.choice((2, 3, 4, 7, -2, -3))
            operator = self.rng.choice(("//", "%"))
            return Value(f"({a.text} {operator} {divisor})", max(a.bound, 8), a.exact)
        choices = [f"te.abs({a.text})", f"(-{a.text})"]
        if self.dtype != "int32" and a.exact:  # halves round to even, and integers stay as they are
            choices += [f"te.{name}({a.text} * 0.5)" for name in ("floor", "ceil", "round", "trunc")]
        if self.dtype == "int32":
            choices += [f"te.trunc{name}({a.text}, {self.rng.choice((2, 3, -4))})" for name in ("div", "mod")]
        return Value(self.rng.choice(choices), max(a.bound, 1), a.exact)

    def scalar(self, axes: list[_Axis], depth: int) -> Value:
        if depth == 0 or self.chance(0.25):
            value = self.leaf(axes)
        else:
            value = self.combine(self.scalar(axes, depth - 1), self.scalar(axes, depth - 1))
        return self.unary(value) if self.chance(0.12) else value

    # stages -------------------------------------------------------------------------------------

    def axes_for(self, prefix: str, count: int) -> list[_Axis]:
        """Axes with extents from sizes, or from dimensions of earlier stages."""
        result = []
        for k in range(count):
            dims = [d for s in self.stages for d in self.dims(s.name)]
            extent = self.rng.choice(dims) if dims and self.chance(0.5) else self.size()
            kind = self.rng.random()
            if kind < 0.08:
                extent = f"{extent} + 2"
            elif kind < 0.14:
                extent = f"({extent} + 1) // 2"
            elif kind < 0.3:
                slack = self.rng.randint(1, 3)
                short = f"({extent} - min({slack}, {extent} - 1))"
                result.append(_Axis(f"{prefix}{k}", short, extent, slack))
                continue
            result.append(_Axis(f"{prefix}{k}", extent))
        return result

    def iterations(self, axes: list[_Axis]) -> int:
        total = 1
        for axis in axes:
            total *= self.extent(axis.extent)
        return total

    def pointwise_stage(self) -> bool:
        """An epilogue: the elements of a stage in their places, combined with a broadcast tensor."""
        source = self.rng.choice(self.stages[-2:])
        name = f"T{len(self.stages)}"
        axes = [_Axis(f"i{k}", dim) for k, dim in enumerate(self.dims(source.name))]
        source.uses += 1
        indices = ", ".join(a.name for a in axes)
        value = Value(f"{source.name}[{indices}]", source.bound, source.exact)
        if self.chance(0.7):
            other = self.fresh_read(axes) if self.chance(0.7) else self.scalar(axes, 1)
            value = self.combine(value, other)
        if self.chance(0.5):
            value = self.unary(value)
        shape = "(" + "".join(f"{a.extent}, " for a in axes) + ")"
        self.run(f'{name} = te.compute({shape}, lambda {indices}: {value.text}, name="{name}")')
        self.stages.append(_Source(name, value.bound, value.exact))
        return True

    def window_stage(self) -> bool:
        """Pooling or a valid convolution of a stage: windows with strides and zero padding."""
        source = self.rng.choice(self.stages)
        name = f"T{len(self.stages)}"
        data, reduce, indices, conditions = [], [], [], []
        for k, dim in enumerate(self.dims(source.name)):
            if self.chance(0.4):
                data.append(_Axis(f"i{k}", dim))
                indices.append(f"i{k}")
                continue
            width, stride, pad = (self.rng.randint(*r) for r in ((1, 3), (1, 3), (0, 1)))
            window = _Axis(f"r{len(self.stages)}_{k}", f"min({width}, {dim})")
            steps = f"(({dim} + {2 * pad} - {window.extent}) // {stride} + 1)"
            data.append(_Axis(f"i{k}", steps))
            reduce.append(window)
            index = f"i{k} * {stride} + {window.name}" + (f" - {pad}" if pad else "")
            indices.append(index)
            if pad:
                conditions += [f"{index} >= 0", f"{index} < {dim}"]
        if not reduce or self.iterations(data + reduce) > MAX_ITERATIONS:
            return False
        if self.chance(0.6):  # output channels, and weights for them
            data.insert(0, _Axis("o", self.size()))
        if self.iterations(data) > MAX_ELEMENTS or self.iterations(data + reduce) > MAX_ITERATIONS:
            return False
        source.uses += 1
        text = f"{source.name}[{', '.join(indices)}]"
        if conditions:
            zero = f'te.const(0, "{self.dtype}")'
            text = f"te.if_then_else(te.all({', '.join(conditions)}), {text}, {zero})"
        value = Value(text, source.bound, source.exact)
        weights = [a for a in data if a.name == "o"] + reduce
        if len(weights) > len(reduce) and value.bound * 3 < EXACT_LIMIT[self.dtype] / 64:
            kernel = self.placeholder([a.extent for a in weights])
            inside = ", ".join(a.name for a in weights)
            value = Value(f"{value.text} * {kernel}[{inside}]", value.bound * 3, value.exact)
        for axis in reduce:
            self.run(f'{axis.name} = te.reduce_axis((0, {axis.extent}), name="{axis.name}")')
        shape = "(" + "".join(f"{a.extent}, " for a in data) + ")"
        self.reduction(name, shape, ", ".join(a.name for a in data), value, reduce)
        return True

    def stage(self, last: bool) -> bool:
        """Append one stage; False when it would be too large."""
        if self.stages and self.chance(0.2):
            return self.window_stage()
        if self.stages and self.chance(0.25):
            return self.pointwise_stage()
        name = f"T{len(self.stages)}"
        data = self.axes_for("i", self.rng.choice((1, 1, 2, 2, 2, 3, 3, 4)))
        count = self.rng.choice((0, 0, 1, 1, 2))
        reduce = self.axes_for(f"r{len(self.stages)}_", count)
        if self.iterations(data) > MAX_ELEMENTS or self.iterations(data + reduce) > MAX_ITERATIONS:
            return False
        shape = "(" + "".join(f"{a.extent}, " for a in data) + ")"
        indices = ", ".join(a.name for a in data)
        value = self.scalar(data + reduce, self.rng.randint(0, 2))
        if last and self.stages and all(s.uses == 0 for s in self.stages):
            read = self.existing_read(self.stages[-1], data + reduce)
            value = self.combine(value, read)
        if not reduce and self.chance(0.06):
            other = f'te.maximum({value.text}, te.const(1, "{self.dtype}"))'
            body = f"({value.text}, {other})"
            self.run(f'{name}_twin, {name} = te.compute({shape}, lambda {indices}: {body}, name="{name}")')
            self.stages.append(_Source(name, max(value.bound, 1), value.exact))
            return True
        if not reduce:
            self.run(f'{name} = te.compute({shape}, lambda {indices}: {value.text}, name="{name}")')
            self.stages.append(_Source(name, value.bound, value.exact))
            return True
        for axis in reduce:
            start = self.rng.choice((0, 0, 0, 0, 1, 2))
            stop = f"{axis.extent} + {start}" if start else axis.extent
            self.run(f'{axis.name} = te.reduce_axis(({start}, {stop}), name="{axis.name}")')
            if start:  # the body was written for a loop from zero
                value.text = _replace_word(value.text, axis.name, f"({axis.name} - {start})")
        if self.chance(0.06) and value.exact:
            return self.argument_stage(name, shape, indices, value, reduce)
        if self.chance(0.05) and value.bound * self.iterations(reduce) < EXACT_LIMIT[self.dtype]:
            return self.pair_stage(name, shape, indices, value, reduce)
        self.reduction(name, shape, indices, value, reduce)
        return True

    def reduction(self, name: str, shape: str, indices: str, value: Value, reduce: list[_Axis]) -> None:
        """Append a stage that reduces ``value``."""
        reducer, bound = self.reducer(value, self.iterations(reduce))
        names = ", ".join(a.name for a in reduce)
        axis_text = f"[{names}]" if len(reduce) > 1 else names
        call = f"te.{reducer}"
        alike = {"sum": "add", "max": "larger", "min": "smaller"}
        where = ""
        if reducer in alike and self.chance(0.15):
            call = f'te.comm_reducer({CUSTOM_REDUCERS[alike[reducer]]}, name="{alike[reducer]}")'
        elif reducer == "sum" and self.chance(0.1):
            where = f", where={self.rng.choice(reduce).name} % 2 == 0"
        body = f"{call}({value.text}, axis={axis_text}{where})"
        self.run(f'{name} = te.compute({shape}, lambda {indices}: {body}, name="{name}")')
        self.stages.append(_Source(name, bound, value.exact))

    def argument_stage(self, name: str, shape: str, indices: str, value: Value, reduce: list[_Axis]) -> bool:
        flat = reduce[0].name
        for axis in reduce[1:]:
            flat = f"({flat}) * ({axis.extent}) + {axis.name}"
        which = self.rng.choice(("argmax", "argmin"))
        names = ", ".join(a.name for a in reduce)
        body = f'te.{which}((te.cast({flat}, "int32"), {value.text}), axis=[{names}])'
        self.run(f'{name}_index, {name} = te.compute({shape}, lambda {indices}: {body}, name="{name}")')
        self.stages.append(_Source(name, value.bound, value.exact))
        return True

    def pair_stage(self, name: str, shape: str, indices: str, value: Value, reduce: list[_Axis]) -> bool:
        """Two reductions in one operation: the sum and the maximum of the same values."""
        names = ", ".join(a.name for a in reduce)
        combine = "lambda x, y: (x[0] + y[0], te.maximum(x[1], y[1]))"
        start = "lambda t, u: (te.const(0, t), te.min_value(u))"
        body = (
            f'te.comm_reducer({combine}, {start}, name="pair")(({value.text}, {value.text}), axis=[{names}])'
        )
        self.run(f'{name}_other, {name} = te.compute({shape}, lambda {indices}: {body}, name="{name}")')
        self.stages.append(_Source(name, max(value.bound, 1), value.exact))
        return True

    def reducer(self, value: Value, count: int) -> tuple[str, float]:
        choices = ["max", "max_number", "min"]
        if value.bound * count < EXACT_LIMIT[self.dtype]:
            choices += ["sum"] * 5
        if count * math.log(max(value.bound, 1)) < math.log(EXACT_LIMIT[self.dtype]):
            choices += ["prod"]
        reducer = self.rng.choice(choices)
        bound = {
            "sum": value.bound * count,
        }.get(reducer, value.bound)
        if reducer == "prod":
            bound = value.bound**count
        return reducer, max(bound, 1.0)


def _replace_word(text: str, word: str, replacement: str) -> str:
    import re

    return re.sub(rf"\b{word}\b", replacement, text)


def random_program(rng: random.Random) -> Program:
    """A program of 1 to 4 stages."""
    sizes = [rng.choice(SIZES) for _ in range(rng.randint(1, 3))]
    dtype = rng.choice(["float32"] * 8 + ["float64", "int32"])
    writer = _Writer(rng, dtype, rng.random() < 0.2, sizes)
    count = rng.randint(1, 4)
    attempts = 0
    while len(writer.stages) < count and attempts < 40:
        attempts += 1
        kept = (len(writer.lines), len(writer.inputs))
        if not writer.stage(last=len(writer.stages) == count - 1):
            del writer.lines[kept[0] :], writer.inputs[kept[1] :]
    if not writer.stages:
        return random_program(rng)
    last = writer.stages[-1].name
    outputs = [last]
    for stage in writer.stages[:-1]:
        if rng.random() < 0.15:
            outputs.append(stage.name)
    bound = max(s.bound for s in writer.stages)
    tolerance = 0.0 if not writer.inexact else 1e-4 * max(bound, 1.0)
    program = Program(
        tuple(sizes), tuple(writer.lines), tuple(writer.inputs), tuple(dict.fromkeys(outputs)), tolerance
    )
    return _pruned(program)


def _pruned(program: Program) -> Program:
    """The program without placeholders and stages that its outputs do not need."""
    _, outputs = program.tensors()
    from autotune.te.tensor import post_order

    needed = {op.name for op in post_order(outputs)}
    inputs = tuple(i for i in program.inputs if i.name in needed)
    lines = []
    for line in program.lines:
        target = line.split(" = ")[0].split(", ")[-1]
        mentioned = any(target in other for other in program.lines if other is not line)
        if target in needed or target.startswith("r") or mentioned:
            lines.append(line)
    return Program(program.sizes, tuple(lines), inputs, program.outputs, program.tolerance)
