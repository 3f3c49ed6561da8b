"""``te.extern``: results of functions outside of the program."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import library, te
from autotune.codegen import interpreter
from autotune.errors import ArtifactError, BuildError, LoweringError, UsageError
from autotune.lower import lower_schedule, verify
from autotune.runtime.artifacts import artifact

SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_float), ctypes.c_int64, ctypes.c_double
)


def _scale(x: Any, out: Any, count: int, factor: float) -> None:
    for i in range(count):
        out[i] = x[i] * factor


SCALE = SIGNATURE(_scale)


@pytest.fixture
def scaled() -> Iterator[str]:
    numba = pytest.importorskip("numba")
    floats = numba.types.CPointer(numba.types.float32)
    made = numba.cfunc(numba.types.void(floats, floats, numba.types.int64, numba.types.float64))(_scale)
    library.register("scaled", made, operation="extern")
    yield "scaled"
    library.unregister("scaled", library.EXTERN)


def program(function: Any, extent: Any = 10) -> tuple[te.Tensor, te.Tensor]:
    """Twice what the function makes of A + 1."""
    a = te.placeholder((extent,), name="A")
    more = te.compute((extent,), lambda i: a[i] + 1, name="more")
    b = te.extern(
        (extent,),
        [more],
        lambda ins, outs: te.call_extern("void", function, ins[0], outs[0], extent, 2.5),
        name="B",
    )
    return a, te.compute((extent,), lambda i: b[i] * 2, name="C")


X = np.arange(10, dtype="float32")


@pytest.mark.parametrize("extent", [10, te.var("n")], ids=["number", "size"])
def test_machine_code_calls_a_c_function(extent: Any) -> None:
    a, c = program(SCALE, extent)
    found = np.zeros(10, "float32")
    autotune.build(te.create_schedule(c.op), [a, c], threads=2)(X, found)
    np.testing.assert_array_equal(found, (X + 1) * 5)
    np.testing.assert_array_equal(te.evaluate([c], {a: X})[0], (X + 1) * 5)


def test_the_interpreter_calls_it_too() -> None:
    a, c = program(SCALE)
    arrays = {"A": X, "C": np.zeros(10, "float32")}
    interpreter.run_program(lower_schedule(te.create_schedule(c.op), [a, c]), arrays)
    np.testing.assert_array_equal(arrays["C"], (X + 1) * 5)


def test_a_registered_function_of_numba(scaled: str, tmp_path: Any) -> None:
    a, c = program(scaled)
    function = autotune.build(te.create_schedule(c.op), [a, c], threads=1)
    found = np.zeros(10, "float32")
    function(X, found)
    np.testing.assert_array_equal(found, (X + 1) * 5)
    artifact.save(function.module.image, tmp_path / "a.atm")
    np.testing.assert_array_equal(autotune.load(tmp_path / "a.atm")(X)[0], (X + 1) * 5)
    library.unregister(scaled, library.EXTERN)
    with pytest.raises(ArtifactError, match="library kernel scaled for extern is not registered"):
        artifact.load_image(tmp_path / "a.atm")


def test_an_address_and_several_results() -> None:
    copy = ctypes.cast(ctypes.CDLL(None).memcpy, ctypes.c_void_p).value
    a = te.placeholder((4,), name="A", dtype="int32")
    _, second = te.extern(
        [(4,), (4,)],
        [a],
        lambda ins, outs: te.call_extern("handle", copy, outs[1].data, ins[0].access_ptr("r"), 16),
    )
    c = te.compute((4,), lambda i: second[i] + 1, name="C")
    found = np.zeros(4, "int32")
    autotune.build(te.create_schedule(c.op), [a, c], threads=1)(np.arange(4, dtype="int32"), found)
    assert found.tolist() == [1, 2, 3, 4]


def test_a_call_is_not_proven() -> None:
    pytest.importorskip("islpy")
    a, c = program(SCALE)
    assert "a call of a function from outside" in str(verify(te.create_schedule(c.op), [a, c]))


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (lambda ins, outs: None, TypeError, "fcompute of te.extern returns te.call_extern"),
        (lambda ins, outs: te.call_extern("void", "no_such_name", ins[0]), BuildError, "not registered"),
        (
            lambda ins, outs: te.call_extern("void", len, ins[0]),
            UsageError,
            "has no address; make it with numba.cfunc",
        ),
        (
            lambda ins, outs: te.call_extern("void", SCALE, te.const(1, "int8")),
            TypeError,
            "an argument is a buffer or",
        ),
    ],
)
def test_what_is_no_call(made: Any, error: type[Exception], message: str) -> None:
    a = te.placeholder((4,), name="A")
    with pytest.raises(error, match=message):
        te.extern((4,), [a], made)


def test_padded_tensors_are_no_arguments() -> None:
    a = te.placeholder((4, 3), name="A")
    b = te.compute((4, 3), lambda i, j: a[i, j], name="B")
    c = te.extern(
        (4, 3), [b], lambda ins, outs: te.call_extern("void", SCALE, ins[0], outs[0], 12, 1.0), name="C"
    )
    s = te.create_schedule(c.op)
    s[b].storage_align(b.op.axis[0], 8, 0)
    with pytest.raises(LoweringError, match=r"B is an argument of te.extern, which takes dense tensors"):
        autotune.build(s, [a, c])
