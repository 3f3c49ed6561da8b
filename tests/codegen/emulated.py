"""Runs kernels for AArch64 under qemu: a static program of the kernel, its data and three system calls."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from autotune.codegen.code import DispatchCode
from autotune.codegen.llvm import compile_ir
from autotune.target import Target
from tests.patience import PATIENCE_S

LINKER = shutil.which("aarch64-linux-gnu-ld") or shutil.which("ld.lld")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
MISSING = "needs qemu-user and a linker for AArch64 (binutils-aarch64-linux-gnu, or lld)"

# mov x8, #64 (write) or #93 (exit); svc #0; ret. There is no assembler at hand, so these are data in the text section.
_WRITE, _EXIT = "080880d2010000d4c0035fd6", "a80b80d2010000d4c0035fd6"


def run_emulated(code: DispatchCode, target: Target, inputs: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Outputs by name, after all kernels ran on one thread; ``inputs`` by name."""
    driver, kernels, program = folder / "driver.o", folder / "kernels.o", folder / "program"
    driver.write_bytes(compile_ir(_driver(code, inputs), target))
    kernels.write_bytes(code.object_code)
    assert LINKER is not None
    assert EMULATOR is not None
    flavour = ["-m", "aarch64linux"] if "lld" in LINKER else []
    subprocess.run([LINKER, *flavour, "-o", program, driver, kernels], check=True, timeout=PATIENCE_S)
    done = subprocess.run(
        [EMULATOR, "-cpu", "max", program], check=True, capture_output=True, timeout=PATIENCE_S
    )
    outputs, at = {}, 0
    for spec in code.buffers:
        if spec.role == "output":
            array = np.frombuffer(done.stdout, spec.dtype, int(np.prod(spec.shape)), at)
            outputs[spec.name] = array.reshape(spec.shape)
            at += spec.nbytes
    return outputs


def _driver(code: DispatchCode, inputs: dict[str, Any]) -> str:
    """LLVM IR of ``_start``: buffers as globals, a call of each kernel, outputs written to standard output."""
    lines = [
        f'@write = constant [12 x i8] c{_bytes(bytes.fromhex(_WRITE))}, section ".text.calls", align 4',
        f'@exit = constant [12 x i8] c{_bytes(bytes.fromhex(_EXIT))}, section ".text.calls", align 4',
    ]
    for n, spec in enumerate(code.buffers):
        data = f"c{_bytes(inputs[spec.name].tobytes())}" if spec.name in inputs else "zeroinitializer"
        lines.append(f"@b{n} = global [{spec.nbytes} x i8] {data}, align 64")
    scratch = max(1, *(k.scratch_bytes for k in code.kernels))
    lines.append(f"@scratch = global [{scratch} x i8] zeroinitializer, align 64")
    body = []
    for number, kernel in enumerate(code.kernels):
        table = ", ".join(f"ptr @b{b}" for b in kernel.buffers)
        lines.append(f"@t{number} = global [{len(kernel.buffers)} x ptr] [{table}]")
        lines.append(f"declare void @{kernel.symbol}(ptr, i64, i64, ptr)")
        body.append(f"  call void @{kernel.symbol}(ptr @t{number}, i64 0, i64 {kernel.tiles}, ptr @scratch)")
    for n, spec in enumerate(code.buffers):
        if spec.role == "output":
            body.append(f"  %w{n} = call i64 @write(i64 1, ptr @b{n}, i64 {spec.nbytes})")
    body += ["  %e = call i64 @exit(i64 0, ptr null, i64 0)", "  unreachable"]
    return "\n".join([*lines, "define void @_start() {", *body, "}"]) + "\n"


def _bytes(data: bytes) -> str:
    return '"' + "".join(f"\\{byte:02X}" for byte in data) + '"'
