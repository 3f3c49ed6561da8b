"""Runs the LLVM IR that a GPU's code is made from on this machine: blocks in turn, a system thread for each of theirs.

What the text has of a GPU is few: the thread's place in special registers, barriers, shared memory, and products of
tensor cores, which lanes of a warp compute from each other's registers. All of these are functions of Python here.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autotune.codegen.code import DispatchCode, Kernel
from autotune.lower.ir import LoopProgram
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
        ]
        for name, callback in zip(("emulated_place", "emulated_barrier"), self._callbacks, strict=True):
            llvm.add_symbol(name, ctypes.cast(callback, ctypes.c_void_p).value)
        self._object = compile_ir(on_cpu(code.ir), host())
        self._waits = "emulated_barrier" in on_cpu(code.ir)
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
            self._kernel(kernel, addresses)

    def _kernel(self, kernel: Kernel, addresses: list[int]) -> None:
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
        def one(thread: tuple[int, ...]) -> None:
            self._place.numbers = (*block, *thread)
            call()

        if not self._waits or len(threads) == 1:
            self._barrier = None
            for thread in threads:
                one(thread)
            return
        self._barrier = threading.Barrier(len(threads))
        before = threading.stack_size(_STACK_BYTES)
        running = [threading.Thread(target=one, args=(thread,)) for thread in threads]
        threading.stack_size(before)
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def _wait(self) -> None:
        if self._barrier is not None:
            self._barrier.wait(timeout=60)


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
        r'define ptx_kernel void (@\w+)\((.*)\) #0 "nvvm.reqntid"="[\d,]*"', r"define void \1(\2) #0", ir
    )
    for register, axis in _AXES.items():
        symbol = f"@llvm.nvvm.read.ptx.sreg.{register}"
        ir = ir.replace(f"declare i32 {symbol}()\n", "")
        ir = ir.replace(f"{symbol}()", f"@emulated_place(i32 {axis})")
    ir = ir.replace("@llvm.nvvm.barrier0", "@emulated_barrier")
    ir = ir.replace(" addrspace(3)", "").replace("addrspacecast", "bitcast")
    return ir + "declare i32 @emulated_place(i32)\n"


__all__ = ["Emulator", "on_cpu", "run_program"]
