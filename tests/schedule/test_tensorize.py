"""Intrinsics with instructions: the same numbers in three executions, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.codegen.backend import compile_schedule
from autotune.errors import BuildError, LoweringError, ScheduleError
from autotune.lower import lower_schedule
from autotune.lower.examples import loops
from autotune.schedule import Schedule, Trace
from autotune.target import Target
from tests.schedule.machine import run_machine_code

pytestmark = pytest.mark.registers

PAGE = Path(__file__).parents[2] / "docs" / "tvm.md"


def product(
    m: int = 6, n: int = 32, k: int = 8, *, transposed: bool = True
) -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    """``A[m, k] B[n, k]^T`` (or B[k, n])."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((n, k) if transposed else (k, n), name="B")
    r = te.reduce_axis((0, k), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, r] * (b[j, r] if transposed else b[r, j]), axis=r)

    c = te.compute((m, n), element, name="C")
    return te.create_schedule(c), a, b, c


def gemv(rows: int, width: int, *, strides: Any = (None, 1), parts: str = "all") -> te.TensorIntrin:
    """``c[i] += a[k] b[i, k]`` by horizontal sums."""
    a, b = te.placeholder((width,), name="a"), te.placeholder((rows, width), name="b")
    k = te.reduce_axis((0, width), name="k")
    c = te.compute((rows,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")

    def instructions(ins: Any, outs: Any) -> Any:
        kind = f"float32x{width}"

        def dot(i: int, start: Any) -> Any:
            value = ins[0].vload(0, kind) * ins[1].vload((i, 0), kind)
            total = te.call_llvm_pure_intrin("float32", f"llvm.vector.reduce.fadd.v{width}f32", start, value)
            return outs[0].vstore(i, total)

        zero = te.splat(0, "float32")
        body = [dot(i, zero) for i in range(rows)]
        init = [outs[0].vstore(i, zero) for i in range(rows)]
        update = [dot(i, outs[0].vload(i)) for i in range(rows)]
        return body if parts == "body" else (body, init, update)

    binds = {b: te.decl_buffer(b.shape, strides=strides)}
    return te.decl_tensor_intrin(c, instructions, binds=binds, name=f"gemv_{rows}_{width}_{parts}")


def tensorized(s: Schedule, c: te.Tensor, width: int, intrin: te.TensorIntrin) -> None:
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    jo, ji = s[c].split(j, factor=intrin.op.axis[0].extent)
    ko, ki = s[c].split(k, factor=width)
    s[c].reorder(i, jo, ko, ji, ki)
    s[c].tensorize(ji, intrin)


def same_three_ways(s: Schedule, args: list[te.Tensor], arrays: dict[str, Any]) -> None:
    inputs = {t: arrays[t.name] for t in args if t.name in arrays}
    (expected,) = te.evaluate(args[-1:], inputs)
    name = args[-1].name
    again = Trace.from_json(s.trace.to_json()).apply(te.create_schedule(args[-1]))
    out = {**arrays, name: np.zeros(expected.shape, expected.dtype)}
    interpreter.run_program(lower_schedule(again, args), out)
    computed = run_machine_code(s, args, arrays)[name]
    np.testing.assert_allclose(out[name], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("k", "width"), [(8, 8), (24, 8), (22, 8)], ids=["whole", "updates", "remainder"])
@pytest.mark.parametrize("n", [32, 21])
def test_a_gemv_of_instructions_computes_the_same(n: int, k: int, width: int) -> None:
    s, a, b, c = product(n=n, k=k)
    tensorized(s, c, width, gemv(8, width))
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal(t.shape).astype("float32") for t in (a, b)}
    same_three_ways(s, [a, b, c], arrays)


def test_the_example_of_the_page_for_tvm_users() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text().split("## Tensorize")[1], re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)  # the documentation's own example
    s, args = scope["s"], [scope[name] for name in "ABC"]
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal(t.shape).astype("float32") for t in args[:2]}
    same_three_ways(s, args, arrays)
    assert "gemv_16_16(C[i, j.outer * 16], A[i, k.outer * 16], B[j.outer * 16, k.outer * 16])" in loops(
        s, args[2]
    )


def test_start_values_by_instructions_are_hoisted_out_of_the_reduction() -> None:
    s, _, _, c = product(k=16)
    tensorized(s, c, 8, gemv(8, 8))
    text = loops(s, c)
    init, update = (text.index(t) for t in ("gemv_8_8_all(C[i, j.outer * 8])", "for (k.outer, 0, 2)"))
    assert init < update


def test_a_dense_operand_must_be_dense() -> None:
    s, a, b, c = product(k=24)
    tensorized(s, c, 8, gemv(8, 8, strides=(8, 1)))
    with pytest.raises(LoweringError) as error:
        lower_schedule(s, [a, b, c])
    assert str(error.value) == (
        "tensorize of stage C: gemv_8_8_all takes b with a distance of 8 elements along dimension 0, in B it is 24 "
        "elements; change the layout (cache_read and transform_layout), or declare the operand with another stride "
        "(te.decl_buffer)"
    )


def test_an_operand_in_another_layout_is_refused_with_the_loop_that_differs() -> None:
    s, _, _, c = product(transposed=False)
    with pytest.raises(ScheduleError) as error:
        tensorized(s, c, 8, gemv(8, 8))
    assert str(error.value).splitlines()[0] == (
        "tensorize: the loops are not gemv_8_8_all: the stage reads B[k, j] where the pattern reads b[i, k]: "
        "j.inner moves dimension 1 of B, i of the pattern dimension 0 of b"
    )


def test_a_step_of_two_elements_is_refused() -> None:
    a, b = te.placeholder((16,), name="A"), te.placeholder((8, 8), name="B")
    r = te.reduce_axis((0, 8), name="k")
    c = te.compute((8,), lambda j: te.sum(a[r * 2] * b[j, r], axis=r), name="C")
    s = te.create_schedule(c)
    with pytest.raises(
        ScheduleError, match="k moves dimension 0 of A by 2, k of the pattern dimension 0 of a"
    ):
        s[c].tensorize(s[c].op.axis[0], gemv(8, 8))


def test_a_whole_reduction_cannot_be_cut() -> None:
    s, a, b, c = product(k=16)
    tensorized(s, c, 8, gemv(8, 8, parts="body"))
    with pytest.raises(
        LoweringError, match=r"replaces a whole reduction, but k.outer is outside of it; declare"
    ):
        lower_schedule(s, [a, b, c])


def test_operands_must_be_stored() -> None:
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((32, 8), name="B")
    d = te.compute((6, 8), lambda i, j: a[i, j] + 1.0, name="D")
    r = te.reduce_axis((0, 8), name="k")
    c = te.compute((6, 32), lambda i, j: te.sum(d[i, r] * b[j, r], axis=r), name="C")
    s = te.create_schedule(c)
    s[d].compute_inline()
    with pytest.raises(ScheduleError, match="from memory, here D, which is inlined; store it"):
        tensorized(s, c, 8, gemv(8, 8))


def test_a_target_without_the_instructions_is_refused() -> None:
    a, b = te.placeholder((4,), "uint8", name="A"), te.placeholder((16, 4), "int8", name="B")
    r = te.reduce_axis((0, 4), name="k")
    c = te.compute(
        (16,), lambda j: te.sum(te.cast(a[r], "int32") * te.cast(b[j, r], "int32"), axis=r), name="C"
    )
    s = te.create_schedule(c)
    s[c].tensorize(s[c].op.axis[0], te.intrinsic_named("vpdpbusd_16x4"))
    with pytest.raises(
        BuildError, match="vpdpbusd_16x4 needs avx512vnni, which target x86-64-v3 does not have"
    ):
        compile_schedule(s, [a, b, c], Target.parse("x86-64-v3"))


WRONG_DECLARATIONS: dict[str, tuple[Any, str]] = {
    "outside": (lambda i, o: o[0].vstore(0, i[0].vload(9)), r"a\[9\] is outside of its shape \(8,\)"),
    "too wide": (lambda i, o: o[0].vstore(0, i[0].vload(1, "float32x8")), "leaves the dense part"),
    "rows apart": (lambda i, o: o[0].vstore(0, i[1].vload((0, 0), "float32x16")), "leaves the dense part"),
    "type": (lambda i, o: o[0].vstore(0, i[0].vload(0, "int8x8")), "a holds float32, not int8"),
    "input": (lambda i, o: i[0].vstore(0, i[0].vload(0)), "a is an input"),
    "bits": (
        lambda i, o: o[0].vstore(0, te.reinterpret("int32x4", i[0].vload(0))),
        "4 bytes, int32x4 has 16",
    ),
    "mixed": (lambda i, o: o[0].vstore(0, i[0].vload(0) + te.splat(0, "int32")), "float32 . int32"),
    "lanes": (lambda i, o: o[0].vstore(0, i[0].vload(0, "float32x4").astype("float32x8")), "number of lanes"),
    "name": (
        lambda i, o: o[0].vstore(0, te.call_llvm_pure_intrin("float32", "sinf")),
        "not the name of an LLVM",
    ),
}


@pytest.mark.parametrize("name", WRONG_DECLARATIONS)
def test_instructions_that_do_not_fit_are_refused_when_declared(name: str) -> None:
    instructions, message = WRONG_DECLARATIONS[name]
    a, b = te.placeholder((8,), name="a"), te.placeholder((8, 8), name="b")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((8,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    binds = {b: te.decl_buffer(b.shape, strides=[None, 1])}
    with pytest.raises(ValueError, match=message):
        te.decl_tensor_intrin(c, instructions, binds=binds)
