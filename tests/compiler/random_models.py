"""Random small models of most operators, compiled in random ways, for comparison with NumPy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from autotune.compiler import compile_in_detail, plan
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.planned import GIVEN, Planned
from autotune.compiler.request import CompileRequest
from autotune.errors import GraphError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.options import DIRECT, RULES
from autotune.passes.partition import PartitionOptions
from autotune.runtime.module import Module
from autotune.schedule.trace import Trace
from autotune.target import Target
from search_spaces import spaces

MAX_ELEMENTS = 6000
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17)
UNARY = ("Relu", "Sigmoid", "Tanh", "Erf", "Gelu", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu")
UNARY += ("Softplus", "Abs", "Neg")

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Way:
    """Options of a compilation; ``choice`` seeds the schedule of every dispatch."""

    layout: str
    algorithm: str | None
    threads: int
    options: PartitionOptions
    source: str  # "plain", "default" or "random"
    choice: int


class _Model:
    """Appends random operators to a graph; values are lists of names by shape."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(1 << 30))
        self.b = GraphBuilder("random")
        self.values: list[str] = []
        self.count = 0

    def shape(self, value: str) -> tuple[int, ...]:
        return self.b.type_of(value).shape

    def size(self) -> int:
        return self.rng.choice(SIZES)

    def either(self, axis: int, rank: int) -> int:
        """The axis as it is, or counted from the end."""
        return axis - self.rng.choice((0, rank))

    def pick(self, ranks: tuple[int, ...]) -> str:
        found = [v for v in self.values if len(self.shape(v)) in ranks]
        if not found:
            raise GraphError("no value of that rank")
        return self.rng.choice(found[-4:])

    def constant(self, *shape: int, scale: float = 1.0) -> str:
        self.count += 1
        data = self.numbers.standard_normal(shape) * scale
        return self.b.constant(f"k{self.count}", data.astype(np.float32))

    def positive(self, *shape: int) -> str:
        self.count += 1
        data = self.numbers.uniform(0.5, 2, shape)
        return self.b.constant(f"k{self.count}", data.astype(np.float32))

    # operators ----------------------------------------------------------------------------------

    def unary(self) -> str:
        return self.b.node(self.rng.choice(UNARY), self.pick((1, 2, 3, 4)))

    def safe_root(self) -> str:
        return self.b.node("Sqrt", self.b.node("Abs", self.pick((1, 2, 3, 4))))

    def clip(self) -> str:
        low = self.rng.choice((-1.0, 0.0))
        return self.b.node("Clip", self.pick((2, 3, 4)), min=low, max=self.rng.choice((1.0, 6.0)))

    def broadcast(self) -> str:
        x = self.pick((1, 2, 3, 4))
        shape = self.shape(x)
        kept = [d if self.rng.random() < 0.6 else 1 for d in shape]
        other = self.constant(*kept[self.rng.randrange(len(kept) + 1) :])
        pair = [x, other] if self.rng.random() < 0.7 else [other, x]
        return self.b.node(self.rng.choice(("Add", "Sub", "Mul", "Max", "Min")), *pair)

    def divide(self) -> str:
        x = self.pick((2, 3, 4))
        return self.b.node("Div", x, self.positive(*self.shape(x)[-1:]))

    def join(self) -> str:
        x = self.pick((1, 2, 3, 4))
        same = [v for v in self.values if self.shape(v) == self.shape(x)]
        return self.b.node(self.rng.choice(("Add", "Mul", "Sub", "Max")), x, self.rng.choice(same))

    def convolution(self) -> str:
        x = self.pick((4,))
        channels = self.shape(x)[1]
        groups = self.rng.choice([g for g in (1, 1, 1, 2, 4, channels) if channels % g == 0])
        out = groups * self.rng.choice((1, 2, 3, 4)) if groups > 1 else self.size()
        kernel = (self.rng.randint(1, 3), self.rng.randint(1, 3))
        fan = channels // groups * kernel[0] * kernel[1]
        inputs = [x, self.constant(out, channels // groups, *kernel, scale=fan**-0.5)]
        if self.rng.random() < 0.5:
            inputs.append(self.constant(out))
        return self.b.node(
            "Conv",
            *inputs,
            group=groups,
            strides=(self.rng.randint(1, 2), self.rng.randint(1, 2)),
            pads=tuple(self.rng.randint(0, 1) for _ in range(4)),
            dilations=(self.rng.choice((1, 1, 2)), self.rng.choice((1, 1, 2))),
        )

    def large_convolution(self) -> str:
        """A convolution that Winograd's algorithm may take: 3x3, stride 1."""
        x = self.pick((4,))
        channels = self.shape(x)[1]
        out = self.rng.choice((8, 16))
        w = self.constant(out, channels, 3, 3, scale=(9 * channels) ** -0.5)
        return self.b.node("Conv", x, w, pads=(1, 1, 1, 1))

    def pool(self) -> str:
        x = self.pick((4,))
        kernel = (self.rng.randint(1, 3), self.rng.randint(1, 3))
        attributes = {
            "kernel_shape": kernel,
            "strides": (self.rng.randint(1, 2), self.rng.randint(1, 2)),
            "pads": tuple(min(self.rng.randint(0, 1), k - 1) for k in (*kernel, *kernel)),
            "ceil_mode": self.rng.randint(0, 1),
        }
        if self.rng.random() < 0.5:
            return self.b.node("MaxPool", x, **attributes)
        return self.b.node("AveragePool", x, count_include_pad=self.rng.randint(0, 1), **attributes)

    def global_pool(self) -> str:
        return self.b.node(self.rng.choice(("GlobalAveragePool", "GlobalMaxPool")), self.pick((4,)))

    def batch_norm(self) -> str:
        x = self.pick((2, 3, 4))
        c = self.shape(x)[1]
        inputs = (self.constant(c), self.constant(c), self.constant(c), self.positive(c))
        return self.b.node("BatchNormalization", x, *inputs)

    def instance_norm(self) -> str:
        x = self.pick((3, 4))
        c = self.shape(x)[1]
        return self.b.node("InstanceNormalization", x, self.constant(c), self.constant(c), epsilon=0.1)

    def group_norm(self) -> str:
        """As exporters write it."""
        x = self.pick((3, 4))
        n, c, *spatial = self.shape(x)
        groups = self.rng.choice([g for g in range(1, c + 1) if c % g == 0])
        apart = self.b.node("Reshape", x, shape=(n, groups, math.prod((c // groups, *spatial))))
        ones, zeros = self.positive(groups), self.constant(groups)
        normed = self.b.node("InstanceNormalization", apart, ones, zeros, epsilon=0.1)
        together = self.b.node("Reshape", normed, shape=(n, c, *spatial))
        along = (c, *(1 for _ in spatial))
        scaled = self.b.node("Mul", together, self.constant(*along))
        return self.b.node("Add", scaled, self.constant(*along))

    def layer_norm(self) -> str:
        x = self.pick((2, 3))
        rank, d = len(self.shape(x)), self.shape(x)[-1]
        inputs = (x, self.constant(d), self.constant(d))
        return self.b.node("LayerNormalization", *inputs, axis=self.either(rank - 1, rank), epsilon=0.1)

    def lrn(self) -> str:
        return self.b.node("LRN", self.pick((4,)), size=self.rng.choice((1, 3, 5)))

    def matmul(self) -> str:
        x = self.pick((2, 3, 4))
        k = self.shape(x)[-1]
        if self.rng.random() < 0.3:
            turned = [*range(len(self.shape(x)) - 2), len(self.shape(x)) - 1, len(self.shape(x)) - 2]
            scaled = self.b.node("Mul", x, self.constant(1, scale=k**-0.5))
            return self.b.node("MatMul", scaled, self.b.node("Transpose", x, perm=tuple(turned)))
        return self.b.node("MatMul", x, self.constant(k, self.size(), scale=k**-0.5))

    def gemm(self) -> str:
        x = self.pick((2,))
        turn_a, turn_b = self.rng.randint(0, 1), self.rng.randint(0, 1)
        k, n = self.shape(x)[0 if turn_a else 1], self.size()
        w = self.constant(*((n, k) if turn_b else (k, n)), scale=k**-0.5)
        bias = [self.constant(n)] if self.rng.random() < 0.6 else []
        return self.b.node("Gemm", x, w, *bias, transA=turn_a, transB=turn_b)

    def softmax(self) -> str:
        x = self.pick((2, 3, 4))
        name, rank = self.rng.choice(("Softmax", "Softmax", "LogSoftmax")), len(self.shape(x))
        return self.b.node(name, x, axis=self.either(self.rng.randrange(rank), rank))

    def reduce(self) -> str:
        x = self.pick((2, 3, 4))
        rank = len(self.shape(x))
        some = self.rng.sample(range(rank), self.rng.randint(1, rank - 1))
        axes = tuple(self.either(axis, rank) for axis in some)
        name = self.rng.choice(("ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"))
        return self.b.node(name, x, axes=axes, keepdims=self.rng.randint(0, 1))

    def transpose(self) -> str:
        x = self.pick((2, 3, 4))
        rank = len(self.shape(x))
        return self.b.node("Transpose", x, perm=tuple(self.rng.sample(range(rank), rank)))

    def reshape(self) -> str:
        x = self.pick((1, 2, 3, 4))
        total = int(np.prod(self.shape(x)))
        first = self.rng.choice([d for d in range(1, min(total, 20) + 1) if total % d == 0])
        rest = total // first
        second = self.rng.choice([d for d in range(1, min(rest, 20) + 1) if rest % d == 0])
        third = rest // second
        shape = self.rng.choice([(first, rest), (first, second, third), (1, first, second, third)])
        return self.b.node("Reshape", x, shape=shape)

    def flatten(self) -> str:
        x = self.pick((3, 4))
        return self.b.node("Flatten", x, axis=self.either(1, len(self.shape(x))))

    def concat(self) -> str:
        x = self.pick((2, 3, 4))
        axis = self.rng.randrange(len(self.shape(x)))
        outer = [d for k, d in enumerate(self.shape(x)) if k != axis]
        fitting = [
            v
            for v in self.values
            if len(self.shape(v)) == len(self.shape(x))
            and [d for k, d in enumerate(self.shape(v)) if k != axis] == outer
        ]
        parts = [x, *self.rng.sample(fitting, min(len(fitting), self.rng.randint(1, 2)))]
        return self.b.node("Concat", *parts, axis=self.either(axis, len(self.shape(x))))

    def split(self) -> str:
        x = self.pick((2, 3, 4))
        axis = self.rng.randrange(len(self.shape(x)))
        extent = self.shape(x)[axis]
        if extent < 2:
            raise GraphError("nothing to split")
        first = self.rng.randint(1, extent - 1)
        self.count += 1
        names = [f"part{self.count}", f"rest{self.count}"]
        axis = self.either(axis, len(self.shape(x)))
        parts = self.b.nodes("Split", [x], names, axis=axis, split=(first, extent - first))
        self.values.append(parts[0])
        return parts[1]

    def slice(self) -> str:
        x = self.pick((2, 3, 4))
        axis = self.rng.randrange(len(self.shape(x)))
        extent = self.shape(x)[axis]
        low = self.rng.randrange(extent)
        high = self.rng.randint(low + 1, extent)
        step, axis = self.rng.choice((1, 1, 2)), self.either(axis, len(self.shape(x)))
        low, high = self.either(low, extent), high - self.rng.choice((0, extent)) if high < extent else high
        return self.b.node("Slice", x, starts=(low,), ends=(high,), axes=(axis,), steps=(step,))

    def pad(self) -> str:
        x = self.pick((2, 4))
        pads = tuple(self.rng.randint(0, 2) for _ in range(2 * len(self.shape(x))))
        return self.b.node("Pad", x, pads=pads)

    def gather(self) -> str:
        x = self.pick((2, 3))
        axis = self.rng.randrange(len(self.shape(x)))
        self.count += 1
        found = self.numbers.integers(0, self.shape(x)[axis], self.rng.randint(1, 5))
        indices = self.b.constant(f"k{self.count}", found.astype(np.int64))
        return self.b.node("Gather", x, indices, axis=self.either(axis, len(self.shape(x))))

    def gather_nd(self) -> str:
        x = self.pick((2, 3))
        return self.b.node("GatherND", x, self.places(x, self.rng.randint(1, len(self.shape(x)))))

    def scatter_nd(self) -> str:
        x = self.pick((2, 3, 4))
        places = self.places(x, self.rng.randint(1, len(self.shape(x))))
        count, depth = self.shape(places)
        updates = self.constant(count, *self.shape(x)[depth:])
        return self.b.node("ScatterND", x, places, updates, reduction=self.rng.choice(("none", "add", "max")))

    def places(self, x: str, depth: int) -> str:
        """Indices along the first dimensions, some of them counted from the end."""
        self.count += 1
        count, extents = self.rng.randint(1, 5), self.shape(x)[:depth]
        found = [self.numbers.integers(-extent, extent, count) for extent in extents]
        return self.b.constant(f"k{self.count}", np.stack(found, axis=1))

    def cumulate(self) -> str:
        x = self.pick((1, 2, 3, 4))
        axis, rank = self.rng.randrange(len(self.shape(x))), len(self.shape(x))
        exclusive, reverse = (self.rng.randint(0, 1) for _ in range(2))
        return self.b.node("CumSum", x, axis=self.either(axis, rank), exclusive=exclusive, reverse=reverse)

    def top_k(self) -> str:
        """The values alone: places of nearly equal elements differ by rounding."""
        x = self.pick((1, 2, 3, 4))
        axis, rank = self.rng.randrange(len(self.shape(x))), len(self.shape(x))
        k, self.count = self.rng.randint(1, self.shape(x)[axis]), self.count + 1
        names = [f"top{self.count}", f"places{self.count}"]
        largest = self.rng.randint(0, 1)
        return self.b.nodes("TopK", [x], names, axis=self.either(axis, rank), k=k, largest=largest)[0]

    def trilu(self) -> str:
        return self.b.node(
            "Trilu", self.pick((2, 3, 4)), k=self.rng.randint(-1, 1), upper=self.rng.randint(0, 1)
        )

    def unsqueeze(self) -> str:
        x = self.pick((1, 2, 3))
        rank = len(self.shape(x)) + 1
        return self.b.node("Unsqueeze", x, axes=(self.either(self.rng.randrange(rank), rank),))

    def squeeze(self) -> str:
        x = self.pick((2, 3, 4))
        ones = [i for i, d in enumerate(self.shape(x)) if d == 1]
        return self.b.node("Squeeze", x, axes=tuple(self.either(i, len(self.shape(x))) for i in ones))

    def scaled_concat(self) -> str:
        """A Concat of computed values, and operations with constants that go along it."""
        x = self.concat()
        for _ in range(self.rng.randint(1, 2)):
            kept = [d if self.rng.random() < 0.7 else 1 for d in self.shape(x)]
            other = self.constant(*kept[self.rng.randrange(len(kept)) :])
            x = self.b.node(self.rng.choice(("Add", "Sub", "Mul", "Max")), x, other)
        return x

    def depth_to_space(self) -> str:
        return self.b.node("DepthToSpace", self.pick((4,)), blocksize=2)

    def attention(self) -> str:
        """Scores, scale, mask and softmax as separate operators, which a pass may join."""
        q = self.pick((2, 3, 4))
        *lead, _, d = self.shape(q)
        n, e = self.rng.randint(1, 9), self.rng.randint(1, 9)
        k, v = self.constant(*lead, d, n, scale=d**-0.5), self.constant(*lead, n, e)
        scores = self.b.node("MatMul", q, k)
        if self.rng.random() < 0.5:
            scores = self.b.node(self.rng.choice(("Mul", "Div")), scores, self.positive(1))
        if self.rng.random() < 0.5:
            scores = self.b.node("Add", scores, self.constant(self.shape(q)[-2], n))
        return self.b.node("MatMul", self.b.node("Softmax", scores, axis=-1), v)

    def expand(self) -> str:
        x = self.pick((2, 3))
        return self.b.node("Expand", x, shape=(self.rng.choice((1, 2, 3)), *self.shape(x)))


_STEPS: dict[str, int] = {
    "unary": 6, "safe_root": 1, "clip": 1, "broadcast": 5, "divide": 1, "join": 5,
    "attention": 2, "convolution": 5, "large_convolution": 2, "pool": 2, "global_pool": 1, "batch_norm": 2,
    "instance_norm": 1, "group_norm": 1, "layer_norm": 2, "lrn": 1, "matmul": 4, "gemm": 2, "softmax": 2,
    "reduce": 2, "transpose": 2, "reshape": 2, "flatten": 1, "concat": 2, "scaled_concat": 2, "split": 1, "slice": 1,
    "pad": 1, "gather": 1, "depth_to_space": 1, "expand": 1, "trilu": 1, "squeeze": 1,
    "unsqueeze": 1, "gather_nd": 1, "scatter_nd": 1, "cumulate": 2, "top_k": 2,
}  # fmt: skip


def random_graph(rng: random.Random) -> Graph:
    """A graph of 1 to 10 operators over one or two inputs, of at most MAX_ELEMENTS values each."""
    model = _Model(rng)
    sizes = [model.size() for _ in range(4)]
    shape = (rng.choice((1, 1, 2)), *sizes[1:]) if rng.random() < 0.6 else tuple(sizes[:2])
    model.values.append(model.b.input("x", shape))
    if rng.random() < 0.3:
        model.values.append(model.b.input("z", shape))
    start = len(model.values)
    for _ in range(rng.randint(1, 10)):
        (name,) = rng.choices(list(_STEPS), list(_STEPS.values()))
        step: Callable[[], str] = getattr(model, name)
        try:
            value = step()
        except GraphError:
            continue
        if 0 < np.prod(model.shape(value)) <= MAX_ELEMENTS:
            model.values.append(value)
    if len(model.values) == start:
        model.values.append(model.unary())
    made = model.values[start:]
    outputs = {made[-1], *(v for v in made if rng.random() < 0.1)}
    return model.b.graph(*sorted(outputs)).pruned()


def random_way(rng: random.Random) -> Way:
    """Draw the options of a compilation."""
    fusion = FusionOptions(rng.random() < 0.85, rng.choice(("none", "transpose", "elementwise")))
    return Way(
        rng.choice(("NHWC", "NHWC", "NCHW")),
        rng.choice((None, DIRECT, *(algorithm.label for algorithm in RULES))),
        rng.choice((1, 2)),
        PartitionOptions(fusion, rng.random() < 0.8, rng.random() < 0.8),
        rng.choice(("plain", "default", "random", "random")),
        rng.randrange(1 << 30),
    )


def check_model(graph: Graph, way: Way) -> None:
    """Compile, prove the memory plan, run twice, compare; AssertionError on a difference."""
    inputs = {
        v: np.random.default_rng(k).standard_normal(graph.types[v].shape).astype(np.float32)
        for k, v in enumerate(graph.inputs)
    }
    expected = evaluate.run(graph, inputs)
    with schedules_chosen(way):
        done = compile_in_detail(
            CompileRequest(
                graph, layout=way.layout, algorithm=way.algorithm, threads=way.threads, partition=way.options
            )
        )
    prove_memory(done.partition, done.memory_plan)
    with Module(done.image) as module:
        for _ in range(2):
            results = module.run(inputs)
            for name in graph.outputs:
                want = expected[name]
                slack = 2e-4 * max(1.0, float(np.abs(want).max(initial=0)))
                np.testing.assert_allclose(results[name], want, rtol=2e-3, atol=slack)


@contextmanager
def schedules_chosen(way: Way) -> Iterator[None]:
    """Compile with the schedules that a way chooses: no loop changed, the default, or any of the space."""

    def chosen(workload: Workload, target: Target, *given: Any) -> Planned:
        if way.source == "plain":
            return Planned(workload, Trace(), GIVEN)
        space = spaces.space_for(workload, target)
        rng = np.random.default_rng([way.choice, int(workload.key[:12], 16)])
        return Planned(workload, space.schedule(space.random(rng, 1)[0]).trace, GIVEN)

    with nullcontext() if way.source == "default" else mock.patch(f"{plan.__name__}.schedule_for", chosen):
        yield
