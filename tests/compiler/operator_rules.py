"""Legal uses of each operator of the registry in a drawn graph: a rule an operator.

A rule appends the operator to a draft, with operands and attributes that it takes. Operators that need operands of
certain sizes take attributes and constants of their cases (`tests.graph.ops.cases`), and a value of the graph that is
brought to the size of the first operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autotune.graph.build import GraphBuilder
from autotune.graph.ops.loop import body_text
from tests.compiler.drafts import ANY_FLOAT, FLOATS, INTEGERS, NUMBERS, Draft, Unfit
from tests.graph.ops.cases import CASES

Rule = Callable[[Draft, str], object]
RULES: dict[str, Rule] = {}
LEFT_OUT = {"Transfer": "graphs of one device have none; tests/compiler/test_placed.py has those of several"}
"""Operators that no drawn graph has, and why."""
ANY = (*FLOATS, "float32", "int64", "int32", "uint8", "bool", "float16")


def rule(names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of some operators."""

    def add(function: Rule) -> Rule:
        for name in names.split():
            assert name not in RULES, name
            RULES[name] = function
        return function

    return add


# -- elementwise ---------------------------------------------------------------------------------------------


@rule(
    "Asinh Atan Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Round Sigmoid Sin Sinh"
)
@rule("Softplus Tan Tanh")
def unary(d: Draft, op: str) -> None:
    given: dict[str, Any] = {
        "Elu": {"alpha": d.rng.choice((1.0, 0.5))},
        "Gelu": {"approximate": d.rng.choice(("none", "tanh"))},
        "HardSigmoid": {"alpha": d.rng.choice((0.2, 1 / 6)), "beta": 0.5},
        "LeakyRelu": {"alpha": d.rng.choice((0.01, 0.3, -0.5))},
    }
    d.node(op, d.pick(ANY_FLOAT), **given.get(op, {}))


@rule("Abs Neg Relu Sign Identity Dropout")
def unary_of_numbers(d: Draft, op: str) -> None:
    d.node(op, d.pick((*ANY_FLOAT, "int64", "int32", "int8")))


@rule("Acos Asin Atanh")
def bounded(d: Draft, op: str) -> None:
    d.node(op, d.node("Clip", d.pick(), min=-0.8, max=0.8))


@rule("Acosh Log Reciprocal Sqrt")
def of_positive(d: Draft, op: str) -> None:
    least = d.constant(np.float32(1.2 if op == "Acosh" else 0.3).reshape(d.rng.choice([(), (1,)])))
    d.node(op, d.node(*d.rng.choice([("Max",), ("Add",)]), d.hidden("Abs", d.pick()), least))


@rule("Clip")
def clip(d: Draft, op: str) -> None:
    limits = {"min": d.rng.choice((-1.0, 0.0)), "max": d.rng.choice((1.0, 6.0))}
    d.node(op, d.pick((*FLOATS, "float16", "int32")), **{k: v for k, v in limits.items() if d.chance(0.8)})


@rule("Not")
def negation(d: Draft, op: str) -> None:
    d.node(op, d.pick(("bool",)))


@rule("IsNaN IsInf")
def not_finite(d: Draft, op: str) -> None:
    x = d.pick()
    flags = d.operand(d.random(d.shape(x), "bool"))
    other = d.constant(np.float32(np.nan if op == "IsNaN" else d.rng.choice((np.inf, -np.inf))))
    signs = {"detect_negative": d.rng.randint(0, 1), "detect_positive": d.rng.randint(0, 1)}
    d.node(op, d.hidden("Where", flags, other, x), **(signs if op == "IsInf" else {}))


@rule("BitwiseNot")
def bits(d: Draft, op: str) -> None:
    d.node(op, d.pick(INTEGERS))


@rule("Cast")
def cast(d: Draft, op: str) -> None:
    to = d.rng.choice((*ANY_FLOAT, *INTEGERS, "bool", "float8_e4m3fn"))
    d.node(op, d.pick((*ANY, *INTEGERS)), to=to)


@rule("BitCast")
def bit_cast(d: Draft, op: str) -> None:
    pairs = [
        ("float32", "int32"),
        ("int32", "uint32"),
        ("int8", "uint8"),
        ("bool", "uint8"),
        ("uint8", "int8"),
    ]
    dtype, to = d.rng.choice(pairs)
    d.node(op, d.pick((dtype,)), to=to)


def partner(d: Draft, x: str, make: Callable[..., str] | None = None) -> str:
    """A value that broadcasts to x: another one of the graph, or a constant, of fewer axes or fewer elements."""
    dtype, shape = d.dtype(x), d.shape(x)
    if make is None and d.chance(0.5):
        fits = [v for v in d.values if d.dtype(v) == dtype and _broadcasts(d.shape(v), shape)]
        if fits:
            return d.rng.choice(fits)
    kept = [extent if d.chance(0.6) else 1 for extent in shape]
    kept = kept[d.rng.randrange(len(kept) + 1) :]
    return (make or d.normal)(*kept, dtype=dtype)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


@rule("Add Sub Mul Max Min Mean Sum")
def arithmetic(d: Draft, op: str) -> None:
    x = d.pick(ANY_FLOAT if op == "Mean" else (*ANY_FLOAT, "int64", "int32"))
    pair = [x, partner(d, x)]
    if d.chance(0.3):
        pair.reverse()
    if op in ("Max", "Min", "Mean", "Sum") and d.chance(0.4):
        pair.append(partner(d, x))
    d.node(op, *pair)


@rule("Div")
def divide(d: Draft, op: str) -> None:
    x = d.pick((*ANY_FLOAT, "int32"))
    if d.dtype(x) == "int32":
        d.node(op, x, d.constant(d.numbers.integers(1, 5, d.shape(x)[-1:]).astype(np.int32)))
        return
    if d.chance(0.3) and d.dtype(x) == "float32":
        below = d.hidden("Add", d.hidden("Abs", partner(d, x)), d.constant(np.float32(0.5)))
        d.node(op, x, below)
        return
    d.node(op, x, partner(d, x, d.positive))


@rule("Mod")
def modulo(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, "int32", "int64"))
    if d.dtype(x) == "float32":
        d.node(op, x, partner(d, x, d.positive), fmod=1)
        return
    by = (d.numbers.integers(1, 7, d.shape(x)[-1:]) * d.rng.choice((-1, 1))).astype(d.dtype(x))
    d.node(op, x, d.constant(by), fmod=d.rng.randint(0, 1))


@rule("Pow")
def power(d: Draft, op: str) -> None:
    x = d.pick()
    if d.chance(0.6):
        d.node(op, x, d.constant(np.float32(d.rng.choice((1, 2, 3)))))
    else:
        d.node(op, d.hidden("Add", d.hidden("Abs", x), d.constant(np.float32(0.3))), partner(d, x))


@rule("PRelu")
def parametric(d: Draft, op: str) -> None:
    x = d.pick()
    d.node(op, x, partner(d, x, d.normal))


@rule("Equal Less LessOrEqual Greater GreaterOrEqual")
def comparison(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, "int64", "int32"))
    y = partner(d, x)
    if not d.apart(x, y):
        raise Unfit
    d.node(op, x, y)


@rule("And Or Xor")
def logic(d: Draft, op: str) -> None:
    x = d.pick(("bool",))
    d.node(op, x, partner(d, x))


@rule("BitwiseAnd BitwiseOr BitwiseXor")
def bitwise(d: Draft, op: str) -> None:
    x = d.pick(INTEGERS)
    d.node(op, x, partner(d, x))


@rule("BitShift")
def shift(d: Draft, op: str) -> None:
    x = d.pick(("uint8", "uint32", "uint64", "uint16"))
    amount = d.numbers.integers(0, 9, d.shape(x)[-1:]).astype(d.dtype(x))
    d.node(op, x, d.operand(amount), direction=d.rng.choice(("LEFT", "RIGHT")))


@rule("Where")
def choice(d: Draft, op: str) -> None:
    x = d.pick((*ANY_FLOAT, "int64"))
    flags = [v for v in d.values if d.dtype(v) == "bool" and _broadcasts(d.shape(v), d.shape(x))]
    condition = d.rng.choice(flags) if flags and d.chance(0.7) else d.operand(d.random(d.shape(x), "bool"))
    pair = [x, partner(d, x)]
    d.rng.shuffle(pair)
    d.node(op, condition, *pair)


@rule("BatchNormalization")
def batch_norm(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (2, 3, 4))
    c = d.shape(x)[1]
    d.node(op, x, d.normal(c), d.normal(c), d.normal(c), d.positive(c))


@rule("Trilu")
def triangle(d: Draft, op: str) -> None:
    x = d.pick((*ANY_FLOAT, "int64"), (2, 3, 4))
    d.node(op, x, k=d.rng.randint(-2, 2), upper=d.rng.randint(0, 1))


# -- products ------------------------------------------------------------------------------------------------


@rule("MatMul")
def product(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "float16"), (1, 2, 3, 4))
    k, dtype = d.shape(x)[-1], d.dtype(x)
    if d.rank(x) > 1 and d.chance(0.3):
        turned = (*range(d.rank(x) - 2), d.rank(x) - 1, d.rank(x) - 2)
        scaled = d.node("Mul", x, d.normal(1, dtype=dtype, scale=k**-0.5))
        d.node(op, scaled, d.node("Transpose", x, perm=turned))
        return
    if d.chance(0.3):
        fits = [v for v in d.values if d.dtype(v) == dtype and d.rank(v) == 2 and d.shape(v)[0] == k]
        if fits:
            d.node(op, x, d.rng.choice(fits))
            return
    if d.rank(x) == 2 and d.chance(0.2):
        d.node(op, d.normal(d.size(), d.shape(x)[0], dtype=dtype, scale=d.shape(x)[0] ** -0.5), x)
        return
    lead = d.shape(x)[:-2] if d.rank(x) > 2 and d.chance(0.3) else ()
    weights = (k,) if d.chance(0.1) and not lead else (*lead, k, d.size())
    d.node(op, x, d.normal(*weights, dtype=dtype, scale=k**-0.5))


@rule("ShortMatMul")
def short_product(d: Draft, op: str) -> None:
    x = d.pick(("bfloat16",), (1, 2, 3, 4))
    k = d.shape(x)[-1]
    d.node(op, x, d.normal(k, d.size(), dtype="bfloat16", scale=k**-0.5))


@rule("ShortConv")
def short_convolution(d: Draft, op: str) -> None:
    x = d.pick(("bfloat16",), (3, 4, 4, 4))
    groups, shape = filters(d, x)
    weights = d.normal(*shape, dtype="bfloat16", scale=float(np.prod(shape[1:])) ** -0.5)
    d.node(op, x, weights, group=groups, **window(d, d.rank(x) - 2))


@rule("BlockMatMul")
def block_product(d: Draft, op: str) -> None:
    bits, n = d.rng.choice((4, 8)), d.size()
    words = np.random.default_rng(d.rng.randrange(1 << 30)).integers(0, 1 << 30, (bits, n)).astype(np.int32)
    x = d.input((d.size(), 32), d.rng.choice(("float32", "float16")))
    d.node(op, x, d.constant(words), d.normal(2, n, scale=0.02), bits=bits, zero_point=1 << (bits - 1))


@rule("BlockFactors")
def factors(d: Draft, op: str) -> None:
    d.node(op, d.input((d.size(), 64), "float32"), block=d.rng.choice((8, 16, 32, 64)))


@rule("BlockPlanes PlaneSums")
def rows_of_bytes(d: Draft, op: str) -> None:
    x = d.input((d.size(), 64), "float32")
    d.node(op, x, d.node("BlockFactors", x, block=d.rng.choice((8, 16, 32))))


@rule("BlockDot")
def product_of_bytes(d: Draft, op: str) -> None:
    n, x = d.size(), d.input((d.size(), 64), "float32")
    words = np.random.default_rng(d.rng.randrange(1 << 30)).integers(0, 1 << 30, (8, n)).astype(np.int32)
    factors = d.node("BlockFactors", x, block=32)
    planes, sums = (d.node(each, x, factors) for each in ("BlockPlanes", "PlaneSums"))
    d.node(op, planes, factors, sums, d.constant(words), d.normal(2, n, scale=0.02), zero_point=8)


@rule("UnpackBlocks")
def stored_words(d: Draft, op: str) -> None:
    bits, n = d.rng.choice((4, 8)), d.size()
    words = np.random.default_rng(d.rng.randrange(1 << 30)).integers(0, 1 << 30, (bits, n)).astype(np.int32)
    rows = d.rng.randint(20, 32)
    weights = d.node(op, d.constant(words), d.normal(2, n, scale=0.02), bits=bits, zero_point=3, rows=rows)
    d.node("MatMul", d.input((d.size(), rows), "float32"), weights)


@rule("Gemm")
def gemm(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (2,))
    turn_a, turn_b = d.rng.randint(0, 1), d.rng.randint(0, 1)
    k, n = d.shape(x)[0 if turn_a else 1], d.size()
    m = d.shape(x)[1 if turn_a else 0]
    inputs = [x, d.normal(*((n, k) if turn_b else (k, n)), scale=k**-0.5)]
    if d.chance(0.6):
        inputs.append(d.normal(*d.rng.choice([(n,), (1, n), (m, 1), (m, n), ()])))
    d.node(
        op,
        *inputs,
        transA=turn_a,
        transB=turn_b,
        alpha=d.rng.choice((1.0, 0.5)),
        beta=d.rng.choice((1.0, 2.0)),
    )


def window(d: Draft, spatial: int, most: int = 3) -> dict[str, Any]:
    return {
        "strides": tuple(d.rng.randint(1, 2) for _ in range(spatial)),
        "pads": tuple(d.rng.randint(0, 1) for _ in range(2 * spatial)),
        "dilations": tuple(d.rng.choice((1, 1, 2)) for _ in range(spatial)),
    }


def filters(d: Draft, x: str) -> tuple[int, tuple[int, ...]]:
    """Groups, and a shape of weights."""
    channels, spatial = d.shape(x)[1], d.rank(x) - 2
    groups = d.rng.choice([g for g in (1, 1, 1, 2, 4, channels) if channels % g == 0])
    out = groups * d.rng.choice((1, 2, 3, 4)) if groups > 1 else d.size()
    return groups, (out, channels // groups, *(d.rng.randint(1, 3) for _ in range(spatial)))


@rule("Conv")
def convolution(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (3, 4, 4, 4))
    groups, shape = filters(d, x)
    if d.rank(x) == 4 and d.chance(0.25):  # what Winograd's algorithm takes
        groups, shape = 1, (d.rng.choice((8, 16)), d.shape(x)[1], 3, 3)
        attrs: dict[str, Any] = {"pads": (1, 1, 1, 1)}
    else:
        attrs = window(d, d.rank(x) - 2)
    inputs = [x, d.normal(*shape, scale=float(np.prod(shape[1:])) ** -0.5)]
    if d.chance(0.5):
        inputs.append(d.normal(shape[0]))
    d.node(op, *inputs, group=groups, **attrs)


@rule("ConvTranspose")
def transposed(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (3, 4))
    channels, spatial = d.shape(x)[1], d.rank(x) - 2
    groups = d.rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = d.rng.randint(1, 4)
    w = d.normal(channels, out, *(d.rng.randint(1, 4) for _ in range(spatial)), scale=channels**-0.5)
    bias = [d.normal(out * groups)] if d.chance(0.5) else []
    d.node(op, x, w, *bias, group=groups, **window(d, spatial))


@rule("MaxPool AveragePool SumPool MaxPoolIndices")
def pool(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (3, 4))
    spatial = d.rank(x) - 2
    kernel = tuple(d.rng.randint(1, 3) for _ in range(spatial))
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": tuple(d.rng.randint(1, 2) for _ in range(spatial)),
        "pads": tuple(min(d.rng.randint(0, 1), k - 1) for k in (*kernel, *kernel)),
        "ceil_mode": d.rng.randint(0, 1),
    }
    if d.chance(0.3):
        attrs["dilations"] = tuple(d.rng.randint(1, 2) for _ in range(spatial))
    if op == "AveragePool":
        attrs["count_include_pad"] = d.rng.randint(0, 1)
    d.nodes(op, x, **attrs)


@rule("GlobalAveragePool GlobalMaxPool")
def global_pool(d: Draft, op: str) -> None:
    d.node(op, d.pick(FLOATS, (3, 4)))


# -- rows ----------------------------------------------------------------------------------------------------


@rule("InstanceNormalization")
def instance_norm(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (3, 4))
    c = d.shape(x)[1]
    d.node(op, x, d.normal(c), d.normal(c), epsilon=0.1)


@rule("GroupNormalization")
def group_norm(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (3, 4))
    c = d.shape(x)[1]
    groups = d.rng.choice([g for g in range(1, c + 1) if c % g == 0])
    d.node(op, x, d.normal(c), d.normal(c), num_groups=groups, epsilon=0.1)


@rule("LayerNormalization RMSNormalization")
def row_norm(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (2, 3, 4))
    axis = d.rng.randrange(1, d.rank(x))
    tail = d.shape(x)[axis:]
    inputs = [x, d.normal(*tail)]
    if op == "LayerNormalization" and d.chance(0.7):
        inputs.append(d.normal(*tail))
    d.node(op, *inputs, axis=d.either(axis, d.rank(x)), epsilon=0.1)


@rule("LRN")
def local_norm(d: Draft, op: str) -> None:
    d.node(op, d.pick(FLOATS, (3, 4)), size=d.rng.choice((1, 3, 4, 5)), alpha=d.rng.choice((1e-4, 0.5)))


@rule("Softmax LogSoftmax")
def softmax(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "float16"))
    d.node(op, x, axis=d.either(d.rng.randrange(d.rank(x)), d.rank(x)))


@rule("ReduceMax ReduceMin ReduceMean ReduceSum ReduceProd")
def reduce(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "float16") if op == "ReduceMean" else (*FLOATS, *FLOATS, "int64", "int32"))
    rank = d.rank(x)
    some = d.rng.sample(range(rank), d.rng.randint(1, rank))
    axes = {} if d.chance(0.1) else {"axes": tuple(d.either(axis, rank) for axis in some)}
    d.node(op, x, keepdims=d.rng.randint(0, 1), **axes)


@rule("ArgMax ArgMin")
def best(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, "int32"))
    d.node(op, x, axis=d.either(d.rng.randrange(d.rank(x)), d.rank(x)), keepdims=d.rng.randint(0, 1))


@rule("Attention")
def attention(d: Draft, op: str) -> None:
    q = d.pick(FLOATS, (2, 3, 4))
    *lead, m, depth = d.shape(q)
    n, e = d.rng.randint(1, 9), d.rng.randint(1, 9)
    shared = [extent if d.chance(0.7) else 1 for extent in lead]
    inputs = [q, d.normal(*shared, n, depth), d.normal(*shared, n, e)]
    attrs: dict[str, Any] = {"scale": depth**-0.5}
    if d.chance(0.5):
        inputs.append(d.normal(*d.rng.choice([(m, n), (1, n), (n,)])))
    if d.chance(0.3):
        attrs |= {"causal": 1, "first": d.rng.randint(0, 3)}
    if d.chance(0.3):
        attrs["block"] = d.rng.randint(1, n)
    d.node(op, *inputs, **attrs)


# -- movement ------------------------------------------------------------------------------------------------


def divisor(d: Draft, number: int) -> int:
    return d.rng.choice([k for k in range(1, min(number, 20) + 1) if number % k == 0])


@rule("Reshape")
def reshape(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    total = int(np.prod(d.shape(x)))
    first = divisor(d, total)
    second = divisor(d, total // first)
    third = total // first // second
    shapes = [
        (first, total // first),
        (first, second, third),
        (1, first, second, third),
        (first, -1),
        (total,),
    ]
    d.node(op, x, shape=d.rng.choice(shapes))


@rule("Flatten")
def flatten(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    d.node(op, x, axis=d.rng.randint(0, d.rank(x)))


@rule("Squeeze")
def squeeze(d: Draft, op: str) -> None:
    x = d.pick(ANY, (2, 3, 4))
    ones = [i for i, extent in enumerate(d.shape(x)) if extent == 1][: d.rank(x) - 1]
    if not ones:
        ones = [0]
        x = d.node("Unsqueeze", x, axes=(0,))
    d.node(op, x, axes=tuple(d.either(i, d.rank(x)) for i in ones))


@rule("Unsqueeze")
def unsqueeze(d: Draft, op: str) -> None:
    x = d.pick(ANY, (1, 2, 3))
    d.node(op, x, axes=(d.either(d.rng.randint(0, d.rank(x)), d.rank(x) + 1),))


@rule("Expand")
def expand(d: Draft, op: str) -> None:
    x = d.pick(ANY, (1, 2, 3))
    shape = [d.rng.choice((2, 3, 5)) if extent == 1 else extent for extent in d.shape(x)]
    d.node(op, x, shape=(*(() if d.chance(0.4) else (d.rng.choice((1, 2, 3)),)), *shape))


@rule("Tile")
def tile(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    d.node(op, x, repeats=tuple(d.rng.choice((1, 1, 2, 3)) for _ in d.shape(x)))


@rule("Transpose")
def transpose(d: Draft, op: str) -> None:
    x = d.pick(ANY, (2, 3, 4))
    d.node(op, x, perm=tuple(d.rng.sample(range(d.rank(x)), d.rank(x))))


def alike(d: Draft, x: str, axis: int) -> list[str]:
    """Values of x's type and shape but for one axis."""
    own = [extent for k, extent in enumerate(d.shape(x)) if k != axis]
    return [
        v
        for v in d.values
        if (d.dtype(v), d.rank(v)) == (d.dtype(x), d.rank(x))
        and [extent for k, extent in enumerate(d.shape(v)) if k != axis] == own
    ]


@rule("Concat")
def concat(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    axis = d.rng.randrange(d.rank(x))
    found = alike(d, x, axis)
    parts = [x, *(d.rng.choice(found) for _ in range(d.rng.randint(1, 2)))]
    if d.chance(0.3):
        shape = [d.rng.randint(1, 3) if k == axis else extent for k, extent in enumerate(d.shape(x))]
        parts.append(d.normal(*shape, dtype=d.dtype(x)))
    d.rng.shuffle(parts)
    d.node(op, *parts, axis=d.either(axis, d.rank(x)))


@rule("Split")
def split(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    axis = max(range(d.rank(x)), key=d.shape(x).__getitem__)
    extent = d.shape(x)[axis]
    if extent < 2:
        raise Unfit
    first = d.rng.randint(1, extent - 1)
    parts = [first, extent - first]
    if parts[1] > 1 and d.chance(0.4):
        parts[1:] = [1, parts[1] - 1]
    d.nodes(op, x, axis=d.either(axis, d.rank(x)), split=tuple(parts))


@rule("Slice")
def cut(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    axes = d.rng.sample(range(d.rank(x)), d.rng.randint(1, d.rank(x)))
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = d.shape(x)[axis]
        low = d.rng.randrange(extent)
        if d.chance(0.2):
            starts.append(low)
            ends.append(-extent - 1)
            steps.append(-d.rng.randint(1, 2))
            continue
        starts.append(d.either(low, extent))
        ends.append(d.rng.choice((extent, extent + 5, d.rng.randint(low + 1, extent))))
        steps.append(d.rng.choice((1, 1, 2, 3)))
    named = tuple(d.either(axis, d.rank(x)) for axis in axes)
    d.node(op, x, starts=tuple(starts), ends=tuple(ends), axes=named, steps=tuple(steps))


@rule("Pad")
def pad(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "float16", "int64"))
    mode = d.rng.choice(("constant", "constant", "constant", "reflect", "edge", "wrap"))
    pads = tuple(d.rng.choice((0, 0, 1, 2, -1 if mode == "constant" else 0)) for _ in range(2 * d.rank(x)))
    d.node(op, x, pads=pads, mode=mode, value=d.rng.choice((0.0, 0.0, 1.5)) if d.dtype(x) != "int64" else 2.0)


@rule("DepthToSpace SpaceToDepth")
def blocks(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (4,))
    n, c, h, w = d.shape(x)
    need = (
        (n, 4 * max(1, c // 4), h, w)
        if op == "DepthToSpace"
        else (n, c, 2 * max(1, h // 2), 2 * max(1, w // 2))
    )
    d.node(op, shaped(d, x, need), blocksize=2, mode=d.rng.choice(("DCR", "CRD")))


@rule("ChannelShuffle")
def shuffle(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (4,))
    d.node(op, x, groups=divisor(d, d.shape(x)[1]))


def places(d: Draft, shape: Iterable[int], extent: int, dtype: str = "int64") -> str:
    """Indices along an axis, some of them counted from the end: a constant, an input, or what is computed."""
    shape = tuple(shape)
    found = d.numbers.integers(-extent, extent, shape).astype(dtype)
    if d.chance(0.2) and dtype == "int64":
        computed = [v for v in d.values if d.dtype(v) == "int64" and d.shape(v) == shape]
        if computed:
            return d.hidden("Mod", d.rng.choice(computed), d.constant(np.array(extent, np.int64)))
    return d.operand(found)


@rule("Gather")
def gather(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    axis = d.rng.randrange(d.rank(x))
    shape = d.rng.choice([(), (d.rng.randint(1, 5),), (d.rng.randint(1, 3), 2)])
    chosen = places(d, shape, d.shape(x)[axis], d.rng.choice(("int64", "int32")))
    d.node(op, x, chosen, axis=d.either(axis, d.rank(x)))


@rule("GatherElements")
def gather_elements(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    axis = d.rng.randrange(d.rank(x))
    shape = [d.rng.randint(1, extent + 2 if k == axis else extent) for k, extent in enumerate(d.shape(x))]
    d.node(op, x, places(d, shape, d.shape(x)[axis]), axis=d.either(axis, d.rank(x)))


def tuples(d: Draft, x: str, depth: int, distinct: bool = False) -> str:
    extents = d.shape(x)[:depth]
    count = d.rng.randint(1, 5)
    columns = [d.numbers.integers(0 if distinct else -extent, extent, count) for extent in extents]
    found = np.stack(columns, axis=1)
    return d.operand(np.unique(found, axis=0) if distinct else found)


@rule("GatherND")
def gather_nd(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    d.node(op, x, tuples(d, x, d.rng.randint(1, d.rank(x))))


@rule("ScatterND")
def scatter_nd(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "int64", "float16"))
    indices = tuples(d, x, d.rng.randint(1, d.rank(x)))
    count, depth = d.shape(indices)
    updates = d.normal(count, *d.shape(x)[depth:], dtype=d.dtype(x))
    if d.chance(0.5):
        updates = shaped(d, d.pick((d.dtype(x),)), (count, *d.shape(x)[depth:]))
    d.node(op, x, indices, updates, reduction=d.rng.choice(("none", "add", "max", "min", "mul")))


@rule("ScatterElements")
def scatter_elements(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "int64"))
    axis = d.rng.randrange(d.rank(x))
    shape = [d.rng.randint(1, extent) for extent in d.shape(x)]
    updates = d.normal(*shape, dtype=d.dtype(x))
    indices = places(d, shape, d.shape(x)[axis])
    reduction = d.rng.choice(("none", "add", "max", "min", "mul"))
    d.node(op, x, indices, updates, axis=d.either(axis, d.rank(x)), reduction=reduction)


@rule("OneHot")
def one_hot(d: Draft, op: str) -> None:
    x = d.pick(("int64", "int32"), (1, 2, 3))
    depth = d.rng.randint(1, 6)
    axis = d.either(d.rng.randint(0, d.rank(x)), d.rank(x) + 1)
    d.node(op, x, d.normal(2, dtype=d.rng.choice(NUMBERS)), depth=depth, axis=axis)


@rule("ReverseSequence")
def reverse(d: Draft, op: str) -> None:
    x = d.pick(ANY, (2, 3, 4))
    time = d.rng.randint(0, 1)
    lengths = d.operand(d.numbers.integers(1, d.shape(x)[time] + 1, d.shape(x)[1 - time]))
    d.node(op, x, lengths, time_axis=time, batch_axis=1 - time)


@rule("TopK")
def top(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "int64", "int32"))
    axis = d.rng.randrange(d.rank(x))
    k = d.rng.randint(1, d.shape(x)[axis])
    d.nodes(op, x, axis=d.either(axis, d.rank(x)), k=k, largest=d.rng.randint(0, 1))


@rule("TreeEnsemble")
def trees(d: Draft, op: str) -> None:
    """Add trees of four leaves each, whose numbers come first."""
    x, count = d.pick(ranks=(2,)), d.rng.choice((1, 2, 4, 8))
    leaves, nodes, dtype = 4 * count, 7 * count, d.dtype(x)
    children = np.arange(nodes, dtype=np.int32)[:, None].repeat(2, 1)
    for tree in range(count):
        root = leaves + 3 * tree
        children[root] = root + 1, root + 2
        children[root + 1], children[root + 2] = (4 * tree + np.array([[0, 1], [2, 3]])).tolist()
    tables = [
        np.arange(leaves, nodes, 3, dtype=np.int32),
        d.numbers.integers(0, d.shape(x)[1], nodes).astype(np.int32),
        d.numbers.standard_normal(nodes).astype(dtype),
        children,
        d.numbers.standard_normal((leaves, d.rng.randint(1, 5))).astype(dtype),
        *([d.numbers.integers(0, 2, nodes).astype(bool)] if d.chance(0.3) else []),
    ]
    parts = d.rng.choice([n for n in (1, 2, 4) if count % n == 0])
    reduce = d.rng.choice(("sum", "min", "max"))
    d.node(op, x, *(d.constant(each) for each in tables), levels=2, parts=parts, reduce=reduce)


@rule("CumSum CumProd")
def cumulate(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, *FLOATS, "int64", "float16"))
    axis = d.either(d.rng.randrange(d.rank(x)), d.rank(x))
    d.node(op, x, axis=axis, exclusive=d.rng.randint(0, 1), reverse=d.rng.randint(0, 1))


@rule("NonZero")
def non_zero(d: Draft, op: str) -> None:
    d.nodes(op, d.pick(("bool", "int64", "float32"), (1, 2, 3)))


@rule("Unique")
def unique(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, "int64", "int32"), (2,))
    d.nodes(op, x, sorted=d.rng.randint(0, 1))


@rule("ConstantOfShape")
def filled(d: Draft, op: str) -> None:
    x = d.pick()
    d.node("Add", x, d.hidden(op, shape=d.shape(x), value=d.rng.choice((0.0, 2.5))))


@rule("Range")
def numbered(d: Draft, op: str) -> None:
    x = d.pick((*FLOATS, "int64"))
    end, dtype = float(d.shape(x)[-1]), d.dtype(x)
    d.node("Add", x, d.hidden(op, start=0.0, limit=end, delta=1.0, dtype=dtype))


@rule("Shape")
def sizes(d: Draft, op: str) -> None:
    x = d.pick(ANY)
    d.node(op, x, start=d.rng.randint(0, d.rank(x) - 1))


# -- integers ------------------------------------------------------------------------------------------------


def step(d: Draft) -> str:
    return d.constant(np.float32(d.rng.choice((0.02, 0.05, 0.1))))


def integers(d: Draft, shape: Iterable[int], dtype: str) -> np.ndarray:
    low = 0 if dtype == "uint8" else -128
    return d.numbers.integers(low, low + 256, tuple(shape)).astype(dtype)


def quantised(d: Draft, shape: Iterable[int], dtype: str) -> str:
    return d.constant(integers(d, shape, dtype))


def zero(d: Draft, dtype: str) -> str:
    return d.constant(np.array(d.rng.choice((0, 3, 120)), dtype))


@rule("QuantizeLinear DequantizeLinear")
def steps_of(d: Draft, op: str) -> None:
    dtype = d.rng.choice(("uint8", "int8"))
    if op == "QuantizeLinear":
        d.node(op, d.pick(), step(d), zero(d, dtype))
        return
    x = d.pick((dtype,))
    axis = d.rng.randrange(d.rank(x))
    if d.chance(0.5):
        scales = d.constant(d.numbers.uniform(0.01, 0.1, d.shape(x)[axis]).astype(np.float32))
        d.node(op, x, scales, axis=axis)
    else:
        d.node(op, x, step(d), zero(d, dtype))


@rule("IntegerMatMul MatMulInteger QLinearMatMul")
def integer_product(d: Draft, op: str) -> None:
    dtype, other = d.rng.choice(("uint8", "int8")), d.rng.choice(("uint8", "int8"))
    x = d.pick((dtype,), (2, 3))
    w = d.operand(integers(d, (d.shape(x)[-1], d.size()), other))
    if op == "IntegerMatMul":
        d.node(op, x, w)
    elif op == "MatMulInteger":
        d.node(op, x, w, *([zero(d, dtype), zero(d, other)] if d.chance(0.7) else []))
    else:
        sides = [x, step(d), zero(d, dtype), w, step(d), zero(d, other)]
        d.node(op, *sides, d.constant(np.float32(5)), zero(d, d.rng.choice(("uint8", "int8"))))


@rule("IntegerConv ConvInteger QLinearConv")
def integer_convolution(d: Draft, op: str) -> None:
    dtype, other = d.rng.choice(("uint8", "int8")), d.rng.choice(("uint8", "int8"))
    x = d.pick((dtype,), (4,))
    groups, shape = filters(d, x)
    w, attrs = quantised(d, shape, other), {"group": groups, **window(d, 2)}
    if op == "IntegerConv":
        d.node(op, x, w, *([zero(d, dtype)] if any(attrs["pads"]) else []), **attrs)
    elif op == "ConvInteger":
        d.node(op, x, w, *([zero(d, dtype), zero(d, other)] if d.chance(0.7) else []), **attrs)
    else:
        sides = [x, step(d), zero(d, dtype), w, step(d), zero(d, other), d.constant(np.float32(5))]
        bias = [d.normal(shape[0], dtype="int32")] if d.chance(0.5) else []
        d.node(op, *sides, zero(d, d.rng.choice(("uint8", "int8"))), *bias, **attrs)


# -- loops ---------------------------------------------------------------------------------------------------


@rule("Loop")
def loop(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (2, 3))
    trips, *row = d.shape(x)
    body = GraphBuilder("body")
    state, own, weights = body.input("state", row), body.input("own", row), body.input("weights", row[-1:])
    mixed = body.node(d.rng.choice(("Add", "Sub", "Max")), body.node("Mul", state, weights), own)
    if d.chance(0.3):
        mixed = body.node("Softmax", mixed, axis=-1)
    new = body.node(d.rng.choice(("Tanh", "Sigmoid")), mixed)
    each = [body.node(d.rng.choice(("Relu", "Neg")), new)] if d.chance(0.7) else []
    attrs = {"carried": 1, "scanned": 1, "trips": trips}
    if d.chance(0.4):
        attrs["from_end"] = tuple(d.rng.randint(0, 1) for _ in range(1 + len(each)))
    text = body_text(body.graph(new, *each))
    d.nodes(op, d.operand(d.random(row, "float32")), x, d.normal(*row[-1:]), body=text, **attrs)


@rule("If")
def branch(d: Draft, op: str) -> None:
    x = d.pick(FLOATS, (1, 3))
    sides = []
    for name in ("then", "other"):
        side = GraphBuilder(name)
        own, row = side.input("own", d.shape(x)), side.input("row", d.shape(x)[-1:])
        mixed = side.node(d.rng.choice(("Add", "Sub", "Max")), own, row)
        sides.append(body_text(side.graph(side.node("Softmax", mixed, axis=-1) if d.chance(0.5) else mixed)))
    row, condition = d.normal(*d.shape(x)[-1:]), d.operand(np.array(d.chance(0.5)))
    d.nodes(op, condition, x, row, x, row, then_branch=sides[0], else_branch=sides[1], then_inputs=2)


# -- operators that take certain sizes -----------------------------------------------------------------------


def shaped(d: Draft, x: str, shape: tuple[int, ...]) -> str:
    """A value's elements, repeated or cut off, in another shape."""
    if d.shape(x) == shape:
        return x
    total = int(np.prod(shape))
    flat = d.hidden("Reshape", x, shape=(-1,))
    size = d.shape(flat)[0]
    if size < total:
        flat = d.hidden("Tile", flat, repeats=(-(-total // size),))
    if d.shape(flat)[0] > total:
        flat = d.hidden("Slice", flat, starts=(0,), ends=(total,))
    return d.hidden("Reshape", flat, shape=shape)


@rule(
    "Col2Im DeformedColumns GridSample GroupedConv Interleave Interpolate NonMaxSuppression OverlapAdd Patches"
)
@rule("Resize RoiAlign ShortGroupedConv StrassenInput StrassenOutput")
@rule("TensorScatter WinogradInput WinogradOutput WinogradProducts")
def as_in_a_case(d: Draft, op: str) -> None:
    """Attributes and sizes of a case; the first operand, and some others of its kind, are values of the graph."""
    case = d.rng.choice([c for c in CASES if c.op == op])
    inputs = []
    for number, array in enumerate(case.arrays):
        dtype = array.dtype.name
        own = dtype in ("float32", "int64", "uint8") and (
            number == 0 or (op == "Interleave" and d.chance(0.5))
        )
        inputs.append(shaped(d, d.pick((dtype,)), array.shape) if own else d.operand(array))
    d.nodes(op, *inputs, **case.attrs)
