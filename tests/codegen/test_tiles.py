"""Products of tile registers: schedules and machine code, run where the processor has them, emulated elsewhere."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import process_symbols
from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import DispatchCode
from autotune.codegen.elf import read_object, read_symbols
from autotune.codegen.interpreter import run_program
from autotune.codegen.interpreter.tiles import product
from autotune.codegen.jit import LoadedCode, symbol_address
from autotune.codegen.link import LinkedCode
from autotune.codegen.llvm import assembly, compile_ir
from autotune.codegen.process_symbols import TILE_CONFIGURATION
from autotune.errors import BuildError, LoweringError, ScheduleError
from autotune.hardware import architecture
from autotune.lower import lower_schedule
from autotune.schedule import Schedule, Trace
from autotune.target import Target
from autotune.te.dot_products import TILE_PRODUCTS, DotProduct
from tests.codegen.test_tile_arithmetic import operand
from tests.schedule.machine import host, run_machine_code

pytestmark = pytest.mark.registers

AMX = Target.parse("x86-64-v4-amx", threads=1)
AMX_HALF = replace(AMX, features=tuple(sorted((*AMX.features, "amx-fp16"))))

Made = tuple[Schedule, list[te.Tensor]]


def scheduled(
    name: str, m: int = 64, n: int = 64, k: int = 128, *, rows: int = 32, depth: int = 0, packed: bool = True
) -> Made:
    """``C[m, n] = A[m, k] B[k, n]`` by products of tiles, of ``depth`` at a time (all where it is 0)."""
    dot = TILE_PRODUCTS[name]
    a, b = te.placeholder((m, k), dot.left, name="A"), te.placeholder((k, n), dot.right, name="B")
    r = te.reduce_axis((0, k), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.cast(a[i, r], dot.total) * te.cast(b[r, j], dot.total), axis=r)

    c = te.compute((m, n), element, name="C")
    s = te.create_schedule(c)
    if packed:
        copy = s.cache_read(b, "global", [c])
        group = dot.group
        s.transform_layout(copy, lambda k, j: [j // rows, k // group, j % rows, k % group])
    (i, j), (r,) = s[c].op.axis, s[c].op.reduce_axis
    (io, ii), (jo, ji) = s[c].split(i, rows), s[c].split(j, rows)
    parts, inner = s[c].split(r, depth) if depth else ((), r)
    groups, place = s[c].split(inner, dot.group)
    s[c].reorder(io, jo, *([parts] if depth else []), ii, ji, groups, place)
    s[c].tensorize(ii, te.intrinsic_named(f"{name}_{rows}x{rows}x{depth or k}"))
    return s, [a, b, c]


def values(made: Made, seed: int = 0) -> dict[str, Any]:
    """Arrays of the inputs."""
    rng = np.random.default_rng(seed)
    return {t.name: operand(rng, t.shape, t.dtype) for t in made[1][:2]}


def interpreted(made: Made, arrays: dict[str, Any]) -> Any:
    s, args = made
    out = {**arrays, "C": np.zeros(args[2].shape, args[2].dtype)}
    run_program(lower_schedule(s, args), out)
    return out["C"]


def target_of(name: str) -> Target:
    return AMX_HALF if name == "tdpfp16ps" else AMX


def code_of(made: Made, target: Target) -> DispatchCode:
    return compile_schedule(*made, target, name="tiles")


# -- schedules and machine code ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TILE_PRODUCTS)
def test_a_schedule_computes_the_product(name: str) -> None:
    made = scheduled(name)
    arrays = values(made)
    again = Trace.from_json(made[0].trace.to_json()).apply(te.create_schedule(made[1][2]))
    found = interpreted((again, made[1]), arrays)
    wide = "int64" if TILE_PRODUCTS[name].exact else "float64"
    exact = arrays["A"].astype(wide) @ arrays["B"].astype(wide)
    size = np.abs(arrays["A"].astype(wide)) @ np.abs(arrays["B"].astype(wide))
    assert (np.abs(found - exact) <= (0 if wide == "int64" else 2.0**-19 * size + 2.0**-118)).all()


class Emulated:
    """Tile registers of this process's memory, and functions that stand for the instructions on them."""

    def __init__(self, dots: dict[str, DotProduct]) -> None:
        self.tiles = np.full((8, 16, 64), 0xA5, np.uint8)
        self.configured = False
        self.sizes = [(0, 0)] * 8
        self.log: list[str] = []
        kinds = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
        self.functions: dict[str, Any] = {
            "tilezero": self._function(self._zero, *kinds[:1]),
            **dict.fromkeys(("tileloadd64", "tileloaddt164"), self._function(self._load, *kinds)),
            "tilestored64": self._function(self._store, *kinds),
            "ldtilecfg": self._function(self._configure, kinds[1]),
            "tilerelease": self._function(self._release),
        }
        for name, dot in dots.items():
            self.functions[name] = self._function(self._product(dot), *kinds[:1] * 3)

    def _function(self, method: Callable[..., None], *kinds: Any) -> Any:
        return ctypes.CFUNCTYPE(None, *kinds)(method)

    def _configure(self, address: int) -> None:
        data = (ctypes.c_uint8 * 64).from_address(address)
        rows, widths = list(data[48:56]), list(data[16:32:2])
        self.configured = data[0] == 1 and not any(data[1:16]) and not any(data[56:])
        self.sizes = list(
            zip(
                rows, [low + 256 * high for low, high in zip(widths, data[17:32:2], strict=True)], strict=True
            )
        )
        self.log.append("configure")

    def _release(self) -> None:
        self.configured = False
        self.log.append("release")

    def _zero(self, tile: int) -> None:
        self.tiles[tile] = 0 if self.configured else 0xA5

    def _load(self, tile: int, address: int, step: int) -> None:
        rows, width = self.sizes[tile]
        self.tiles[tile] = 0
        for row in range(rows):
            ctypes.memmove(self.tiles[tile, row].ctypes.data, address + row * step, width)

    def _store(self, tile: int, address: int, step: int) -> None:
        rows, width = self.sizes[tile]
        for row in range(rows):
            ctypes.memmove(address + row * step, self.tiles[tile, row].ctypes.data, width)

    def _product(self, dot: DotProduct) -> Callable[..., None]:
        def multiply(sums: int, left: int, right: int) -> None:
            self.log.append(dot.name)
            a = self.tiles[left].view(dot.left).reshape(16, 16, dot.group)
            b = self.tiles[right].view(dot.right).reshape(16, 16, dot.group)
            old = self.tiles[sums].view(dot.total)
            self.tiles[sums] = product(dot, old, a, b, dot.depth).view(np.uint8)

        return multiply

    def run(self, code: DispatchCode, arrays: dict[str, Any]) -> Any:
        """Run code whose tile instructions are calls of these functions on this machine."""
        text = re.sub(r"@llvm\.x86\.(\w+)", lambda found: f"@emulated_{found[1]}", code.ir)
        linked = LinkedCode([read_object(compile_ir(text, host()))], self._address)
        memory = [np.zeros(spec.shape, spec.dtype) for spec in code.buffers]
        for spec, array in zip(code.buffers, memory, strict=True):
            if spec.role == "input":
                array[...] = arrays[spec.name]
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        for kernel in code.kernels:
            table = np.array([memory[b].ctypes.data for b in kernel.buffers], np.int64)
            scratch = np.zeros(kernel.scratch_bytes + 64, np.uint8)
            kind(linked.address(0, kernel.symbol))(table.ctypes.data, 0, kernel.tiles, scratch.ctypes.data)
        (result,) = [m for spec, m in zip(code.buffers, memory, strict=True) if spec.role == "output"]
        return result

    def _address(self, name: str) -> int:
        if name == TILE_CONFIGURATION:
            return ctypes.addressof(process_symbols._tile_configuration)
        function = self.functions.get(name.removeprefix("emulated_"))
        if function is None:
            return symbol_address(name)
        return ctypes.cast(function, ctypes.c_void_p).value or 0


SHAPES = {
    "one block": {"m": 32, "n": 32, "k": 128},
    "blocks": {"m": 64, "n": 96, "k": 256},
    "one tile": {"m": 32, "n": 48, "k": 128, "rows": 16},
    "parts of the depth": {"m": 64, "n": 32, "k": 256, "depth": 128},
    "one step": {"m": 32, "n": 32, "k": 64, "depth": 64},
    "smaller tiles": {"m": 56, "n": 56, "k": 96, "rows": 28},
    "one small tile": {"m": 14, "n": 14, "k": 24, "rows": 14},
    "more than the first cache": {"m": 32, "n": 64, "k": 1024},
}


@pytest.mark.skipif(architecture() != "x86_64", reason="objects are linked for x86-64")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", TILE_PRODUCTS)
def test_machine_code_moves_the_right_tiles(name: str, shape: str) -> None:
    made = scheduled(name, **SHAPES[shape])  # type: ignore[arg-type]
    arrays, registers = values(made), Emulated(TILE_PRODUCTS)
    found = registers.run(code_of(made, target_of(name)), arrays)
    assert found.tobytes() == interpreted(made, arrays).tobytes()
    assert registers.log[0] == "configure"
    assert registers.log[-1] == "release"
    assert set(registers.log[1:-1]) == {name}


@pytest.mark.skipif(architecture() != "x86_64", reason="objects are linked for x86-64")
def test_a_function_that_is_called_may_use_tiles_itself() -> None:
    registers = Emulated(TILE_PRODUCTS)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    def copy(to: int, source: int, nbytes: int) -> None:
        ctypes.memmove(to, source, nbytes)
        registers.configured = False

    def copied() -> te.TensorIntrin:
        x = te.placeholder((32, 64), "bfloat16", name="x")
        y = te.compute(x.shape, lambda i, k: x[i, k], name="y")
        call = lambda ins, outs: te.call_extern("void", copy, outs[0], ins[0], 32 * 64 * 2)  # noqa: E731
        return te.decl_tensor_intrin(y, call, name="copied_32x64")

    a = te.placeholder((32, 64), "bfloat16", name="A")
    b = te.placeholder((32, 64, 2), "bfloat16", name="B")
    left = te.compute(a.shape, lambda i, k: a[i, k], name="L")
    g, p = te.reduce_axis((0, 32), name="g"), te.reduce_axis((0, 2), name="p")

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.cast(left[i, g * 2 + p], "float32") * te.cast(b[g, j, p], "float32"), axis=[g, p])

    c = te.compute((32, 64), element, name="C")
    s = te.create_schedule(c)
    i, j = s[c].op.axis
    jo, ji = s[c].split(j, 32)
    s[c].reorder(jo, i, ji, g, p)
    s[left].compute_at(s[c], jo)
    s[left].tensorize(s[left].op.axis[0], copied())
    s[c].tensorize(i, te.intrinsic_named("tdpbf16ps_32x32x64"))
    made = s, [a, b, c]
    arrays = values(made)
    found = registers.run(code_of(made, AMX), arrays)
    assert found.tobytes() == interpreted(made, arrays).tobytes()
    block = ["configure", *["tdpbf16ps"] * 8]
    assert registers.log == ["configure", *block, *block, "release"]


@pytest.mark.skipif(
    not any(name.startswith("amx-") for name in host().features),
    reason="this processor has no tile registers, or the system refuses them",
)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", TILE_PRODUCTS)
def test_the_processor_and_the_interpreter_agree(name: str, shape: str) -> None:
    missing = set(TILE_PRODUCTS[name].requires) - set(host().features)
    if missing:
        pytest.skip(f"this processor has no {', '.join(sorted(missing))}")
    made = scheduled(name, **SHAPES[shape])  # type: ignore[arg-type]
    for seed in range(3):
        arrays = values(made, seed)
        found = run_machine_code(*made, arrays)["C"]
        assert found.tobytes() == interpreted(made, arrays).tobytes()


@pytest.mark.parametrize("name", TILE_PRODUCTS)
def test_the_instructions_of_a_block_of_four_tiles(name: str) -> None:
    target = target_of(name)
    code = code_of(scheduled(name, 32, 32, 192), target)
    text = assembly(code.ir, target)
    used = re.findall(r"^\t(tile\w+|ldtilecfg|tdp\w+)\b", text, re.MULTILINE)
    assert {each: used.count(each) for each in used} == {
        "ldtilecfg": 1,
        "tilezero": 4,
        "tileloadd": 4,
        name: 4,
        "tilestored": 4,
        "tilerelease": 1,
    }
    assert read_symbols(code.object_code).undefined == {TILE_CONFIGURATION}


@pytest.mark.parametrize(("depth", "streamed"), [(256, 0), (512, 2)])
def test_the_right_factor_passes_a_first_cache_that_does_not_hold_a_block(depth: int, streamed: int) -> None:
    code = code_of(scheduled("tdpbssd", 32, 32, depth), replace(AMX, l1_bytes=32 << 10))
    assert code.ir.count("call void @llvm.x86.tileloaddt164") == streamed
    assert code.ir.count("call void @llvm.x86.tileloadd64") == 4 - streamed


def test_other_kernels_configure_nothing() -> None:
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: a[i] * 2.0, name="C")
    assert "tile" not in compile_schedule(te.create_schedule(c), [a, c], AMX).ir


# -- refusals ------------------------------------------------------------------------------------------------


def test_code_for_tiles_is_not_mapped_where_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(scheduled("tdpbf16ps", 32, 32, 64), AMX).object_code
    monkeypatch.setattr(process_symbols, "tiles_permitted", lambda: False)
    process_symbols.process_address.cache_clear()
    with pytest.raises(BuildError, match=f"symbols that this process does not have: {TILE_CONFIGURATION}"):
        LoadedCode([code])
    process_symbols.process_address.cache_clear()


def test_a_target_without_tiles_is_refused() -> None:
    with pytest.raises(
        BuildError, match="tdpbssd_32x32x64 needs amx-tile, amx-int8, which target cooperlake"
    ):
        code_of(scheduled("tdpbssd", 32, 32, 64), Target.parse("x86-64-v4-bf16"))


def test_the_right_factor_must_be_packed() -> None:
    with pytest.raises(
        LoweringError, match=r"takes b with a distance of 2 elements along dimension 1, in B it is 1"
    ):
        code_of(scheduled("tdpbf16ps", 32, 32, 64, packed=False), AMX)


def test_rows_of_the_left_factor_must_be_dense() -> None:
    s, args = scheduled("tdpbf16ps", 32, 32, 64)
    with pytest.raises(LoweringError) as error:
        compile_schedule(s, args, AMX, strides={"A": (1, 32)})
    assert str(error.value) == (
        "tensorize of stage C: tdpbf16ps_32x32x64 takes a with a distance of 2 elements along loop group, in A it is "
        "64 elements; change the layout (cache_read and transform_layout), or declare the operand with another stride "
        "(te.decl_buffer)"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tdpbf16ps_16x16",
            "no product of tiles 'tdpbf16ps_16x16'; it would be written like 'tdpbf16ps_32x32x64'",
        ),
        ("tdpxx_16x16x32", "with one of tdpbf16ps, tdpfp16ps, tdpbssd, tdpbsud, tdpbusd, tdpbuud"),
        ("tdpbf16ps_17x16x32", "rows and columns of a product of tiles are up to 16 each, or twice as many"),
        (
            "tdpbf16ps_2.17x16x32",
            "rows and columns of a product of tiles are up to 16 each, or twice as many",
        ),
        ("tdpbf16ps_16x48x32", "rows and columns of a product of tiles are up to 16 each, or twice as many"),
        ("tdpbssd_16x16x30", "its depth is a multiple of 4"),
        ("tdpbf16ps_16x16x0", "its depth is a multiple of 2"),
    ],
)
def test_products_that_there_are_not(name: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        te.intrinsic_named(name)
