"""Machine code of matrix products, read for each target, and run under qemu for AArch64."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.codegen import interpreter
from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import DispatchCode
from autotune.codegen.elf import read_symbols
from autotune.codegen.llvm import assembly
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.target import Target
from search_spaces.spaces import space_for
from tests.codegen.emulated import EMULATOR, LINKER, MISSING, run_emulated
from tests.schedule.machine import host, run_machine_code


def product(a: str, b: str, m: int = 24, n: int = 64, k: int = 32) -> Workload:
    """``a[m, k] b[k, n]`` with constant weights."""
    op, result = ("MatMul", a) if "float" in a else ("IntegerMatMul", "int32")
    return Workload.parse(
        f"region r {{\n input a: {a}[{m}, {k}]\n const b: {b}[{k}, {n}]\n"
        f" c = {op}(a, b) : {result}[{m}, {n}]\n output c\n}}"
    )


def compiled(workload: Workload, target: Target) -> DispatchCode:
    """Code of the space's default schedule."""
    program, space = workload.program(), space_for(workload, target)
    schedule = space.apply(program, space.default())
    return compile_schedule(schedule, list(program.args), target, name="k", constants=program.constants)


def innermost_loops(text: str) -> list[list[str]]:
    """Instructions of the loops that hold no other label, in AT&T or ARM syntax."""
    loops: list[list[str]] = []
    label, block = "", []
    for line in text.splitlines():
        found = re.match(r"(\.\w+):", line)
        if found:
            label, block = found[1], []
            continue
        code = line.split("#")[0].strip() if line.startswith("\t") else ""
        if not code or code.startswith((".", "//")):
            continue
        block.append(code)
        if re.match(r"(j|b\.|cbn?z|tbn?z)", code) and re.search(rf"{re.escape(label)}\b", code) and label:
            loops.append(block)
            label, block = "", []
    return loops


MULTIPLIES = {
    "x86-64-v3": ("float32", "float32", r"vfmadd\d+ps.*%ymm"),
    "x86-64-v4": ("float32", "float32", r"vfmadd\d+ps.*%zmm"),
    "aarch64": ("float32", "float32", r"fmla\s+v\d+\.4s"),
    "x86-64-v4-vnni": ("uint8", "int8", r"vpdpbusd.*%zmm"),
    "x86-64-v3-vnni": ("uint8", "int8", r"\{vex\}\s+vpdpbusd.*%ymm"),
    "x86-64-v4-bf16": ("bfloat16", "bfloat16", r"vdpbf16ps.*%zmm"),
    "aarch64-dotprod": ("int8", "int8", r"sdot\s+v\d+\.4s"),
}
TWO_BYTES = {
    "x86-64-v4": r"vpmaddwd.*%zmm",
    "x86-64-v3": r"vpmaddwd.*%ymm",
}
SCALAR = r"vfn?m(add|sub)\d+s[sd]|\b(mulss|mulsd|vmulss|vmulsd|fmadd|imull?)\b"


@pytest.mark.parametrize("name", MULTIPLIES)
def test_the_inner_loop_is_made_of_the_targets_vectors(name: str) -> None:
    left, right, multiply = MULTIPLIES[name]
    target = Target.parse(name)
    _check_loop(assembly(compiled(product(left, right), target).ir, target), multiply)


@pytest.mark.parametrize("name", TWO_BYTES)
def test_small_integers_are_multiplied_in_pairs_without_vnni(name: str) -> None:
    target = Target.parse(name)
    _check_loop(assembly(compiled(product("uint8", "int8"), target).ir, target), TWO_BYTES[name])


def _check_loop(text: str, multiply: str) -> None:
    loops = [loop for loop in innermost_loops(text) if any(re.match(multiply, line) for line in loop)]
    assert loops, f"no loop with {multiply}:\n{text}"
    for loop in loops:
        joined = "\n".join(loop)
        assert sum(bool(re.match(multiply, line)) for line in loop) >= 8, joined
        assert not re.search(rf"{SCALAR}|\bcallq?\b|\bbl\b|%rsp|\[sp", joined), joined


def test_an_object_for_another_machine_needs_nothing() -> None:
    code = compiled(product("float32", "float32"), Target.parse("aarch64"))
    symbols = read_symbols(code.object_code)
    assert symbols.arch == "aarch64"
    assert not symbols.undefined
    assert {kernel.symbol for kernel in code.kernels} <= symbols.defined


def arrays(workload: Workload) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    result = {}
    for tensor in workload.program().inputs:
        if "float" in tensor.dtype:
            result[tensor.name] = rng.standard_normal(tensor.shape).astype(tensor.dtype)
        else:
            limits = np.iinfo(tensor.dtype)
            result[tensor.name] = rng.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(
                tensor.dtype
            )
    return result


def expected(workload: Workload, given: dict[str, Any]) -> Any:
    return workload.reference([given[t.name] for t in workload.program().inputs])[0]


SIZES = [(24, 64, 32), (7, 37, 22), (1, 16, 3)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni"])
@pytest.mark.parametrize("signs", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")], ids=str)
def test_integer_products_are_exact(name: str, signs: tuple[str, str], size: tuple[int, int, int]) -> None:
    target = Target.parse(name)
    if target.arch != host().arch or not set(target.features) <= set(host().features):
        pytest.skip(f"this machine does not have {name}")
    workload = product(*signs, *size)
    program, space = workload.program(), space_for(workload, target)
    given = arrays(workload)
    schedule = space.apply(program, space.default())
    found = run_machine_code(schedule, list(program.args), given, target=target, constants=program.constants)
    np.testing.assert_array_equal(found[program.outputs[0].name], expected(workload, given))


@pytest.mark.skipif(EMULATOR is None or LINKER is None, reason=MISSING)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("aarch64", "float32", "float32"),
        ("aarch64", "int8", "int8"),
        ("aarch64-dotprod", "int8", "int8"),
        ("aarch64-dotprod", "uint8", "uint8"),
    ],
)
def test_aarch64_under_qemu(
    name: str, left: str, right: str, size: tuple[int, int, int], tmp_path: Path
) -> None:
    target, workload = Target.parse(name), product(left, right, *size)
    given = arrays(workload)
    found = run_emulated(compiled(workload, target), target, given, tmp_path)
    wanted = expected(workload, given)
    np.testing.assert_allclose(next(iter(found.values())), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["x86-64-v3-vnni", "x86-64-v4-bf16"])
def test_the_schedules_of_targets_that_are_not_here_compute_the_product(
    name: str, size: tuple[int, int, int]
) -> None:
    """Their machine code is only read; its loops, with each instruction as what it is declared to compute, run."""
    kinds = ("uint8", "int8") if name.endswith("vnni") else ("bfloat16", "bfloat16")
    target, workload = Target.parse(name), product(*kinds, *size)
    assert compiled(workload, target).object_code
    program, given = workload.program(), arrays(workload)
    schedule = space_for(workload, target).apply(program, space_for(workload, target).default())
    loops = lower_schedule(schedule, list(program.args), constants=program.constants)
    (output,) = program.outputs
    found = np.zeros(output.shape, expected(workload, given).dtype)
    interpreter.run_program(loops, {**given, output.name: found})
    np.testing.assert_allclose(
        found.astype(np.float64), expected(workload, given).astype(np.float64), rtol=1e-2
    )
