"""Loading object code: symbols, collisions, damage."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.elf import read_symbols
from autotune.codegen.jit import LoadedCode
from autotune.errors import BuildError
from tests.codegen.native import call_kernel
from tests.runtime.kernels import compile_ir, kernel

pytestmark = pytest.mark.registers

CALLS = """
declare float @{external}(float)
define void @k(ptr %table, i64 %begin, i64 %end, ptr %scratch) {{
  %p = load i64, ptr %table
  %q = inttoptr i64 %p to ptr
  %x = load float, ptr %q
  %y = call float @{external}(float %x)
  store float %y, ptr %q
  ret void
}}
"""


def test_symbols_of_an_object() -> None:
    symbols = read_symbols(compile_ir(CALLS.format(external="expf")))
    assert symbols.defined == {"k"}
    assert symbols.undefined == {"expf"}


def test_code_calls_functions_of_the_process() -> None:
    code = LoadedCode([compile_ir(CALLS.format(external="expf"))])
    x = np.array([1.0], np.float32)
    call_kernel(code.address(0, "k"), [x], tiles=1)
    assert x[0] == pytest.approx(np.e)


def test_objects_with_the_same_symbols_stay_apart() -> None:
    code = LoadedCode([kernel("count"), kernel("increment"), kernel("count", "other")])
    a, b = np.arange(4), np.full(4, 10)
    call_kernel(code.address(0, "k"), [a, b], tiles=4)
    assert b.tolist() == [11] * 4
    call_kernel(code.address(1, "k"), [a, b], tiles=4)
    assert b.tolist() == [1, 2, 3, 4]
    call_kernel(code.address(2, "other"), [a, b], tiles=2)
    assert b.tolist() == [2, 3, 3, 4]


def test_a_symbol_that_the_process_lacks_is_an_error() -> None:
    with pytest.raises(BuildError, match=r"object 0 needs symbols .* not have: no_such_function"):
        LoadedCode([compile_ir(CALLS.format(external="no_such_function"))])


def test_a_symbol_that_the_object_lacks_is_an_error() -> None:
    code = LoadedCode([kernel("count")])
    with pytest.raises(BuildError, match="object 0 has no symbol 'system'; it defines k"):
        code.address(0, "system")


def test_every_truncation_is_found() -> None:
    good = kernel("count")
    for size in range(len(good)):
        with pytest.raises(BuildError, match="damaged object file"):
            read_symbols(good[:size])
    with pytest.raises(BuildError):
        LoadedCode([good[: len(good) // 2]])


def test_damaged_objects_never_raise_anything_else() -> None:
    good = kernel("count")
    for position in range(len(good)):
        for value in (0x00, 0xFF, good[position] ^ 0x10):
            damaged = bytearray(good)
            damaged[position] = value
            try:
                read_symbols(bytes(damaged))
            except BuildError:
                continue


def test_code_for_another_machine_is_refused() -> None:
    damaged = bytearray(kernel("count"))
    damaged[18:20] = (183).to_bytes(2, "little")  # e_machine: aarch64
    with pytest.raises(BuildError, match="object 0 is for aarch64, this process runs"):
        LoadedCode([bytes(damaged)])
