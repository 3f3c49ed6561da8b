"""MatMul and Gemm."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph import ops
from autotune.graph.ir import TensorType
from tests.graph.ops.op_checks import check, normal, reduction, refusal, stages


@pytest.mark.parametrize(
    ("a", "b", "subscripts"),
    [
        ((3, 4), (4, 5), "ik,kj->ij"),
        ((4,), (4,), "k,k->"),
        ((4,), (4, 5), "k,kj->j"),
        ((3, 4), (4,), "ik,k->i"),
        ((2, 3, 4), (4, 5), "bik,kj->bij"),
        ((2, 3, 4), (4,), "bik,k->bi"),
        ((4,), (2, 4, 5), "k,bkj->bj"),
        ((2, 3, 4), (2, 4, 5), "bik,bkj->bij"),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], subscripts: str) -> None:
    x, y = normal(*a), normal(*b)
    np.testing.assert_allclose(check("MatMul", x, y), np.einsum(subscripts, x, y), rtol=1e-5, atol=1e-5)


def test_matmul_broadcasts_batches() -> None:
    x, y = normal(2, 1, 3, 4), normal(5, 4, 2)
    expected = np.einsum("aik,bkj->abij", x[:, 0], y)
    np.testing.assert_allclose(check("MatMul", x, y), expected, rtol=1e-5, atol=1e-5)


def test_matmul_names_its_axes() -> None:
    op = reduction("MatMul", normal(2, 3, 4), normal(4, 5))
    assert [a.name for a in (*op.axis, *op.reduce_axis)] == ["b0", "i", "j", "rk"]


def test_matmul_of_integers() -> None:
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(check("MatMul", a, a.T.copy()), [[5, 14], [14, 50]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_weights_of_a_matmul_may_be_stored_in_a_shorter_type(dtype: str) -> None:
    x, w = normal(3, 40), (10 * normal(40, 5)).astype(dtype)
    found = check("MatMul", x, w)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, x @ w.astype(np.float32), rtol=1e-5, atol=1e-4)
    message = refusal("MatMul", w, x.T.copy())
    assert message == f"MatMul: operands are {dtype} and float32; cast them to one dtype"


def test_matmul_refuses() -> None:
    message = refusal("MatMul", normal(2, 3), normal(4, 5))
    assert message == "MatMul of (2, 3) and (4, 5): inner dimensions differ"
    assert refusal("MatMul", np.float32(1), normal(4, 5)) == "MatMul takes no scalars"


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("c", [(), (5,), (3, 1), (1, 5), (3, 5), None])
def test_gemm(trans_a: int, trans_b: int, c: tuple[int, ...] | None) -> None:
    a, b = normal(3, 4), normal(4, 5)
    added = None if c is None else np.asarray(normal(*c), np.float32)
    left = a.T.copy() if trans_a else a
    right = b.T.copy() if trans_b else b
    operands = (left, right) if added is None else (left, right, added)
    result = check("Gemm", *operands, transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0)
    expected = 0.5 * a @ b + (0 if added is None else 2 * added)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_gemm_stages() -> None:
    a, b, c = normal(3, 4), normal(4, 5), normal(5)
    assert stages("Gemm", a, b) == ["out"]
    assert stages("Gemm", a, b, c) == ["out.acc", "out"]
    assert stages("Gemm", a, b, alpha=2.0) == ["out.acc", "out"]


def test_gemm_refuses() -> None:
    message = refusal("Gemm", normal(3, 4), normal(4, 5), transB=1)
    assert message == ("Gemm of (3, 4) and (4, 5) with transA=0, transB=1: inner dimensions 4 and 5 differ")
    message = refusal("Gemm", normal(3, 4), normal(4, 5), normal(2, 1, 5))
    assert message == "Gemm: c of shape (2, 1, 5) does not broadcast to (3, 5)"
    message = refusal("Gemm", normal(3), normal(4, 5))
    assert message == "Gemm takes matrices, got shapes (3,) and (4, 5)"


def test_flops() -> None:
    types = [TensorType((2, 3, 4), "float32"), TensorType((4, 5), "float32")]
    assert ops.get("MatMul").flops(types, {}) == 2 * 2 * 3 * 4 * 5
    types = [TensorType((3, 4), "float32"), TensorType((4, 5), "float32")]
    assert ops.get("Gemm").flops([*types, TensorType((5,), "float32")], {}) == 2 * 60 + 15
