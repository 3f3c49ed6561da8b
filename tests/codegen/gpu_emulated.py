"""Runs the LLVM IR that a GPU's code is made from on this machine: blocks in turn, a system thread for each of theirs.

What the text has of a GPU is few: the thread's place in special registers, barriers, shared memory, copies that are
done when they are waited for, and products of tensor cores, which lanes of a warp compute from each other's registers.
All of these are functions of Python here. A copy is made as late as its thread's waits allow.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autotune.codegen.code import DispatchCode, Kernel
from autotune.lower.ir import LoopProgram
from tests.patience import PATIENCE_S
from tests.schedule.machine import host

_AXES = {
    f"{axis}.{letter}": n for n, (axis, letter) in enumerate((a, x) for a in ("ctaid", "tid") for x in "xyz")
}
_STACK_BYTES = 1 << 20


class Emulator:
    """Code of a dispatch, loaded; ``run`` takes arrays by name of the buffer."""

    def __init__(self, code: DispatchCode) -> None:
        import llvmlite.binding as llvm

        from autotune.codegen.llvm.objects import compile_ir

        self.code = code
        self._place = threading.local()
        self._barrier: threading.Barrier | None = None
        self._callbacks = [
            ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(lambda axis: self._place.numbers[axis]),
            ctypes.CFUNCTYPE(None)(self._wait),
            ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(self._by_warp),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(self._copy),
            ctypes.CFUNCTYPE(None)(lambda: self._place.copies.append([])),
            ctypes.CFUNCTYPE(None, ctypes.c_int32)(self._arrive),
        ]
        self._warps: dict[int, Warp] = {}
        names = ("place", "barrier", "warp", "copy", "commit", "arrive")
        for name, callback in zip(names, self._callbacks, strict=True):
            llvm.add_symbol(f"emulated_{name}", ctypes.cast(callback, ctypes.c_void_p).value)
        self._object = compile_ir(on_cpu(code.ir), host())
        self._waits = "emulated_barrier" in on_cpu(code.ir) or "emulated_warp" in on_cpu(code.ir)
        self._engine = llvm.create_mcjit_compiler(
            llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine(jit=True)
        )
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(self._object))
        self._engine.finalize_object()

    def run(self, arrays: Mapping[str, Any]) -> None:
        """Run all kernels on arrays in the memory order of their buffers; workspaces start as NaNs."""
        memory = []
        for spec in self.code.buffers:
            given = arrays.get(spec.name)
            memory.append(given if given is not None else np.full(spec.nbytes, 0xFF, np.uint8))
        for kernel in self.code.kernels:
            addresses = [memory[b].ctypes.data for b in kernel.buffers]
            self.launch(kernel, addresses)

    def launch(self, kernel: Kernel, addresses: list[int]) -> None:
        assert kernel.launch is not None
        address = self._engine.get_function_address(kernel.symbol)
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(addresses))(address)
        grid, block = kernel.launch.grid, kernel.launch.block
        threads = [(x, y, z) for z in range(block[2]) for y in range(block[1]) for x in range(block[0])]
        for bz in range(grid[2]):
            for by in range(grid[1]):
                for bx in range(grid[0]):
                    self._block((bx, by, bz), threads, lambda: call(*addresses))

    def _block(self, block: tuple[int, ...], threads: list[tuple[int, ...]], call: Callable[[], Any]) -> None:
        def one(number: int, thread: tuple[int, ...]) -> None:
            self._place.numbers = (*block, *thread)
            self._place.copies = [[]]
            self._place.lane = number % 32
            self._place.warp = self._warps.get(number // 32)
            call()

        if not self._waits or len(threads) == 1:
            self._barrier = None
            for number, thread in enumerate(threads):
                one(number, thread)
            return
        self._barrier = threading.Barrier(len(threads))
        self._warps = {number: Warp() for number in range(-(-len(threads) // 32))}
        before = threading.stack_size(_STACK_BYTES)
        running = [threading.Thread(target=one, args=pair) for pair in enumerate(threads)]
        threading.stack_size(before)
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def _wait(self) -> None:
        if self._barrier is not None:
            self._barrier.wait(timeout=PATIENCE_S)

    def _copy(self, target: int, source: int, size: int) -> None:
        """Start a copy; it is part of the group that is open."""
        self._place.copies[-1].append((target, source, size))

    def _arrive(self, in_flight: int) -> None:
        """Do the copies of all closed groups but the last ones."""
        groups = self._place.copies
        while len(groups) - 1 > in_flight:
            for target, source, size in groups.pop(0):
                ctypes.memmove(target, source, size)

    def _by_warp(self, kind: int, given: int, result: int) -> None:
        """Run an instruction of a whole warp; ``given`` and ``result`` are addresses of this lane's registers."""
        warp, lane = self._place.warp, self._place.lane
        instruction = _INSTRUCTIONS[kind]
        words = np.ctypeslib.as_array((ctypes.c_uint32 * instruction.given).from_address(given))
        warp.given[lane] = words.copy()
        if warp.barrier.wait(timeout=PATIENCE_S) == 0:
            warp.made = instruction.run(np.stack(warp.given))
        warp.barrier.wait(timeout=PATIENCE_S)
        made = warp.made[lane]
        ctypes.memmove(result, made.ctypes.data, made.nbytes)


class Warp:
    """The exchange of the 32 lanes of a warp."""

    def __init__(self) -> None:
        self.given: list[Any] = [None] * 32
        self.made: Any = None
        self.barrier = threading.Barrier(32)


class Instruction(NamedTuple):
    """One of a warp: its name, types of its arguments, words of these, words that a lane gets, and how.

    ``run`` gives ``result[lane, word]`` for ``words[lane, word]``.
    """

    name: str
    arguments: tuple[str, ...]
    given: int
    results: int
    result: str
    run: Callable[[Any], Any]


def _product(dtype: str, depth: int) -> Callable[[Any], Any]:
    def run(words: Any) -> Any:
        a, b = np.zeros((16, depth)), np.zeros((depth, 8))
        c = np.zeros((16, 8), np.float32)
        each = 2 if depth == 16 else 1
        for other in range(32):
            group, own = other // 4, other % 4
            factors = words[other, :6].copy()
            parts = factors.view(dtype) if each == 2 else factors.view(np.float32)
            for word in range(4):
                for n in range(each):
                    k = own * each + n + (word // 2) * (depth // 2)
                    a[group + 8 * (word % 2), k] = parts[word * each + n]
            for word in range(2):
                for n in range(each):
                    b[own * each + n + word * (depth // 2), group] = parts[(4 + word) * each + n]
            sums = words[other, 6:].copy().view(np.float32)
            for n in range(4):
                c[group + 8 * (n // 2), 2 * own + n % 2] = sums[n]
        found = c + (a @ b).astype(np.float32)
        places = [(lane // 4, 2 * (lane % 4)) for lane in range(32)]
        return np.array([[*found[g, t : t + 2], *found[g + 8, t : t + 2]] for g, t in places], np.float32)

    return run


def _matrices(count: int, transposed: bool) -> Callable[[Any], Any]:
    def run(words: Any) -> Any:
        addresses = words.view(np.uint64)[:, 0]
        found = np.zeros((32, 2 * count), np.uint16)
        for matrix in range(count):
            rows = [(ctypes.c_uint16 * 8).from_address(int(addresses[8 * matrix + row])) for row in range(8)]
            square = np.array(rows)
            square = square.T if transposed else square
            found[:, 2 * matrix : 2 * matrix + 2] = square.reshape(32, 2)
        return found

    return run


_PAIR, _WORDS, _SUMS = "<2 x half>", "i32", ("float",) * 4
_LDMATRIX = "llvm.nvvm.ldmatrix.sync.aligned.m8n8"
_INSTRUCTIONS = [
    Instruction(
        "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
        (_PAIR,) * 6 + _SUMS,
        10,
        4,
        "float",
        _product("float16", 16),
    ),
    Instruction(
        "llvm.nvvm.mma.m16n8k16.row.col.bf16", (_WORDS,) * 6 + _SUMS, 10, 4, "float", _product("bfloat16", 16)
    ),
    Instruction(
        "llvm.nvvm.mma.m16n8k8.row.col.tf32", (_WORDS,) * 6 + _SUMS, 10, 4, "float", _product("float32", 8)
    ),
    *(
        Instruction(
            f"{_LDMATRIX}.x{count}{'.trans' if transposed else ''}.b16.p3",
            ("ptr",),
            2,
            count,
            "i32",
            _matrices(count, transposed),
        )
        for count in (2, 4)
        for transposed in (False, True)
    ),
]


def _definition(number: int, one: Instruction) -> str:
    """LLVM IR of an instruction: its arguments in memory, and a call of what the warp does."""
    arguments = ", ".join(f"{kind} %a{n}" for n, kind in enumerate(one.arguments))
    kind = "{ " + ", ".join([one.result] * one.results) + " }"
    lines = [
        f"  %given = alloca [{one.given} x i32], align 8",
        f"  %made = alloca [{one.results} x i32], align 8",
    ]
    for n, argument in enumerate(one.arguments):
        lines.append(f"  %p{n} = getelementptr i32, ptr %given, i64 {n}")
        lines.append(f"  store {argument} %a{n}, ptr %p{n}, align 4")
    lines.append(f"  call void @emulated_warp(i32 {number}, ptr %given, ptr %made)")
    value = "poison"
    for n in range(one.results):
        lines += [
            f"  %q{n} = getelementptr i32, ptr %made, i64 {n}",
            f"  %r{n} = load {one.result}, ptr %q{n}, align 4",
            f"  %s{n} = insertvalue {kind} {value}, {one.result} %r{n}, {n}",
        ]
        value = f"%s{n}"
    body = "\n".join(lines)
    return f"define internal {kind} @emulated_{number}({arguments}) noinline {{\n{body}\n  ret {kind} {value}\n}}"


_TF32 = """
define internal i32 @emulated_tf32(float %x) {
  %word = bitcast float %x to i32
  %more = add i32 %word, 4096
  %rounded = and i32 %more, -8192
  ret i32 %rounded
}"""


def run_program(program: LoopProgram, code: DispatchCode, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs by name of a program's code on inputs by name, with the strides that the program gives arguments."""
    memory = {b.name: np.zeros(b.elements, b.dtype) for b in program.arguments}
    views = {
        b.name: as_strided(memory[b.name], b.shape, [s * memory[b.name].itemsize for s in b.strides])
        for b in program.arguments
    }
    for name, array in inputs.items():
        views[name][...] = array
    Emulator(code).run(memory)
    return {b.name: views[b.name] for b in program.outputs}


def on_cpu(ir: str) -> str:
    """The text for a CPU."""
    ir = re.sub(
        r'define ptx_kernel void (@\w+)\((.*)\) #0 "nvvm.reqntid"="[\d,]*" "nvvm.minctasm"="1"',
        r"define void \1(\2) #0",
        ir,
    )
    for register, axis in _AXES.items():
        symbol = f"@llvm.nvvm.read.ptx.sreg.{register}"
        ir = ir.replace(f"declare i32 {symbol}()\n", "")
        ir = ir.replace(f"{symbol}()", f"@emulated_place(i32 {axis})")
    ir = ir.replace("@llvm.nvvm.barrier0", "@emulated_barrier")
    ir = re.sub(r" addrspace\([13]\)", "", ir).replace("addrspacecast", "bitcast")
    ir = re.sub(r"declare [^\n]*@llvm\.nvvm\.cp\.async[^\n]*\n", "", ir)
    ir = re.sub(
        r"@llvm\.nvvm\.cp\.async\.c[ag]\.shared\.global\.(\d+)\((.*)\)", r"@emulated_copy(\2, i32 \1)", ir
    )
    ir = ir.replace("@llvm.nvvm.cp.async.commit.group", "@emulated_commit")
    ir = ir.replace("@llvm.nvvm.cp.async.wait.group", "@emulated_arrive")
    ir = re.sub(r"declare [^\n]*@llvm\.nvvm\.(mma|ldmatrix|f2tf32)[^\n]*\n", "", ir)
    ir = ir.replace("@llvm.nvvm.f2tf32.rna", "@emulated_tf32")
    added = ["declare i32 @emulated_place(i32)"]
    if "@emulated_copy(" in ir:
        added += [
            "declare void @emulated_copy(ptr, ptr, i32)",
            "declare void @emulated_commit()",
            "declare void @emulated_arrive(i32)",
        ]
    if "emulated_tf32" in ir:
        added.append(_TF32)
    for number, one in enumerate(_INSTRUCTIONS):
        if f"@{one.name}(" in ir:
            ir = ir.replace(f"@{one.name}(", f"@emulated_{number}(")
            added += [_definition(number, one)]
    if "@emulated_warp" in "".join(added):
        added.append("declare void @emulated_warp(i32, ptr, ptr)")
    return "\n".join([ir, *added, ""])


__all__ = ["Emulator", "on_cpu", "run_program"]
