"""Unary and broadcasting elementwise operators."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autotune.graph import ops
from tests.graph.ops.op_checks import check, normal, refusal

X = np.array([-2.0, -0.5, 0.0, 0.5, 3.0], np.float32)
SPECIAL = {
    "Sqrt": lambda x: np.abs(x),
    "Log": lambda x: np.abs(x) + 0.1,
    "Reciprocal": lambda x: np.abs(x) + 0.1,
    "Not": lambda x: x > 0,
}


OF_INTEGERS = ("BitwiseNot",)


def unary(op: str) -> bool:
    """Return whether an operator of one operand can be tried without attributes."""
    definition = ops.get(op)
    required = any(attribute.required for attribute in definition.attributes.values())
    return definition.pointwise and definition.inputs == (1, 1) and not required and op not in OF_INTEGERS


@pytest.mark.parametrize("op", [op for op in ops.names() if unary(op)])
@pytest.mark.parametrize("shape", [(), (5,), (2, 1, 3)])
def test_every_unary_operator(op: str, shape: tuple[int, ...]) -> None:
    x = np.asarray(normal(*shape), np.float32).reshape(shape)
    check(op, SPECIAL.get(op, lambda v: v)(x))


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        ("Relu", {}, [0, 0, 0, 0.5, 3]),
        ("Clip", {"min": -1.0, "max": 1.0}, [-1, -0.5, 0, 0.5, 1]),
        ("Clip", {"max": 0.25}, [-2, -0.5, 0, 0.25, 0.25]),
        ("Clip", {}, [-2, -0.5, 0, 0.5, 3]),
        ("LeakyRelu", {"alpha": 0.1}, [-0.2, -0.05, 0, 0.5, 3]),
        ("Abs", {}, [2, 0.5, 0, 0.5, 3]),
        ("Neg", {}, [2, 0.5, 0, -0.5, -3]),
        ("Round", {}, [-2, 0, 0, 0, 3]),
        ("Floor", {}, [-2, -1, 0, 0, 3]),
        ("Ceil", {}, [-2, 0, 0, 1, 3]),
        ("Sigmoid", {}, [1 / (1 + math.exp(-v)) for v in X]),
        ("Tanh", {}, [math.tanh(v) for v in X]),
        ("Erf", {}, [math.erf(v) for v in X]),
        ("Exp", {}, [math.exp(v) for v in X]),
        ("Elu", {"alpha": 2.0}, [2 * math.expm1(v) if v < 0 else v for v in X]),
        ("HardSigmoid", {}, [0.1, 0.4, 0.5, 0.6, 1]),
        ("HardSwish", {}, [-2 / 6, -0.5 * (2.5 / 6), 0, 0.5 * (3.5 / 6), 3]),
        ("Softplus", {}, [math.log1p(math.exp(v)) for v in X]),
        ("Gelu", {}, [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in X]),
        (
            "Gelu",
            {"approximate": "tanh"},
            [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in X],
        ),
        ("Dropout", {}, X),
    ],
)
def test_values(op: str, attrs: dict[str, object], expected: list[float]) -> None:
    np.testing.assert_allclose(check(op, X, **attrs), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_the_magnitude_of_what_has_no_sign_is_itself(dtype: str) -> None:
    x = np.array([0, 1, 7, np.iinfo(dtype).max], dtype)
    np.testing.assert_array_equal(check("Abs", x), x)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
@pytest.mark.parametrize("op", ["Abs", "Neg", "Relu"])
def test_integers(op: str, dtype: str) -> None:
    check(op, np.array([-3, 0, 4], dtype))


def test_clip_of_integers_keeps_the_dtype() -> None:
    result = check("Clip", np.array([-3, 0, 4], np.int64), min=-1.0, max=2.0)
    np.testing.assert_array_equal(result, [-1, 0, 2])


@pytest.mark.parametrize("to", ["bfloat16", "float16", "float64", "int32", "int64", "uint8", "bool"])
def test_cast(to: str) -> None:
    x = np.array([0.0, 0.5, 1.0, 2.75], np.float32)
    np.testing.assert_array_equal(check("Cast", x, to=to), x.astype(to))


def test_cast_from_bool_and_negative_truncation() -> None:
    np.testing.assert_array_equal(check("Cast", np.array([True, False]), to="float32"), [1, 0])
    np.testing.assert_array_equal(check("Cast", np.array([-1.5, 1.5]), to="int32"), [-1, 1])


@pytest.mark.parametrize(
    ("op", "dtype", "attrs", "message"),
    [
        ("Sqrt", "int32", {}, "Sqrt does not take int32; it takes float32, float64, float16, bfloat16"),
        ("Not", "float32", {}, "Not does not take float32; it takes bool"),
        (
            "Cast",
            "float32",
            {"to": "complex64"},
            "Cast: unknown dtype 'complex64'; known: bool, uint8, int8, uint16, int16, uint32, "
            "int32, uint64, int64, bfloat16, float16, float32, float64, float8_e4m3fn, float8_e4m3fnuz, "
            "float8_e5m2, float8_e5m2fnuz, float6_e2m3fn, float6_e3m2fn, float4_e2m1fn, int4, uint4, int2, uint2",
        ),
    ],
)
def test_refusals(op: str, dtype: str, attrs: dict[str, str], message: str) -> None:
    assert refusal(op, np.ones(2, dtype), **attrs) == message


PAIR = (normal(3, 1, 4), np.abs(normal(2, 1)) + 0.5)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum"])
def test_binary_arithmetic(op: str) -> None:
    a, b = PAIR
    meaning = {
        "Add": a + b,
        "Sum": a + b,
        "Sub": a - b,
        "Mul": a * b,
        "Div": a / b,
        "Max": np.where(a > b, a, b),
        "Min": np.where(a < b, a, b),
        "Mean": (a + b) / 2,
    }
    np.testing.assert_allclose(check(op, a, b), meaning[op], rtol=1e-6)


@pytest.mark.parametrize("op", ["Max", "Min", "Mean", "Sum"])
def test_variadic(op: str) -> None:
    check(op, normal(3))
    check(op, normal(3, 1), normal(4), normal(2, 1, 1), normal(1))


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons(op: str) -> None:
    a, b = np.array([[1, 2, 3]]), np.array([[2], [3]])
    meaning = {
        "Equal": a == b,
        "Less": a < b,
        "LessOrEqual": a <= b,
        "Greater": a > b,
        "GreaterOrEqual": a >= b,
    }
    np.testing.assert_array_equal(check(op, a, b), meaning[op])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    a, b = np.array([True, False])[:, None], np.array([True, False])
    meaning = {"And": a & b, "Or": a | b, "Xor": a ^ b}
    np.testing.assert_array_equal(check(op, a, b), meaning[op])
    assert refusal(op, np.ones(2), np.ones(2)) == f"{op} takes bool, got float64"


def test_where_broadcasts_all_three() -> None:
    c, a, b = np.array([[True], [False]]), normal(3), normal(4, 1, 1)
    np.testing.assert_array_equal(check("Where", c, a, b), np.where(c, a, b))
    assert refusal("Where", a, a, a) == "Where: the condition is float32, not bool"


def test_integer_division_and_remainder_follow_c() -> None:
    a, b = np.array([7, -7, 7, -7, 6]), np.array([2, 2, -2, -2, 3])
    np.testing.assert_array_equal(check("Div", a, b), [3, -3, -3, 3, 2])
    np.testing.assert_array_equal(check("Mod", a, b, fmod=1), [1, -1, 1, -1, 0])
    np.testing.assert_array_equal(check("Mod", a, b), [1, 1, -1, -1, 0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["Softplus", "HardSwish", "LeakyRelu", "Elu", "HardSigmoid", "Gelu"])
def test_steps_on_halves_are_rounded_once(op: str, dtype: str) -> None:
    x = np.linspace(-4, 4, 37).astype(dtype)
    single = check(op, x.astype(np.float32))
    np.testing.assert_array_equal(check(op, x), single.astype(dtype))


def test_float_remainder() -> None:
    a, b = np.array([5.5, -5.5, 4.0], np.float32), np.array([2.0], np.float32)
    np.testing.assert_allclose(check("Mod", a, b, fmod=1), [1.5, -1.5, 0])
    np.testing.assert_allclose(check("Mod", a, b), [1.5, 0.5, 0])


def test_pow_keeps_the_base_dtype() -> None:
    base = np.array([1.5, 2.0], np.float32)
    np.testing.assert_allclose(check("Pow", base, np.array([2, 3])), [2.25, 8])
    np.testing.assert_array_equal(check("Pow", np.array([3, 5]), np.array([2, 3])), [9, 125])


def test_prelu() -> None:
    x, slope = np.array([[-2.0, 3.0], [4.0, -1.0]], np.float32), np.array([0.5, 0.25], np.float32)
    np.testing.assert_allclose(check("PRelu", x, slope), [[-1, 3], [4, -0.25]])
    assert refusal("PRelu", slope, x) == "PRelu: slope of shape (2, 2) does not broadcast to (2,)"


def test_operands_of_two_dtypes_and_shapes_that_do_not_fit() -> None:
    message = refusal("Add", np.ones(2, np.float32), np.ones(2, np.int64))
    assert message == "Add: operands are float32 and int64; cast them to one dtype"
    assert refusal("Add", normal(2, 3), normal(2)) == "shapes (2, 3) and (2,) do not broadcast"


@settings(max_examples=60, deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=3), st.data())
def test_broadcasting_is_numpys(shapes: hnp.BroadcastableShapes, data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(["Sum", "Max", "Min"]))
    arrays = [np.arange(math.prod(s), dtype=np.float32).reshape(s) - 2 for s in shapes.input_shapes]
    assert check(op, *arrays).shape == shapes.result_shape


def test_clip_bounds_beyond_an_integer_dtype() -> None:
    x = np.array([-(2**63), -1, 2**63 - 1])
    np.testing.assert_array_equal(check("Clip", x, min=-math.inf, max=float(2**63 - 1)), x)
    np.testing.assert_array_equal(check("Clip", x, min=0.0), [0, 0, 2**63 - 1])


def test_sign_and_is_nan() -> None:
    x = np.array([-2.0, 0.0, 3.0, math.nan], np.float32)
    np.testing.assert_array_equal(check("Sign", x), [-1, 0, 1, math.nan])
    np.testing.assert_array_equal(check("IsNaN", x), [False, False, False, True])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integer_division_by_zero_and_at_the_limits(dtype: str) -> None:
    least = np.iinfo(dtype).min
    a = np.array([7, 0, least, least, least], dtype)
    b = np.array([0, 0, 0, np.array(-1).astype(dtype), 2], dtype)
    by_minus_one = least if least else 0
    np.testing.assert_array_equal(check("Div", a, b), np.array([0, 0, 0, by_minus_one, least // 2], dtype))
    for fmod in (0, 1):
        np.testing.assert_array_equal(check("Mod", a, b, fmod=fmod), np.zeros(5, dtype))


def test_floats_out_of_range_are_cast_to_the_limits() -> None:
    x = np.array([300.7, -300.7, np.nan, np.inf, -np.inf, 1e20, -1.5], np.float32)
    np.testing.assert_array_equal(check("Cast", x, to="uint8"), [255, 0, 0, 255, 0, 255, 0])
    np.testing.assert_array_equal(check("Cast", x, to="int8"), [127, -128, 0, 127, -128, 127, -1])
    limits = np.iinfo("int32")
    np.testing.assert_array_equal(
        check("Cast", x, to="int32"), [300, -300, 0, limits.max, limits.min, limits.max, -1]
    )


def test_remainders_of_floats_are_exact() -> None:
    a = np.array([5, -5, 1e10, 5, np.inf, 3e38, 7], np.float32)
    b = np.array([np.inf, np.inf, 3, 0, 3, 1e-38, -3], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(check("Mod", a, b, fmod=1), np.fmod(a, b))
