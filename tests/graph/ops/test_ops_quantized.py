"""Quantised operators: sizes of scales, zero points and biases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.ops.op_checks import check, refusal


def small(*shape: int) -> Any:
    return np.ones(shape, np.uint8)


def scales(*shape: int) -> Any:
    return np.full(shape, 0.5, np.float32)


def product(**changed: Any) -> list[Any]:
    """Inputs of a QLinearMatMul of [2, 3, 4] and [2, 4, 5]."""
    given = {"a": small(2, 3, 4), "a_scale": scales(), "a_zero": small(), "b": small(2, 4, 5)}
    given |= {"b_scale": scales(1), "b_zero": small(1), "y_scale": scales(), "y_zero": small()}
    return [*(given | changed).values()]


def convolution(**changed: Any) -> list[Any]:
    """Inputs of a QLinearConv from 2 channels to 3."""
    given = {"x": small(1, 2, 5, 5), "x_scale": scales(), "x_zero": small(1), "w": small(3, 2, 1, 1)}
    given |= {"w_scale": scales(3), "w_zero": small(3), "y_scale": scales(), "y_zero": small()}
    return [*(given | {"bias": np.ones(3, np.int32)} | changed).values()]


def test_one_value_or_one_an_index() -> None:
    for zeros in (small(), small(1), small(3)):
        check("QLinearMatMul", *product(a_zero=zeros))
    for zeros, steps in ((small(5), scales(5)), (small(), scales(1, 5))):
        check("QLinearMatMul", *product(b_zero=zeros, b_scale=steps))
    check("QLinearMatMul", *product(a_scale=scales(3), y_scale=scales(3), y_zero=small(3)))
    check("QLinearMatMul", *product(a_scale=scales(2, 3, 1), a_zero=small(2, 3, 1), y_zero=small(2, 3, 1)))
    check("QLinearMatMul", *product(b_scale=scales(2, 1, 5), b_zero=small(2, 1, 5)))
    check("MatMulInteger", small(2, 3, 4), small(4), small(2, 3, 1), small(1))
    check("QLinearConv", *convolution())
    check("QLinearConv", *convolution(w_scale=scales(), w_zero=small()))
    check("QuantizeLinear", scales(2, 3), scales(3), small())
    check("QuantizeLinear", scales(4), scales(1), small(1))
    check("DequantizeLinear", small(2, 3), scales(2), small(2), axis=-2)


@pytest.mark.parametrize(
    ("op", "arrays", "message"),
    [
        ("QLinearMatMul", product(b_zero=small(2)), "input 5 has 2 elements, shape (2,), not 1 or 5"),
        (
            "QLinearMatMul",
            product(b_scale=scales(2, 5, 1)),
            "input 4 has 10 elements, shape (2, 5, 1), not 1 or 5",
        ),
        ("QLinearMatMul", product(a_scale=scales(4)), "input 1 has 4 elements, shape (4,), not 1 or 3"),
        ("QLinearMatMul", product(y_scale=scales(5)), "input 6 has 5 elements, shape (5,), not 1 or 3"),
        ("QLinearConv", convolution(w_zero=small(2)), "input 5 has 2 elements, shape (2,), not 1 or 3"),
        ("QLinearConv", convolution(x_zero=small(2)), "input 2 has 2 elements, shape (2,), not 1"),
        ("QLinearConv", convolution(bias=np.ones(1, np.int32)), "input 8 has 1 elements, shape (1,), not 3"),
        (
            "MatMulInteger",
            [small(3, 4), small(4, 5), small(5)],
            "input 2 has 5 elements, shape (5,), not 1 or 3",
        ),
        ("MatMulInteger", [small(4), small(4), small(4)], "input 2 has 4 elements, shape (4,), not 1"),
        (
            "ConvInteger",
            [small(1, 2, 5, 5), small(3, 2, 1, 1), small(), small(2)],
            "input 3 has 2 elements, shape (2,), not 1 or 3",
        ),
        ("QuantizeLinear", [scales(2, 3), scales(2)], "input 1 has 2 elements, shape (2,), not 1 or 3"),
        ("QuantizeLinear", [scales(3), scales(3)], "input 1 has 3 elements, shape (3,), not 1"),
        (
            "DequantizeLinear",
            [small(2, 3), scales(3), small(2)],
            "input 2 has 2 elements, shape (2,), not 1 or 3",
        ),
    ],
)
def test_other_sizes_are_refused(op: str, arrays: list[Any], message: str) -> None:
    """They broadcast to something by chance, or to nothing."""
    assert refusal(op, *arrays) == f"{op}: {message}"


def test_a_fill_without_padding_is_refused() -> None:
    x, w = small(1, 2, 5, 5), small(3, 2, 1, 1)
    message = "IntegerConv: there is a fill, but no padding that would have it: leave it out"
    assert refusal("IntegerConv", x, w, small()) == message
